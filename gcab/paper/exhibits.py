"""What is made of the runs of each recipe: the lines of its table, its picture, its note."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gcab.paper import comparison, comparison_figures, compass, drawings, embedding, numbers
from gcab.paper.compared import RESNET
from gcab.paper.evidence import Record, distillations, timings
from gcab.paper.recipes import RECIPES
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def no_files(_: Sequence[RunFolder]) -> set[Path]:
    return set()


class Exhibit(NamedTuple):
    """What is made of a recipe's runs; there are no lines where the runs lack what it needs."""

    lines: Callable[[Sequence[RunFolder]], list[Record]]
    figure: "Callable[[Sequence[RunFolder], Sequence[Record]], Figure]"
    needs: str  # said where there are no lines
    note: str = ""
    details: tuple[str, ...] = ()  # columns that a terminal has no room for
    files: tuple[str, ...] = ()  # of a run, beside its configuration and log; {last} is its last task
    used: Callable[[Sequence[RunFolder]], list[RunFolder]] = list  # the runs that lines come from
    doubled: Callable[[Sequence[RunFolder]], set[Path]] = no_files  # that another run of the figure has, too


def gated(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if any(record["capacity"] for record in run.records("task"))]


def with_students(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs of groups with a student; those of other seeds, too, as they count where GCAB itself is averaged."""
    groups = {run.group for run in runs if distillations(run)}
    return [run for run in runs if run.group in groups]


def timed(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if timings(run)]


STUDENT, STUDENTS = "fast-80/fast.json", "fast-*/fast.json"


def compared(name: str, own: str) -> Exhibit:
    """A table of all methods, with what is to know of its conditions."""
    return Exhibit(
        partial(comparison.lines, RECIPES[name]),
        comparison_figures.table,
        "a finished run on the encoder that it is about",
        "Per cent after the last task; – has not been run, or is not in the paper. Images: what a method may store. "
        "Image bytes: of the images that it stores. Other bytes: of all else that it knows about old ones. Passes per "
        "step: images that go through the network that learns, for each fresh one, in the last task. GCAB-Fast at 80 % "
        "capacity; its seconds are the distillation's alone. The paper's rows but LVT, DyTox, A-D and GCAB are not of "
        "transformers; most likely they are LVT's, of ResNet-18, 50 epochs of SGD without momentum, classes in "
        f"alphabetical order, no RandAugment. {own} What differs from a method's publication: docs/reference.md.",
        ("ACC_TAG ±", "ACC_TAW ±", "Seeds", "Other bytes"),
        files=(STUDENT,),
        used=comparison.on_resnet if name.endswith(RESNET) else comparison.on_transformers,
    )


SHARED_ENCODER = "Ours share the encoder, the schedule, the augmentation and the class order of GCAB."
EXHIBITS: dict[str, Exhibit] = {
    "main": Exhibit(
        numbers.main,
        drawings.main,
        "a finished run",
        "Per cent after the last task. GCAB-Fast at 80 % capacity; its seconds are the distillation's alone.",
        files=(STUDENT,),
    ),
    "ablation": Exhibit(
        numbers.ablation,
        drawings.ablation,
        "a finished run",
        "Per cent after the last task. Class statistics are ours; the paper's numbers stand beside rows without them.",
        ("Gates", "PFR", "Compensation"),  # a row's name tells
    ),
    "hyperparameters": Exhibit(
        numbers.hyperparameters,
        drawings.hyperparameters,
        "runs that differ in options.lambda_gcab or lambda_pfr alone",
        "Per cent after the last task. Heads alone: ACC_TAG of the paper's decision, without class statistics.",
    ),
    "capacity": Exhibit(numbers.capacity, drawings.capacity, "a run with gates", used=gated),
    "distillation": Exhibit(
        numbers.distillation,
        drawings.distillation,
        "a run that was distilled (gcab distill RUN --capacity 0.8)",
        "Per cent after the last task; the line without a capacity is GCAB before distillation. Heads alone: ACC_TAG "
        "of the paper's decision, without class statistics. KL to GCAB: of the heads, on the last task's images.",
        files=(STUDENTS,),
        used=with_students,
    ),
    "embedding": Exhibit(
        embedding.records,
        embedding.figure,
        "two gcab runs of one seed, with options.drift pfr and none, with their predictions folders",
        "Per cent of task 1's test images nearest to the mean that their class had after task 1, in the decoder's "
        "embedding.",
        files=embedding.FILES,
        used=embedding.paired,
        doubled=embedding.doubled,
    ),
    "runtime": Exhibit(
        numbers.runtime,
        drawings.runtime,
        "a run with its model",
        "One image, float32, medians, which training does not change; MACs are counted, one is two FLOPs; the paper "
        "calls its number GFLOPs. Recorded: as a CUDA graph.",
        ("FLOPs, M",),
        (STUDENTS, "runtime-*.json"),
        timed,
    ),
    "memory": Exhibit(
        numbers.memory,
        drawings.memory,
        "a finished run",
        "Kept between tasks, MB = 1 000 000 bytes (the paper's MB of 1 048 576 are converted). GCAB-Fast at 80 %.",
        ("Epochs", "Parameters, M", "Images, MB", "Class statistics, MB", "ACC_TAW", "ACC_TAW ±"),
        files=(STUDENT,),
    ),
    "table-cifar": compared("table-cifar", SHARED_ENCODER),
    "table-cifar-resnet18": compared("table-cifar-resnet18", "Ours are made in the same way."),
    "table-tiny": compared("table-tiny", SHARED_ENCODER),
    "table-imagenet100": compared("table-imagenet100", SHARED_ENCODER),
    "scenarios": Exhibit(
        partial(comparison.curves, RECIPES["scenarios"]),
        comparison_figures.curves,
        "a finished run on a transformer",
        "ACC_TAG after each task; hollow, behind the last: the paper's. Images: what a method may store.",
        ("Seeds",),
        used=comparison.on_transformers,
    ),
    "cleva-compass": Exhibit(
        partial(compass.lines, RECIPES["cleva-compass"]),
        compass.figure,
        "a finished run on a transformer",
        "Inner level: what a method declares; a beam ends at the first circle where that takes labels (supervised), at "
        "the second where it does not. Outer level: what its runs measured; a method without a ring has not been run. "
        "Communication, openness and generated data are not measured here, MACs where `gcab figure runtime RUN` was. "
        "Task agnostic is supervised where what answers is divided by task, as heads, tokens or gates are that labels "
        "of their own task alone train. GCAB-Fast: of its distillation alone.",
        compass.INNER,
        files=(STUDENT, "runtime-*.json"),
        used=comparison.on_transformers,
    ),
}
