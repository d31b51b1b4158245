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
    """A line of table params that stores images: parameters in millions, MB of 2**20 bytes, on these scenarios."""

    method: str
    images: int
    parameters: float
    images_size: float
    total: float
    scenarios: tuple[str, ...]


Lines = Mapping[str, tuple[float | None, ...]]  # method -> Class-IL and Task-IL of one scenario, then of the other

# What the paper calls the methods that this program has.
TITLES: Mapping[str, str] = {
    "joint": "Joint training",
    "finetune": "Fine-tuning",
    "er": "ER",
    "gem": "GEM",
    "agem": "A-GEM",
    "icarl": "iCaRL",
    "fdr": "FDR",
    "gss": "GSS",
    "derpp": "DER++",
    "hal": "HAL",
    "ert": "ERT",
    "rm": "RM",
    "pass": "PASS",
    "sdc": "SDC",
    "lwf": "LwF",
    "ewc": "EWC",
    "mas": "MAS",
    "fd": "Feature distillation",
    "lvt": "LVT",
    "dytox": "DyTox",
    "ad": "A-D",
    "gcab": "GCAB",
    "gcab-fast": "GCAB-Fast",
}
STORING = ("er", "gem", "agem", "icarl", "fdr", "gss", "derpp", "hal", "ert", "rm", "lvt", "dytox")  # images

# The paper's four tables line by line, as printed.
CIFAR = ("cifar100/5", "cifar100/10")
OTHERS = ("tiny-imagenet/10", "imagenet100/10")
TABLE_200_CIFAR: Lines = {
    "joint": (75.39, None, 75.39, None),
    "er": (21.94, 62.41, 14.23, 67.57),
    "gem": (19.73, 57.13, 13.20, 62.96),
    "agem": (17.97, 53.55, 9.44, 55.04),
    "icarl": (30.12, 55.70, 22.38, 60.81),
    "fdr": (22.84, 63.57, 14.85, 65.88),
    "gss": (19.44, 56.11, 11.84, 56.24),
    "derpp": (27.46, 62.55, 21.76, 59.54),
    "hal": (13.21, 35.61, 9.67, 37.49),
    "ert": (21.61, 54.75, 12.91, 58.49),
    "rm": (32.23, 62.05, 22.71, 66.28),
    "pass": (48.28, None, 33.76, None),
    "sdc": (6.65, None, 7.41, None),
    "lvt": (39.68, 66.92, 35.41, 72.80),
    "dytox": (36.52, None, 25.94, None),
    "ad": (15.61, 42.82, 16.77, 55.53),
    "gcab": (49.86, 81.01, 35.90, 82.08),
    "gcab-fast": (48.85, 79.75, 35.42, 81.97),
}
TABLE_200_TINYIMAGENET: Lines = {
    "joint": (59.38, None, 79.18, None),
    "er": (8.79, 39.16, 9.58, 36.24),
    "agem": (8.28, 23.79, 9.27, 25.20),
    "icarl": (8.64, 28.41, 12.59, 33.75),
    "fdr": (8.77, 40.15, 10.08, 37.80),
    "derpp": (11.16, 40.91, 11.92, 31.96),
    "ert": (10.85, 39.54, 13.51, 36.94),
    "rm": (13.58, 41.96, 16.76, 35.18),
    "pass": (24.23, None, 25.22, None),
    "sdc": (3.94, None, 11.52, None),
    "lvt": (17.34, 46.15, 19.46, 41.78),
    "dytox": (13.14, None, 24.82, None),
    "ad": (6.10, 18.02, 10.92, 39.13),
    "gcab": (26.82, 65.92, 40.10, 81.82),
    "gcab-fast": (26.44, 65.02, 36.22, 80.28),
}
TABLE_500_CIFAR: Lines = {
    "joint": (75.39, None, 75.39, None),
    "er": (27.97, 68.21, 21.54, 74.97),
    "gem": (25.44, 67.49, 18.48, 72.68),
    "agem": (18.75, 58.70, 9.72, 58.23),
    "icarl": (35.95, 64.40, 30.25, 71.02),
    "fdr": (29.99, 69.11, 22.81, 74.22),
    "gss": (22.08, 61.77, 13.72, 56.32),
    "derpp": (38.39, 70.74, 36.15, 73.31),
    "hal": (16.74, 39.70, 11.12, 41.75),
    "ert": (28.82, 62.85, 23.00, 68.26),
    "rm": (39.47, 69.27, 32.52, 73.51),
    "pass": (48.28, None, 33.76, None),
    "sdc": (6.65, None, 7.41, None),
    "lvt": (44.73, 71.54, 43.51, 76.78),
    "dytox": (51.28, None, 36.24, None),
    "ad": (15.61, 42.82, 16.77, 55.53),
    "gcab": (49.86, 81.01, 35.90, 82.08),
    "gcab-fast": (48.85, 79.75, 35.42, 81.97),
}
TABLE_500_TINY: Lines = {
    "joint": (59.38, None, 79.18, None),
    "er": (10.15, 50.11, 11.68, 42.04),
    "agem": (9.67, 26.79, 10.92, 34.22),
    "icarl": (10.69, 35.89, 16.44, 36.89),
    "fdr": (10.58, 49.91, 11.78, 42.60),
    "derpp": (19.33, 51.90, 14.52, 35.46),
    "ert": (12.13, 50.87, 20.42, 41.56),
    "rm": (18.96, 52.08, 14.56, 38.66),
    "pass": (24.23, None, 25.22, None),
    "sdc": (3.94, None, 11.52, None),
    "lvt": (23.97, 57.39, 26.32, 47.84),
    "dytox": (24.64, None, 42.40, None),
    "ad": (6.10, 18.02, 10.92, 39.13),
    "gcab": (26.82, 65.92, 40.10, 81.82),
    "gcab-fast": (26.44, 65.02, 36.22, 80.28),
}
TABLES: tuple[tuple[int, tuple[str, str], Lines], ...] = (  # images stored by methods that store any
    (200, CIFAR, TABLE_200_CIFAR),
    (200, OTHERS, TABLE_200_TINYIMAGENET),
    (500, CIFAR, TABLE_500_CIFAR),
    (500, OTHERS, TABLE_500_TINY),
)


def by_memory() -> dict[tuple[str, str, int], Published]:
    """The tables by scenario, method and images stored."""
    found = {}
    for images, scenarios, table in TABLES:
        for method, values in table.items():
            for scenario, tag, taw in zip(scenarios, values[::2], values[1::2], strict=True):
                assert tag is not None, "every line has its Class-IL"
                found[scenario, method, images if method in STORING else 0] = Published(tag, taw)
    return found


ACCURACY: Mapping[tuple[str, str, int], Published] = by_memory()

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
    Replay("dytox", 200, 10.7, 2.34, 43.16, CIFAR),
    Replay("dytox", 500, 10.7, 5.86, 46.68, CIFAR),
    Replay("lvt", 200, 8.9, 2.34, 36.29, CIFAR),
    Replay("lvt", 500, 8.9, 5.86, 39.81, CIFAR),
    Replay("dytox", 200, 10.7, 9.38, 50.19, ("tiny-imagenet/10",)),
    Replay("dytox", 500, 10.7, 23.44, 64.25, ("tiny-imagenet/10",)),
    Replay("lvt", 200, 9.0, 9.38, 43.71, ("tiny-imagenet/10",)),
    Replay("lvt", 500, 9.0, 23.44, 57.77, ("tiny-imagenet/10",)),
    Replay("dytox", 200, 11.0, 114.84, 156.80, ("imagenet100/10",)),
    Replay("dytox", 500, 11.0, 287.11, 329.07, ("imagenet100/10",)),
    Replay("lvt", 200, 9.0, 114.84, 149.17, ("imagenet100/10",)),
    Replay("lvt", 500, 9.0, 287.11, 321.44, ("imagenet100/10",)),
)
