"""What held-out photos do: the eye learns them at last, and they judge as if it had not."""

import copy
from dataclasses import replace

import pytest
import torch
from helpers.eyes import eye, many, network, same

from gcab.classifier.logits import all_held_out_logits, can_be_left_out, held_out_logits
from gcab.data.hold_out import alone
from gcab.methods.gcab import Gcab

FIRST, SECOND = many(0, 1, count=12), many(2, 3, count=12)


def test_an_eye_knows_held_out_photos_as_well_as_the_others() -> None:
    assert same(eye().learn(*FIRST, held_out=0.25).learn(*SECOND, held_out=0.25), eye().learn(*FIRST).learn(*SECOND))


def test_the_eye_beside_a_network_knows_them_too_and_the_network_does_not() -> None:
    model = network().learn(*FIRST, held_out=0.25)
    assert isinstance(model.method, Gcab)
    assert model.method.image_counts() == [12, 12]
    assert int(model.method.statistics.images) == 18


def test_a_photo_of_a_series_does_not_judge_once_its_neighbours_are_learned() -> None:
    model = eye()
    lesson = model.lesson(*SECOND, held_out=0.25, patience=None)
    lesson.run()
    model.adopt(lesson, 0.0)
    train, held_out = lesson.material.train, lesson.material.held_out
    assert held_out is not None
    said = held_out_logits(model.method, held_out, model.device)
    assert not torch.equal(said.logits, model.logits(held_out.images))
    judged = alone(train.images, train.labels)
    both = all_held_out_logits(model.method, train, said)
    assert both is not None
    assert len(both.labels) == int(judged.sum()) + len(held_out.labels)
    assert not alone(train.images[[0, *range(len(train.labels) - 1)]], train.labels)[:2].any()


def test_bursts_that_are_held_out_are_not_learned() -> None:
    """Left out alone, a photo would still be given away by its neighbours."""
    images, labels = many(0, 1, count=4)
    bursts, names = images.repeat(5, axis=0), [name for name in labels for _ in range(5)]
    lesson = eye().lesson(bursts, names, held_out=0.25, patience=None)
    held_out = lesson.material.held_out
    assert held_out is not None
    assert not can_be_left_out(held_out)
    model = eye().learn(bursts, names, held_out=0.25)
    assert sum(model.method.image_counts() or []) == len(names) - len(held_out.labels)
    said = held_out_logits(model.method, held_out, model.device)
    assert torch.equal(said.logits, model.logits(held_out.images))


def test_a_temperature_is_remembered_in_units_of_the_eye() -> None:
    """The referee weighs the eye anew in every lesson: seven times the weight needs seven times the temperature."""
    one = network().learn(*FIRST, held_out=0.25)
    other = copy.deepcopy(one)
    assert isinstance(other.method, Gcab)
    assert other.method.referee is not None
    other.method.referee.weights.mul_(7)
    calibration = replace(one.calibration, temperature=7 * one.calibration.temperature)
    other._take(replace(other.known, calibration=calibration))
    more = many(0, 1, count=12, seed=1)
    one.learn(*more, held_out=0.25)
    other.learn(*more, held_out=0.25)
    assert other.calibration.temperature == pytest.approx(one.calibration.temperature)
