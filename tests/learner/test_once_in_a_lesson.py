"""No change of a model works anything out twice: what the eye sees of a photo, or the solution of equations."""

import copy
from collections.abc import Callable

import pytest
import torch
from helpers.eyes import eye, many
from torch import Tensor

from gcab.model.discriminant import ExactDiscriminant
from gcab.model.eye import Eye
from gcab.model.lesson_cache import LessonCache, set_lesson_cache

FIRST, SECOND = many(0, 1, count=12), many(2, 3, count=12)


def test_a_lesson_sees_each_photo_once_and_solves_its_equations_without_and_with_those_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved, seen = list[int](), list[int]()
    factorise, measure = ExactDiscriminant.factorised, Eye.measured

    def counted(ridge: ExactDiscriminant) -> object:
        solved.append(int(ridge.counts.sum()))
        return factorise(ridge)

    def looked(self: Eye, images: Tensor, answers: Callable[[Tensor, int], Tensor]) -> Tensor:
        seen.append(len(images))
        return measure(self, images, answers)

    model = eye().learn(*FIRST, held_out=0.25)
    monkeypatch.setattr(ExactDiscriminant, "factorised", counted)
    monkeypatch.setattr(Eye, "measured", looked)
    lesson = model.lesson(*SECOND, held_out=0.25, patience=None)
    lesson.run()
    model.adopt(lesson, 0.0)
    assert solved == [42, 48]
    assert sum(seen) == 24
    assert not any(getattr(part, "lesson_cache", None) for part in model.method.modules()), "gone with the lesson"


def test_every_other_change_solves_its_equations_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = eye().learn(*FIRST), eye().learn(*SECOND)
    solved, factorise = list[int](), ExactDiscriminant.factorised

    def counted(ridge: ExactDiscriminant) -> object:
        solved.append(int(ridge.counts.sum()))
        return factorise(ridge)

    monkeypatch.setattr(ExactDiscriminant, "factorised", counted)
    model.merge(other)
    model.join("a", "b")
    model.forget("c", SECOND[0][:12])
    assert solved == [48, 48, 36]
    assert not any(getattr(part, "lesson_cache", None) for part in model.method.modules()), "gone with the change"


def test_other_sums_are_solved_anew() -> None:
    ridge = ExactDiscriminant(32)
    set_lesson_cache(ridge, active=True)
    ridge.grow(2)
    ridge.gram = torch.eye(32, dtype=torch.int32)[torch.tril(torch.ones(32, 32)).bool()][None] * 9
    ridge.counts += 5
    before = ridge.system()
    assert ridge.system() is before
    assert copy.deepcopy(ridge).system() is before
    ridge.counts += 1
    assert ridge.system() is not before


def test_no_more_rows_are_remembered_than_there_is_room_for() -> None:
    asked = list[int]()

    def doubled(images: Tensor) -> Tensor:
        asked.append(len(images))
        return images.flatten(1) * 2

    images, cache = torch.arange(24.0).reshape(4, 1, 2, 3), LessonCache(room=3 * 6 * 4)
    for _ in range(2):
        assert torch.equal(cache.encoded(images, doubled), images.flatten(1) * 2)
    assert asked == [4, 1]
