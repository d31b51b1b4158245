"""Linear layers that apply the activation after them compute what both computed one after the other."""

import pytest
import torch
from torch import nn

from gcab.fast.fused_activations import fused_activations


@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU()])
def test_a_fused_activation_is_that_of_the_sequence(activation: nn.Module) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 12), activation, nn.Linear(12, 3)).double()
    x, calls = torch.randn(2, 5, 6, dtype=torch.double), []
    expected = module(x)
    activation.register_forward_pre_hook(lambda _, values: calls.append(values[0]))
    with fused_activations(module):
        assert torch.allclose(module(x), expected, rtol=1e-12)
    assert not calls, "inside, the layer before it applied the activation"
    assert torch.equal(module(x), expected), "outside, all is as it was"
    assert len(calls) == 1


def test_other_layers_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.GELU(), nn.Linear(4, 4))
    x = torch.randn(3, 4)
    expected = module(x)
    with fused_activations(module):
        assert torch.equal(module(x), expected)


def test_equal_blocks_are_compiled_once() -> None:
    """A compiler that tells the layers of blocks apart gives up after a few and leaves the rest as they are."""
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(12))
    graphs = []

    def run(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return block(x)

    def keep(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with torch.no_grad(), fused_activations(blocks):
        for block in blocks:
            torch.compile(run, backend=keep, dynamic=False)(block, torch.ones(2, 4))
    assert len(graphs) == 1
