"""Trainings of its own that a method may do when a task ends."""

from functools import partial

import torch
from small_b import AUGMENT, CPU, SETTING, build, images_of, tasks
from torch import Tensor, nn

from gcab.data.augment import Augment
from gcab.data.tasks import Task, TaskImages
from gcab.methods.finetune import Finetune, FinetuneOptions
from gcab.methods.short_training import batches_of, train_shortly
from gcab.training.distributed import SharedAugment
from gcab.training.trainer import finish

FIRST = tasks(2)[0]


class Curious(Finetune):
    """Looks at what it is given when a task ends."""

    seen: list[object]

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        self.seen = [type(self.augment), self.augment and self.augment.config]


def test_the_augmentation_of_the_run_is_there_while_a_task_ends() -> None:
    method = Curious(SETTING, FinetuneOptions())
    finish(method, FIRST, images_of(FIRST), 1, augment=SharedAugment(AUGMENT.config, SETTING.mean, SETTING.std))
    assert method.seen == [Augment, AUGMENT.config], "every process makes views of all images"
    assert method.augment is None
    finish(method, FIRST, images_of(FIRST), 1)
    assert method.seen == [type(None), None]


def test_batches_show_every_image_once_an_epoch() -> None:
    data = images_of(FIRST, 10)
    torch.manual_seed(1)
    batches = list(batches_of(data, 4, 6, SETTING, None, CPU))
    assert [len(labels) for _, labels in batches] == [4, 4, 2, 4, 4, 2]
    known = SETTING.normalise(data.images)
    for epoch in (batches[:3], batches[3:]):
        images, labels = (torch.cat(parts) for parts in zip(*epoch, strict=True))
        order = [int((image == known).flatten(1).all(dim=1).nonzero()) for image in images]
        assert sorted(order) == list(range(10))
        assert torch.equal(labels, data.labels[order])


def test_batches_follow_from_the_seed_and_are_augmented() -> None:
    flipping = Augment(type(AUGMENT.config)(crop="none", flip=True, randaugment=False), SETTING.mean, SETTING.std)
    data, found = images_of(FIRST, 6), []
    for _ in range(2):
        torch.manual_seed(1)
        found.append(torch.cat([images for images, _ in batches_of(data, 6, 4, SETTING, flipping, CPU)]))
    assert torch.equal(*found)
    known = SETTING.normalise(data.images)
    straight = [bool((image == known).flatten(1).all(dim=1).any()) for image in found[0]]
    assert 0 < sum(straight) < len(straight)


def test_what_rested_learns_for_a_while() -> None:
    method = build("finetune")
    method.grow(FIRST)
    head, encoder = method.network.head, method.network.encoder
    head.requires_grad_(False)
    before = [weight.detach().clone() for weight in method.network.parameters()]
    shares: list[float] = []

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(method.network(images), labels)

    train_shortly(
        list(head.parameters()),
        partial(torch.optim.SGD, lr=0.1),
        batches_of(images_of(FIRST), 4, 5, SETTING, None, CPU),
        loss,
        shares.append,
        steps=5,
    )
    moved = [not torch.equal(*pair) for pair in zip(before, method.network.parameters(), strict=True)]
    assert sum(moved) == len(list(head.parameters()))
    assert not any(weight.requires_grad or weight.grad is not None for weight in head.parameters())
    assert all(weight.requires_grad and weight.grad is None for weight in encoder.parameters())
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0]
