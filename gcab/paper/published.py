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

RUNTIME: Mapping[str, Cost] = {
    "DyTox": Cost(10.7, 16.0, 0.775),
    "GCAB": Cost(12.4, 22.0, 0.946),
    "GCAB-Fast": Cost(9.2, 7.0, 0.510),
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
