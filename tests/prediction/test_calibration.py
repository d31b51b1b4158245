"""Calibration: known miscalibration is undone, few or odd images do no harm, strangers are told from the known."""

import dataclasses
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gcab.classifier.calibration import Calibration, cross_fitted, expected_calibration_error, fitted_temperature
from gcab.errors import GcabError


def truthful(count: int, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits whose softmax is the true distribution of the labels."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=random)
    return logits, torch.multinomial(logits.softmax(dim=1), 1, generator=random)[:, 0]


def faultless(count: int, margin: float = 10.0) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % 2
    return margin * torch.nn.functional.one_hot(labels, 2).float(), labels


@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0, 30.0])
def test_the_temperature_that_was_hidden_is_found(factor: float) -> None:
    logits, labels = truthful(3000)
    found = Calibration.fit(factor * logits, labels)
    assert found.temperature == pytest.approx(factor, rel=0.08)
    assert found.images == 3000
    assert found.expected_calibration_error is not None
    assert found.expected_calibration_error < 0.03


def test_the_error_falls_on_images_that_were_not_fitted() -> None:
    logits, labels = truthful(2000)
    fitted = Calibration.fit(4 * logits[:1000], labels[:1000])
    before = expected_calibration_error((4 * logits[1000:]).softmax(dim=1), labels[1000:])
    after = expected_calibration_error(fitted.probabilities(4 * logits[1000:]), labels[1000:])
    assert before > 0.2
    assert after < 0.05


def test_a_constant_added_to_an_image_changes_no_probability() -> None:
    logits, labels = truthful(200)
    shifted = logits + torch.arange(200)[:, None]
    one, other = Calibration.fit(logits, labels), Calibration.fit(shifted, labels)
    assert one.temperature == pytest.approx(other.temperature)
    assert torch.allclose(one.probabilities(logits), other.probabilities(shifted), atol=1e-5)


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_faultless_images_do_not_make_it_certain(count: int) -> None:
    logits, labels = faultless(count)
    confidence = Calibration.fit(logits, labels).probabilities(logits).max().item()
    assert 0.1 / count < 1 - confidence < 3 / count  # as likely a fault as one image more could show


def test_faults_only_make_it_doubt_but_not_without_end() -> None:
    logits, labels = faultless(1000, margin=30.0)
    doubtful = Calibration.fit(logits, 1 - labels)
    assert doubtful.temperature <= 1000
    assert doubtful.probabilities(logits).max().item() < 0.55


def test_few_images_move_the_temperature_little() -> None:
    logits, labels = truthful(2000)
    *few, all_of_them = (fitted_temperature(6 * logits[:n].double(), labels[:n]) for n in (1, 10, 30, 2000))
    assert all(1 < temperature < 0.8 * all_of_them for temperature in few)
    assert fitted_temperature(logits[:1].double(), labels[:1]) == pytest.approx(1.0, rel=0.3)
    after = Calibration.fit(logits[:1], labels[:1], previous=Calibration(temperature=6.0))
    assert 3 < after.temperature < 9


def test_the_error_by_hand_in_bins_of_equal_count() -> None:
    confidence = torch.tensor([0.9] * 10 + [0.6] * 10)
    right = torch.tensor([True] * 5 + [False] * 5 + [True] * 9 + [False])
    probabilities = torch.stack([confidence, 1 - confidence], dim=1)
    error = expected_calibration_error(probabilities, (~right).long())
    assert error == pytest.approx((10 * abs(0.5 - 0.9) + 10 * abs(0.9 - 0.6)) / 20)


def test_the_error_by_hand_in_bins_of_equal_width() -> None:
    confidence = torch.tensor([0.61] * 100 + [0.65] * 60 + [0.99] * 40)  # 9/15 = 0.6, 10/15 = 0.667: two bins
    right = torch.tensor([True] * 100 + [False] * 60 + [True] * 40)
    probabilities = torch.stack([confidence, 1 - confidence], dim=1)
    error = expected_calibration_error(probabilities, (~right).long())
    first = abs((100 * (1 - 0.61) - 60 * 0.65) / 160)  # in one bin the two kinds make up for each other
    assert error == pytest.approx(0.8 * first + 0.2 * 0.01, abs=1e-6)


def test_the_error_is_not_measured_on_what_was_fitted() -> None:
    """One half of the images is right, the other wrong: each half's temperature is the other's worst."""
    logits, labels = torch.tensor([[10.0, 0.0], [0.0, 10.0]] * 20).double(), torch.zeros(40, dtype=torch.int64)
    together = (logits / fitted_temperature(logits, labels)).softmax(dim=1)
    assert expected_calibration_error(together, labels) < 0.25
    probabilities = cross_fitted(logits, labels)
    assert probabilities is not None
    assert expected_calibration_error(probabilities, labels) > 0.5


def test_too_few_images_give_no_error() -> None:
    logits, labels = truthful(20)
    assert Calibration.fit(logits[:19], labels[:19]).expected_calibration_error is None
    assert Calibration.fit(logits, labels).expected_calibration_error is not None


def test_unknown_is_the_share_that_looks_more_familiar() -> None:
    held_out, labels = truthful(1000)
    calibration = Calibration.fit(held_out, labels)
    scores = calibration.unknown(held_out)
    assert (scores >= 0.95).float().mean().item() == pytest.approx(0.05, abs=0.01)
    assert scores.median().item() == pytest.approx(0.5, abs=0.01)
    sure, torn = held_out.clone(), torch.full((1, 5), held_out.max().item())
    sure[:, 0] += 40
    assert calibration.unknown(sure).max() == 0
    assert calibration.unknown(torn).item() == 1


def test_below_twenty_held_out_images_nothing_is_unknown() -> None:
    logits, labels = truthful(20)
    torn = torch.zeros(3, 5)
    few, enough = Calibration.fit(logits[:19], labels[:19]), Calibration.fit(logits, labels)
    assert (few.tells_unknown, few.unknown(torn).tolist()) == (False, [0, 0, 0])
    assert (enough.tells_unknown, enough.unknown(torn).tolist()) == (True, [1, 1, 1])
    assert Calibration.fit(logits[:1], labels[:1], previous=few).tells_unknown  # with those of the task before: 20


def test_a_certain_answer_from_weak_logits_is_unknown() -> None:
    held_out, labels = truthful(500)
    calibration = Calibration.fit(held_out, labels)
    certain = held_out[calibration.unknown(held_out) < 0.1]
    assert calibration.unknown(certain - 100).min() == 1
    assert torch.allclose(calibration.probabilities(certain - 100), calibration.probabilities(certain), atol=1e-5)
    assert calibration.unknown(certain - 0.1).max() < 0.2  # a little weaker is nothing strange


def test_classes_of_earlier_tasks_must_be_as_certain_but_may_be_weaker() -> None:
    held_out, labels = faultless(100, margin=30.0)
    before = torch.full((100, 2), -30.0)  # two classes of an earlier task, which no held-out image is of
    noise = torch.randn(100, 4, generator=torch.Generator().manual_seed(3))
    calibration = Calibration.fit(torch.cat([before, held_out], dim=1) + noise, 2 + labels, newest=2)
    torn = torch.tensor([[28.0, 27.9, 0.0, 0.0], [0.0, 0.0, 28.0, 27.9]])  # hardly certain of an old, of a new class
    assert calibration.unknown(torn).tolist() == [1, 1]
    as_before = dataclasses.replace(calibration, alike=False)  # models of 0.1.0 keep their answers
    assert as_before.unknown(torn).tolist() == [0, 1]
    weaker = torch.tensor([[0.0, -30.0, -30.0, -30.0]])
    assert calibration.unknown(weaker).item() == 1


def test_classes_count_the_same_however_many_images_they_have() -> None:
    """A class of ten images that is often missed, beside one of 200: a test of both has as many of each."""
    labels = torch.tensor([0] * 200 + [1] * 10)
    right = torch.cat([torch.arange(200) % 10 > 0, torch.arange(10) % 2 == 0])  # 90 % and 50 %
    logits = 2.0 * torch.nn.functional.one_hot(torch.where(right, labels, 1 - labels), 2)
    confidence = Calibration.fit(logits, labels).probabilities(logits).max(dim=1).values.mean().item()
    assert confidence == pytest.approx(0.7, abs=0.05)


def test_a_lesson_counts_as_much_as_the_one_before_if_it_has_as_many_images() -> None:
    logits, labels = truthful(2000)
    first = Calibration.fit(4 * logits[:1000], labels[:1000])
    for images, expected in ((1000, 2.0), (100, 4 ** (10 / 11)), (1, 4.0)):
        after = Calibration.fit(logits[1000 : 1000 + images], labels[1000 : 1000 + images], previous=first)
        assert after.temperature == pytest.approx(expected, rel=0.15)
    trained_since = Calibration.fit(logits[1000:], labels[1000:], previous=first, steady=False)
    assert trained_since.temperature == pytest.approx(1.0, rel=0.15)


def test_the_curve_is_that_of_the_error() -> None:
    calibration = Calibration.fit(*truthful(300))
    assert sum(part.images for part in calibration.curve) == 300
    gaps = sum(part.images * abs(part.accuracy - part.confidence) for part in calibration.curve) / 300
    assert gaps == pytest.approx(calibration.expected_calibration_error)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_a_task_without_held_out_images_leaves_a_temperature_and_no_claim() -> None:
    left = Calibration.fit(*truthful(200)).outdated()
    assert left.temperature == pytest.approx(1.0, rel=0.3)
    assert (left.images, left.tells_unknown, left.expected_calibration_error) == (0, False, None)


def test_an_earlier_distribution_fills_up_a_short_one_and_no_more() -> None:
    earlier = Calibration.fit(*truthful(400))
    logits, labels = truthful(30, seed=1)
    together = Calibration.fit(logits, labels, previous=earlier)
    alone = Calibration.fit(logits, labels, previous=Calibration(earlier.temperature))
    assert together.images == 50
    assert alone.images == 30
    assert together.familiarity != alone.familiarity
    logits, labels = truthful(60, seed=1)
    together = Calibration.fit(logits, labels, previous=earlier)
    assert together.images == 60
    assert set(together.familiarity) <= set(together.familiar(logits).tolist())


def test_without_held_out_images_nothing_is_changed_and_nothing_unknown() -> None:
    logits = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    assert torch.allclose(Calibration().probabilities(logits), logits.softmax(dim=1))
    assert Calibration().unknown(logits).tolist() == [0, 0]
    assert Calibration().expected_calibration_error is None


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(3, 1),
        torch.zeros(1, 4),
        torch.zeros(40, 3),
        torch.full((30, 3), 1e30),
        torch.randn(30, 3, generator=torch.Generator().manual_seed(0)) * 1e20,
        torch.randn(30, 3, generator=torch.Generator().manual_seed(0)) * 1e-20,
        torch.tensor([[0.0, -math.inf, 1.0]] * 30),
        torch.tensor([[-math.inf, 2.0, 1.0]] * 30),  # the true class is said to be impossible
    ],
)
def test_odd_logits_give_sound_numbers(logits: Tensor) -> None:
    calibration = Calibration.fit(logits, torch.zeros(len(logits), dtype=torch.int64))
    probabilities, unknown = calibration.probabilities(logits), calibration.unknown(logits)
    assert 0.01 <= calibration.temperature <= 1000
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(len(logits)))
    assert ((unknown >= 0) & (unknown < 1)).all()
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


@pytest.mark.repeats
@settings(max_examples=40)
@given(
    st.integers(1, 5).flatmap(
        lambda classes: st.lists(
            st.tuples(
                st.lists(st.floats(-1e6, 1e6, width=32), min_size=classes, max_size=classes),
                st.integers(0, classes - 1),
            ),
            min_size=1,
            max_size=25,
        )
    )
)
def test_any_finite_logits(rows: list[tuple[list[float], int]]) -> None:
    logits, labels = torch.tensor([row for row, _ in rows]), torch.tensor([label for _, label in rows])
    calibration = Calibration.fit(logits, labels)
    probabilities, unknown = calibration.probabilities(logits), calibration.unknown(logits)
    assert probabilities.isfinite().all()
    best = probabilities.gather(1, logits.argmax(dim=1, keepdim=True))[:, 0]
    assert torch.equal(best, probabilities.max(dim=1).values)  # the order of classes is kept
    assert ((unknown >= 0) & (unknown <= 1)).all()
    error = calibration.expected_calibration_error
    assert error is None or 0 <= error <= 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    logits, labels = truthful(10)
    logits[3, 1] = bad
    for call in (Calibration().probabilities, Calibration().unknown, lambda z: Calibration.fit(z, labels)):
        with pytest.raises(GcabError, match="not all numbers"):
            call(logits)
    with pytest.raises(GcabError, match="not all numbers"):
        Calibration().probabilities(torch.full((1, 2), -math.inf))


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (torch.zeros(0, 3), torch.zeros(0)),
        (torch.zeros(4, 3), torch.zeros(3)),
        (torch.zeros(4, 3), torch.tensor([0, 1, 2, 3])),
        (torch.zeros(4, 3), torch.tensor([0, 1, -1, 2])),
        (torch.zeros(4), torch.zeros(4)),
        (torch.zeros(4, 0), torch.zeros(4)),
    ],
)
def test_labels_that_do_not_fit_are_refused(logits: Tensor, labels: Tensor) -> None:
    with pytest.raises(GcabError, match="calibration"):
        Calibration.fit(logits, labels)


@pytest.mark.parametrize(
    "damage",
    [
        {"temperature": 0},
        {"temperature": math.nan},
        {"temperature": None},
        {"certainty": [1.0]},
        {"strength": [0.0, 0.0]},
        {"familiarity": [3.0, 1.0]},
        {"familiarity": "many"},
        {"images": -1},
        {"expected_calibration_error": "small"},
    ],
)
def test_a_damaged_file_is_refused(damage: dict[str, Any]) -> None:
    fields = Calibration.fit(*truthful(50)).to_dict()
    with pytest.raises(GcabError, match="calibration is damaged"):
        Calibration.from_dict({**fields, **damage})
    del fields[next(iter(damage))]
    with pytest.raises(GcabError, match="calibration is damaged"):
        Calibration.from_dict(fields)
