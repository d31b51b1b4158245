"""PASS: rotations, noisy prototypes, and what they leave unchanged."""

import pytest
import torch
from small_b import SETTING, WIDTH, batch_of, begin, build, fit, images_of, learn, tasks, terms

from gcab.data.tasks import Batch
from gcab.methods.method import Method
from gcab.methods.registry import methods

FIRST, SECOND = tasks(2, 3)


def losses_of(method: Method, images: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Of every view of every image, sorted."""
    batch = method.batch(Batch(images, labels))
    one_by_one = [
        terms(method, Batch(batch.images[i : i + 1], batch.labels[i : i + 1])) for i in range(len(batch.labels))
    ]
    return sorted(float(term["classification"].detach()) for term in one_by_one)


def test_its_name_is_a_word_of_python() -> None:
    assert methods()["pass"].__module__ == "gcab.methods.pass_"


def test_a_batch_has_every_quarter_turn_with_its_own_class() -> None:
    method = build("pass")
    begin(method, FIRST)
    data = images_of(FIRST, 5)
    batch = batch_of(method, FIRST, 5)
    assert batch.images.shape == (20, 3, 8, 8)
    for quarter in range(4):
        part = slice(5 * quarter, 5 * quarter + 5)
        assert torch.equal(batch.images[part], SETTING.normalise(data.images).rot90(quarter, (2, 3)))
        assert torch.equal(batch.labels[part], 4 * data.labels + quarter)


def test_a_turned_image_gives_the_same_losses_with_turned_classes() -> None:
    """Turning the input and adding 1 to k: the same views, so the same losses, once labels turn with them."""
    method = build("pass")
    begin(method, FIRST)
    fit(method, FIRST)
    data = images_of(FIRST, 4)
    images = SETTING.normalise(data.images)
    straight, turned = (method.batch(Batch(view, data.labels)) for view in (images, images.rot90(1, (2, 3))))
    labels = 4 * (turned.labels // 4) + (turned.labels + 1) % 4
    one, other = (
        sorted(torch.nn.functional.cross_entropy(method.network(view), of, reduction="none").tolist())
        for view, of in ((straight.images, straight.labels), (turned.images, labels))
    )
    assert one == pytest.approx(other, rel=1e-5)
    assert losses_of(method, images, data.labels) != pytest.approx(one, rel=1e-3)  # the temperature


def test_prediction_asks_for_the_unturned_classes() -> None:
    method = build("pass")
    learn(method, FIRST)
    begin(method, SECOND)
    images = SETTING.normalise(images_of(SECOND).images)
    assert torch.equal(method.predict(images), method.network(images)[:, [0, 4, 8, 12, 16]])


def test_distillation_is_zero_when_a_task_begins() -> None:
    method = build("pass")
    learn(method, FIRST)
    begin(method, SECOND)
    found = terms(method, batch_of(method, SECOND))
    assert float(found["distillation"].detach()) == pytest.approx(0, abs=1e-5)
    assert float(found["prototypes"].detach()) > 0


def test_draws_lie_on_their_prototypes_without_a_radius_and_around_them_with_one() -> None:
    method = build("pass")
    learn(method, FIRST)
    begin(method, SECOND)
    torch.manual_seed(1)
    method.radius.fill_(0.0)
    features, labels = method.augmented(50)
    assert torch.equal(features, method.prototypes[labels])
    assert set(labels.tolist()) == {0, 1}, "old classes only, and all of them"
    method.radius.fill_(0.5)
    features, labels = method.augmented(2000)
    assert float((features - method.prototypes[labels]).std()) == pytest.approx(0.5, rel=0.05)


def test_the_radius_is_that_of_the_first_task_and_prototypes_never_move() -> None:
    method = build("pass")
    learn(method, FIRST)
    data = images_of(FIRST)
    with torch.no_grad():
        features = method.network.feature(SETTING.normalise(data.images))
    by_class = [features[data.labels == label] for label in range(2)]
    torch.testing.assert_close(method.prototypes, torch.stack([part.mean(dim=0) for part in by_class]))
    traces = [((part - part.mean(dim=0)) ** 2).sum(dim=1).mean() / WIDTH for part in by_class]
    torch.testing.assert_close(method.radius, torch.stack(traces).mean().sqrt())
    radius, prototypes = method.radius.clone(), method.prototypes.clone()
    learn(method, SECOND)
    assert torch.equal(method.radius, radius)
    assert torch.equal(method.prototypes[:2], prototypes)
    assert method.prototype_bytes() == 5 * WIDTH * 4 + 4
