"""A class taken out of a model: exact where sums are all there is, and honest where they are not."""

import numpy as np
import pytest
from helpers.eyes import eye, many, network, pictures, same
from helpers.settings import TINY

from gcab import ContinualClassifier, GcabError
from gcab.methods.gcab import Gcab


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("forgettable", [False, True])
def test_a_forgotten_class_was_never_seen(forgettable: bool, flip: bool) -> None:
    model = eye(forgettable=forgettable, flip=flip).learn(*many(0, 1)).learn(*many(2, 3))
    left = model.forget("b", None if forgettable else pictures(1))
    never = eye(forgettable=forgettable, flip=flip).learn(*many(0)).learn(*many(2, 3))
    assert left == ()
    assert same(model, never)
    assert [(task.names, task.first) for task in model.tasks] == [(("a",), 0), (("c", "d"), 1)]
    assert [entry.classes for entry in model.taught] == [1, 2]


def test_photos_that_were_held_out_may_be_among_those_given() -> None:
    model = eye().learn(*many(0, 1, count=10), held_out=0.2).learn(*many(1, 2, count=10, seed=1), held_out=0.3)
    twice = np.concatenate([pictures(1, 10), pictures(1, 10, seed=1), pictures(1, 3, seed=2)])
    left = model.forget("b", twice)
    never = eye().learn(*many(0, count=10), held_out=0.2).learn(*many(2, count=10, seed=1), held_out=0.3)
    assert left == ("one temperature for the probabilities of all classes",)
    assert same(model, never)
    assert [entry.again for entry in model.taught] == [(), ()]


def test_equal_photos_are_counted_as_often_as_they_were_learned() -> None:
    images = np.concatenate([pictures(1, 3), pictures(1, 3)])
    model = eye().learn(*many(0)).learn(images, ["b"] * 6)
    model.forget("b", np.concatenate([images, pictures(1, 1, seed=4)]))
    assert same(model, eye().learn(*many(0)))


@pytest.mark.parametrize("count", [5, 6, 7])
def test_other_photos_are_refused_and_nothing_changes(count: int) -> None:
    model, before = (eye().learn(*many(0, 1)) for _ in range(2))
    with pytest.raises(GcabError, match="do not add up to what was learned"):
        model.forget("b", pictures(1, count, seed=5))
    assert same(model, before)


def test_what_cannot_be_forgotten() -> None:
    model = eye().learn(*many(0, 1))
    with pytest.raises(GcabError, match="give the photos of the class"):
        model.forget("b")
    with pytest.raises(GcabError, match="unknown class 'x'"):
        model.forget("x")
    model.forget("b", pictures(1))
    with pytest.raises(GcabError, match="the only class"):
        model.forget("a", pictures(0))
    plain = ContinualClassifier("finetune", device="cpu", epochs=1, settings=TINY).learn(*many(0, 1))
    with pytest.raises(GcabError, match="cannot forget a class"):
        plain.forget("a")


@pytest.mark.parametrize("photos", [False, True])
def test_a_network_forgets_a_class_and_says_what_is_left(photos: bool) -> None:
    model = network().learn(*many(0, 1), held_out=0.2).learn(*many(2, 3), held_out=0.2)
    capacity = model.method.capacity()
    left = model.forget("b", pictures(1) if photos else None)
    assert model.classes == ["a", "c", "d"]
    assert isinstance(model.method, Gcab)
    assert model.method.network.classes == [1, 2]
    assert model.method.capacity() == capacity
    assert model.logits(many(0, 2, 3)[0]).shape == (18, 3)
    assert any("eye" in part for part in left) == (not photos)
    assert "encoder" in left[0]


def test_a_task_without_classes_goes_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = network().learn(*many(0, 1)).learn(*many(2, 3))
    for label in (0, 1):
        model.forget("ab"[label], pictures(label))
    assert [task.names for task in model.tasks] == [(), ("c", "d")]
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    again = ContinualClassifier.load(folder, "cpu")
    assert same(again, model)
    assert set(again.learn(*many(4, 5)).predict(many(2, 4)[0])) <= set("cdef")


def test_one_pass_for_all_tasks_forgets_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = network().learn(*many(0, 1)).learn(*many(2, 3))
    model.distill(*many(2, 3), settings={"options.distillation_steps": 3})
    model.forget("c", pictures(2))
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    assert same(ContinualClassifier.load(folder, "cpu"), model)
    assert [task.names for task in model.tasks] == [("a", "b"), ("d",)]
