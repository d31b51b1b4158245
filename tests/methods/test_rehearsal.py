"""What methods that store images share: how many are drawn, and how tasks share the memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from method_drive import START, begun, images_of, learned, made, prepared, setting, stream

from gcab.errors import GcabError
from gcab.methods.agem import Agem
from gcab.methods.er import Er, ErOptions
from gcab.methods.memory import Memory
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.methods.rehearsal import round_robin
from gcab.seeds import seeded


def test_tasks_share_the_memory_and_their_classes_take_turns() -> None:
    method: Agem = made(Agem, buffer=13)
    kept: list[bytes] = []
    for task in stream(2, 3, 1):
        begun(method, task)
        method.end_task(task, images_of(task))
        stored, share = method.memory.everything(), 13 // (task.index + 1)
        assert len(stored.labels) == method.stored_images() == share * (task.index + 1)
        tasks = method.tasks_of_labels(stored.labels)
        assert tasks.tolist() == sorted(tasks.tolist())
        assert tasks.bincount().tolist() == [share] * (task.index + 1)
        counts = stored.labels.bincount()[task.first :]
        assert int(counts.max() - counts.min()) <= 1
        present = [image.numpy().tobytes() for image in stored.images]
        assert len(set(present)) == len(present)
        old = present[: share * task.index]
        assert all(image in kept for image in old), "an old image came back"
        kept = present
    assert method.image_bytes() == 13 * 3 * 64


def test_every_first_part_is_balanced() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([0] * 9 + [1] * 3 + [2] * 5)
    order = round_robin(labels)
    assert sorted(order.tolist()) == list(range(17))
    for length in range(1, 10):
        counts = labels[order[:length]].bincount(minlength=3)
        assert int(counts.max() - counts.min()) <= 1


@pytest.mark.parametrize(("asked", "drawn"), [(0, 8), (5, 5)])
def test_the_option_says_how_many_are_drawn(asked: int, drawn: int) -> None:
    method = made(Er, buffer=20, replay=asked)
    first, second = stream(2, 2)
    learned(method, first)
    assert method.replay(8) is None
    begun(method, second)
    replayed = method.replay(8)
    assert replayed is not None
    assert len(replayed.slots.unique()) == drawn


def test_a_memory_is_updated_row_by_row() -> None:
    memory = Memory(4, 2, {"score": torch.zeros(())})
    memory.update(torch.tensor([2, 0, 2, 9]), score=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert memory.get_buffer("score").tolist() == [2.0, 0.0, 3.0, 0.0]
    assert int(memory.filled) == 0


@pytest.mark.parametrize("name", ["buffer", "replay"])
def test_wrong_options_are_named(name: str) -> None:
    with pytest.raises(GcabError, match=f"options.{name} is -1"):
        ErOptions(**{name: -1})  # type: ignore[arg-type]


def with_one_place(name: str) -> Method:
    kind = methods()[name]
    encoder = replace(setting().encoder, kind=kind.profiles.get("official", {}).get("encoder.kind", "convit"))
    with seeded(1, "build"):
        return kind(replace(setting(), encoder=encoder), kind.Options(buffer=1))


@pytest.mark.repeats
@pytest.mark.parametrize("name", [name for name, kind in methods().items() if hasattr(kind.Options(), "buffer")])
def test_empty_places_are_not_learned_from_where_classes_outnumber_the_memory(name: str) -> None:
    method: Any = with_one_place(name)
    first, second, third = stream(2, 3, 2)
    learned(method, first, second, epochs=1)
    begun(method, third)
    with seeded(1, "draw"):
        batch = prepared(method, images_of(third, 6))
    if method.stored_images() or batch.slots is None:  # it keeps an image however many classes there are, or draws none
        assert method.stored_images() <= 1
        return
    others = batch.images.clone()
    others[batch.fresh :] = 1.0
    for (term, found), (_, again) in zip(
        method.loss(batch, START).items(), method.loss(replace(batch, images=others), START).items(), strict=True
    ):
        assert float(found.detach()) == float(again.detach()), term
