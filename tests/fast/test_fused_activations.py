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
    module(x)
    after_fused, after_plain = calls
    assert not torch.equal(after_fused, after_plain), "inside, the activation was applied by the layer before it"
    assert torch.equal(module(x), expected), "outside, all is as it was"


def test_other_layers_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.GELU(), nn.Linear(4, 4))
    x = torch.randn(3, 4)
    expected = module(x)
    with fused_activations(module):
        assert torch.equal(module(x), expected)
