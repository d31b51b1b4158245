"""Feature distillation: what its term promises."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, gradient, images_of, learned, made, prepared, scrambled, stream, trained

from gcab.methods.fd import Fd
from gcab.model.projectors import drift_distance

FIRST, SECOND, THIRD = stream(2, 3, 1)


def second_task(**options: Any) -> Fd:
    method: Fd = made(Fd, **options)
    learned(method, FIRST)
    begun(method, SECOND)
    return method


@pytest.mark.parametrize(
    ("feature", "distance"), [("tokens", "cosine"), ("tokens", "l2"), ("tokens", "rms"), ("final", "cosine")]
)
def test_at_the_start_the_term_is_zero_and_without_gradient(feature: str, distance: str) -> None:
    method = second_task(feature=feature, distance=distance)
    batch = prepared(method, images_of(SECOND))
    term = method.loss(batch, START)["distillation"]
    assert float(term.detach()) == pytest.approx(0, abs=1e-6)
    assert float(gradient(term, method).abs().max()) < 1e-5
    scrambled(method)
    moved = method.loss(batch, START)["distillation"]
    assert float(moved.detach()) > 1e-3
    assert float(gradient(moved, method).abs().max()) > 1e-3


def test_a_large_weight_freezes_the_features_of_the_images_seen() -> None:
    moved = {}
    for weight in (0.0, 100.0):
        method = second_task(weight=weight)
        images = method.setting.normalise(images_of(SECOND).images)
        with torch.no_grad():
            before = method.eval().features(images)
        trained(method, SECOND, images_of(SECOND), epochs=10, lr=0.005)
        with torch.no_grad():
            moved[weight] = float(drift_distance("cosine", method.features(images), before))
    assert moved[100.0] < 0.1 * moved[0.0]


def test_the_weight_grows_with_the_share_of_old_classes() -> None:
    method = second_task()
    assert method.factor == pytest.approx((2 / 3) ** 0.5)
    begun(method, THIRD)
    assert method.factor == pytest.approx(5**0.5)
    assert second_task(scaled=False).factor == 1.0


def test_nothing_is_kept_between_tasks() -> None:
    method = made(Fd)
    learned(method, FIRST, SECOND)
    assert method.teacher is None
    assert method.image_bytes() == method.prototype_bytes() == 0
