"""GCAB with cascaded feature-drift compensation: the paper's method. Statistics, eye and referee are in `opinions.py`.

Legend: s = sharpness, m^t = the current task's gates, m^{<t} = `Gate.used`, p^t = the newest projector,
b(x; Ψ^{t-1}) = `teacher`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from gcab.data.tasks import Batch, Part, Progress, Setting, Task, TaskImages
from gcab.errors import GcabError, check_options
from gcab.fast.encoders import make_transformer
from gcab.fast.folded import DecoderPass, FoldedDecoder, fast_logits, pass_logits, passes_of
from gcab.methods.card import Card, Compass
from gcab.methods.decision import Decision
from gcab.methods.gradients import Gradients
from gcab.methods.method import binary_cross_entropy
from gcab.methods.opinions import Opinionated
from gcab.methods.space import Near, space
from gcab.model.eye import SIDE
from gcab.model.frozen import Frozen
from gcab.model.gates import Gate
from gcab.model.network import GatedNetwork, Masks
from gcab.model.options import NetworkOptions
from gcab.model.projectors import drift_distance

UNCOMPENSATED = "heads, not compensated"  # a part that is not one of the referee's opinions


@dataclass(frozen=True)
class GcabOptions:
    """Defaults are the authors' code (`official`) but where it is named; the comment gives the text's other choice."""

    lambda_gcab: float = 0.05  # weight of the sparsity term, section "Experimental Setup"
    lambda_pfr: float = 0.001  # weight of the drift term, same section
    drift: Literal["pfr", "distillation", "none", "frozen"] = "pfr"  # frozen: the encoder learns task 1 only
    compensation: bool = True  # the cascade at inference; off: the ablation's third row
    distance: Literal["cosine", "l2", "rms"] = "l2"  # text: cosine
    bce_heads: Literal["all", "new"] = "all"
    old_passes: Literal["projected", "unprojected"] = "unprojected"  # in training; the text does not say
    schedule: Literal["paper", "official"] = "official"  # s reaches s_max at an epoch's last batch: paper
    gate_gradient: Literal["plain", "compensated", "official"] = "compensated"  # text: plain; authors: official
    gate_limit: float = 6.0  # embeddings are clamped to ± this; 0: not clamped (text: not mentioned)
    statistics: bool = False  # class statistics join the heads' decision; not in the paper
    statistics_pooled: bool = False  # their covariance is that of all tasks, not of the newest
    eye: int = 0  # features of a fixed eye that joins the decision, too, as `--method eye` counts them; 0: none
    eye_side: int = SIDE  # pixels at which it sees images
    eye_tones: int = 0  # features of each channel that tell how bright it is, beside those of its filters
    referee: bool = False  # weighs opinions by temperatures from held-out images; else the two options below do
    heads_within: float = 0.0  # times more that the referee counts the heads within a task than between tasks
    trial: bool = False  # heads and statistics have no more say beside the eye than helps with all classes
    statistics_weight: float = 1.0
    statistics_meet: Literal["probabilities", "logits"] = "probabilities"  # log P(class | task) of heads, or logits
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def __post_init__(self) -> None:
        check_options(self, weights=("lambda_gcab", "lambda_pfr", "gate_limit", "heads_within", "statistics_weight"))
        if not 1 <= self.network.sharpest < math.inf:
            raise GcabError(f"options.network.sharpest is {self.network.sharpest}: give 1 or more.")

    @property
    def tried(self) -> bool:
        """Whether `trial` is set and all opinions that it needs are switched on."""
        return self.trial and self.statistics and self.eye > 0 and self.referee


class Gcab(Opinionated):
    """Gates keep the decoder of finished tasks unchanged; projectors undo the drift of the encoder."""

    Options = GcabOptions
    mixes = True
    summary = "gated class-attention with cascaded feature-drift compensation (the paper); stores no image"
    card: ClassVar[Card] = Card(
        source="the paper",
        stores="gates, token, head and projector of each task; `extended`: class statistics and sums of an eye",
        differs="`--profile paper` is the text, `official` the code; `extended` adds statistics, an eye, a referee",
        compass=Compass(task_agnostic="supervised"),
    )
    search_space = space(lambda_gcab=Near(10), lambda_pfr=Near(10))
    profiles: ClassVar[dict[str, dict[str, Any]]] = {
        "extended": {
            "augment.cutmix": 0.5,
            "options.bce_heads": "new",
            "options.distance": "rms",
            "options.lambda_pfr": 0.5,
            "options.network.projector": "residual",
            "options.statistics": True,
            "options.statistics_pooled": True,
            "options.eye": 4096,
            "options.referee": True,
            "options.heads_within": 1.0,
            "training.epochs": 120,
            "training.first_task": 3.0,
            "training.lr": 2.5e-4,
            "training.held_out": 0.02,
        },
        "official": {"options.gate_gradient": "official", "options.network.head_init": "default"},
        "paper": {
            "options.distance": "cosine",
            "options.old_passes": "projected",
            "options.schedule": "paper",
            "options.gate_gradient": "plain",
            "options.gate_limit": 0.0,
            "options.network.class_token": "shared",
            "options.network.residual": "attention",
            "options.network.gated_sites": "input",
            "options.network.normalise": False,
            "options.network.freeze_norms": False,
            "options.network.mask_classifier": True,
            "options.network.head_norm": False,
            "options.network.binarise": "never",
            "options.network.projector": "mlp",
        },
    }
    compiled = ("logits", "sparsity", "drift")
    options: GcabOptions

    def __init__(self, setting: Setting, options: GcabOptions) -> None:
        super().__init__(setting, options)
        if options.eye and not options.referee:
            raise GcabError("options.eye needs options.referee: set it to true, or eye to 0.")
        encoder = make_transformer(setting.encoder, setting.image_size, setting.weights)
        self.network = GatedNetwork(encoder, options.network)
        self.add_opinions(setting, options)
        self.teacher = None
        self.shared: Shared | None = None  # during a task's training only

    def grow(self, task: Task) -> None:
        self.network.grow(task.classes, projector=self.options.drift == "pfr")
        if task.index > 0 and self.options.drift == "frozen":
            self.network.encoder.requires_grad_(False)
        self.grow_opinions(task)

    def begin_task(self, task: Task) -> None:
        if not self.learns(task):
            return
        held = self.options.drift in ("pfr", "distillation")
        moved = self.options.statistics and self.options.drift != "frozen"
        if task.index > 0 and (held or moved):
            self.teacher = Frozen(self.network.encoder)

    def batch(self, batch: Batch) -> Batch:
        """Add b(x; Ψ^{t-1}), the target of the drift term."""
        if self.teacher is None or self.options.drift == "none":
            return batch
        return replace(batch, targets={"features": self.teacher(batch.images)})

    def loss(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """L = L_BCE + L_GCAB + L_pfr (paper, section "Training Objective")."""
        network = self.network
        features = network.encoder(batch.images)  # b(x; Ψ^t)
        gates = self.training_gates(progress)
        terms = {"classification": self.classification(features, gates, batch)}
        if network.options.gates:
            terms["sparsity"] = self.options.lambda_gcab * self.sparsity(gates)
        if batch.targets:
            projected = network.cascade.newest(features) if self.options.drift == "pfr" else features
            terms["drift"] = self.options.lambda_pfr * self.drift(projected, batch.targets["features"])
        return terms

    def classification(self, features: Tensor, gates: Masks, batch: Batch) -> Tensor:
        """L_BCE over the concatenated logits of all passes, or over the newest head alone."""
        network, newest = self.network, self.network.tasks - 1
        new_logits = self.logits(passes_of(network, [gates], first=newest), [features], network.classes[newest:])
        if self.options.bce_heads == "new" or newest == 0:
            return binary_cross_entropy(new_logits, batch.labels, sum(network.classes[:newest]), batch.mixed)
        projected = self.options.old_passes == "projected"
        old_spaces = network.spaces(features, compensate=projected)[:newest]
        old_logits = fast_logits(network, old_spaces, [network.masks(task) for task in range(newest)])
        return binary_cross_entropy(torch.cat([old_logits, new_logits], dim=1), batch.labels, mixed=batch.mixed)

    def logits(self, passes: Sequence[DecoderPass], spaces: Sequence[Tensor], classes: Sequence[int]) -> Tensor:
        """c^s(f_s(b)) of some passes, as `GatedNetwork.logits` defines it."""
        return pass_logits(self.network.block, passes, spaces, classes)

    def training_gates(self, progress: Progress) -> Masks:
        """m^t = σ(s A t^T) with the s of this step."""
        network, task = self.network, self.network.tasks - 1
        if not network.options.gates:
            return None, None
        s = sharpness(progress, network.options.sharpest, self.options.schedule)
        kinds = {"plain": Gate.soft, "compensated": Gate.compensated, "official": Gate.compensated_as_published}
        gate = kinds[self.options.gate_gradient]
        return gate(network.gate_in, task, s), gate(network.gate_hidden, task, s)

    def sparsity(self, gates: Masks) -> Tensor:
        """L_GCAB: units no task uses yet cost, units in use are free; zero when every unit is in use."""
        masks = torch.cat([gate for gate in gates if gate is not None])
        free = 1 - torch.cat([self.network.gate_in.used, self.network.gate_hidden.used])
        return (masks * free).sum() / free.sum().clamp_min(1e-6)

    def drift(self, projected: Tensor, targets: Tensor) -> Tensor:
        """L_pfr: how far p^t(b(x; Ψ^t)) is from b(x; Ψ^{t-1})."""
        return drift_distance(self.options.distance, projected, targets)

    def before_step(self, progress: Progress, batch: Batch, gradients: Gradients) -> None:  # noqa: ARG002
        """Zero the gradient of weights that finished tasks own, and save all, as optimisers may move them anyway."""
        if self.network.tasks > 1 and self.network.options.gates:
            self.shared = self.shared or Shared(self.network.updatable())
            self.shared.hold()

    @torch.no_grad()
    def after_step(self, progress: Progress, batch: Batch) -> None:  # noqa: ARG002
        """W <- W + M^{<t} ⊙ ΔW for any optimiser: bit for bit the old weight where M is 0."""
        if self.shared is not None:
            self.shared.restore()
        if self.network.options.gates and self.options.gate_limit > 0:
            for gate in (self.network.gate_in, self.network.gate_hidden):
                gate.clamp(self.network.tasks - 1, self.options.gate_limit)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        self.teach_opinions(task, data)
        if not self.learns(task):
            self.network.abstain(self.rival(data.of(task.labels), task.first))
        self.teacher = self.shared = None
        self.network.finish()
        self.weigh_opinions(task, held_out)

    def predict(self, images: Tensor) -> Tensor:
        return self.decision(self.network.logits)(images)

    def predictor(self) -> nn.Module:
        return self.decision(FoldedDecoder(self.network))

    def heads(self, decoder: Callable[[list[Tensor]], Tensor], compensate: bool = True) -> Decision:
        """Encode, undo the drift if `compensate`, decode for every task."""
        return Decision(self.network, decoder, compensate and self.options.compensation)

    def parts(self) -> dict[str, Part]:
        """Logits of the heads without the cascade, and of each opinion where there are several."""
        decoder, found = FoldedDecoder(self.network), dict[str, Part]()
        if self.options.compensation and len(self.network.cascade.projectors):
            uncompensated = self.heads(decoder, compensate=False)
            found[UNCOMPENSATED] = lambda _, features: uncompensated.decide(features)
        return found | self.opinion_parts(self.heads(decoder))

    def compensate(self, features: Tensor, task: int) -> Tensor | None:
        if self.options.drift != "pfr":
            return None
        return self.network.spaces(features, compensate=True)[task]

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor:
        space = self.network.spaces(self.features(images), compensate)[task]
        return self.network.decode(task, space, self.network.masks(task))

    def capacity(self) -> dict[str, float]:
        if not self.network.options.gates:
            return {}
        return {"input": self.network.gate_in.capacity(), "hidden": self.network.gate_hidden.capacity()}


class Shared:
    """The decoder's shared weights with their M^{<t}, which stays the same for a whole task."""

    def __init__(self, updatable: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.weights = [weight for weight, _ in updatable]
        self.masks = [mask.contiguous() for _, mask in updatable]
        self.open = [(mask > 0).to(mask.dtype) for mask in self.masks]
        self.before = [torch.empty_like(weight, requires_grad=False) for weight in self.weights]

    @torch.no_grad()
    def hold(self) -> None:
        """Save the weights, and zero the gradients where M^{<t} is 0."""
        torch._foreach_copy_(self.before, self.weights)
        reached = [
            (weight.grad, mask) for weight, mask in zip(self.weights, self.open, strict=True) if weight.grad is not None
        ]
        if reached:
            torch._foreach_mul_(*map(list, zip(*reached, strict=True)))

    def restore(self) -> None:
        """Scale the update by M^{<t}: W <- W_before + M^{<t} ⊙ (W - W_before)."""
        torch._foreach_lerp_(self.before, self.weights, self.masks)
        torch._foreach_copy_(self.weights, self.before)


def sharpness(progress: Progress, sharpest: float, schedule: Literal["paper", "official"]) -> Tensor:
    """s = 1/s_max + (s_max - 1/s_max) (i-1)/(I-1) over an epoch's batches; the authors use i/I from 0.

    An epoch's only batch gets s_max: gates that are never sharp would learn something else than is used.
    """
    if progress.steps == 1:
        return torch.full_like(progress.step, sharpest, dtype=torch.float32)
    last = progress.steps - 1 if schedule == "paper" else progress.steps
    fraction = progress.step.float() / last
    return 1 / sharpest + (sharpest - 1 / sharpest) * fraction
