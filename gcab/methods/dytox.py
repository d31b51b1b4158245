"""DyTox: a token and a head for every task over one decoder, exemplars among the images (Douillard et al., CVPR 2022).

It is the paper's network without gates. Not here: repeated augmentation, mixup (DyTox+), and in the fine-tuning
stochastic depth and a weight decay of 1e-6. The published memory is larger than said with several GPUs (the authors'
erratum); here all processes keep one memory.
Legend: z⁻ = logits before the task, λ = share of old classes, d = the extra head on the newest token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Progress, Setting, Task, TaskImages
from gcab.errors import check_options
from gcab.fast.encoders import make_transformer
from gcab.fast.folded import DecoderPass, FoldedDecoder, pass_logits, passes_of
from gcab.methods.card import Card, Compass
from gcab.methods.decision import Decision
from gcab.methods.distillation import softened_divergence
from gcab.methods.herding import AmongExemplars, add_classes, herded, in_order, unit
from gcab.methods.method import Loss, binary_cross_entropy, cross_entropy
from gcab.methods.short_training import batches_of, train_shortly
from gcab.methods.space import Between, Near, space
from gcab.model.heads import Head
from gcab.model.network import GatedNetwork
from gcab.model.options import NetworkOptions

OPEN = (None, None)  # no gates


@dataclass(frozen=True)
class DytoxOptions:
    """The authors' settings for CIFAR-100 but for the memory, 2000 images there."""

    buffer: int = 200  # images in all, as many of each class, shuffled among those of the task
    loss: Loss = "bce"
    divergence: float = 0.1  # weight of the extra head, which tells new classes from any old one
    tuning_epochs: int = 20  # on the balanced memory, at the end of a task; 0: none
    tuning_batch: int = 128
    tuning_lr: float = 1.25e-5  # constant; authors: 5e-5 x batch / 512

    def __post_init__(self) -> None:
        check_options(self, ("tuning_batch", "tuning_lr"), ("buffer", "divergence", "tuning_epochs"))


class TokenNetwork(GatedNetwork):
    """The paper's network with its gates left out, from images to the logits of all passes."""

    compiled = ("decide",)

    def forward(self, images: Tensor) -> Tensor:
        return self.logits_of(self.encoder(images))

    def logits_of(self, features: Tensor) -> Tensor:
        return self.decide(passes_of(self, [OPEN] * self.tasks), [features] * self.tasks, self.classes)

    def decide(self, passes: Sequence[DecoderPass], spaces: Sequence[Tensor], classes: Sequence[int]) -> Tensor:
        return pass_logits(self.block, passes, spaces, classes)

    def described(self, images: Tensor) -> Tensor:
        """Decoder features of all task tokens, concatenated: (B, T D)."""
        features = self.encoder(images)
        return torch.cat([self.decode(task, features, OPEN) for task in range(self.tasks)], dim=1)


class Dytox(AmongExemplars):
    """Old tokens and heads are frozen during a task, and fine-tuned on the memory when it ends."""

    Options: ClassVar[type[Any]] = DytoxOptions
    summary = "DyTox: a token and a head per task, exemplars among the images (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Douillard et al., CVPR 2022",
        stores="herded images, as many of every class; a token per task is part of the network",
        differs="one memory for all processes (the authors' erratum); no repeated augmentation",
        compass=Compass(task_agnostic="supervised", episodic_memory="supervised"),
    )
    search_space = space(divergence=Between(0.01, 1), tuning_lr=Near(8))
    options: DytoxOptions

    def __init__(self, setting: Setting, options: DytoxOptions) -> None:
        super().__init__(setting, options)
        encoder = make_transformer(setting.encoder, setting.image_size, setting.weights)
        self.network = TokenNetwork(encoder, NetworkOptions(gates=False, freeze_norms=False))
        self.extra: Head | None = None  # d, while a task is learned

    def grow(self, task: Task) -> None:
        self.network.grow(task.classes, projector=False)

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if task.index > 0:
            self.extra = Head(self.network.width, task.classes + 1, normalise=True).to(self.memory.labels.device)
            for weight in self.extra.linear.parameters():
                nn.init.zeros_(weight)  # not random: `begin_task` has no seed of its own and is repeated at a resume

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        """(1 - λ) BCE + λ KL(softmax z⁻ ‖ softmax z) + 0.1 BCE(d); the KL is a mean over images and classes."""
        network = self.network
        features = network.encoder(batch.images)
        logits = network.logits_of(features)
        classification = self.classified(logits, batch.labels)
        if self.extra is None:
            return {"classification": classification}
        old = self.known / logits.shape[1]
        moved = softened_divergence(logits[:, : self.known], batch.targets["logits"], 1.0) / self.known
        extra = self.extra(network.decode(network.tasks - 1, features, OPEN))
        newness = (batch.labels - self.known + 1).clamp_min(0)  # 0: any old class
        return {
            "classification": (1 - old) * classification,
            "distillation": old * moved,
            "divergence": self.options.divergence * self.classified(extra, newness),
        }

    def classified(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (cross_entropy if self.options.loss == "ce" else binary_cross_entropy)(logits, labels)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        self.preview_end(task, data, held_out)
        if task.index > 0 and int(self.memory.filled):
            self.tune()

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        """`end_task` without the fine-tuning."""
        device, classes = self.memory.labels.device, sum(self.network.classes)
        features = unit(self.setting.outputs(self.network.described, data.images, device))
        share = self.options.buffer // classes
        chosen = in_order(data.labels.to(device), lambda positions: herded(features[positions], share))
        add_classes(self.memory, data.where(chosen.to(data.labels.device)), classes)
        self.teacher = self.extra = None
        self.network.finish()

    def tune(self) -> None:
        """Fine-tune tokens, heads and decoder on the class-balanced memory alone."""
        network, options, held = self.network, self.options, self.memory.everything()
        steps = options.tuning_epochs * -(-len(held.labels) // options.tuning_batch)
        batches = batches_of(held, options.tuning_batch, steps, self.setting, self.augment, self.memory.labels.device)

        def loss(images: Tensor, labels: Tensor) -> Tensor:
            with torch.no_grad():
                features = network.encoder(images)
            return self.classified(network.logits_of(features), labels)

        learning = [*network.block.parameters(), *network.tokens.parameters(), *network.heads.parameters()]
        optimiser = partial(torch.optim.AdamW, lr=options.tuning_lr, weight_decay=0.0)
        train_shortly(learning, optimiser, batches, loss, self.watch, steps)

    def predict(self, images: Tensor) -> Tensor:
        return self.network(images)

    def predictor(self) -> nn.Module:
        return Decision(self.network, FoldedDecoder(self.network), compensate=False)

    def features(self, images: Tensor) -> Tensor:
        return self.network.encoder(images)

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor:  # noqa: ARG002
        return self.network.decode(task, self.features(images), OPEN)
