"""Q, K, V, A, O, the MLP and the classifier's input against loops, and the table of update masks."""

from dataclasses import replace
from itertools import product
from typing import Any, Literal

import pytest
import torch
from helpers import naive
from helpers.networks import grown, scramble, soften
from helpers.tasks import gcab_options
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gradients import Gradients
from gcab.model.class_attention import ClassAttention
from gcab.model.options import NetworkOptions

BATCH = Batch(torch.empty(0), torch.empty(0))

WIDTH, HIDDEN, HEADS, TOKENS = 12, 18, 3, 5
PROGRESS = Progress(torch.tensor(0), 1)


def block_with(options: NetworkOptions) -> ClassAttention:
    block = ClassAttention(WIDTH, HEADS, HIDDEN / WIDTH, options)
    scramble(block, seed=1)
    return block.double()


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Token, features of two images, and soft gates."""
    generator = torch.Generator().manual_seed(2)
    token = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
    features = torch.randn(2, TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    m_i = torch.rand(WIDTH, generator=generator, dtype=torch.float64)
    m_2 = torch.rand(HIDDEN, generator=generator, dtype=torch.float64)
    return token, features, m_i, m_2


@pytest.mark.parametrize("activation", ["gelu", "none"])
def test_the_block_of_the_text(activation: Literal["gelu", "none"]) -> None:
    block = block_with(replace(gcab_options("paper").network, activation=activation))
    token, features, m_i, m_2 = inputs()
    f = block(token, features, m_i, m_2)
    assert f.shape == (2, WIDTH)
    for image in range(2):
        expected = naive.decode_as_in_text(
            block,
            naive.numbers(token),
            naive.table(features[image]),
            naive.numbers(m_i),
            naive.numbers(m_2),
            activation == "gelu",
        )
        assert naive.numbers(f[image]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_block_of_the_authors() -> None:
    block = block_with(gcab_options("official").network)
    token, features, m_i, m_2 = inputs()
    f = block(token, features, m_i, m_2)
    for image in range(2):
        expected = naive.decode_as_published(
            block, naive.numbers(token), naive.table(features[image]), naive.numbers(m_i), naive.numbers(m_2)
        )
        assert naive.numbers(f[image]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("profile", ["paper", "official"])
def test_no_gates_are_open_gates(profile: str) -> None:
    block = block_with(gcab_options(profile).network)
    token, features, m_i, m_2 = inputs()
    assert torch.allclose(block(token, features), block(token, features, torch.ones_like(m_i), torch.ones_like(m_2)))


@pytest.mark.parametrize("profile", ["paper", "official"])
def test_either_branch_is_dropped_for_some_images_in_training(profile: str) -> None:
    """f = v + (O + θ), or v + O, where O and v are each 0 or twice what they are; v is that of the O that is left."""
    options = gcab_options(profile).network
    block = ClassAttention(WIDTH, HEADS, HIDDEN / WIDTH, options, drop_path=0.5).double()
    scramble(block, seed=1)
    token, features, m_i, m_2 = inputs()
    everywhere = m_i if profile == "official" else torch.ones_like(m_i)
    one = features[:1]
    o = block.attend(token.expand(1, 1, -1), one, m_i)[0, 0] * everywhere

    def mlp(b: Tensor) -> Tensor:
        hidden = nn.functional.gelu(block.expand(block.norm_mlp(b) * m_i)) * m_2
        return block.contract(hidden) * everywhere

    possible = []
    for kept_o, kept_v in product((0, 2), (0, 2)):
        rest = token if profile == "official" else torch.zeros_like(token)
        possible.append(kept_v * mlp(kept_o * o + token) + (kept_o * o + rest))
    torch.manual_seed(4)
    found = block.train()(token, one.expand(200, -1, -1), m_i, m_2)
    matches = torch.stack([(found - f).abs().amax(dim=1) < 1e-9 for f in possible])
    assert (matches.sum(dim=0) == 1).all()
    assert matches.sum(dim=1).min() > 25, "a quarter of the images each"
    torch.testing.assert_close(block.eval()(token, one, m_i, m_2)[0], mlp(o + token) + o + rest)


@pytest.mark.parametrize("mask_classifier", [True, False])
@pytest.mark.parametrize("head_norm", [True, False])
def test_the_classifier_reads_the_feature_as_the_options_say(mask_classifier: bool, head_norm: bool) -> None:
    options = soften(gcab_options("official"))
    network = replace(options.network, mask_classifier=mask_classifier, head_norm=head_norm)
    method = grown(replace(options, network=network), 3)
    generator = torch.Generator().manual_seed(3)
    feature = torch.randn(1, 16, generator=generator, dtype=torch.float64)
    masks = method.network.masks(0)
    assert masks[0] is not None
    rows = naive.table(feature)
    if mask_classifier:
        rows = naive.masked(rows, naive.numbers(masks[0]))
    head = method.network.heads[0]
    if head_norm:
        rows = naive.layer_norms(rows, head.get_submodule("norm"))
    expected = naive.linear(rows, head.get_submodule("linear"))[0]
    assert naive.numbers(method.network.classify(0, feature, masks)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("binary", [True, False])
def test_the_update_masks_are_the_papers_table(binary: bool) -> None:
    block = block_with(NetworkOptions())
    generator = torch.Generator().manual_seed(4)
    used_in, used_hidden = torch.rand(WIDTH, generator=generator), torch.rand(HIDDEN, generator=generator)
    if binary:
        used_in, used_hidden = used_in.round(), used_hidden.round()
    m_i = m_qk = m_v = m_1 = m_o = naive.numbers(used_in)
    m_2 = naive.numbers(used_hidden)
    ends = {  # weight -> (mask of its inputs k, mask of its outputs l)
        "query": (m_i, m_qk),
        "key": (m_i, m_qk),
        "value": (m_i, m_v),
        "output": (m_v, m_1),
        "expand": (m_1, m_2),
        "contract": (m_2, m_o),
    }
    names = {id(parameter): name for name, parameter in block.named_parameters()}
    masks = {names[id(parameter)]: mask for parameter, mask in block.updatable(used_in, used_hidden)}
    for layer, (inputs_used, outputs_used) in ends.items():
        mask = masks.pop(f"{layer}.weight")
        assert mask.shape == block.get_parameter(f"{layer}.weight").shape
        for k, m_in in enumerate(inputs_used):
            for l, m_out in enumerate(outputs_used):  # noqa: E741
                assert float(mask[l, k]) == pytest.approx(1 - min(m_in, m_out)), (layer, k, l)
    biases = {"output.bias": m_1, "expand.bias": m_2, "contract.bias": m_o}
    assert masks.keys() == biases.keys()
    for name, outputs_used in biases.items():
        assert naive.numbers(masks[name]) == pytest.approx([1 - m for m in outputs_used])


@pytest.mark.parametrize(("profile", "shared"), [("paper", True), ("official", False)])
def test_a_shared_token_moves_only_where_no_task_uses_it(profile: str, shared: bool) -> None:
    method = grown(gcab_options(profile), 2, 2)
    method.network.gate_in.used.copy_(torch.linspace(0, 1, 16))
    tokens = {id(token) for token in method.network.tokens}
    masks = [mask for parameter, mask in method.network.updatable() if id(parameter) in tokens]
    assert len(masks) == int(shared)
    for mask in masks:
        assert naive.numbers(mask) == pytest.approx([1 - m for m in naive.numbers(method.network.gate_in.used)])


@pytest.mark.parametrize("profile", ["paper", "official"])
def test_every_parameter_that_tasks_share_in_the_decoder_is_protected(profile: str) -> None:
    """Nothing shared may go on learning unless it is in the table or belongs to the newest task."""
    method = grown(gcab_options(profile), 2, 2)
    network = method.network
    listed = {id(parameter) for parameter, _ in network.updatable()}
    shared = list(network.block.parameters()) + (list(network.tokens) if len(network.tokens) == 1 else [])
    assert all(id(parameter) in listed or not parameter.requires_grad for parameter in shared)


@pytest.mark.parametrize(("profile", "frozen"), [("extended", True), ("official", True), ("paper", False)])
def test_norms_of_encoder_and_decoder_learn_in_the_first_task_only(profile: str, frozen: bool) -> None:
    for sizes in ((2,), (2, 2), (2, 2, 2)):
        network = grown(gcab_options(profile), *sizes).network
        norms = [m for part in (network.encoder, network.block) for m in part.modules() if isinstance(m, nn.LayerNorm)]
        assert len(norms) >= 2 * len(network.encoder.blocks)
        learning = [parameter.requires_grad for norm in norms for parameter in norm.parameters()]
        assert learning == [len(sizes) == 1 or not frozen] * len(learning)
        assert all(parameter.requires_grad for parameter in network.heads[-1].parameters())  # its norm too


def with_gradients(options: GcabOptions) -> tuple[Gcab, dict[str, tuple[nn.Parameter, Tensor]]]:
    """A method in its second task with some gradient on every shared weight, each with its M^{<t}."""
    method = grown(options, 2, 2)
    generator = torch.Generator().manual_seed(6)
    names = {id(parameter): name for name, parameter in method.network.named_parameters()}
    shared = {}
    for parameter, mask in method.network.updatable():
        assert isinstance(parameter, nn.Parameter)
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        shared[names[id(parameter)]] = parameter, mask
    return method, shared


def test_weights_that_finished_tasks_own_get_no_gradient_and_the_others_theirs() -> None:
    method, shared = with_gradients(gcab_options("official"))
    before = {name: parameter.grad.clone() for name, (parameter, _) in shared.items() if parameter.grad is not None}
    method.before_step(PROGRESS, BATCH, Gradients([], lambda loss: loss()))
    for name, (parameter, mask) in shared.items():
        assert parameter.grad is not None
        owned = [value == 0 for value in naive.numbers(mask)]
        assert any(owned), name
        expected = [0.0 if o else g for o, g in zip(owned, naive.numbers(before[name]), strict=True)]
        assert naive.numbers(parameter.grad) == expected


OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_the_update_is_scaled_by_the_masks_whatever_the_optimiser(kind: str) -> None:
    """W <- W + M ⊙ ΔW; Adam divides by the size of a gradient, so scaling that instead would scale nothing."""
    method, shared = with_gradients(soften(gcab_options("paper")))
    assert "tokens.0" in shared
    soft = torch.cat([mask.flatten() for _, mask in shared.values()])
    assert bool(((soft > 0.05) & (soft < 0.95)).any())
    network = method.network
    network.gate_in.used[:3] = network.gate_hidden.used[:3] = 1.0  # some weights are owned for good
    masks = {name: mask for (name, _), (_, mask) in zip(shared.items(), network.updatable(), strict=True)}
    before = {name: parameter.detach().clone() for name, (parameter, _) in shared.items()}
    twins = {}
    for name, (parameter, _) in shared.items():
        assert parameter.grad is not None
        twins[name] = nn.Parameter(before[name].clone())
        twins[name].grad = parameter.grad.clone()
    settings: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.2}
    OPTIMISERS[kind](twins.values(), **settings).step()  # what the optimiser would do, left alone

    method.before_step(PROGRESS, BATCH, Gradients([], lambda loss: loss()))
    OPTIMISERS[kind]([parameter for parameter, _ in shared.values()], **settings).step()
    method.after_step(PROGRESS, BATCH)
    for name, (parameter, _) in shared.items():
        update = twins[name].detach() - before[name]
        assert float(update.abs().min()) > 0
        expected = [w + m * u for w, m, u in zip(*map(naive.numbers, (before[name], masks[name], update)), strict=True)]
        assert naive.numbers(parameter) == pytest.approx(expected, rel=1e-6, abs=1e-12)
        owned = masks[name] == 0
        assert bool(owned.any())
        assert torch.equal(parameter[owned], before[name][owned])
