"""Which runs the comparisons with other methods need: nothing but data, as in `recipes`.

Every method of the paper's tables has its rows, and those that it cites without numbers; a method that stores images
has one for each memory. On one encoder and one schedule they tell which method is better (table S); on ResNet-18, with
the published settings, whether they are made right (table R).
"""

from collections.abc import Mapping

from gcab.paper.published import STORING, TITLES
from gcab.paper.rows import FAST, Changes, Recipe, Row

MEMORIES = (200, 500)  # images
SOFTMAX = {"options.loss": "ce"}
RESNET = "resnet18"
RESNET_KIND = {"encoder.kind": RESNET}


def rows_of(method: str, changes: Changes | None = None, of_memory: Mapping[int, Changes] | None = None) -> list[Row]:
    """One row, or one for each memory."""
    title, given = TITLES[method], dict(changes or {})
    if method not in STORING:
        return [Row(title, method, changes=given)]
    return [
        Row(
            f"{title}, {images} images",
            method,
            changes={"options.buffer": images, **given, **(of_memory or {}).get(images, {})},
        )
        for images in MEMORIES
    ]


GCAB = (
    Row(TITLES["gcab"], profile="official", capacities=FAST),
    Row(f"{TITLES['gcab']}, extended", capacities=FAST),
)
BOUNDS = (
    *rows_of("joint", {"options.loss": "bce"}),
    Row(f"{TITLES['joint']}, softmax", "joint", changes=SOFTMAX),
    *rows_of("finetune", {"options.loss": "bce"}),
    Row(f"{TITLES['finetune']}, softmax", "finetune", changes=SOFTMAX),
)
EVERY = (
    *BOUNDS,
    *(row for method in TITLES if method not in ("joint", "finetune", "gcab", "gcab-fast") for row in rows_of(method)),
    *GCAB,
)

# Rates and weights are those that Mammoth lists for CIFAR-10, DER++'s at 500 images for CIFAR-100. PASS: the authors',
# with a cosine in place of their steps. SDC: on LwF, whose rate it has.
REFERENCE = (
    Row(f"{TITLES['joint']}, softmax", "joint", changes={**RESNET_KIND, **SOFTMAX, "training.lr": 0.1}),
    Row(f"{TITLES['finetune']}, softmax", "finetune", changes={**RESNET_KIND, **SOFTMAX, "training.lr": 0.1}),
    *rows_of("er", {**RESNET_KIND, **SOFTMAX, "training.lr": 0.1}),
    *rows_of("gem", {**RESNET_KIND, "training.lr": 0.03}),
    *rows_of("agem", {**RESNET_KIND, "training.lr": 0.03}),
    *rows_of("icarl", {**RESNET_KIND, "training.lr": 0.1, "training.weight_decay": 1e-5}),
    *rows_of("fdr", {**RESNET_KIND, "training.lr": 0.03}),
    *rows_of("gss", {**RESNET_KIND, "training.lr": 0.03, "options.compared": 32}),
    *rows_of("derpp", {**RESNET_KIND, "training.lr": 0.03}, {500: {"options.alpha": 0.3}}),
    *rows_of("hal", {**RESNET_KIND, "training.lr": 0.03}, {200: {"options.anchors": 0.2}}),
    *rows_of("ert", {**RESNET_KIND, "training.lr": 0.03}),
    *rows_of("rm", {**RESNET_KIND, "training.lr": 0.03}),
    Row(
        TITLES["pass"],
        "pass",
        changes={
            **RESNET_KIND,
            "training.optimiser": "adam",
            "training.schedule": "cosine",
            "training.lr": 1e-3,
            "training.batch_size": 64,
            "training.weight_decay": 2e-4,
        },
        epochs=101,
    ),
    *rows_of("sdc", {**RESNET_KIND, "training.lr": 0.01, "training.weight_decay": 5e-4}),
    *rows_of("lwf", {**RESNET_KIND, "training.lr": 0.01, "training.weight_decay": 5e-4, "options.weight": 3.0}),
)
PUBLISHED_SCHEDULE = {
    "encoder.width": 512,
    "augment.randaugment": False,
    "scenario.order": "sorted",
    "training.optimiser": "sgd",
    "training.momentum": 0.0,
    "training.schedule": "constant",
    "training.warmup_epochs": 0,
    "training.batch_size": 32,
    "training.weight_decay": 0.0,
    "training.clip": 0.0,
}

# The CLEVA-Compass: a picture for each family, the first of them the paper's.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "Transformers, as in the paper": ("ad", "dytox", "lvt", "gcab", "gcab-fast"),
    "Replay": ("er", "derpp", "ert", "rm", "gss"),
    "Stored images in other uses": ("gem", "agem", "icarl", "fdr", "hal"),
    "No images": ("pass", "sdc", "lwf", "ewc", "mas", "fd"),
}

COMPARISONS: Mapping[str, Recipe] = {
    "table-cifar": Recipe(
        "Every method on one encoder and schedule",
        "tables 200_cifar and 500_cifar",
        EVERY,
        scenarios=("cifar100/10", "cifar100/5"),
        epochs=100,
    ),
    f"table-cifar-{RESNET}": Recipe(
        "Methods on ResNet-18 with the published settings",
        "tables 200_cifar and 500_cifar",
        REFERENCE,
        scenarios=("cifar100/10", "cifar100/5"),
        epochs=50,
        settings=PUBLISHED_SCHEDULE,
        whole=50,
    ),
    "table-tiny": Recipe(
        "Every method on one encoder and schedule",
        "tables 200_tinyimagenet and 500_tiny",
        EVERY,
        scenarios=("tiny-imagenet/10",),
        epochs=100,
    ),
    "table-imagenet100": Recipe(
        "Every method on one encoder and schedule",
        "tables 200_tinyimagenet and 500_tiny",
        EVERY,
        scenarios=("imagenet100/10",),
        epochs=100,
    ),
    "scenarios": Recipe(
        "Accuracy after each task",
        "figure allscenarios",
        EVERY,
        scenarios=("cifar100/5", "cifar100/10", "tiny-imagenet/10", "imagenet100/10"),
        epochs=100,
    ),
    "cleva-compass": Recipe(
        "CLEVA-Compass: what methods are made for, and what their runs measured",
        "figure cleva",
        tuple(
            row
            for row in EVERY
            if any(row.method in family for family in FAMILIES.values())
            and row.changes.get("options.buffer", MEMORIES[0]) == MEMORIES[0]
            and row.name != f"{TITLES['gcab']}, extended"
        ),
        epochs=100,
    ),
}
