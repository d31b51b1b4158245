"""HAL: the look ahead, and where anchors go."""

from typing import Any

import pytest
import torch
from small_b import (
    SETTING,
    batch_of,
    begin,
    build,
    end,
    fit,
    images_of,
    largest_gradient,
    learn,
    snapshot,
    tasks,
    terms,
)

from gcab.data.tasks import Batch
from gcab.methods.herding import class_means

FIRST, SECOND = tasks(2, 3)
QUICK: dict[str, Any] = {"buffer": 6, "anchor_steps": 20, "memory_steps": 5, "memory_batch": 4}


def with_replay(method: object, count: int = 6) -> Batch:
    """Fresh images and stored ones, not augmented."""
    fresh = images_of(SECOND, count)
    drawn = method.replay(count)  # type: ignore[attr-defined]
    images, labels = torch.cat([fresh.images, drawn.images]), torch.cat([fresh.labels, drawn.labels])
    return Batch(SETTING.normalise(images), labels, count, drawn.slots)


@pytest.mark.parametrize("second_order", [False, True])
def test_looking_ahead_leaves_the_weights_as_they_are(second_order: bool) -> None:
    method = build("hal", **{**QUICK, "second_order": second_order})
    learn(method, FIRST)
    begin(method, SECOND)
    before = snapshot(method)
    method.train()
    found = terms(method, with_replay(method))
    after = snapshot(method)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert method.network.training
    assert float(found["anchors"].detach()) > 0
    assert largest_gradient(method, found["anchors"]) > 0


def test_the_term_is_the_change_that_a_step_of_descent_makes() -> None:
    method = build("hal", **QUICK)
    learn(method, FIRST)
    begin(method, SECOND)
    batch = with_replay(method)
    found = terms(method, batch)
    anchors = method.anchors[:2]
    learning = [weight for weight in method.network.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(found["classification"], learning, retain_graph=True)
    with torch.no_grad():
        now = method.network(anchors)
        for weight, gradient in zip(learning, gradients, strict=True):
            weight.sub_(0.03 * gradient)
        then = method.network(anchors)
    expected = 0.1 * (now - then).square().sum(dim=1).mean()
    torch.testing.assert_close(found["anchors"].detach(), expected, rtol=1e-3, atol=1e-9)


def test_the_classification_is_differentiated_once_and_has_the_gradients_of_replay() -> None:
    method, plain = build("hal", **QUICK), build("hal", **{**QUICK, "anchors": 0.0})
    learn(method, FIRST)
    begin(method, SECOND)
    begin(plain, FIRST)
    begin(plain, SECOND)
    plain.load_state_dict(method.state_dict())
    batch = with_replay(method)
    method.eval()  # in which nothing is dropped
    plain.eval()
    one, other = terms(method, batch)["classification"], terms(plain, batch)["classification"]
    assert torch.equal(one, other)
    found = torch.autograd.grad(2 * one, [*method.network.parameters()])
    expected = torch.autograd.grad(2 * other, [*plain.network.parameters()])
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert one.grad_fn is not None
    assert {type(before[0]).__name__ for before in one.grad_fn.next_functions if before[0]} == {"AccumulateGrad"}


def test_without_a_look_ahead_the_term_is_zero() -> None:
    method = build("hal", **{**QUICK, "look_ahead": 0.0})
    learn(method, FIRST)
    begin(method, SECOND)
    assert float(terms(method, with_replay(method))["anchors"].detach()) == pytest.approx(0, abs=1e-10)


def test_without_anchors_it_is_experience_replay() -> None:
    hal, er = build("hal", **{**QUICK, "anchors": 0.0}), build("er", buffer=6, loss="ce")
    for method in (hal, er):
        learn(method, FIRST)
        begin(method, SECOND)
        fit(method, SECOND)
    other = snapshot(er)
    assert all(torch.equal(value, other[name]) for name, value in snapshot(hal).items() if name in other)


@pytest.mark.repeats
def test_the_objective_of_anchors_falls_and_they_stay_images() -> None:
    method = build("hal", **{**QUICK, "anchor_lr": 0.05, "anchor_steps": 100})
    begin(method, FIRST)
    fit(method, FIRST)
    data = images_of(FIRST)
    images = SETTING.normalise(data.images)
    start = class_means(images, data.labels, FIRST.labels)
    with torch.no_grad():
        means = class_means(method.network.feature(images), data.labels, FIRST.labels)
    method.memory.reservoir(data.images, data.labels)
    rehearsed, labels = method.rehearsed_network(), torch.tensor([0, 1])
    before = method.objective(start, means, labels, rehearsed)
    found = method.sought(start, means, labels, rehearsed)
    after = method.objective(found, means, labels, rehearsed)
    assert bool((after < before).all())
    assert float(found.abs().max()) <= 2.0, "of (0 .. 1 - 0.5) / 0.25"


def test_there_is_an_anchor_of_every_class_and_its_bytes_are_counted() -> None:
    method = build("hal", **QUICK)
    learn(method, FIRST)
    kept = method.anchors.clone()
    assert bool((kept != 0).flatten(1).any(dim=1).all())
    learn(method, SECOND)
    assert torch.equal(method.anchors[:2], kept)
    assert bool((method.anchors != 0).flatten(1).any(dim=1).all())
    assert method.prototype_bytes() == 5 * 3 * 8 * 8 * 4


def test_the_first_task_has_no_anchors_to_hold() -> None:
    method = build("hal", **QUICK)
    begin(method, FIRST)
    assert terms(method, batch_of(method, FIRST)).keys() == {"classification"}
    end(method, FIRST)
