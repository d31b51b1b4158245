"""What accuracy to expect of classes whose photos are gone: the sums tell it, within a few points."""

from typing import cast

import pytest
import torch
from torch import Tensor

from gcab.classifier.forecast import forecast, likeliest_shift, no_better
from gcab.classifier.logits import HeldOutLogits
from gcab.classifier.model import Taught
from gcab.data.tasks import Task
from gcab.methods.method import Method
from gcab.model.discriminant import TELLING, ExactDiscriminant, Sums
from gcab.model.triangle import packed

FEATURES, CLASSES = 60, 5


def features_of(centres: Tensor, images: int, seed: int) -> tuple[Tensor, Tensor]:
    """Whole numbers around the centre of each class, and the classes."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(images)
    noise = 30 * torch.randn(len(labels), FEATURES, generator=random)
    return (centres[labels] + noise).round().double(), labels


def learned(x: Tensor, labels: Tensor) -> ExactDiscriminant:
    ridge = ExactDiscriminant(FEATURES)
    ridge.grow(CLASSES)
    sums = torch.zeros(CLASSES, FEATURES, dtype=torch.float64).index_add_(0, labels, x)
    ridge.add(Sums(packed(x.T @ x).long()[None], sums.long(), torch.bincount(labels, minlength=CLASSES)))
    ridge.solve()
    return ridge


def expected(ridge: ExactDiscriminant) -> Tensor:
    found = ridge.expected()
    assert found is not None
    return found


@pytest.mark.parametrize("apart", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("images", [25, 200])
def test_the_estimate_is_near_the_accuracy_on_new_images(apart: float, images: int) -> None:
    centres = apart * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    ridge = learned(*features_of(centres, images, seed=2))
    new, labels = features_of(centres, 2000, seed=3)
    truth = (ridge(new.float()).argmax(dim=1) == labels).double().mean()
    old, theirs = features_of(centres, images, seed=2)
    optimistic = (ridge(old.float()).argmax(dim=1) == theirs).double().mean()
    estimate = expected(ridge).mean()
    assert abs(float(estimate - truth)) < 0.06
    assert abs(float(estimate - truth)) < abs(float(optimistic - truth)) + 0.01, "no better than on learned images"


def test_classes_that_look_alike_are_expected_to_be_confused() -> None:
    centres = 15 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    centres[1] = centres[0]
    shares = expected(learned(*features_of(centres, 200, seed=2)))
    assert float(shares[:2].mean()) == pytest.approx(0.5, abs=0.06)
    assert float(shares[2:].min()) > 0.9


def test_the_same_sums_give_the_same_estimate() -> None:
    centres = 5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    ridge = learned(*features_of(centres, 30, seed=2))
    before = torch.get_rng_state()
    assert torch.equal(expected(ridge), expected(ridge))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("images", "tells"), [(1, False), (TELLING - 1, False), (TELLING, True)])
def test_few_images_tell_nothing_about_new_ones(images: int, tells: bool) -> None:
    centres = 5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    ridge = learned(*features_of(centres, images, seed=2))
    assert (ridge.expected() is not None) == tells


def test_classes_without_a_held_out_photo_are_estimated_beside_those_that_were_measured() -> None:
    class Expecting:
        def expected(self) -> Tensor:
            return torch.tensor([0.9, 0.7, 0.9, 0.2])

    method, tasks = cast(Method, Expecting()), (Task(0, 0, ("a", "b")), Task(1, 2, ("c", "d")))
    logits = torch.eye(4)[[2, 2]]
    assert forecast(method, tasks, None, HeldOutLogits(logits, torch.tensor([2, 2]))) == pytest.approx(
        [80.0, (100 + 20) / 2]
    )
    assert forecast(method, tasks, None, HeldOutLogits(logits, torch.tensor([2, 3]))) == pytest.approx([80.0, 50.0])
    more = HeldOutLogits(torch.eye(4)[[2, 2, 1]], torch.tensor([2, 3, 1]))  # and one of a class known before
    assert forecast(method, tasks, None, more) == pytest.approx([80.0, 50.0])
    assert forecast(method, (*tasks, Task(2, 4, ())), None, more) == pytest.approx([80.0, 55.0, 200 / 3])


def test_what_is_expected_of_an_earlier_task_does_not_rise_with_more_classes() -> None:
    tasks = (Task(0, 0, ("a", "b")), Task(1, 2, ("c",)), Task(2, 3, ("d",)))
    taught = (Taught(2, now=60.0), Taught(1, now=90.0), Taught(1, now=None))
    assert no_better([70.0, 80.0, 50.0, 99.0], tasks, taught, {}) == [60.0, 80.0, 50.0, 99.0]
    assert no_better([70.0, 95.0, None, 99.0], tasks, taught, {1: "b"}) == [70.0, 90.0, None, 99.0], "more photos of b"


def test_photos_left_out_tell_of_the_newest_lesson_what_few_held_out_photos_cannot() -> None:
    class Expecting:
        def expected(self) -> Tensor:
            return torch.tensor([0.5, 0.5, 0.5, 0.5])

    method, tasks = cast(Method, Expecting()), (Task(0, 0, ("a",)), Task(1, 1, ("b", "c", "d")))
    judged = HeldOutLogits(torch.eye(4)[[1, 2]], torch.tensor([1, 2]))  # two photos, and by luck both are right
    said = HeldOutLogits(torch.eye(4)[[1, 2, 1, 3, 2, 1, 3]], torch.tensor([1, 2, 1, 1, 1, 2, 3]))
    of_small = float(forecast(method, tasks, said)[1] or 0)  # no photo of d was held out: estimated, as without any
    assert forecast(method, tasks, said, judged)[1] == pytest.approx((50 + 50 + of_small) / 3)
    assert forecast(method, tasks[:1], None, None) == [50.0] * 1


@pytest.mark.parametrize(("images", "most"), [(4, 0.3), (12, 0.05)], ids=["4", "12"])
def test_scores_of_an_image_left_out_are_those_of_never_having_learned_it(images: int, most: float) -> None:
    """Of 4 images each, one image less changes the units of features, which is not corrected."""
    x, labels = features_of(8 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1)), images, 2)
    ridge = learned(x, labels)
    others = [torch.arange(len(labels)) != place for place in range(len(labels))]
    really = torch.cat([learned(x[kept], labels[kept])(x[~kept].float()) for kept in others])
    told, fitted = ridge.left_out(x.float(), labels), ridge(x.float())

    def error(scores: Tensor) -> float:
        """Of what sets classes apart."""
        apart = [value - value.mean(dim=1, keepdim=True) for value in (scores, really)]
        return float((apart[0] - apart[1]).norm() / apart[1].norm())

    assert error(told) < most
    assert error(told) < error(fitted) / 3


def test_held_out_photos_correct_the_estimate_by_as_much_as_they_tell() -> None:
    assert likeliest_shift(torch.zeros(1000), 800) == pytest.approx(1.386, abs=0.02), "many: what they say, log 4"
    assert 0.3 < likeliest_shift(torch.zeros(5), 4) < 1.0, "few: not all of it"
    hopeless = torch.tensor([-4.6])
    assert abs(likeliest_shift(hopeless, 0)) < 0.02, "one photo that was missed, as was expected"
