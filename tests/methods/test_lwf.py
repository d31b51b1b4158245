"""Learning without forgetting: what its distillation term promises."""

from typing import Any

import pytest
import torch
from method_drive import START, begun, gradient, images_of, learned, made, prepared, scrambled, stream, trained, twins

from gcab.errors import GcabError
from gcab.methods.distillation import softened_divergence
from gcab.methods.finetune import Finetune
from gcab.methods.lwf import Lwf, LwfOptions

FIRST, SECOND = stream(2, 3)


def second_task(**options: Any) -> Lwf:
    method: Lwf = made(Lwf, **options)
    learned(method, FIRST)
    begun(method, SECOND)
    return method


@pytest.mark.parametrize("answers", ["softmax", "sigmoid"])
def test_the_term_has_no_gradient_while_the_network_has_not_moved(answers: str) -> None:
    method = second_task(answers=answers)
    batch = prepared(method, images_of(SECOND))
    term = method.loss(batch, START)["distillation"]
    assert float(gradient(term, method).abs().max()) < 1e-6
    if answers == "softmax":
        assert float(term.detach()) == pytest.approx(0, abs=1e-6)
    scrambled(method)
    assert float(gradient(method.loss(batch, START)["distillation"], method).abs().max()) > 1e-4


def test_a_constant_on_all_old_answers_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    student, teacher = (torch.randn(6, 4, generator=generator) for _ in range(2))
    expected = softened_divergence(student, teacher, 2.0)
    torch.testing.assert_close(softened_divergence(student + 3, teacher - 5, 2.0), expected)
    p, q = ((logits / 2).softmax(dim=1) for logits in (teacher, student))
    torch.testing.assert_close(expected, 4 * (p * (p / q).log()).sum(dim=1).mean())


def test_without_weight_it_is_fine_tuning() -> None:
    """Of the new head alone, or with `heads all` the fine-tuning that the tables have."""
    assert second_task(weight=0.0).teacher is None
    methods = [made(Lwf, weight=0.0, heads="all"), made(Finetune, loss="ce"), made(Lwf, weight=0.0)]
    for method in methods:
        learned(method, FIRST)
        begun(method, SECOND)
        assert trained(method, SECOND, images_of(SECOND))[-1].keys() == {"classification"}
    assert twins(methods[0], methods[1])
    assert not twins(methods[1], methods[2])


def test_the_new_head_alone_is_taught_by_labels() -> None:
    method = second_task()
    scrambled(method)
    term = method.loss(prepared(method, images_of(SECOND)), START)["classification"]
    old, new = method.network.head.parts
    learning = [*old.parameters(), *new.parameters()]
    found = torch.autograd.grad(term, learning, allow_unused=True)
    assert [bool(part is not None and part.any()) for part in found] == [False] * 4 + [True] * 4


def test_frozen_heads_stay() -> None:
    method = second_task(old_heads="frozen")
    assert [any(weight.requires_grad for weight in part.parameters()) for part in method.network.head.parts] == [
        False,
        True,
    ]


def test_it_forgets_less_than_fine_tuning() -> None:
    kept = {}
    for weight in (0.0, 10.0):
        method = second_task(weight=weight)
        images = method.setting.normalise(images_of(FIRST).images)
        before = method.eval().predict(images)[:, :2].softmax(dim=1)
        trained(method, SECOND, images_of(SECOND), epochs=10)
        kept[weight] = float((method.predict(images)[:, :2].softmax(dim=1) - before).abs().mean().detach())
    assert kept[10.0] < 0.5 * kept[0.0]


@pytest.mark.parametrize(("name", "value"), [("weight", -1.0), ("temperature", 0.0)])
def test_wrong_options_are_named(name: str, value: float) -> None:
    with pytest.raises(GcabError, match=f"options.{name}"):
        LwfOptions(**{name: value})  # type: ignore[arg-type]
