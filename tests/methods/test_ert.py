"""ER with tricks: who is replaced, and what the correction may not do."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, images_of, learned, made, prepared, step_of, stream, trained, twins

from gcab.data.tasks import TaskImages
from gcab.errors import GcabError
from gcab.methods.er import Er
from gcab.methods.ert import Ert, ErtOptions
from gcab.methods.method import losses
from gcab.seeds import seeded

TASKS = stream(2, 3)
PLAIN: dict[str, Any] = {"balanced": False, "loss_aware": False, "corrected": False, "task_rate": 1.0}


def stored_losses(method: Ert) -> torch.Tensor:
    return method.memory.get_buffer("loss")


def filled(method: Ert, labels: list[int], of_images: list[float]) -> Ert:
    """A method whose memory is full of images of these classes with these losses."""
    for task in TASKS:
        begun(method, task)
    method.memory.labels.copy_(torch.tensor(labels))
    stored_losses(method).copy_(torch.tensor(of_images))
    method.memory.seen.fill_(len(labels))
    method.memory.filled.fill_(len(labels))
    return method


def test_scores_are_the_authors() -> None:
    labels, of_images = [0, 0, 0, 1, 4], [0.1, 2.0, 0.5, 1.0, 3.0]
    often, known = torch.tensor([3.0, 3, 3, 1, 1]), -torch.tensor(of_images)
    merged = 0.5 * known / (known.abs().mean() * often.mean()) + 0.5 * often
    expected = (merged - merged.min()) / (merged.max() - merged.min())
    torch.testing.assert_close(filled(made(Ert, buffer=5), labels, of_images).scores(), expected)
    assert int(expected.argmax()) == 0, "frequent and well learned"
    even = filled(made(Ert, buffer=5, **PLAIN), labels, of_images)
    assert even.scores().tolist() == [1.0] * 5


def test_the_correction_does_not_change_decisions_within_a_task() -> None:
    method: Ert = made(Ert, buffer=12)
    learned(method, *TASKS)
    images = method.setting.normalise(images_of(TASKS[1]).images)
    features = method.features(images)
    parts = method.parts()
    plain, corrected = (parts[f"heads, {name}"](images, features) for name in ("not corrected", "corrected"))
    assert method.correction.tolist() != [1.0, 0.0]
    assert float(method.correction[0]) > 0
    torch.testing.assert_close(method.predict(images), corrected)
    assert torch.equal(plain[:, :2], corrected[:, :2])
    assert torch.equal(plain[:, 2:].argmax(dim=1), corrected[:, 2:].argmax(dim=1))
    begun(method, stream(2, 3, 1)[2])
    assert method.correction.tolist() == [1.0, 0.0], "it was another task's"


def test_the_correction_makes_the_stored_labels_more_likely() -> None:
    method: Ert = made(Ert, buffer=12)
    for task in TASKS:
        begun(method, task)
    logits = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))
    logits[:, 2:] += 4  # the newest task claims everything
    labels = torch.arange(12) % 5
    with seeded(1, "fit"):
        found = method.fitted(logits, labels)
    before, after = (losses("ce", method.correct(logits, s), labels).mean() for s in (torch.tensor([1.0, 0.0]), found))
    assert float(after) < float(before) - 0.5
    assert float(found[1]) < -0.5


@pytest.mark.repeats
def test_without_tricks_it_is_experience_replay() -> None:
    """The same loss of the same images, and a uniform sample of the stream."""
    method, plain = made(Ert, buffer=8, **PLAIN), made(Er, buffer=8, loss="ce")
    for one in (method, plain):
        for task in TASKS:
            begun(one, task)
        one.memory.rewrite(images_of(TASKS[0], 8).images, images_of(TASKS[0], 8).labels)
        with seeded(1, "draw"):
            step_of(one)(images_of(TASKS[1], 8).images, images_of(TASKS[1], 8).labels, START)
    assert twins(method, plain)
    runs, places, length = 600, 4, 16
    counts = torch.zeros(length)
    method = made(Ert, buffer=places, **PLAIN)
    begun(method, TASKS[0])
    numbers = torch.arange(length)
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    with seeded(1, "stream"):
        for _ in range(runs):
            method.memory.seen.zero_()
            method.memory.filled.zero_()
            for part in numbers.split(8):
                values = {"images": images[part], "labels": torch.zeros(8, dtype=torch.long), "loss": torch.zeros(8)}
                method.insert(values)
            counts[method.memory.images[:, 0, 0, 0].long()] += 1
    chance = places / length
    assert float((counts - runs * chance).abs().max()) < 4.5 * (runs * chance * (1 - chance)) ** 0.5


def test_classes_are_stored_more_evenly_than_by_chance() -> None:
    def spread(**options: Any) -> float:
        method: Ert = made(Ert, buffer=12, loss_aware=False, corrected=False, **options)
        for task in TASKS:
            begun(method, task)
        labels = torch.tensor([0] * 60 + [1] * 20 + [2] * 10 + [3] * 10)
        total = 0.0
        with seeded(1, "stream"):
            for _ in range(30):
                method.memory.seen.zero_()
                method.memory.filled.zero_()
                for part in labels[torch.randperm(100)].split(10):
                    images = torch.zeros(10, 3, 8, 8, dtype=torch.uint8)
                    method.insert({"images": images, "labels": part, "loss": torch.ones(10)})
                total += float(method.memory.labels.bincount(minlength=4).float().std())
        return total

    assert spread(balanced=True) < 0.8 * spread(balanced=False)


def test_a_replayed_image_has_its_newest_loss() -> None:
    method: Ert = made(Ert, buffer=12)
    begun(method, TASKS[0])
    data = images_of(TASKS[0], 12)
    trained(method, TASKS[0], TaskImages(data.images[:8], data.labels[:8]), epochs=1)
    assert (stored_losses(method)[:8] > 0).all()
    method.eval()
    stored_losses(method).fill_(99.0)
    batch = prepared(method, TaskImages(data.images[8:], data.labels[8:]))
    assert batch.slots is not None
    method.loss(batch, START)
    with torch.no_grad():
        expected = losses("ce", method.predict(batch.images), batch.labels)
    method.after_step(START, batch)
    torch.testing.assert_close(stored_losses(method)[batch.slots], expected[4:])
    torch.testing.assert_close(stored_losses(method)[8:12], expected[:4])
    assert float(stored_losses(method).max()) == 99.0, "others keep theirs"


def test_the_learning_rate_falls_from_task_to_task_and_bytes_are_counted() -> None:
    method: Ert = made(Ert, buffer=10)
    assert method.rate(TASKS[1], 5) == pytest.approx(0.83)
    assert method.prototype_bytes() == 10 * 4 + 8


@pytest.mark.parametrize("changes", [{"task_rate": 0.0}, {"correction_rate": -1.0}, {"correction_epochs": -1}])
def test_wrong_options_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(GcabError, match=f"options.{next(iter(changes))}"):
        ErtOptions(**changes)
