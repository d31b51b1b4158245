"""Classifiers: how they start, one column per class in order of arrival."""

import pytest
import torch
from helpers.networks import grown
from helpers.tasks import ENCODER, IMAGE_SIZE, gcab_options
from torch import nn

from gcab.model.encoder import Encoder
from gcab.model.heads import GrowingHead, Head
from gcab.model.network import PlainNetwork


def linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("profile", ["paper", "extended"])
def test_heads_start_with_small_weights_and_no_bias(profile: str) -> None:
    torch.manual_seed(1)
    plain = PlainNetwork(Encoder(ENCODER, IMAGE_SIZE))
    plain.grow(50)
    plain.grow(50)
    gated = grown(gcab_options(profile), 2).network
    torch.manual_seed(1)
    gated.grow(50, projector=False)
    heads = [*plain.head.parts, gated.heads[-1]]
    assert len(heads) == 3
    for head in heads:
        [layer] = linear_layers(head)
        assert 0.018 < layer.weight.std().item() < 0.022
        assert not bool(layer.bias.any())


def test_the_authors_heads_start_as_linear_layers_do() -> None:
    """Uniform within ±1/sqrt(D), the bias too; the LayerNorm before it as it always starts."""
    network = grown(gcab_options("official"), 2).network
    torch.manual_seed(1)
    network.grow(50, projector=False)
    torch.manual_seed(1)
    expected = nn.Linear(network.width, 50)
    head = network.heads[-1]
    assert isinstance(head, Head)
    assert torch.equal(head.linear.weight, expected.weight)
    assert torch.equal(head.linear.bias, expected.bias)
    assert head.linear.weight.std().item() == pytest.approx((3 * network.width) ** -0.5, rel=0.1)
    assert head.linear.bias.abs().max().item() > 0.1
    assert isinstance(head.norm, nn.LayerNorm)
    assert bool((head.norm.weight == 1).all())


def test_logits_stand_side_by_side_in_order_of_arrival() -> None:
    head = GrowingHead(4)
    for classes in (2, 3):
        head.grow(classes)
    feature = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    first, second = head.parts
    assert isinstance(first, Head)
    logits = head(feature)
    assert logits.shape == (5, 5)
    assert torch.equal(logits[:, :2], first(feature))
    assert torch.equal(logits[:, 2:], second(feature))
    assert torch.equal(first(feature), first.linear(first.norm(feature)))
