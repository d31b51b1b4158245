"""DER++: logits of the moment, two draws, and a reservoir that every step fills."""

import copy
from typing import Any

import pytest
import torch
from method_drive import START, begun, gradient, images_of, learned, made, prepared, step_of, stream, trained, twins

from gcab.errors import GcabError
from gcab.methods.derpp import Derpp, DerppOptions
from gcab.methods.finetune import Finetune
from gcab.seeds import seeded

TASKS = stream(2, 3)


def logits_of(method: Derpp) -> torch.Tensor:
    return method.memory.get_buffer("logits")


def test_stored_logits_are_those_of_the_step_and_stay() -> None:
    method: Derpp = made(Derpp, buffer=30)
    begun(method, TASKS[0])
    data, step = images_of(TASKS[0], 16), step_of(method)
    before = method.network(method.setting.normalise(data.images[:8])).detach()
    step(data.images[:8], data.labels[:8], START)
    torch.testing.assert_close(logits_of(method)[:8], before)
    assert torch.equal(method.memory.images[:8], data.images[:8])
    held = logits_of(method)[:8].clone()
    step(data.images[8:], data.labels[8:], START)
    assert torch.equal(logits_of(method)[:8], held)
    assert not torch.allclose(method.network(method.setting.normalise(data.images[:8])), before, atol=1e-4)
    assert method.latest is None


def test_without_weights_it_is_fine_tuning_bit_for_bit() -> None:
    method, plain = made(Derpp, buffer=9, alpha=0.0, beta=0.0), made(Finetune, loss="ce")
    for one in (method, plain):
        learned(one, *TASKS)
    assert twins(method, plain)
    assert method.stored_images() == 9


def test_labels_alone_are_experience_replay() -> None:
    """With β = 1 the loss is twice the mean over both halves of a joined batch."""
    method: Derpp = made(Derpp, buffer=9, alpha=0.0, beta=1.0)
    learned(method, TASKS[0])
    begun(method, TASKS[1])
    batch = prepared(method, images_of(TASKS[1], 8))
    assert len(batch.labels) == 16
    terms = method.loss(batch, START)
    joined = 2 * method.rehearsed(method.network(batch.images), batch)
    torch.testing.assert_close(sum(terms.values()), joined)
    torch.testing.assert_close(gradient(torch.stack([*terms.values()]).sum(), method), gradient(joined, method))


def test_the_two_draws_are_independent() -> None:
    method: Derpp = made(Derpp, buffer=20)
    learned(method, TASKS[0])
    replayed = method.replay(10)
    assert replayed is not None
    one, other = replayed.slots.chunk(2)
    assert len(one.unique()) == len(other.unique()) == 10
    assert set(one.tolist()) != set(other.tolist())


@pytest.mark.parametrize("future", ["ignore", "zero"])
def test_the_distance_is_a_mean_over_images_and_the_classes_they_knew(future: str) -> None:
    method: Derpp = made(Derpp, buffer=4, future=future)
    for task in TASKS:
        begun(method, task)
    generator = torch.Generator().manual_seed(3)
    stored = torch.randn(4, 5, generator=generator)
    stored[:2, 2:] = 0  # images of the first task knew two classes
    logits_of(method).copy_(stored)
    labels, slots = torch.tensor([0, 1, 4]), torch.tensor([1, 0, 3])
    now = torch.randn(3, 5, generator=generator)
    squares = (now - stored[slots]) ** 2
    expected = squares.mean()
    if future == "ignore":
        expected = torch.stack([squares[0, :2].mean(), squares[1, :2].mean(), squares[2].mean()]).mean()
    torch.testing.assert_close(method.distance(now, labels, slots), expected)


def test_the_places_written_are_those_of_a_plain_reservoir() -> None:
    method: Derpp = made(Derpp, buffer=5, alpha=0.0, beta=0.0)
    begun(method, TASKS[0])
    data, step = images_of(TASKS[0], 24), step_of(method)
    method.eval()  # no draws for paths to drop
    expected: list[int] = []
    with seeded(1, "test"):
        draws = [torch.rand(8, dtype=torch.float64) for _ in range(3)]
    for number in range(24):
        slot = int(draws[number // 8][number % 8] * (number + 1))
        if number < 5:
            expected.append(number)
        elif slot < 5:
            expected[slot] = number
    with seeded(1, "test"):
        for start in range(0, 24, 8):
            step(data.images[start : start + 8], data.labels[start : start + 8], START)
    assert torch.equal(method.memory.images, data.images[expected])
    assert torch.equal(method.memory.labels, data.labels[expected])


def test_an_empty_memory_teaches_nothing() -> None:
    method: Derpp = made(Derpp, buffer=5)
    begun(method, TASKS[0])
    terms = method.loss(prepared(method, images_of(TASKS[0], 8)), START)
    assert [float(terms[name].detach()) for name in ("logits", "replay")] == [0.0, 0.0]
    assert float(gradient(terms["logits"] + terms["replay"], method).abs().max()) == 0.0


def test_logits_of_new_classes_join_the_old_ones_and_are_counted() -> None:
    method: Derpp = made(Derpp, buffer=5)
    begun(method, TASKS[0])
    trained(method, TASKS[0], images_of(TASKS[0]))
    before = logits_of(method).clone()
    begun(method, TASKS[1])
    assert torch.equal(logits_of(method)[:, :2], before)
    assert not logits_of(method)[:, 2:].any()
    assert method.prototype_bytes() == 5 * 5 * 4
    again: Derpp = made(Derpp, buffer=5)
    for task in TASKS:
        begun(again, task)
    again.load_state_dict(copy.deepcopy(method.state_dict()), strict=True)
    assert torch.equal(logits_of(again), logits_of(method))


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_wrong_options_are_named(name: str) -> None:
    changes: dict[str, Any] = {name: -1.0}
    with pytest.raises(GcabError, match=f"options.{name}"):
        DerppOptions(**changes)
