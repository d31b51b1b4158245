"""What all passes cost at the paper's size: multiply-accumulates per image, counted on meta tensors."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gcab.fast.folded import FoldedDecoder
from gcab.model.encoder import Encoder, EncoderConfig
from gcab.model.network import GatedNetwork
from gcab.model.options import NetworkOptions

D, N, HEADS = 384, 64, 12


def network_of(tasks: int) -> GatedNetwork:
    with torch.device("meta"):
        network = GatedNetwork(Encoder(EncoderConfig(width=D, heads=HEADS, patch=4), 32), NetworkOptions())
        for _ in range(tasks):
            network.grow(10, projector=True)
    return network.eval()


def macs(function: Callable[[], object]) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tasks", [1, 10])
def test_the_decoder_does_the_work_the_rewrite_promises(tasks: int, shared: bool) -> None:
    network = network_of(tasks)
    features = torch.empty(1, N, D, device="meta")
    spaces = [features] * tasks if shared else [torch.empty_like(features) for _ in range(tasks)]
    attention = 2 * HEADS * N * D + 2 * D * D  # logits and mixtures; W_v and W_o of one token
    classifier_and_mlp = 10 * D + 2 * D * 4 * D
    assert macs(lambda: FoldedDecoder(network)(spaces)) - macs(lambda: FoldedDecoder(network)) == tasks * (
        attention + classifier_and_mlp
    )


@pytest.mark.repeats
def test_ten_tasks_cost_little_more_than_the_encoder() -> None:
    network, images = network_of(10), torch.empty(1, 3, 32, 32, device="meta")
    decoder = FoldedDecoder(network)

    def predict() -> Tensor:
        return decoder(network.spaces(network.encoder(images), compensate=True))

    encoder = macs(lambda: network.encoder(images))
    cascade = macs(lambda: network.spaces(torch.empty(1, N, D, device="meta"), compensate=True))
    assert cascade == 9 * 2 * N * D * D
    assert macs(predict) - encoder - cascade < 0.04 * encoder  # all passes of the decoder
    assert macs(predict) < 1.35 * encoder
