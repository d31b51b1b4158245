"""What methods say of themselves: every one has a card, and its passes are those that a step takes."""

import dataclasses
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from helpers.tasks import ENCODER, images_of, setting, tasks_of
from torch import Tensor, nn

from gcab.data.augment import Augment, AugmentConfig
from gcab.data.tasks import Progress
from gcab.methods.card import Compass
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.training.step import Step

OURS = ("eye", "finetune", "joint", "untrained")  # of no publication
UNSEEN = ("ad", "eye", "frozen", "joint", "untrained")  # looks into its encoder, trains nothing, has no last task
NO_RESNET = ("dytox", "gcab", "gcab-fast", "lvt")  # need attention
Kind = Literal["convit", "external", "resnet18"]
FRESH, CLASSES = 12, (2, 2, 2)
SMALL: dict[str, dict[str, Any]] = {
    "dytox": {"tuning_epochs": 0},
    "hal": {"memory_steps": 1, "anchor_steps": 1},
    "gcab-fast": {"distillation_steps": 1},
}


@pytest.mark.parametrize("name", methods())
def test_every_method_has_a_card_of_its_own(name: str) -> None:
    kind = methods()[name]
    assert "card" in vars(kind), "one that it inherits is another's"
    assert (kind.card.source == "–") == (name in OURS)
    assert (kind.card.differs == "–") == (name in OURS)
    for item in dataclasses.fields(Compass):
        assert getattr(kind.card.compass, item.name) in ("", "supervised", "unsupervised")
    if "buffer" in {item.name for item in dataclasses.fields(kind.Options)}:
        assert kind.card.compass.episodic_memory, "it rehearses images"
        assert "images" in kind.card.stores


def learned(method: Method, count: int) -> int:
    """Images that a step runs through the encoder, after two tasks and a step of the third."""
    passed: list[int] = []

    def see(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        passed.append(len(given[0]))

    for task in tasks_of(*CLASSES):
        method.grow(task)
        method.begin_task(task)
        method.train()
        data = images_of(task, count)
        method.augment = Augment(
            AugmentConfig(crop="none", flip=False, randaugment=False), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
        )
        optimiser = torch.optim.SGD([weight for weight in method.parameters() if weight.requires_grad], lr=1e-3)
        step = Step(method, optimiser, method.augment, torch.Generator().manual_seed(0), clip=0.0, bfloat16=False)
        step(data.images, data.labels, Progress(torch.tensor(0), 2))
        last = task.index == len(CLASSES) - 1
        if last:
            handle = method.get_submodule("network.encoder").register_forward_pre_hook(see)
            step(data.images, data.labels, Progress(torch.tensor(1), 2))
            handle.remove()
        else:
            method.eval()
            method.end_task(task, data)
    return sum(passed)


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        *((name, "external" if name == "lvt" else "convit") for name in methods() if name not in UNSEEN),
        *((name, "resnet18") for name in methods() if name not in (*UNSEEN, *NO_RESNET)),
    ],
)
def test_passes_are_those_of_a_step(name: str, encoder: Kind) -> None:
    """On every encoder that a method can have."""
    kind = methods()[name]
    stores = {"buffer": 8} if "buffer" in {item.name for item in dataclasses.fields(kind.Options)} else {}
    options = kind.Options(**stores, **SMALL.get(name, {}))
    torch.manual_seed(0)
    method = kind(setting(replace(ENCODER, kind=encoder)), options)
    assert learned(method, FRESH) == pytest.approx(FRESH * kind.passes(options, FRESH, CLASSES))
    images = setting().normalise(images_of(tasks_of(2)[0]).images)
    method.eval()
    features = method.features(images)
    assert features is not None
    for part in method.parts().values():
        assert part(images, features).shape == (len(images), sum(CLASSES)), "its parts decide, too"


def test_passes_follow_the_options() -> None:
    def passes(name: str, **changes: Any) -> float:
        kind = methods()[name]
        return kind.passes(kind.Options(**changes), 128, [10] * 10)

    assert (passes("finetune"), passes("er"), passes("er", buffer=0), passes("er", replay=32)) == (1, 2, 1, 1.25)
    assert (passes("derpp"), passes("derpp", alpha=0.0), passes("derpp", alpha=0.0, beta=0.0)) == (3, 2, 1)
    assert (passes("fdr"), passes("fdr", weight=0.0)) == (2, 1)
    assert passes("gem") == 1 + 9 * (200 // 9) / 128
    assert passes("gem", replay=90) == 1 + 90 / 128
    assert (passes("pass"), passes("hal"), passes("hal", anchors=0.0)) == (4, 2 + 2 * 90 / 128, 2)
    assert (passes("eye"), passes("untrained")) == (0, 0)
