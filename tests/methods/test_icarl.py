"""iCaRL: herding, means of exemplars, old answers as targets; and memories with as many images of every class."""

import pytest
import torch
from small_b import SETTING, batch_of, begin, build, end, fit, images_of, largest_gradient, learn, move, tasks, terms
from torch.nn import functional

from gcab.data.tasks import TaskImages
from gcab.errors import GcabError
from gcab.methods.herding import add_classes, herded, number_within_class
from gcab.methods.icarl import HEADS
from gcab.methods.memory import Memory

FIRST, SECOND = tasks(2, 3)


def test_herding_is_greedy_and_its_beginning_does_not_depend_on_its_length() -> None:
    features = functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(1)), dim=1)
    longest = herded(features, 20)
    assert sorted(longest.tolist()) == list(range(9)), "no image twice, and all in the end"
    for count in range(9):
        assert torch.equal(herded(features, count), longest[:count])
    mean = features.mean(dim=0)
    for number in range(9):
        distances = [
            float((mean - features[[*longest[:number].tolist(), other]].mean(dim=0)).norm())
            for other in longest[number:].tolist()
        ]
        assert distances[0] == min(distances)


def test_memories_keep_the_first_of_every_class() -> None:
    memory = Memory(7, 8, {"mark": torch.zeros(())})
    images = torch.arange(12, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    labels = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2])
    assert number_within_class(labels).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3]
    add_classes(memory, TaskImages(images[:8], labels[:8]), 2, mark=torch.arange(8.0))
    assert memory.everything().images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    add_classes(memory, TaskImages(images[8:], labels[8:]), 3, mark=torch.arange(8.0, 12.0))
    assert memory.everything().images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 8, 9]
    assert memory.everything().labels.tolist() == [0, 1, 0, 1, 2, 2]
    assert memory.get_buffer("mark")[:6].tolist() == [0, 1, 2, 3, 8, 9]
    assert int(memory.filled) == 6, "the remainder stays empty"


def test_exemplars_are_balanced_and_old_ones_a_prefix() -> None:
    method = build("icarl", buffer=9)
    learn(method, FIRST)
    before = method.memory.everything()
    assert torch.bincount(before.labels).tolist() == [4, 4]
    assert method.among() is None, "the first task is learned alone"
    begin(method, SECOND)
    among = method.among()
    assert among is not None
    assert torch.equal(among.images, before.images)
    fit(method, SECOND)
    end(method, SECOND)
    after = method.memory.everything()
    assert torch.bincount(after.labels).tolist() == [1] * 5
    for label in range(2):
        assert torch.equal(after.images[after.labels == label][0], before.images[before.labels == label][0])


def test_means_are_of_unit_length_and_of_the_exemplars_of_now() -> None:
    method = build("icarl", buffer=10)
    learn(method, FIRST)
    learn(method, SECOND)
    held = method.memory.everything()
    with torch.no_grad():
        unit = functional.normalize(method.network.feature(SETTING.normalise(held.images)), dim=1)
    for label in range(5):
        expected = functional.normalize(unit[held.labels == label].mean(dim=0), dim=0)
        torch.testing.assert_close(method.means[label], expected)
    torch.testing.assert_close(torch.linalg.vector_norm(method.means, dim=1), torch.ones(5))
    assert method.prototype_bytes() == 5 * 16 * 4


def test_mirror_images_count_where_they_mean_the_same() -> None:
    plain, mirrored = build("icarl", buffer=4), build("icarl", buffer=4)
    object.__setattr__(mirrored, "setting", SETTING.__class__(**{**vars(SETTING), "mirrors": True}))
    for method in (plain, mirrored):
        learn(method, FIRST)
    assert torch.equal(plain.memory.images, mirrored.memory.images)
    assert not torch.allclose(plain.means, mirrored.means)


def test_the_decision_is_the_nearest_mean_whatever_the_length_of_features() -> None:
    method = build("icarl", buffer=10)
    learn(method, FIRST)
    images = SETTING.normalise(images_of(FIRST).images)
    feature = method.network.feature
    assert torch.equal(method.parts()[HEADS](images, method.features(images)), method.network(images))
    with torch.no_grad():
        expected = -torch.cdist(functional.normalize(feature(images), dim=1), method.means).square()
        torch.testing.assert_close(method.predict(images), expected, rtol=1e-4, atol=1e-5)
        method.network.feature = lambda images: 7 * feature(images)
        torch.testing.assert_close(method.predict(images), expected, rtol=1e-4, atol=1e-5)


def test_old_answers_pull_nowhere_when_a_task_begins() -> None:
    method = build("icarl", buffer=4)
    learn(method, FIRST)
    begin(method, SECOND)
    batch = batch_of(method, SECOND)
    logits = method.network(batch.images)
    old = functional.binary_cross_entropy_with_logits(logits[:, :2], batch.targets["logits"].sigmoid())
    assert largest_gradient(method, old) < 1e-6
    whole = terms(method, batch)["classification"]
    new = functional.binary_cross_entropy_with_logits(logits[:, 2:], functional.one_hot(batch.labels - 2, 3).float())
    torch.testing.assert_close(whole, (2 * old + 3 * new) / 5)
    move(method.network)
    moved = functional.binary_cross_entropy_with_logits(
        method.network(batch.images)[:, :2], batch.targets["logits"].sigmoid()
    )
    assert largest_gradient(method, moved) > 1e-4


def test_a_class_without_an_exemplar_keeps_the_mean_of_its_images() -> None:
    method = build("icarl", buffer=1)
    learn(method, FIRST)
    assert int(method.memory.filled) == 0
    torch.testing.assert_close(torch.linalg.vector_norm(method.means, dim=1), torch.ones(2))
    learn(method, SECOND)
    assert bool(method.predict(SETTING.normalise(images_of(SECOND).images)).isfinite().all())


def test_a_negative_buffer_is_refused() -> None:
    with pytest.raises(GcabError, match="give 0 or more"):
        build("icarl", buffer=-1)
