"""What gates, class tokens, positions and linear layers start at; of heads and projectors their own tests tell."""

import pytest
import torch
from helpers.tasks import gcab_options, setting, tasks_of
from torch import Tensor, nn

from gcab.methods.gcab import Gcab
from gcab.model.encoder import Encoder, EncoderConfig, GatedPositionalSelfAttention
from gcab.model.gates import Gate
from gcab.model.network import PlainNetwork

PROFILES = ("extended", "official", "paper")
WIDE = EncoderConfig(blocks=2, width=400, heads=10, mlp_ratio=2.0, patch=2)  # 16 tokens
TASKS = 10


def new_method(profile: str, kind: str = "convit") -> Gcab:
    torch.manual_seed(2)
    encoder = EncoderConfig(**(vars(WIDE) | {"kind": kind}))
    method = Gcab(setting(encoder), gcab_options(profile))
    for task in tasks_of(*[4] * TASKS):
        method.grow(task)
    return method


def spread_of(*values: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of enough numbers to know both to a few per cent."""
    numbers = torch.cat([value.detach().flatten() for value in values])
    assert len(numbers) >= 1500
    return float(numbers.mean()), float(numbers.std())


def around(mean: float, std: float) -> tuple[object, object]:
    return pytest.approx(mean, abs=0.1 * std), pytest.approx(std, rel=0.1)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 1.0), (0.5, 0.01)])
def test_a_gate_starts_at_the_mean_and_deviation_it_is_given(mean: float, std: float) -> None:
    torch.manual_seed(1)
    gate = Gate(5000, mean, std, 800.0)
    for task in range(2):
        gate.grow()
        assert spread_of(gate.embedding(task)) == around(mean, std)
    assert not torch.equal(gate.embedding(0), gate.embedding(1))


@pytest.mark.parametrize("profile", PROFILES)
def test_every_task_starts_with_half_of_the_units_open(profile: str) -> None:
    """N(0, 1), as the authors' embedding layers start."""
    network = new_method(profile).network
    for gate in (network.gate_in, network.gate_hidden):
        assert len(gate.embeddings) == TASKS
        assert spread_of(*gate.embeddings) == around(0.0, 1.0)
        opened = torch.cat([gate.hard(task) for task in range(TASKS)])
        assert float(opened.mean()) == pytest.approx(0.5, abs=0.03)


def test_class_tokens_start_small_and_each_its_own() -> None:
    tokens = list(new_method("official").network.tokens)
    assert len(tokens) == TASKS
    assert spread_of(*tokens) == around(0.0, 0.02)
    assert not torch.equal(tokens[0], tokens[1])
    torch.manual_seed(3)
    plain = [PlainNetwork(Encoder(EncoderConfig(blocks=1, width=400, heads=10, patch=4), 8)).token for _ in range(4)]
    assert spread_of(*plain) == around(0.0, 0.02)


@pytest.mark.parametrize("kind", ["vit", "convit"])
def test_positions_start_small(kind: str) -> None:
    assert spread_of(new_method("official", kind).network.encoder.position) == around(0.0, 0.02)


@pytest.mark.parametrize("kind", ["vit", "convit"])
def test_linear_layers_start_small_and_without_bias(kind: str) -> None:
    """All of the encoder and the decoder but those that start as a convolution does."""
    network = new_method("official", kind).network
    attentions = [m for m in network.modules() if isinstance(m, GatedPositionalSelfAttention)]
    assert len(attentions) == (WIDE.blocks if kind == "convit" else 0)
    identities = {id(attention.value) for attention in attentions}
    layers = 0
    for part in (network.encoder, network.block):
        for name, layer in part.named_modules():
            if not isinstance(layer, nn.Linear) or id(layer) in identities:
                continue
            layers += 1
            assert spread_of(layer.weight) == around(0.0, 0.02), name
            assert layer.bias is None or not layer.bias.any(), name
    of_a_block = 5 if kind == "vit" else 4
    assert layers == of_a_block * WIDE.blocks + 6


def test_the_patches_keep_the_start_of_a_convolution() -> None:
    """Uniform within 1/√(inputs), PyTorch's own: `initialise` is for linear layers, as in the authors' code."""
    weight = new_method("official").network.encoder.patches.weight
    bound = (3 * WIDE.patch**2) ** -0.5
    assert spread_of(weight) == around(0.0, bound / 3**0.5)
    assert 0.95 * bound < float(weight.detach().abs().max()) <= bound


def test_heads_beyond_the_square_start_by_looking_everywhere() -> None:
    """Ten heads: nine look at one neighbour each, the tenth has no offset to look at yet."""
    for block in new_method("official").network.encoder.blocks:
        attention = block.attention
        assert isinstance(attention, GatedPositionalSelfAttention)
        weight = attention.position.weight.detach()
        assert float(weight[:9].abs().amax(dim=1).min()) >= 1
        assert 0 < float(weight[9].abs().max()) < 0.08
        assert not attention.position.bias.any()
