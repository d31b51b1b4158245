"""EWC and MAS: importances are what their papers say they are."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, copied, gradient, images_of, learned, made, prepared, scrambled, stream, trained
from torch import Tensor, nn

from gcab.data.tasks import TaskImages
from gcab.errors import GcabError
from gcab.fast.low_precision import LowPrecision
from gcab.methods.ewc import Ewc, EwcOptions
from gcab.methods.importance import Importance, MasterWeights
from gcab.methods.mas import Mas
from gcab.methods.per_image import gradients_per_image
from gcab.seeds import seeded
from gcab.training.trainer import finish

FIRST, SECOND = stream(2, 3)
KINDS: list[type[Importance]] = [Ewc, Mas]


@pytest.mark.parametrize("kind", KINDS)
def test_right_after_a_task_term_and_gradient_are_zero(kind: type[Importance]) -> None:
    method: Importance = made(kind)
    learned(method, FIRST)
    begun(method, SECOND)
    batch = prepared(method, images_of(SECOND))
    term = method.loss(batch, START)["importance"]
    assert float(term.detach()) == 0.0
    assert float(gradient(term, method).abs().max()) == 0.0
    scrambled(method)
    moved = method.loss(batch, START)["importance"]
    expected = method.options.weight * method.importance * (method.master_weights.flat() - method.anchor)
    found = gradient(moved, method)
    names = [name for name, _ in method.network.named_parameters()]
    of_shared = torch.cat(
        [
            part
            for name, part in zip(
                names, found.split([weight.numel() for weight in method.network.parameters()]), strict=True
            )
            if name in method.shared()
        ]
    )
    torch.testing.assert_close(of_shared, expected.detach())
    assert float(of_shared.abs().max()) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_in_low_precision_compares_the_weights_themselves(kind: type[Importance]) -> None:
    method: Importance = made(kind)
    learned(method, FIRST)
    begun(method, SECOND)
    batch = prepared(method, images_of(SECOND))
    with LowPrecision(method).of_learning(), torch.autocast("cpu", torch.bfloat16):
        assert method.network.block.query.weight.dtype == torch.bfloat16
        term = method.loss(batch, START)["importance"]
    assert float(term.detach()) == 0.0
    scrambled(method)
    with LowPrecision(method).of_learning(), torch.autocast("cpu", torch.bfloat16):
        term = method.loss(batch, START)["importance"]
    assert float(gradient(term, method).abs().max()) > 0
    copy = copied(method)
    scrambled(copy)
    assert not torch.equal(copy.master_weights.flat(), method.master_weights.flat())


@pytest.mark.parametrize("kind", KINDS)
def test_importances_are_not_negative_and_those_of_heads_not_kept(kind: type[Importance]) -> None:
    method: Importance = made(kind)
    learned(method, FIRST, SECOND)
    assert float(method.importance.min()) >= 0
    assert float(method.importance.max()) > 0
    heads = sum(weight.numel() for weight in method.network.head.parameters())
    assert method.importance.numel() == sum(weight.numel() for weight in method.parameters()) - heads
    assert method.prototype_bytes() == 2 * 4 * method.importance.numel()
    assert method.image_bytes() == 0


class Linear(nn.Module):
    """z = W x, the network for which Fisher's information is known in closed form."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, inputs, generator=torch.Generator().manual_seed(4)))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T


def linear(kind: type[Importance], **options: Any) -> Importance:
    method: Importance = made(kind, **options)
    method.network = Linear(192, 3)  # type: ignore[assignment]
    method.master_weights = MasterWeights(method.network.parameters())
    method.importance, method.anchor = (torch.zeros(3 * 192) for _ in range(2))
    return method


def test_the_fisher_information_of_a_linear_softmax_model_is_known() -> None:
    """p_c (1 - p_c) x², over all images."""
    images = images_of(FIRST, 5).images
    method = linear(Ewc, expectation="exact")
    x = method.setting.normalise(images).flatten(1)
    p = method.network(method.setting.normalise(images)).softmax(dim=1)
    expected = ((p * (1 - p))[:, :, None] * x.square()[:, None, :]).mean(dim=0)
    torch.testing.assert_close(method.measured(images), expected.flatten().detach())
    with seeded(1, "draws"):
        sampled = linear(Ewc).measured(images.repeat(2000, 1, 1, 1))
    torch.testing.assert_close(
        sampled, expected.flatten().detach(), rtol=0.2, atol=0.02 * float(expected.max().detach())
    )


def test_the_sensitivity_of_a_linear_model_is_known() -> None:
    """|∂ |z|² / ∂W_c| = |2 z_c x|, averaged after the absolute value."""
    images = images_of(FIRST, 5).images
    method = linear(Mas)
    x = method.setting.normalise(images).flatten(1)
    z = x @ method.network.weight.T  # type: ignore[operator]
    expected = (2 * z[:, :, None] * x[:, None, :]).abs().mean(dim=0)
    torch.testing.assert_close(method.measured(images), expected.flatten().detach())


@pytest.mark.parametrize("kind", KINDS)
def test_importances_do_not_depend_on_how_many_images_are_measured_at_once(kind: type[Importance]) -> None:
    method: Importance = made(kind)
    begun(method, FIRST)
    images = images_of(FIRST, 7).images
    found = []
    for at_once in (1, 3, 7):
        with seeded(1, "draws"):
            found.append(method.measured(images, largest=at_once * method.importance.numel()))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_labels_do_not_matter_to_mas() -> None:
    found = []
    for shift in (0, 1):
        method = made(Mas)
        begun(method, FIRST)
        data = images_of(FIRST)
        finish(method.eval(), FIRST, TaskImages(data.images, data.labels.roll(shift)), seed=1)
        found.append(method.importance)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(("merge", "old", "new"), [("average", 0.3, 0.7), ("sum", 0.3, 1.0)])
def test_importances_of_tasks_become_one(merge: str, old: float, new: float) -> None:
    method = made(Mas, merge=merge, alpha=0.3, gamma=0.3)
    begun(method, FIRST)
    method.importance.fill_(2.0)
    method.eval().end_task(FIRST, images_of(FIRST))
    torch.testing.assert_close(method.importance, 2.0 * old + new * method.measured(images_of(FIRST).images))


def test_the_gradient_of_each_image_is_its_own() -> None:
    method: Mas = made(Mas)
    begun(method, FIRST)
    images = method.eval().setting.normalise(images_of(FIRST, 3).images)
    together = gradients_per_image(
        method.network, method.shared(), lambda z, _: z.square().sum(), images, torch.zeros(3)
    )
    for row, image in zip(together, images, strict=True):
        alone = torch.autograd.grad(method.predict(image[None]).square().sum(), [*method.shared().values()])
        torch.testing.assert_close(row, torch.cat([part.flatten() for part in alone]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_penalty_holds_the_weights(kind: type[Importance]) -> None:
    moved = {}
    for weight in (0.0, 10.0):
        method: Importance = made(kind, weight=weight)
        learned(method, FIRST)
        begun(method, SECOND)
        method.importance.fill_(1.0)
        trained(method, SECOND, images_of(SECOND), epochs=5, lr=0.02)
        moved[weight] = float(
            (method.importance * (method.master_weights.flat() - method.anchor).square()).sum().detach()
        )
    assert moved[10.0] < 0.5 * moved[0.0]


@pytest.mark.parametrize("changes", [{"alpha": 2.0}, {"gamma": -1.0}, {"images": -1}, {"weight": -1.0}])
def test_wrong_options_are_named(changes: dict[str, float]) -> None:
    with pytest.raises(GcabError, match=f"options.{next(iter(changes))}"):
        EwcOptions(**changes)  # type: ignore[arg-type]
