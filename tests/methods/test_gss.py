"""GSS: cosines are those of gradients, and only what differs from the memory enters it."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, gradient, images_of, made, step_of, stream, trained
from torch.nn import functional

from gcab.errors import GcabError
from gcab.methods.gss import Gss, GssOptions
from gcab.methods.method import Loss, losses
from gcab.seeds import seeded

TASKS = stream(2, 3)


@pytest.mark.parametrize("loss", ["ce", "bce"])
def test_products_of_head_gradients_are_those_of_autograd(loss: Loss) -> None:
    method: Gss = made(Gss, buffer=4, loss=loss)
    for task in TASKS:
        begun(method, task)
    data = images_of(TASKS[1], 4)
    images, labels = method.eval().setting.normalise(data.images), data.labels
    weights = [weight for part in method.network.head.parts for weight in part.linear.parameters()]  # type: ignore[union-attr]
    rows = []
    for image, label in zip(images, labels, strict=True):
        term = losses(loss, method.network(image[None]), label[None]).sum()
        rows.append(torch.cat([part.flatten() for part in torch.autograd.grad(term, weights)]))
    expected = functional.normalize(torch.stack(rows))
    with torch.no_grad():
        found = method.products(data.images, labels)
    lengths = found.diagonal().sqrt()
    torch.testing.assert_close(found / (lengths[:, None] * lengths), expected @ expected.T, rtol=1e-4, atol=1e-5)


def test_products_of_all_gradients_are_those_of_autograd() -> None:
    method: Gss = made(Gss, buffer=4, gradients="all")
    begun(method, TASKS[0])
    data = images_of(TASKS[0], 3)
    method.eval()
    rows = [
        gradient(losses("ce", method.network(method.setting.normalise(image[None])), label[None]).sum(), method)
        for image, label in zip(data.images, data.labels, strict=True)
    ]
    expected = torch.stack(rows) @ torch.stack(rows).T
    torch.testing.assert_close(method.products(data.images, data.labels), expected, rtol=1e-3, atol=1e-4)


def full(**options: Any) -> Gss:
    """A method whose memory is just full of images of the first task."""
    method: Gss = made(Gss, buffer=8, **options)
    begun(method, TASKS[0])
    data = images_of(TASKS[0], 8)
    step_of(method)(data.images, data.labels, START)
    return method


def test_while_there_is_room_everything_enters() -> None:
    method = full()
    assert torch.equal(method.memory.images, images_of(TASKS[0], 8).images)
    assert method.counted() == {"entered": [8]}
    scores = method.memory.get_buffer("score")
    assert ((scores > 0) & (scores <= 2)).all()
    assert method.prototype_bytes() == 8 * 4


def test_a_copy_of_a_stored_image_never_enters() -> None:
    method = full(compared=8)
    data, before = images_of(TASKS[0], 8), method.memory.images.clone()
    for index in range(8):
        for _ in range(5):
            method.insert(data.images[index : index + 1], data.labels[index : index + 1])
    assert torch.equal(method.memory.images, before)
    assert method.counted() == {"entered": [8]}


def test_what_differs_from_the_memory_enters_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    method = full()
    monkeypatch.setattr(method, "similarities", lambda *_: (torch.tensor(-0.1), torch.full((2,), -0.5)))
    method.memory.get_buffer("score").copy_(torch.tensor([1.5] + [0.0] * 7))
    other = torch.full((2, 3, 8, 8), 7, dtype=torch.uint8)
    entered, runs = 0, 400
    with seeded(1, "test"):
        for _ in range(runs):
            method.memory.images.zero_()
            method.memory.get_buffer("score").copy_(torch.tensor([1.5] + [0.0] * 7))
            method.insert(other, torch.zeros(2, dtype=torch.long))
            entered += int((method.memory.images[0] == 7).all())
            assert not method.memory.images[1:].any(), "an image of score 0 was drawn"
    chance = 1 - (0.5 / (1.5 + 0.5)) ** 2  # each of two images wins it with probability s / (s + 1 + c)
    assert abs(entered - runs * chance) < 4 * (runs * chance * (1 - chance)) ** 0.5
    assert float(method.memory.get_buffer("score")[0]) in (0.5, 1.5)


def test_a_batch_that_is_like_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    method = full()
    before = method.memory.images.clone()
    monkeypatch.setattr(method, "similarities", lambda *_: (torch.tensor(0.0), torch.full((4,), -0.5)))
    method.insert(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.long))
    assert torch.equal(method.memory.images, before)


def test_a_full_memory_keeps_its_size_and_scores_their_range() -> None:
    method = full()
    for task in TASKS:
        if task.index:
            begun(method, task)
        trained(method, task, images_of(task), epochs=3)
        scores = method.memory.get_buffer("score")
        assert method.stored_images() == 8
        assert ((scores > 0) & (scores <= 2 + 1e-5)).all()
    assert method.counted()["entered"][0] >= 8


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(GcabError, match=r"options\.compared"):
        GssOptions(compared=0)
