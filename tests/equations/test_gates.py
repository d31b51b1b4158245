"""Eq. mask, its compensated gradient, the sharpness schedule, m^{<t} and L_GCAB."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import naive
from helpers.networks import grown
from helpers.tasks import gcab_options
from torch import Tensor

from gcab.data.tasks import Batch, Progress
from gcab.methods.gcab import Gcab, sharpness
from gcab.methods.gradients import Gradients
from gcab.model.gates import Gate

BATCH = Batch(torch.empty(0), torch.empty(0))

EMBEDDING = (-6.0, -2.5, -0.3, -0.004, 0.0, 0.002, 0.7, 1.9, 6.0)


def gate_with(embedding: tuple[float, ...], sharpest: float) -> Gate:
    gate = Gate(len(embedding), 0.0, 1.0, sharpest)
    gate.grow()
    gate.double()
    with torch.no_grad():
        gate.embedding(0).copy_(torch.tensor(embedding, dtype=torch.float64))
    return gate


def gradient(gate: Gate, mask: Tensor, upstream: Tensor) -> list[float]:
    gate.zero_grad()
    mask.backward(upstream)
    grad = gate.embedding(0).grad
    assert grad is not None
    return naive.numbers(grad)


@pytest.mark.parametrize("s", [1 / 800, 0.4, 3.0, 800.0])
def test_the_mask_is_a_sigmoid_of_the_scaled_embedding(s: float) -> None:
    gate = gate_with(EMBEDDING, 800.0)
    expected = naive.gate(gate.embedding(0), s)
    assert naive.numbers(gate.soft(0, s)) == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert naive.numbers(gate.compensated(0, torch.tensor(s))) == pytest.approx(expected, rel=1e-6, abs=1e-30)


def test_the_inference_gate_uses_the_largest_sharpness_and_the_hard_one_the_sign() -> None:
    gate = gate_with(EMBEDDING, 5.0)
    assert naive.numbers(gate.sharp(0)) == pytest.approx(naive.gate(gate.embedding(0), 5.0))
    assert naive.numbers(gate.hard(0)) == [0, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("s", [1 / 5, 1.0, 2.5, 5.0])
def test_the_compensated_gradient_is_the_quotient_of_hat(s: float) -> None:
    sharpest = 5.0
    gate = gate_with(EMBEDDING, sharpest)
    upstream = torch.linspace(-2, 3, len(EMBEDDING), dtype=torch.float64)
    expected = []
    for e, u in zip(EMBEDDING, upstream.tolist(), strict=True):
        true_gradient = u * s * naive.sigmoid_slope(s * e)
        expected.append(true_gradient * sharpest / s * (math.cosh(s * e) + 1) / (math.cosh(e) + 1))
    assert gradient(gate, gate.compensated(0, torch.tensor(s)), upstream) == pytest.approx(expected, rel=1e-9)


def test_the_plain_gradient_is_that_of_the_sigmoid() -> None:
    gate = gate_with(EMBEDDING, 5.0)
    upstream = torch.linspace(-2, 3, len(EMBEDDING), dtype=torch.float64)
    expected = [u * 2.5 * naive.sigmoid_slope(2.5 * e) for e, u in zip(EMBEDDING, upstream.tolist(), strict=True)]
    assert gradient(gate, gate.soft(0, 2.5), upstream) == pytest.approx(expected)


def test_the_compensated_gradient_is_alive_where_the_quotient_overflows() -> None:
    gate = gate_with((-6.0, 6.0), 800.0).float()
    assert math.isinf(torch.tensor(800.0 * 6.0).cosh().item())
    grads = gradient(gate, gate.compensated(0, torch.tensor(800.0)), torch.ones(2))
    assert grads == pytest.approx([800 * naive.sigmoid_slope(6.0)] * 2, rel=1e-4)
    assert gradient(gate, gate.soft(0, 800.0), torch.ones(2)) == [0, 0]


PUBLISHED = ("compensated", "compensated_as_published")


@pytest.mark.parametrize("s", [1 / 800, 1.0, 8.0])
def test_both_compensations_agree_while_the_gate_is_undecided(s: float) -> None:
    """In float32 too: |se| is at most 8 here, where σ(se) and its slope still have digits."""
    embedding = (-1.0, -0.3, -0.004, 0.0, 0.002, 0.7, 1.0)
    gate, upstream = gate_with(embedding, 800.0).float(), torch.linspace(-2, 3, 7)
    masks = [getattr(gate, name)(0, torch.tensor(s)) for name in PUBLISHED]
    assert naive.numbers(masks[1]) == pytest.approx(naive.numbers(masks[0]), rel=1e-6)
    compensated, published = (gradient(gate, mask, upstream) for mask in masks)
    assert published == pytest.approx(compensated, rel=2e-4)


@pytest.mark.parametrize("s", [1 / 800, 3.0, 15.0, 400.0, 780.0])
def test_the_authors_gradient_is_their_quotient_times_what_autograd_has(s: float) -> None:
    """As they compute it in float32: the gradient first, then the product, whatever over- or underflows."""
    gate, sharpest = gate_with(EMBEDDING, 800.0).float(), 800.0
    upstream = torch.linspace(-2, 3, len(EMBEDDING))
    e = gate.embedding(0).detach().clone().requires_grad_()
    torch.sigmoid(s * e).backward(upstream)
    assert e.grad is not None
    numerator, denominator = torch.cosh(torch.clamp(s * e, -50, 50)) + 1, torch.cosh(e) + 1
    expected = e.grad * (sharpest / s * numerator / denominator).detach()
    found = gradient(gate, gate.compensated_as_published(0, torch.tensor(s)), upstream)
    assert found == pytest.approx(naive.numbers(expected), rel=1e-5)
    assert naive.numbers(gate.compensated_as_published(0, torch.tensor(s))) == naive.numbers(gate.soft(0, s))


def test_the_authors_gradient_leaves_a_decided_gate_where_it_is() -> None:
    """A gate that is open stops at se = 16.7 for good; one that is closed is still moved until -50, then ever less."""
    steepness = (-4000.0, -110.0, -60.0, -40.0, -17.0, 16.0, 17.0, 49.0, 51.0, 4000.0)
    s = 500.0
    gate = gate_with(tuple(se / s for se in steepness), 800.0).float()
    compensated, published = (
        gradient(gate, getattr(gate, name)(0, torch.tensor(s)), torch.ones(len(steepness))) for name in PUBLISHED
    )
    shares = [theirs / ours for theirs, ours in zip(published, compensated, strict=True)]
    assert shares[:2] == [0, 0]
    assert shares[2] == pytest.approx(math.exp(50 - 60), rel=1e-2)
    assert shares[3:5] == pytest.approx([1, 1], rel=1e-3)
    assert 0.5 < shares[5] < 2, "one digit of the slope is left"
    assert shares[6:] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("profile", "name"), [("paper", "soft"), ("extended", "compensated"), ("official", "compensated_as_published")]
)
def test_every_profile_has_its_own_gradient(profile: str, name: str) -> None:
    method, progress = grown(gcab_options(profile), 2).float(), Progress(torch.tensor(3), 5)
    network = method.network
    s = sharpness(progress, network.options.sharpest, method.options.schedule)
    for gate, mask in zip((network.gate_in, network.gate_hidden), method.training_gates(progress), strict=True):
        assert mask is not None
        upstream = torch.linspace(-2, 3, gate.units)
        expected = gradient(gate, getattr(gate, name)(0, s), upstream)
        assert gradient(gate, mask, upstream) == expected
        assert any(expected)


def s_at(step: int, steps: int, schedule: str) -> float:
    assert schedule in ("paper", "official")
    return float(sharpness(Progress(torch.tensor(step), steps), 800.0, "paper" if schedule == "paper" else "official"))


def test_the_sharpness_of_the_text_runs_from_one_over_s_max_to_s_max_within_an_epoch() -> None:
    steps = 39
    for i in (1, 2, 20, 38, 39):  # the text counts batches from 1
        assert s_at(i - 1, steps, "paper") == pytest.approx(1 / 800 + (800 - 1 / 800) * (i - 1) / (steps - 1))
    assert s_at(0, steps, "paper") == pytest.approx(1 / 800)
    assert s_at(steps // 2, steps, "paper") == pytest.approx((800 + 1 / 800) / 2)
    assert s_at(steps - 1, steps, "paper") == pytest.approx(800)


def test_the_sharpness_of_the_authors_never_quite_reaches_s_max() -> None:
    steps = 40
    assert s_at(0, steps, "official") == pytest.approx(1 / 800)
    assert s_at(20, steps, "official") == pytest.approx((800 + 1 / 800) / 2)
    assert s_at(39, steps, "official") == pytest.approx(1 / 800 + (800 - 1 / 800) * 39 / 40)


@pytest.mark.parametrize("schedule", ["paper", "official"])
def test_an_epochs_only_batch_is_learned_at_the_largest_sharpness(schedule: str) -> None:
    assert s_at(0, 1, schedule) == 800
    assert s_at(0, 2, schedule) == pytest.approx(1 / 800)


def test_used_is_the_maximum_over_finished_tasks() -> None:
    gate = Gate(4, 0.0, 1.0, 800.0)
    gate.claim(torch.tensor([0.0, 0.2, 0.9, 1.0]))
    gate.claim(torch.tensor([0.5, 0.1, 0.0, 1.0]))
    assert naive.numbers(gate.used) == pytest.approx([0.5, 0.2, 0.9, 1.0])
    assert gate.capacity() == pytest.approx(2.6 / 4)


@pytest.mark.parametrize(("binarise", "hard"), [("never", False), ("next", True), ("end", True)])
def test_a_finished_task_claims_its_soft_or_its_hard_gate(binarise: str, hard: bool) -> None:
    options = gcab_options("official")
    network = replace(options.network, sharpest=2.0, binarise=binarise)  # type: ignore[arg-type]
    method = grown(replace(options, network=network), 2)
    method.network.finish()
    for gate in (method.network.gate_in, method.network.gate_hidden):
        embedding = naive.numbers(gate.embedding(0))
        expected = [float(e > 0) if hard else naive.sigmoid(2.0 * e) for e in embedding]
        assert naive.numbers(gate.used) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("binarise", "hard_after_grow", "hard_after_end"), [("next", 1, 1), ("end", 1, 2), ("never", 0, 0)]
)
def test_when_a_gate_turns_hard(binarise: str, hard_after_grow: int, hard_after_end: int) -> None:
    options = gcab_options("official")
    network = replace(options.network, sharpest=1.0, binarise=binarise)  # type: ignore[arg-type]
    method = grown(replace(options, network=network), 2, 2)  # task 0 ended, task 1 in training

    def hard_tasks() -> list[int]:
        gates = [(task, method.network.masks(task)[0]) for task in range(2)]
        return [task for task, gate in gates if gate is not None and bool(((gate == 0) | (gate == 1)).all())]

    assert hard_tasks() == list(range(hard_after_grow))
    method.network.finish()
    assert hard_tasks() == list(range(hard_after_end))


def sparsity_of(method: Gcab, gate_in: Tensor, gate_hidden: Tensor) -> Tensor:
    return method.sparsity((gate_in, gate_hidden))


def test_sparsity_charges_only_units_no_task_uses_yet() -> None:
    method = grown(gcab_options("official"), 2)
    gates = (method.network.gate_in, method.network.gate_hidden)
    generator = torch.Generator().manual_seed(5)
    for gate in gates:
        gate.used.copy_(torch.rand(gate.units, generator=generator))
    masks = [torch.rand(gate.units, generator=generator, dtype=torch.float64) for gate in gates]
    used = naive.numbers(torch.cat([gate.used for gate in gates]))
    expected = naive.sparsity(naive.numbers(torch.cat(masks)), used)
    assert float(sparsity_of(method, *masks)) == pytest.approx(expected, rel=1e-9)


def test_sparsity_by_hand() -> None:
    method = grown(gcab_options("official"), 2)
    network = method.network
    network.gate_in.used.fill_(1.0)
    network.gate_hidden.used.zero_()
    network.gate_hidden.used[:30] = 1.0  # 2 of 32 hidden units are free
    gate_hidden = torch.ones(32, dtype=torch.float64)
    gate_hidden[31] = 0.5
    loss = sparsity_of(method, torch.ones(16, dtype=torch.float64), gate_hidden)
    assert float(loss) == pytest.approx((1 + 0.5) / 2)


def test_sparsity_at_full_capacity_is_zero_with_finite_gradients() -> None:
    method = grown(gcab_options("official"), 2)
    for gate in (method.network.gate_in, method.network.gate_hidden):
        gate.used.fill_(1.0)
    s = Progress(torch.tensor(7), 10)
    gate_in, gate_hidden = method.training_gates(s)
    assert gate_in is not None
    assert gate_hidden is not None
    loss = sparsity_of(method, gate_in, gate_hidden)
    loss.backward()
    assert loss.item() == 0
    for gate in (method.network.gate_in, method.network.gate_hidden):
        grad = gate.embedding(0).grad
        assert grad is not None
        assert torch.equal(grad, torch.zeros_like(grad))


def test_the_limit_clamps_the_newest_embedding_only() -> None:
    method = grown(gcab_options("official"), 2, 2)
    with torch.no_grad():
        for gate in (method.network.gate_in, method.network.gate_hidden):
            for embedding in gate.embeddings:
                embedding.copy_(torch.linspace(-9, 9, gate.units))
    method.before_step(Progress(torch.tensor(0), 1), BATCH, Gradients([], lambda loss: loss()))
    method.after_step(Progress(torch.tensor(0), 1), BATCH)
    for gate in (method.network.gate_in, method.network.gate_hidden):
        assert gate.embedding(0).abs().max().item() == 9
        expected = torch.linspace(-9, 9, gate.units).clamp(-6, 6).double()
        assert torch.equal(gate.embedding(1), expected)
