"""The passes computed at once against the readable passes, one by one: values and gradients."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gcab.fast.folded import FoldedDecoder, fast_logits
from gcab.model.encoder import Encoder, EncoderConfig
from gcab.model.network import GatedNetwork, Masks
from gcab.model.options import NetworkOptions

pytestmark = pytest.mark.repeats

CHOICES: dict[str, tuple[Any, Any]] = {
    "gates": (True, False),
    "class_token": ("shared", "per_task"),
    "residual": ("attention", "block"),
    "activation": ("gelu", "none"),
    "gated_sites": ("input", "everywhere"),
    "normalise": (True, False),
    "mask_classifier": (True, False),
    "head_norm": (True, False),
}
COMBINATIONS = [
    NetworkOptions(**dict(zip(CHOICES, values, strict=True)))
    for values in product(*CHOICES.values())
    if values[0] or values[4] == "input"  # without gates there are no sites
]
Logits = Callable[[GatedNetwork, list[Tensor], list[Masks]], Tensor]


def grown(
    options: NetworkOptions,
    classes: list[int],
    heads: int = 3,
    head_width: int = 4,
    side: int = 2,
    drop_path: float = 0.0,
) -> GatedNetwork:
    """A float64 network, all tasks but the newest finished, with every parameter away from its starting value."""
    encoder = EncoderConfig("vit", 1, heads * head_width, heads, 1.5, 1, drop_path, drop_path_over="network")
    network = GatedNetwork(Encoder(encoder, side), options)
    for index, count in enumerate(classes):
        if index > 0:
            network.finish()
        network.grow(count, projector=True)
    generator = torch.Generator().manual_seed(sum(classes))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + 0.1)
    return network.double().requires_grad_(True)


def spaces_of(network: GatedNetwork, batch: int, shared: bool) -> list[Tensor]:
    """Features that all tasks share, or one tensor for each."""
    generator = torch.Generator().manual_seed(batch)
    shape = (batch, network.tokens_per_image, network.width)
    different = 1 if shared else network.tasks
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(different)]
    return [tensor.requires_grad_() for tensor in tensors] * (network.tasks // different)


def readable_logits(network: GatedNetwork, spaces: list[Tensor], masks: list[Masks]) -> Tensor:
    passes = zip(range(network.tasks), spaces, masks, strict=True)
    return torch.cat([network.classify(s, network.decode(s, b, m), m) for s, b, m in passes], dim=1)


def gates_of(network: GatedNetwork, soft: list[bool]) -> list[Masks]:
    """σ(e), through which gradients reach the embeddings, or zeros and ones."""
    if not network.options.gates:
        return [(None, None)] * network.tasks
    pair = (network.gate_in, network.gate_hidden)
    gates = [[gate.soft(s, 1.0) if soft[s] else gate.hard(s) for gate in pair] for s in range(network.tasks)]
    return [(m_i, m_2) for m_i, m_2 in gates]


def values_and_gradients(
    logits_of: Logits, network: GatedNetwork, spaces: list[Tensor], soft: list[bool]
) -> list[Tensor | None]:
    """Logits, then the gradient of a random weighting of them for every parameter and every feature tensor."""
    logits = logits_of(network, spaces, gates_of(network, soft))
    weighting = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5), dtype=logits.dtype)
    leaves = [*network.parameters(), *{id(space): space for space in spaces}.values()]
    gradients = torch.autograd.grad((logits * weighting).sum(), leaves, allow_unused=True)
    return [logits.detach(), *gradients]


def assert_same(network: GatedNetwork, spaces: list[Tensor], soft: list[bool]) -> None:
    expected = values_and_gradients(readable_logits, network, spaces, soft)
    found = values_and_gradients(fast_logits, network, spaces, soft)
    for mine, reference in zip(found, expected, strict=True):
        assert (mine is None) == (reference is None)
        if mine is not None:
            torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


def short(options: NetworkOptions) -> str:
    return "-".join(str(getattr(options, name)) for name in CHOICES)


@pytest.mark.parametrize("options", COMBINATIONS, ids=short)
def test_values_and_gradients_under_every_combination_of_options(options: NetworkOptions) -> None:
    network = grown(options, [2, 3, 1])
    for shared in (True, False):
        assert_same(network, spaces_of(network, 2, shared), soft=[False, True, True])


@settings(max_examples=60, derandomize=True)
@given(
    options=st.sampled_from(COMBINATIONS),
    tasks=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6),
    heads=st.integers(1, 3),
    head_width=st.integers(4, 6),
    side=st.integers(1, 3),
    batch=st.integers(1, 4),
    shared=st.booleans(),
)
def test_values_and_gradients_at_any_size(
    options: NetworkOptions,
    tasks: list[tuple[int, bool]],
    heads: int,
    head_width: int,
    side: int,
    batch: int,
    shared: bool,
) -> None:
    classes, soft = [count for count, _ in tasks], [is_soft for _, is_soft in tasks]
    network = grown(options, classes, heads, head_width, side)
    assert_same(network, spaces_of(network, batch, shared), soft)


@pytest.mark.parametrize("options", COMBINATIONS[::7], ids=short)
@pytest.mark.parametrize("shared", [True, False])
def test_the_same_paths_are_dropped_in_training(options: NetworkOptions, shared: bool) -> None:
    """Values and gradients from the same random numbers; for every image and pass, other paths are dropped."""
    network = grown(options, [2, 3, 1], drop_path=0.4).train()
    spaces, soft = spaces_of(network, 8, shared), [False, True, True]

    def seeded(logits_of: Logits) -> Logits:
        def of(network: GatedNetwork, spaces: list[Tensor], masks: list[Masks]) -> Tensor:
            torch.manual_seed(6)
            return logits_of(network, spaces, masks)

        return of

    found = values_and_gradients(seeded(fast_logits), network, spaces, soft)
    expected = values_and_gradients(seeded(readable_logits), network, spaces, soft)
    for mine, reference in zip(found, expected, strict=True):
        assert (mine is None) == (reference is None)
        if mine is not None:
            torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)
    network.eval()
    whole = values_and_gradients(fast_logits, network, spaces, soft)[0]
    assert whole is not None
    assert found[0] is not None
    assert ((found[0] - whole).abs().amax(dim=1) > 1e-9).all(), "no image keeps all paths, each at its own size"


def test_every_pass_drops_paths_of_its_own() -> None:
    """Passes that are all alike differ by nothing else."""
    network = grown(NetworkOptions(gates=False, class_token="shared"), [1, 1, 1, 1], drop_path=0.5).train()
    for head in network.heads:
        head.load_state_dict(network.heads[0].state_dict())
    spaces = [spaces_of(network, 1, shared=True)[0].expand(64, -1, -1)] * 4
    torch.manual_seed(7)
    logits = fast_logits(network, spaces, gates_of(network, [True] * 4))
    values = [logits[:, task].detach() for task in range(4)]
    assert all(len(value.round(decimals=9).unique()) == 4 for value in values), "O and v, each kept or dropped"
    assert not any(torch.allclose(values[0], other) for other in values[1:])
    decoder = FoldedDecoder(network)
    assert torch.equal(decoder(spaces), decoder(spaces)), "a snapshot drops nothing, whatever its network does"


@pytest.mark.parametrize("binarise", ["never", "next", "end"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("options", COMBINATIONS[::13], ids=short)
def test_the_snapshot_predicts_what_the_network_does(options: NetworkOptions, shared: bool, binarise: Any) -> None:
    network = grown(replace(options, binarise=binarise, sharpest=1.5), [4, 1, 2, 2])
    spaces = spaces_of(network, 3, shared)
    logits = FoldedDecoder(network)(spaces)
    assert logits.shape == (3, 9)
    assert not logits.isnan().any()
    torch.testing.assert_close(logits.detach(), network.logits(spaces).detach(), rtol=1e-9, atol=1e-11)


def test_the_passes_of_some_tasks_only() -> None:
    network = grown(NetworkOptions(), [2, 3, 4])
    spaces, masks = spaces_of(network, 2, shared=False), gates_of(network, [False, True, True])
    newest = fast_logits(network, spaces[2:], masks[2:], first=2)
    assert newest.shape == (2, 4)
    torch.testing.assert_close(newest, readable_logits(network, spaces, masks)[:, 5:], rtol=1e-9, atol=1e-11)


def test_the_snapshot_stays_as_it_was() -> None:
    network = grown(NetworkOptions(), [2, 3])
    spaces = spaces_of(network, 2, shared=False)
    decoder = FoldedDecoder(network)
    before = decoder(spaces).detach()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3)
    assert torch.equal(decoder(spaces).detach(), before)
    assert not list(filter(lambda parameter: parameter.requires_grad, decoder.parameters()))
    with pytest.raises(AssertionError, match="one space"):
        decoder([*spaces, spaces[-1]])


def test_the_features_the_tasks_share_are_normalised_once() -> None:
    network = grown(NetworkOptions(), [2, 2, 2, 2])
    decoder = FoldedDecoder(network)
    seen = []
    decoder.block.norm_attention.register_forward_hook(lambda _layer, inputs, _output: seen.append(inputs[0].shape))
    decoder(spaces_of(network, 2, shared=True))
    assert len(seen) == 1
    decoder(spaces_of(network, 2, shared=False))
    assert len(seen) == 1 + 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_follows_the_dtype(dtype: torch.dtype) -> None:
    """Rounding errors, as a share of the largest logit: 1e-5 in float32, 3 % in bfloat16."""
    network = grown(NetworkOptions(sharpest=1.5, binarise="never"), [4, 2, 3], heads=4, head_width=8, side=4)
    spaces = [space.detach() for space in spaces_of(network, 8, shared=False)]
    exact = network.logits(spaces)
    logits = FoldedDecoder(network).to(dtype)([space.to(dtype) for space in spaces])
    assert logits.dtype == dtype
    error = (logits - exact).abs().max() / exact.abs().max()
    assert 0 < error < (1e-5 if dtype == torch.float32 else 0.03)


def test_it_trains_under_autocast() -> None:
    """In bfloat16 the gradient of the class token is as close to the exact one as the readable passes bring it."""
    network = grown(NetworkOptions(), [4, 2, 3], heads=4, head_width=8, side=4)
    spaces = spaces_of(network, 8, shared=True)
    soft = [True, True, True]
    exact = values_and_gradients(readable_logits, network, spaces, soft)
    network.float()
    spaces = [spaces[0].detach().float().requires_grad_()] * 3
    with torch.autocast("cpu", torch.bfloat16):
        readable = values_and_gradients(readable_logits, network, spaces, soft)
        fast = values_and_gradients(fast_logits, network, spaces, soft)
    for value, mine, theirs in zip(exact, fast, readable, strict=True):
        if value is not None and mine is not None and theirs is not None:
            error, allowed = (mine - value).norm() / value.norm(), (theirs - value).norm() / value.norm()
            assert error < 2 * allowed + 0.01


def test_compiled_whole_with_shared_and_with_different_features() -> None:
    network = grown(NetworkOptions(), [2, 3])
    decoder = FoldedDecoder(network)
    compiled = torch.compile(decoder, backend="aot_eager", fullgraph=True)
    for shared in (True, False):
        spaces = [space.detach() for space in spaces_of(network, 2, shared)]
        torch.testing.assert_close(compiled(spaces), decoder(spaces), rtol=1e-9, atol=1e-11)


def test_exported_for_any_batch() -> None:
    network = grown(NetworkOptions(), [2, 3])
    decoder = FoldedDecoder(network)
    batch = torch.export.Dim("batch", min=1, max=64)
    example = [space.detach() for space in spaces_of(network, 2, shared=False)]
    program = torch.export.export(decoder, (example,), dynamic_shapes=([{0: batch}, {0: batch}],))
    larger = [space.detach() for space in spaces_of(network, 5, shared=False)]
    torch.testing.assert_close(program.module()(larger), decoder(larger), rtol=1e-9, atol=1e-11)
