"""LVT: learned keys held by their importance, two classifiers, confident exemplars (Wang et al., CVPR 2022).

No code was published. What the paper leaves open here follows its authors' sister code (CVT) and a re-implementation:
the direction of the KL, ω as the absolute value of the mean gradient, r(t). Ours: the feature is that of
class-attention, as for all methods here, without a convolutional stem; injection heads of earlier tasks stay, frozen,
so that a run shows what that classifier would decide.
Legend: K = keys and position biases of all blocks, K⁻ = before the task, ω = their importance, z' = stored logits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gcab.data.tasks import AT_ONCE, Batch, Part, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError, check_options
from gcab.methods.card import Card, Compass
from gcab.methods.herding import add_classes, in_order
from gcab.methods.rehearsal import Replayed, ReplayedOptions
from gcab.methods.space import Between, space
from gcab.model.encoder import ExternalAttention
from gcab.model.heads import GrowingHead
from gcab.profiles import PROFILES

INJECTION = "injection"  # a part
UNKNOWN = -1e4  # in place of the logits of classes that came later


@dataclass(frozen=True)
class LvtOptions(ReplayedOptions):
    """The paper's values are not published: those of the sister code for 200 images where it has one."""

    rehearsal: float = 0.4  # α, weight of the stored images' labels
    distillation: float = 0.5  # β, weight of their stored logits
    temperature: float = 2.0  # of these
    keys: float = 1.0  # γ, weight of Σ |ω ⊙ (K - K⁻)|; ours
    fading: float = 0.9  # r(t) = fading^(t - 1), weight of the task's own labels in the classifier of all classes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, ("temperature",), ("rehearsal", "distillation", "keys", "fading"))


class Lvt(Replayed):
    """An injection classifier learns the newest task, an accumulation classifier all classes; the latter predicts."""

    Options: ClassVar[type[Any]] = LvtOptions
    summary = "LVT: learned keys held by importance, two classifiers, replay (--options.buffer, 200 images)"
    card: ClassVar[Card] = Card(
        source="Wang et al., CVPR 2022",
        stores="the most confident images of every class with their logits; importances of keys; old injection heads",
        differs="no code was published: what is open follows the authors' sister code; no convolutional stem",
        compass=Compass(episodic_memory="supervised"),
    )
    search_space = space(rehearsal=Between(0.1, 2), distillation=Between(0.1, 2), keys=Between(0.1, 10))
    profiles: ClassVar[dict[str, dict[str, Any]]] = {name: {"encoder.kind": "external"} for name in PROFILES}
    purposes: ClassVar[dict[str, str]] = {
        "importance": "importance of each learned key and position bias",
        "old_keys": "learned keys and position biases before the task",
    }
    columns: ClassVar[Mapping[str, Tensor]] = {"logits": torch.zeros(0), "known": torch.zeros((), dtype=torch.long)}
    options: LvtOptions
    importance: Tensor
    old_keys: Tensor | None

    def __init__(self, setting: Setting, options: Any) -> None:
        if setting.encoder.kind != "external":
            raise GcabError(f"lvt has learned keys: give encoder.kind external, not {setting.encoder.kind}.")
        super().__init__(setting, options)
        self.injection = GrowingHead(self.network.width)
        self.register_buffer("importance", torch.zeros_like(self.flat_keys()))  # ω
        self.register_buffer("old_keys", None)  # K⁻, while a task is learned
        self.first = 0  # class of the newest task

    def keys(self) -> list[nn.Parameter]:
        """K: learned keys and position biases of all blocks."""
        blocks = [module for module in self.network.encoder.modules() if isinstance(module, ExternalAttention)]
        return [weight for block in blocks for weight in (block.keys, block.bias)]

    def flat_keys(self) -> Tensor:
        return torch.cat([weight.flatten() for weight in self.keys()])

    def grow(self, task: Task) -> None:
        super().grow(task)
        self.injection.requires_grad_(False)
        self.injection.grow(task.classes)
        self.injection.to(self.importance.device)
        self.memory.widen("logits", task.classes)
        self.first = task.first

    def begin_task(self, task: Task) -> None:
        if task.index > 0:
            self.old_keys = self.flat_keys().detach().clone()

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:  # noqa: ARG002
        features = self.network.feature(batch.images)
        logits, count = self.network.head(features), batch.fresh
        fresh = batch.labels[:count]
        terms = {
            "classification": self.options.fading ** (len(self.ends) - 1) * self.classification(logits[:count], fresh),
            "injection": self.classification(self.injected(features[:count]), fresh - self.first),
        }
        if batch.slots is not None:
            old, stored = self.classification(logits[count:], batch.labels[count:]), self.nonempty()
            terms["rehearsal"] = self.options.rehearsal * stored * old
            terms["distillation"] = self.options.distillation * stored * self.forgotten(logits[count:], batch.slots)
        if self.old_keys is not None:
            moved = (self.importance * (self.flat_keys() - self.old_keys)).abs().sum()
            terms["keys"] = self.options.keys * moved
        return terms

    def injected(self, features: Tensor) -> Tensor:
        """Logits of the newest task's classes alone."""
        return self.injection.parts[-1](features)

    def forgotten(self, logits: Tensor, slots: Tensor) -> Tensor:
        """KL(softmax z' / T ‖ softmax z / T) over the classes that were known when z' was stored."""
        memory = self.memory
        stored, known = memory.get_buffer("logits")[slots], memory.get_buffer("known")[slots]
        later = torch.arange(logits.shape[1], device=logits.device) >= known[:, None]
        told, now = (
            (z.float() / self.options.temperature).masked_fill(later, UNKNOWN).log_softmax(dim=1)
            for z in (stored, logits)
        )
        return functional.kl_div(now, told, reduction="batchmean", log_target=True)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:  # noqa: ARG002
        self.importance.copy_(self.mean_gradient(data).abs())
        self.old_keys = None
        self.remember(task, data)

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """Nothing, as what it stores does not change predictions."""

    def mean_gradient(self, data: TaskImages) -> Tensor:
        """The gradient of the injection loss with respect to K, averaged over all images of the task."""
        device, total = self.importance.device, torch.zeros_like(self.importance)
        for images, labels in zip(self.setting.chunks(data.images, device), data.labels.split(AT_ONCE), strict=True):
            with torch.enable_grad():
                logits = self.injected(self.network.feature(images))
                loss = self.classification(logits, labels.to(device) - self.first) * len(labels) / len(data.labels)
                found = torch.autograd.grad(loss, self.keys())
            total += torch.cat([part.flatten() for part in found])
        return total

    def remember(self, task: Task, data: TaskImages) -> None:
        """Store as many images of every class, those of highest confidence first, with their logits."""
        device, classes = self.importance.device, task.first + task.classes
        labels, share = data.labels.to(device), self.options.buffer // classes
        told = self.setting.outputs(lambda part: self.injected(self.network.feature(part)), data.images, device)
        confidence = told.softmax(dim=1).gather(1, labels[:, None] - task.first).squeeze(1)
        chosen = in_order(labels, lambda positions: surest(confidence[positions])[:share])
        new = data.where(chosen.to(data.labels.device))
        outputs = self.setting.outputs
        logits = outputs(self.network, new.images, device) if len(chosen) else told.new_zeros(0, classes)
        add_classes(self.memory, new, classes, logits=logits, known=torch.full_like(chosen, classes))

    def parts(self) -> dict[str, Part]:
        return {INJECTION: lambda _, tokens: self.injection(self.network.decode(tokens))}

    def prototype_bytes(self) -> int:
        held = 0 if self.old_keys is None else self.old_keys.nbytes
        return super().prototype_bytes() + self.importance.nbytes + held


def surest(confidence: Tensor) -> Tensor:
    """Positions by decreasing confidence, ties in their original order."""
    return confidence.argsort(descending=True, stable=True)
