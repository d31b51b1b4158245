"""GCAB-Fast: all tasks in one pass, learned by distillation (paper, section "GCAB Distillation").

Distillation replaces the passes, their gates, tokens, heads and the projectors by one pass with one head over all
classes, under a static mask that leaves a share of the decoder's units free. What is free, the next task may use: it
is learned as GCAB learns it, as a second pass, and when it ends both passes become one. So the memory stays constant.
"""

import copy
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from gcab.data.tasks import AT_ONCE, OnProgress, Setting, Task, TaskImages, ignore
from gcab.errors import GcabError, check_options
from gcab.fast.folded import FoldedDecoder
from gcab.methods.card import Card
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.one_pass import AfterStep, Halfway, Imitation
from gcab.methods.space import Near, space
from gcab.model.gates import CERTAIN, Gate
from gcab.model.heads import Head
from gcab.model.network import GatedNetwork
from gcab.model.projectors import DriftCascade
from gcab.seeds import seeded

LARGEST_CACHE = 4 * 2**30  # bytes of encoder features; more images get fewer views
TIMED_STEPS = 6  # steps that are timed to estimate the duration of a distillation


@dataclass(frozen=True)
class GcabFastOptions(GcabOptions):
    """GCAB's own, and how its passes become one with Adam (paper, section "GCAB Distillation", for its 80 %).

    Defaults are ours, as the authors' code has no GCAB-Fast; the comment gives the text's choice (`paper`).
    """

    capacity: float = 0.8  # share of the decoder's units that the one pass uses
    distillation_steps: int = 16000  # text: 200 epochs, which are 15,600 steps with the 5000 images of cifar100/10
    distillation_batch: int = 64  # the text does not say
    distillation_lr: float = 1e-3  # at first, falling to 0 along a cosine; text: 5e-3, and nothing of a schedule
    temperature: float = 10.0  # of both softmaxes; the text does not say, so 1
    views: int = 16  # of every image: as it is, else mirrored and cut together with another; text: 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.capacity <= 1:
            raise GcabError(f"options.capacity is {self.capacity}: give a share above 0 and up to 1.")
        check_options(self, ("distillation_steps", "distillation_batch", "distillation_lr", "temperature", "views"))


class GcabFast(Gcab):
    """One pass for all finished tasks, beside it one for the task being learned."""

    Options: ClassVar[type[Any]] = GcabFastOptions
    summary = "gcab whose tasks are distilled into one pass: constant memory, fast; stores no image"
    card: ClassVar[Card] = Card(
        source="the paper, section GCAB Distillation",
        stores="as `gcab`, with one pass for all tasks: constant",
        differs="no code was published; schedule, temperature and views are ours (`--profile paper`: the text's)",
        compass=Gcab.card.compass,
    )
    search_space = space(lambda_gcab=Near(10), lambda_pfr=Near(10), distillation_lr=Near(5))
    profiles: ClassVar[dict[str, dict[str, Any]]] = {
        **Gcab.profiles,
        "paper": {
            **Gcab.profiles["paper"],
            "options.distillation_steps": 15600,
            "options.distillation_lr": 5e-3,
            "options.temperature": 1.0,
            "options.views": 1,
        },
    }
    options: GcabFastOptions

    def __init__(self, setting: Setting, options: GcabFastOptions) -> None:
        super().__init__(setting, options)
        self.task_sizes: list[int] = []  # classes of each, finished or not

    def grow(self, task: Task) -> None:
        if self.network.tasks == 2:  # a stored model is being rebuilt: this task found all before it in one pass
            start_one_pass(self.network)
        super().grow(task)
        self.task_sizes.append(task.classes)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """A state after a task has one pass, where `grow` has made the two that the task is learned with."""
        last = self.network.tasks - 1
        if last > 0 and f"network.heads.{last}.linear.weight" not in state_dict:
            start_one_pass(self.network)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def end_task(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        watch, self.watch = self.watch, ignore  # only the distillation, which takes longest, reports progress
        super().end_task(task, data, held_out)
        self.watch = watch
        if self.network.tasks > 1 and not self.learns(task):
            absorb_constant_pass(self.network)
        elif self.network.tasks > 1:
            self.distill(data.images, watch)

    def preview_end(self, task: Task, data: TaskImages, held_out: TaskImages | None = None) -> None:
        """`end_task` without the distillation into one pass, which would take as long as the lesson."""
        super().end_task(task, data, held_out)

    def ending_seconds(self, images: Tensor) -> float:
        if self.network.tasks == 1:
            return 0.0
        trial = copy.deepcopy(self).eval()
        trial.network.finish()
        return sum(trial.estimate_seconds(images))

    def forget(self, label: int, images: Tensor | None = None) -> tuple[str, ...]:
        left = super().forget(label, images)
        self.task_sizes[int((torch.tensor(self.task_sizes).cumsum(dim=0) <= label).sum())] -= 1
        return left

    def join(self, label: int, other: int) -> tuple[str, ...]:
        left = super().join(label, other)
        self.task_sizes[int((torch.tensor(self.task_sizes).cumsum(dim=0) <= other).sum())] -= 1
        return left

    def distill(
        self,
        images: Tensor,
        watch: OnProgress = ignore,
        halfway: Halfway | None = None,
        after_step: AfterStep = lambda _: None,
    ) -> None:
        """Distill all passes into one with images (n, 3, H, W) of the newest task only; the encoder stays as it is."""
        decoder, (encoding, imitating) = FoldedDecoder(self.network), self.estimate_seconds(images)
        steps, whole = self.options.distillation_steps, encoding + imitating
        behind = 0.0 if halfway is None else imitating * halfway.steps / steps
        if halfway is not None:
            watch(behind / whole)
        features, logits = self.targets(
            decoder, images, self.views_of(images), lambda share: watch((behind + encoding * share) / whole)
        )
        start_student(self.network, decoder, self.options.capacity)
        imitation = Imitation(self.network, features, logits, self.options)
        if halfway is not None:
            imitation.resume(halfway)

        def stepped() -> None:
            watch((encoding + imitating * imitation.steps / steps) / whole)
            after_step(imitation)

        imitation.run(stepped)
        self.network.finished = 1

    def estimate_seconds(self, images: Tensor) -> tuple[float, float]:
        """Estimated seconds of `distill` for encoding and for training, timed on a copy."""
        network, some, device = copy.deepcopy(self.network), images[:AT_ONCE], self.network.gate_in.used.device
        decoder, options = FoldedDecoder(network), dataclasses.replace(self.options, distillation_steps=TIMED_STEPS)
        times: list[float] = []

        def look() -> None:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter())

        with seeded(0, "rehearse"):
            self.targets(decoder, some[:1], 1, ignore)  # warm-up
            look()
            features, logits = self.targets(decoder, some, 1, ignore)
            look()
            encoding = times[-1] - times[-2]
            start_student(network, decoder, options.capacity)
            Imitation(network, features, logits, options).run(look)
        imitating = (times[-1] - times[-TIMED_STEPS]) / (TIMED_STEPS - 1)
        rounds = self.views_of(images) * len(images) / len(some)
        return rounds * encoding, self.options.distillation_steps * imitating

    def views_of(self, images: Tensor) -> int:
        """Views of each image whose features fit into `LARGEST_CACHE`."""
        bytes_of_one = 4 * len(images) * self.network.tokens_per_image * self.network.width
        return min(self.options.views, max(1, LARGEST_CACHE // bytes_of_one))

    @torch.no_grad()
    def targets(self, decoder: FoldedDecoder, images: Tensor, views: int, watch: OnProgress) -> tuple[Tensor, Tensor]:
        """Encoded views of images (views n, N, D) and the passes' logits of each (views n, classes), to imitate."""
        network, device = self.network, self.network.gate_in.used.device
        features = torch.empty(views, len(images), network.tokens_per_image, network.width, device=device)
        logits: list[Tensor] = []
        for view in features:
            seen = images if not logits else cut_and_mirrored(images)
            for kept, part in zip(view.split(AT_ONCE), self.setting.chunks(seen, device), strict=True):
                kept.copy_(network.encoder(part))
                logits.append(decoder(network.spaces(kept, self.options.compensation)).float())
                watch(len(logits) / (views * math.ceil(len(images) / AT_ONCE)))
        return features.flatten(0, 1), torch.cat(logits)

    def uses(self, capacity: float) -> bool:
        """Whether all tasks are already one pass under a mask of this capacity."""
        return self.network.tasks == 1 and all(
            int(gate.used.sum()) == units_open(gate, capacity) for gate in gates_of(self.network)
        )

    def tasks_of(self, number: int) -> str:
        return "all tasks" if len(self.task_sizes) > self.network.tasks else super().tasks_of(number)

    def task_classes(self) -> Sequence[int]:
        """A pass may serve several tasks."""
        return self.task_sizes

    def compensate(self, features: Tensor, task: int) -> Tensor | None:
        """No projector is left when a task has ended."""
        return super().compensate(features, self.position(task)) if len(self.network.cascade.projectors) else None

    def embed(self, images: Tensor, task: int, compensate: bool) -> Tensor:
        return super().embed(images, self.position(task), compensate)

    def position(self, task: int) -> int:
        """The index of the pass that has a task's classes."""
        return self.network.tasks - 1 if task == len(self.task_sizes) - 1 else 0


def distill(
    teacher: Gcab,
    images: Tensor,
    options: GcabFastOptions,
    seed: int,
    watch: OnProgress = ignore,
    halfway: Halfway | None = None,
    after_step: AfterStep = lambda _: None,
) -> GcabFast:
    """A student with one pass in place of all of its teacher's, from images (n, 3, H, W) of the last task only.

    With `halfway` it resumes; random numbers follow from the seed, so the same ones are drawn again.
    """
    student = GcabFast(teacher.setting, options).to(teacher.network.gate_in.used.device)
    for part in ("network", "statistics", "eye", "referee"):
        setattr(student, part, copy.deepcopy(getattr(teacher, part)))
    student.task_sizes = list(teacher.task_sizes if isinstance(teacher, GcabFast) else teacher.network.classes)
    with seeded(seed, "distill", len(student.task_sizes)):
        student.eval().distill(images, watch, halfway, after_step)
    return student


def fast_options(options: GcabOptions, **changes: Any) -> GcabFastOptions:
    """GCAB-Fast options: those of the teacher, with these changes."""
    given = {item.name: getattr(options, item.name) for item in dataclasses.fields(options)}
    return GcabFastOptions(**(given | changes))


def start_one_pass(network: GatedNetwork) -> None:
    """Replace all passes by one untrained pass over all classes; block and encoder stay."""
    classes = sum(network.classes)
    network.heads, network.tokens, network.cascade = nn.ModuleList(), nn.ParameterList(), DriftCascade()
    network.gate_in.embeddings, network.gate_hidden.embeddings = nn.ParameterList(), nn.ParameterList()
    network.classes.clear()
    network.grow(classes, projector=False)


@torch.no_grad()
def absorb_constant_pass(network: GatedNetwork) -> None:
    """Merge a second pass with constant logits into the first, exactly: its head becomes rows of the first one's."""
    head, constant = (cast(Head, each).linear for each in network.heads)
    for name, held in [*head.named_parameters()]:
        rows = torch.cat([held, getattr(constant, name)])
        setattr(head, name, nn.Parameter(rows, held.requires_grad))
    head.out_features += constant.out_features
    network.classes[:] = [sum(network.classes)]
    network.cascade, network.finished = DriftCascade(), 1
    network.heads, network.tokens = network.heads[:1], network.tokens[:1]
    for gate in gates_of(network):
        gate.embeddings = gate.embeddings[:1]


def start_student(network: GatedNetwork, decoder: FoldedDecoder, capacity: float) -> None:
    """Replace all passes by the initial student: the newest token, all heads concatenated, a static mask."""
    token = network.tokens[-1].detach()
    start_one_pass(network)
    with torch.no_grad():
        network.tokens[0].copy_(token)
        start_head(cast(Head, network.heads[0]).linear, decoder)
        for gate in gates_of(network):
            set_static_mask(gate, capacity)


def gates_of(network: GatedNetwork) -> tuple[Gate, ...]:
    """The gates of a network's decoder; none without `options.gates`."""
    return (network.gate_in, network.gate_hidden) if network.options.gates else ()


def start_head(joined: nn.Linear, decoder: FoldedDecoder) -> None:
    """Copy all classifiers of a decoder into one; the LayerNorm before each is folded into it already."""
    for parameter, of_passes in ((joined.weight, decoder.classifiers), (joined.bias, decoder.biases)):
        padded = zip(cast(Tensor, of_passes), decoder.classes, strict=True)
        parameter.copy_(torch.cat([rows[:count] for rows, count in padded]))


@torch.no_grad()
def set_static_mask(gate: Gate, capacity: float) -> None:
    """Open a random share of the units; the others are closed, and free for the next task."""
    opened = torch.randperm(gate.units)[: units_open(gate, capacity)]
    gate.embedding(0).fill_(-CERTAIN)[opened.to(gate.used.device)] = CERTAIN
    gate.used.copy_(gate.hard(0))


def units_open(gate: Gate, capacity: float) -> int:
    """The number of units that a capacity opens."""
    return max(1, round(capacity * gate.units))


def cut_and_mirrored(images: Tensor) -> Tensor:
    """Random flips, then random pairs of images joined side by side or one above the other at a random place.

    With images of one task only, distillation is better the more they vary, even if they show no real object.
    """
    for side in (2, 3):
        chosen = torch.rand(len(images), 1, 1, 1) < 0.5
        images = torch.where(chosen.to(images.device), images.flip(side), images)
    height, width = images.shape[2:]
    place = torch.randint(width, (len(images), 1, 1, 1))
    across = torch.rand(len(images), 1, 1, 1) < 0.5
    down = torch.arange(height)[:, None] * width < place * height
    first = torch.where(across, down, torch.arange(width) < place)  # (n, 1, H, W)
    others = images[torch.randperm(len(images)).to(images.device)]
    return torch.where(first.to(images.device), images, others)
