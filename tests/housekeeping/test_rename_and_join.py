"""Classes renamed and joined: exact where sums are all there is, and honest where they are not."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.commands import refusal, succeeds
from helpers.eyes import eye, many, network, same
from torch import Tensor

from gcab import ContinualClassifier, GcabError, ModelFolder
from gcab.methods.gcab import Gcab
from gcab.model.statistics import ClassStatistics


def head_weight(model: ContinualClassifier) -> Tensor:
    """Of the head of the first task."""
    return model.method.state_dict()["network.heads.0.linear.weight"].clone()


def as_one(labels: list[str], name: str, other: str) -> list[str]:
    return [name if label == other else label for label in labels]


def test_a_name_is_all_that_changes() -> None:
    model = eye().learn(*many(0, 1), held_out=0.2).learn(*many(1, 2), held_out=0.2)
    before, calibration = model.logits(many(0, 1, 2)[0]), model.calibration
    model.rename("b", "bee")
    assert model.classes == ["a", "bee", "c"]
    assert [task.names for task in model.tasks] == [("a", "bee"), ("c",)]
    assert model.taught[1].again == ("bee",)
    assert torch.equal(model.logits(many(0, 1, 2)[0]), before)
    assert model.calibration == calibration
    with pytest.raises(GcabError, match="'c ' is another class of this model: 'gcab join' makes one class of two"):
        model.rename("a", "c ")
    for wrong, sentence in (("", "cannot be the name"), (" ", "cannot be the name"), (3, "use one kind")):
        with pytest.raises(GcabError, match=sentence):
            model.rename("a", wrong)
    with pytest.raises(GcabError, match="unknown class 'b': did you mean 'bee'"):
        model.rename("b", "x")
    assert model.rename("a", "a ").classes == ["a ", "bee", "c"]


@pytest.mark.parametrize("forgettable", [False, True])
@pytest.mark.parametrize(("name", "other"), [("b", "d"), ("d", "b")])
def test_sums_add_up_to_one_class(name: str, other: str, forgettable: bool) -> None:
    lessons = [many(0, 1), many(2, 3)]
    model = eye(forgettable=forgettable)
    for images, labels in lessons:
        model.learn(images, labels)
    assert model.join(name, other) == ()
    once = eye(forgettable=forgettable)
    for images, labels in lessons:
        once.learn(images, as_one(labels, name, other))
    order = [once.classes.index(label) for label in model.classes]
    images = many(0, 1, 2, 3, seed=9)[0]
    torch.testing.assert_close(model.logits(images), once.logits(images)[:, order], rtol=0, atol=0)
    assert model.join("a", "c") == ()
    assert len(model.classes) == 2
    assert [entry.classes for entry in model.taught] == [task.classes for task in model.tasks]


def test_a_joined_model_learns_on_as_if_it_had_been_so_always() -> None:
    model = eye().learn(*many(0, 1, 2))
    model.join("a", "b")
    model.learn(*many(1, 3, seed=2))
    images, labels = many(0, 1, 2)
    once = eye().learn(images, as_one(labels, "a", "b")).learn(*many(1, 3, seed=2))
    assert same(model, once)


def test_statistics_of_two_classes_are_those_of_one() -> None:
    random = torch.Generator().manual_seed(0)
    pooled = torch.randn(30, 4, 6, generator=random)
    labels = torch.arange(30) % 3
    labels[:4] = 1
    joined, once = (ClassStatistics(4, 6, pooled=True) for _ in range(2))
    joined.grow(3)
    once.grow(2)
    joined.fit(pooled, labels)
    counts = torch.bincount(labels).tolist()
    joined.join(0, 1, (counts[0], counts[1]))
    once.fit(pooled, torch.where(labels == 2, 1, 0))
    for name in ("means", "weight", "bias", "scatter"):
        torch.testing.assert_close(getattr(joined, name), getattr(once, name), rtol=1e-3, atol=1e-3)


@pytest.mark.repeats
@pytest.mark.parametrize(("name", "other", "told"), [("a", "b", "the mean of its two"), ("a", "c", "never saw photos")])
def test_a_network_joins_what_adds_up_and_says_the_rest(name: str, other: str, told: str, tmp_path: Path) -> None:
    model = network().learn(*many(0, 1), held_out=0.2).learn(*many(2, 3), held_out=0.2)
    assert isinstance(model.method, Gcab)
    before = head_weight(model)
    left = model.join(name, other)
    assert any(told in part for part in left)
    assert isinstance(model.method, Gcab)
    after = head_weight(model)
    torch.testing.assert_close(after[0], before.mean(dim=0) if other == "b" else before[0])
    assert sum(model.method.image_counts() or []) == 4 * 6
    assert model.classes == [label for label in "abcd" if label != other]
    model.save(tmp_path / "model")
    assert same(ContinualClassifier.load(tmp_path / "model", "cpu"), model)
    assert model.learn(*many(4, 5)).predict(many(0, 4)[0]).shape == (12,)


def test_one_pass_for_all_tasks_joins_too(tmp_path: Path) -> None:
    model = network().learn(*many(0, 1)).learn(*many(2, 3))
    model.distill(*many(2, 3), settings={"options.distillation_steps": 3})
    model.join("a", "d")
    model.save(tmp_path / "model")
    assert same(ContinualClassifier.load(tmp_path / "model", "cpu"), model)
    assert [task.names for task in model.tasks] == [("a", "b"), ("c",)]


def test_the_commands_write_generations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ModelFolder(tmp_path / "m")
    folder.write(eye().learn(*many(0, 1, 2)).save)
    first = folder.digest
    said = succeeds(capsys, "rename", folder.path, "b", "bee")
    assert said == f"{folder.path}  generation 2: b is called bee now (a, bee, c)\n"
    assert folder.digest != first  # a server notices
    undone = [folder.undoes]
    said = succeeds(capsys, "join", folder.path, "a", "bee", "--device", "cpu")
    assert "generation 3: bee is part of a; 2 classes (a, c)" in said
    assert "exactly as if both had been learned as one class" in said
    assert [*undone, folder.undoes] == ["renaming", "joining"]
    events = json.loads(succeeds(capsys, "history", folder.path, "--json"))["history"]
    assert [event["what"] for event in events] == ["learned", "renamed", "joined"]
    assert "is another class of this model" in refusal(capsys, "rename", folder.path, "a", "c")
    assert "unknown class 'bee'" in refusal(capsys, "join", folder.path, "a", "bee")
    assert "is the name of this class already" in refusal(capsys, "rename", folder.path, "a", "a")
    assert "cannot be joined with itself" in refusal(capsys, "join", folder.path, "a", "a")
    assert "there is no model in" in refusal(capsys, "rename", tmp_path / "none", "a", "b")
    assert folder.generation == 3
    assert list(tmp_path.iterdir()) == [folder.path]


def test_numbers_are_renamed_to_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = many(0, 1)
    folder = ModelFolder(tmp_path / "m")
    folder.write(eye().learn(images, np.array([ord(label) for label in labels])).save)
    succeeds(capsys, "rename", folder.path, "97", "7")
    assert ContinualClassifier.load(folder.path, "cpu").classes == [7, 98]
    assert "use one kind for all" in refusal(capsys, "rename", folder.path, "7", "seven")


def test_of_a_forgotten_class_no_name_it_ever_had_is_kept(tmp_path: Path) -> None:
    images, labels = many(0, 1, 2, 3)
    model = eye().learn(images, labels)
    model.rename("a", "aardvark").rename("b", "buzzard").rename("buzzard", "kite").rename("d", "dodo")
    model.join("kite", "dodo")
    chosen = np.isin(labels, ["b", "d"])
    model.forget("kite", images[chosen])
    model.save(tmp_path / "m")
    told = (tmp_path / "m" / "model.json").read_text()
    assert [made["text"] for made in json.loads(told)["changes"]] == ["a is called aardvark", "a class of lesson 1"]
    assert not any(name in told for name in ("buzzard", "kite", "dodo"))
