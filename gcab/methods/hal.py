"""HAL: a step must not change the logits of anchors, images that are forgotten most (Chaudhry et al., AAAI 2021).

Legend: θ = weights, θ̃ = after a plain gradient step, e = anchors, θ_M = θ fine-tuned on the memory, φ = class means.
Authors and Mammoth differ in much. Here: anchors start at the mean image of a class and stay near its mean feature by
the cosine, with Adam (authors); z_θ̃ is held constant (Mammoth). Ours: φ and mean images are those of the task's end,
where both keep running means, and the memory is the reservoir of `er`, where theirs is a ring buffer.
"""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError, check_options
from gcab.methods.card import Card, Compass
from gcab.methods.er import Er, ErOptions
from gcab.methods.herding import class_means, widened
from gcab.methods.method import Loss, losses
from gcab.methods.modes import evaluating
from gcab.methods.short_training import batches_of, train_shortly
from gcab.methods.space import Between, space
from gcab.parallel.ranks import mean, world
from gcab.sizes import sides


@dataclass(frozen=True)
class HalOptions(ErOptions):
    """The authors' settings where they are named; those for CIFAR are not published."""

    loss: Loss = "ce"
    anchors: float = 0.1  # λ, weight of the anchors' answers; authors
    look_ahead: float = 0.03  # rate of the step to θ̃, of its own as AdamW's would move nothing; Mammoth's rate
    second_order: bool = False  # authors: true, gradients pass through θ̃; on a GPU with training.precision float32
    embedding: float = 0.1  # γ, weight of the distance to the class mean; authors
    anchor_steps: int = 100  # authors
    anchor_lr: float = 1e-3  # of Adam; authors
    memory_steps: int = 50  # of fine-tuning to θ_M; authors: 50, Mammoth: 1
    memory_batch: int = 10  # authors

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(
            self, ("anchor_lr", "memory_batch"), ("anchors", "look_ahead", "embedding", "anchor_steps", "memory_steps")
        )
        if self.second_order and world() > 1:
            raise GcabError("options.second_order works in one process only: start one, or set it to false.")


class Differentiated(torch.autograd.Function):
    """A loss with precomputed gradients, so that the backward pass is not run twice."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *weights: Tensor) -> Tensor:  # noqa: ARG004
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *(None if gradient is None else above * gradient for gradient in ctx.gradients)


class Hal(Er):
    """Experience replay, and one synthetic image (anchor) per class whose logits are held."""

    Options: ClassVar[type[Any]] = HalOptions
    summary = "hindsight anchor learning: replay, and one synthetic image per class (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Chaudhry et al., AAAI 2021",
        stores="a reservoir of images, and one synthetic image per class in float32",
        differs="answers after the step ahead are held constant (Mammoth); class means are those of the task's end",
        compass=Compass(episodic_memory="unsupervised"),
    )
    search_space = space(anchors=Between(0.03, 1), look_ahead=Between(0.003, 0.3), embedding=Between(0.03, 1))
    purposes: ClassVar[dict[str, str]] = {"anchors": "synthetic image of each class that rehearsal would forget most"}
    recorded = False  # a step asks for gradients within its loss
    options: HalOptions
    anchors: Tensor

    def __init__(self, setting: Setting, options: Any) -> None:
        super().__init__(setting, options)
        self.register_buffer("anchors", torch.zeros(0, 3, *sides(setting.image_size)))

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.anchors = widened(self.anchors, task.classes)

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """L + λ mean over anchors of Σ_c (z_θ(e)_c - z_θ̃(e)_c)²."""
        with sdpa_kernel(SDPBackend.MATH) if self.options.second_order else nullcontext():
            terms = super().loss(batch, progress)
            if self.known and self.options.anchors > 0:
                gradients = self.gradients(loss := terms["classification"])
                terms["anchors"] = self.options.anchors * self.change(self.looked_ahead(gradients))
                if not self.options.second_order:
                    weights = self.learning().values()
                    terms["classification"] = Differentiated.apply(loss.detach(), gradients, *weights)  # type: ignore[no-untyped-call]
        return terms

    @classmethod
    def passes(cls, options: Any, fresh: int, classes: Sequence[int]) -> float:
        """Anchors pass through the network twice, with θ and with θ̃."""
        anchors = 2 * sum(classes[:-1]) if options.anchors > 0 else 0
        return super().passes(options, fresh, classes) + anchors / fresh

    def learning(self) -> dict[str, Tensor]:
        return {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}

    def gradients(self, loss: Tensor) -> tuple[Tensor | None, ...]:
        """∇L of each weight that learns; none where the loss does not depend on it."""
        weights, further = [*self.learning().values()], self.options.second_order
        return torch.autograd.grad(loss, weights, create_graph=further, allow_unused=True)

    def looked_ahead(self, gradients: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """θ̃ = θ - rate ∇L by name; θ itself is not touched."""
        return {
            name: weight - self.options.look_ahead * (gradient if self.options.second_order else mean(gradient))
            for (name, weight), gradient in zip(self.learning().items(), gradients, strict=True)
            if gradient is not None
        }

    def change(self, ahead: dict[str, Tensor]) -> Tensor:
        """Mean over old anchors of Σ_c (z_θ(e)_c - z_θ̃(e)_c)², in eval mode."""
        anchors = self.anchors[: self.known]
        with evaluating(self.network):
            now = self.network(anchors)
            with nullcontext() if self.options.second_order else torch.no_grad():
                then = functional_call(self.network, ahead, (anchors,))
        return (now - then).float().square().sum(dim=1).mean()

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        super().end_task(task, data, held_out)
        device, labels = self.anchors.device, data.labels.to(self.anchors.device)
        features = self.setting.outputs(self.network.feature, data.images, device)
        start = class_means(self.setting.outputs(nn.Identity(), data.images, device), labels, task.labels)
        means, targets = class_means(features, labels, task.labels), torch.tensor(task.labels, device=device)
        self.anchors[task.first :] = self.sought(start, means, targets, self.rehearsed_network())

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """Nothing, as what it stores does not change predictions."""

    def rehearsed_network(self) -> nn.Module:
        """θ_M: a copy, fine-tuned on the memory."""
        copied, options, held = copy.deepcopy(self.network), self.options, self.memory.everything()
        if len(held.labels):
            train_shortly(
                [weight for weight in copied.parameters() if weight.requires_grad],
                partial(torch.optim.SGD, lr=options.look_ahead),
                batches_of(
                    held, options.memory_batch, options.memory_steps, self.setting, self.augment, self.anchors.device
                ),
                lambda images, labels: self.classification(copied(images), labels),
            )
        return copied

    def sought(self, start: Tensor, means: Tensor, labels: Tensor, rehearsed: nn.Module) -> Tensor:
        """e = argmin CE_θ(e) - CE_θM(e) + γ (1 - cos(f_θ(e), φ)), within the range of images."""
        darkest, brightest = (
            self.setting.normalise(torch.full((1, 3, 1, 1), level, dtype=torch.uint8, device=start.device))
            for level in (0, 255)
        )
        anchors = start.clone().requires_grad_()
        optimiser = torch.optim.Adam([anchors], lr=self.options.anchor_lr)
        for number in range(self.options.anchor_steps):
            with torch.enable_grad():
                objective = self.objective(anchors, means, labels, rehearsed).sum()
                (anchors.grad,) = torch.autograd.grad(objective, [anchors])
            optimiser.step()
            with torch.no_grad():
                anchors.clamp_(darkest, brightest)
            self.watch((number + 1) / self.options.anchor_steps)
        return anchors.detach()

    def objective(self, anchors: Tensor, means: Tensor, labels: Tensor, rehearsed: nn.Module) -> Tensor:
        """The terms to minimise, one value per anchor."""
        feature, kind = self.network.feature(anchors), self.options.loss
        kept = losses(kind, self.network.head(feature), labels) - losses(kind, rehearsed(anchors), labels)
        return kept + self.options.embedding * (1 - functional.cosine_similarity(feature, means, dim=1))

    def prototype_bytes(self) -> int:
        return super().prototype_bytes() + self.anchors.nbytes
