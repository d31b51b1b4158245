"""Sums add up: models taught apart, and more photos of classes that are known."""

import numpy as np
import pytest
from helpers.eyes import eye, many, network, pictures, same
from helpers.settings import TINY

from gcab import ContinualClassifier, GcabError


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("forgettable", [False, True])
def test_models_taught_apart_are_one_taught_both(forgettable: bool, flip: bool) -> None:
    def fresh() -> ContinualClassifier:
        return eye(forgettable=forgettable, flip=flip)

    north = fresh().learn(*many(0, 1))
    south = fresh().learn(*many(2, 1, seed=1)).learn(*many(3))
    both = fresh().learn(*many(0, 1)).learn(*many(2, 1, seed=1)).learn(*many(3))
    merged = north.merge(south)
    assert same(merged, both)
    assert merged.tasks == both.tasks
    assert [entry.again for entry in merged.taught] == [entry.again for entry in both.taught] == [(), ("b",), ()]
    assert [entry.classes for entry in merged.taught] == [2, 1, 1]


def test_what_does_not_add_up_is_refused() -> None:
    model, before = (eye().learn(*many(0, 1)) for _ in range(2))
    others = {
        "options.features is 64 in the first and 128": eye(features=128).learn(*many(2)),
        "options.forgettable is False": eye(forgettable=True).learn(*many(2)),
        r"augment.flip is False .* anew, as the other was \(--set augment.flip=...\)": eye(flip=True).learn(*many(2)),
        r"the size of images is 16 .* \(--size\)": ContinualClassifier(
            "eye", image_size=24, device="cpu", settings={"options.features": 64}
        ).learn(*many(2)),
        "whole numbers": eye().learn(pictures(0), [7] * 6),
        "only models of the method eye": network().learn(*many(2, 3)),
        "the same photos": model,
    }
    for words, other in others.items():
        with pytest.raises(GcabError, match=words):
            model.merge(other)
        assert same(model, before)
    with pytest.raises(GcabError, match="only models of the method eye"):
        others["only models of the method eye"].merge(model)


def test_more_photos_of_a_known_class_are_as_if_all_had_come_at_once() -> None:
    images = np.concatenate([pictures(0), pictures(1), pictures(0, seed=1)])
    at_once = eye().learn(images, [*"aaaaaabbbbbbaaaaaa"])
    model = eye().learn(*many(0, 1)).learn(*many(0, seed=1))
    assert same(model, at_once)
    assert [task.names for task in model.tasks] == [("a", "b"), ()]
    assert model.taught[1].again == ("a",)
    model.learn(*many(1, 2, seed=2), held_out=0.2)
    assert model.classes == ["a", "b", "c"]
    assert model.calibration.newest == 1


def test_other_methods_learn_a_class_once() -> None:
    model = ContinualClassifier("finetune", device="cpu", epochs=1, settings=TINY).learn(*many(0, 1))
    with pytest.raises(GcabError, match="class 'b' was learned before: teach only new classes"):
        model.learn(*many(1, 2))
    with pytest.raises(GcabError, match="a task needs at least two"):
        model.learn(*many(2))


def test_records_are_saved(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = eye().learn(*many(0, 1)).learn(*many(0, 2, seed=1))
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    again = ContinualClassifier.load(folder, "cpu")
    assert (again.taught, again.tasks) == (model.taught, model.tasks)
    assert same(again, model)
