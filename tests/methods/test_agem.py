"""A-GEM and GEM: no gradient works against stored images, and the nearest such gradient is taken."""

import itertools

import pytest
import torch
from method_drive import START, begun, gradient, images_of, learned, made, prepared, scrambled, stream, trained, twins
from torch import Tensor

from gcab.data.tasks import Batch
from gcab.errors import GcabError
from gcab.methods.agem import Agem
from gcab.methods.finetune import Finetune
from gcab.methods.gem import Gem, GemOptions, least
from gcab.methods.gradients import Gradients

TASKS = stream(2, 2, 2)


class Given(Gradients):
    """A step's gradient as a vector, and that of stored images as its opposite or its like."""

    def __init__(self, own: Tensor, references: Tensor) -> None:
        self.own, self.left = own, [*references]
        self.written = own

    def flat(self) -> Tensor:
        return self.own

    def of(self, loss: object) -> Tensor:  # noqa: ARG002
        return self.left.pop(0)

    def write(self, flat: Tensor) -> None:
        self.written = flat


def third_task(kind: type[Agem], **options: float) -> tuple[Agem, Batch]:
    method: Agem = made(kind, buffer=10, **options)
    learned(method, *TASKS[:2])
    begun(method, TASKS[2])
    return method, prepared(method, images_of(TASKS[2], 8))


def projected(method: Agem, batch: Batch, own: Tensor, references: Tensor) -> Tensor:
    given = Given(own, references)
    method.before_step(START, batch, given)
    return given.written


def test_a_gem_projects_where_a_step_works_against_the_memory_and_nowhere_else() -> None:
    method, batch = third_task(Agem)
    generator = torch.Generator().manual_seed(1)
    violated = int(method.violated[-1])
    for _ in range(20):
        own, reference = torch.randn(2, 50, generator=generator)
        result = projected(method, batch, own, reference[None])
        if own @ reference >= 0:
            assert torch.equal(result, own)
            continue
        violated += 1
        assert float(result @ reference) >= -1e-6 * float(own.norm() * reference.norm())
        assert float(result.norm()) <= float(own.norm())
        torch.testing.assert_close(result - own, ((result - own) @ reference) / reference.norm() ** 2 * reference)
    assert method.counted()["violated"][-1] == violated > 3


def test_the_reference_is_the_gradient_of_the_drawn_images_alone() -> None:
    method, batch = third_task(Agem)
    learning = [*method.parameters()]
    found = method.references(batch, Gradients(learning, lambda loss: loss()))
    images, labels = batch.images[8:], batch.labels[8:]
    assert int(labels.max()) < 4
    term = method.classification(method.network(images), labels)
    torch.testing.assert_close(found[0], gradient(term, method))
    fresh = method.classification(method.network(batch.images[:8]), batch.labels[:8])
    torch.testing.assert_close(method.loss(batch, START)["classification"], fresh)


@pytest.mark.parametrize("kind", [Agem, Gem])
def test_where_nothing_is_violated_it_is_fine_tuning_bit_for_bit(
    kind: type[Agem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "references", lambda self, batch, gradients: gradients.flat()[None])  # noqa: ARG005
    method, plain = made(kind, buffer=10), made(Finetune, loss="ce")
    for one in (method, plain):
        learned(one, TASKS[0])
        begun(one, TASKS[1])
        trained(one, TASKS[1], images_of(TASKS[1]))
    assert twins(method, plain)
    assert method.counted() == {"violated": [0, 0]}


def by_enumeration(p: Tensor, q: Tensor, lowest: Tensor) -> Tensor:
    """The minimum over every choice of the entries that lie at their bound."""
    best, value = lowest, torch.inf
    for bound in itertools.product([False, True], repeat=len(q)):
        held = torch.tensor(bound)
        v, free = lowest.clone(), ~held
        if free.any():
            rest = -q[free] - p[free][:, held] @ lowest[held]
            v[free] = torch.linalg.solve(p[free][:, free], rest)
        objective = float(v @ p @ v / 2 + q @ v)
        if bool((v >= lowest - 1e-12).all()) and objective < value:
            best, value = v, objective
    return best


@pytest.mark.parametrize("tasks", [1, 2, 3, 4])
def test_gem_finds_the_nearest_gradient(tasks: int) -> None:
    generator = torch.Generator().manual_seed(tasks)
    for _ in range(10):
        unit = torch.randn(tasks, 12, generator=generator, dtype=torch.float64)
        unit = (unit + torch.randn(12, generator=generator, dtype=torch.float64)) / 4
        unit /= unit.norm(dim=1, keepdim=True)
        p = unit @ unit.T + 1e-3 * torch.eye(tasks, dtype=torch.float64)
        q = unit @ torch.randn(12, generator=generator, dtype=torch.float64)
        lowest = torch.rand(tasks, generator=generator, dtype=torch.float64) / 2
        torch.testing.assert_close(least(p, q, lowest), by_enumeration(p, q, lowest), rtol=0, atol=1e-6)


def test_gem_leaves_no_task_worse_off() -> None:
    """G g̃ ≥ -ε v, here with unit rows; every past task is helped by γ at least."""
    method, batch = third_task(Gem)
    generator = torch.Generator().manual_seed(2)
    own, references = torch.randn(400, generator=generator), torch.randn(2, 400, generator=generator)
    references[0] -= 0.3 * own
    lengths = references.norm(dim=1)
    unit = references / lengths[:, None]
    assert (unit @ own < 0).any()
    result = projected(method, batch, own, references)
    v = torch.linalg.lstsq(unit.T, (result - own)[:, None]).solution[:, 0]
    assert (v >= 0.5 * lengths - 1e-3).all()
    assert (unit @ result >= -1e-3 * v - 1e-4).all()


def test_gem_without_a_bound_only_moves_what_is_violated() -> None:
    method, batch = third_task(Gem, strength=0.0)
    own = torch.tensor([1.0, 1.0, 0.0])
    references = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    result = projected(method, batch, own, references)
    torch.testing.assert_close(result, torch.tensor([0.0, 1.0, 0.0]), rtol=0, atol=2e-3)


def test_gem_has_the_gradient_of_all_stored_images_of_every_task() -> None:
    method, batch = third_task(Gem)
    scrambled(method)
    assert isinstance(method, Gem)
    found = method.references(batch, Gradients([*method.parameters()], lambda loss: loss()))
    stored = method.memory.everything()
    for task, row in enumerate(found):
        own = method.tasks_of_labels(stored.labels) == task
        images = method.setting.normalise(stored.images[own])
        assert len(images) == 5
        term = method.classification(method.network(images), stored.labels[own])
        torch.testing.assert_close(row, gradient(term, method), rtol=1e-4, atol=1e-6)


def test_gem_counts_no_empty_place() -> None:
    """A task with fewer images than its share leaves places that must not matter."""
    method: Gem = made(Gem, buffer=40)
    for task in TASKS[:2]:
        begun(method, task)
        method.end_task(task, images_of(task, 6 + 6 * task.index))
    begun(method, TASKS[2])
    slots, counting = method.places(), method.counting()
    assert counting.sum(dim=1).tolist() == [6, 12]
    assert slots[counting].tolist() == list(range(18))
    assert slots.shape == (2, 20)
    few: Gem = made(Gem, buffer=40, replay=16)
    for task in TASKS:
        begun(few, task)
    few.memory.load_state_dict(method.memory.state_dict())
    drawn = [few.places() for _ in range(30)]
    assert drawn[0].shape == (2, 8)
    assert few.counting().sum(dim=1).tolist() == [6, 8]
    assert {int(slot) for slots in drawn for slot in slots[0, :6]} == set(range(6))
    assert {int(slot) for slots in drawn for slot in slots[1]} == set(range(6, 18))
    assert all(len(slots[1].unique()) == 8 for slots in drawn)


@pytest.mark.parametrize("changes", [{"replay": -1}, {"strength": -1.0}, {"ridge": -1.0}])
def test_wrong_options_are_named(changes: dict[str, float]) -> None:
    with pytest.raises(GcabError, match=f"options.{next(iter(changes))}"):
        GemOptions(**changes)  # type: ignore[arg-type]
