"""The paper's own numbers, to stand beside ours: accuracies after the last task in per cent."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """ACC_TAG and, where the paper gives it, ACC_TAW."""

    tag: float
    taw: float | None = None


@dataclass(frozen=True)
class Cost:
    """Table dis: in millions, milliseconds on a Quadro RTX 6000, and what the paper calls GFLOPs."""

    parameters: float
    milliseconds: float
    giga_operations: float


@dataclass(frozen=True)
class Replay:
    """A line of table params that stores images: parameters in millions, MB of 2**20 bytes, scenario -> ACC_TAG."""

    method: str
    images: int
    parameters: float
    images_size: float
    total: float
    tag: Mapping[str, float]


# (scenario, method) -> tables 200_cifar and 200_tinyimagenet
ACCURACY: Mapping[tuple[str, str], Published] = {
    ("cifar100/5", "joint"): Published(75.39),
    ("cifar100/5", "gcab"): Published(49.86, 81.01),
    ("cifar100/5", "gcab-fast"): Published(48.85, 79.75),
    ("cifar100/10", "joint"): Published(75.39),
    ("cifar100/10", "gcab"): Published(35.90, 82.08),
    ("cifar100/10", "gcab-fast"): Published(35.42, 81.97),
    ("tiny-imagenet/10", "joint"): Published(59.38),
    ("tiny-imagenet/10", "gcab"): Published(26.82, 65.92),
    ("tiny-imagenet/10", "gcab-fast"): Published(26.44, 65.02),
    ("imagenet100/10", "joint"): Published(79.18),
    ("imagenet100/10", "gcab"): Published(40.10, 81.82),
    ("imagenet100/10", "gcab-fast"): Published(36.22, 80.28),
}

# scenario -> component -> ACC_TAG: table ablation2 and the footnote on feature distillation
ABLATION: Mapping[str, Mapping[str, float]] = {
    "cifar100/10": {
        "fine-tuning": 11.90,
        "gates alone": 31.35,
        "PFR without compensation": 7.96,
        "compensation": 35.90,
        "feature distillation": 30.50,
        "joint": 75.39,
    },
    "tiny-imagenet/10": {
        "fine-tuning": 7.98,
        "gates alone": 22.79,
        "PFR without compensation": 5.52,
        "compensation": 26.82,
        "feature distillation": 22.17,
        "joint": 59.38,
    },
}

# scenario -> method -> table dis
RUNTIME: Mapping[str, Mapping[str, Cost]] = {
    "cifar100/10": {
        "DyTox": Cost(10.7, 16.0, 0.775),
        "GCAB": Cost(12.4, 22.0, 0.946),
        "GCAB-Fast": Cost(9.2, 7.0, 0.510),
    },
}

# (data set, method) -> total in MB of 2**20 bytes: table params
MEMORY: Mapping[tuple[str, str], float] = {
    ("cifar100", "gcab"): 47.30,
    ("cifar100", "gcab-fast"): 35.09,
    ("tiny-imagenet", "gcab"): 47.30,
    ("tiny-imagenet", "gcab-fast"): 35.16,
    ("imagenet100", "gcab"): 48.4,
    ("imagenet100", "gcab-fast"): 36.19,
}

REPLAY: tuple[Replay, ...] = (
    Replay("DyTox", 200, 10.7, 2.34, 43.16, {"cifar100/5": 36.52, "cifar100/10": 25.94}),
    Replay("DyTox", 500, 10.7, 5.86, 46.68, {"cifar100/5": 51.28, "cifar100/10": 36.24}),
    Replay("LVT", 200, 8.9, 2.34, 36.29, {"cifar100/5": 39.68, "cifar100/10": 35.41}),
    Replay("LVT", 500, 8.9, 5.86, 39.81, {"cifar100/5": 44.73, "cifar100/10": 43.51}),
    Replay("DyTox", 200, 10.7, 9.38, 50.19, {"tiny-imagenet/10": 13.14}),
    Replay("DyTox", 500, 10.7, 23.44, 64.25, {"tiny-imagenet/10": 24.64}),
    Replay("LVT", 200, 9.0, 9.38, 43.71, {"tiny-imagenet/10": 17.34}),
    Replay("LVT", 500, 9.0, 23.44, 57.77, {"tiny-imagenet/10": 23.97}),
    Replay("DyTox", 200, 11.0, 114.84, 156.80, {"imagenet100/10": 24.82}),
    Replay("DyTox", 500, 11.0, 287.11, 329.07, {"imagenet100/10": 42.40}),
    Replay("LVT", 200, 9.0, 114.84, 149.17, {"imagenet100/10": 19.46}),
    Replay("LVT", 500, 9.0, 287.11, 321.44, {"imagenet100/10": 26.32}),
)
