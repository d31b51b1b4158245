"""Which runs each table and figure of the paper needs: nothing but data, read by `gcab figure`.

A row is run once for every scenario; rows of different recipes that mean the same run share its folder.
"""

from collections.abc import Mapping

from gcab.paper.compared import COMPARISONS
from gcab.paper.rows import FAST, Recipe, Row

GATES_ALONE = {"options.drift": "none", "options.compensation": False}
FROZEN_ENCODER = {"options.drift": "frozen"}
FEATURE_DISTILLATION = {"options.drift": "distillation"}
SWEEPS = {
    "lambda_gcab": (0.0005, 0.005, 0.05, 0.5, 5.0, 50.0),
    "lambda_pfr": (0.005, 0.05, 0.5, 5.0, 50.0),
}

RECIPES: Mapping[str, Recipe] = {
    "main": Recipe(
        "Accuracy after the last task",
        "tables 200_cifar and 200_tinyimagenet, figure allscenarios",
        (
            Row("extended", capacities=FAST),
            Row("official", profile="official", capacities=FAST),
            Row("paper", profile="paper", capacities=FAST),
        ),
        scenarios=("cifar100/10", "cifar100/5"),
    ),
    # The paper's rows have no class statistics: they are what each run's heads reach alone. The cascade has no part in
    # training, so the row without it is what the same run's heads reach when nothing is compensated.
    "ablation": Recipe(
        "Ablation",
        "table ablation2",
        (
            Row("fine-tuning", method="finetune"),
            Row("gates alone, official", profile="official", changes=GATES_ALONE),
            Row("gates on a frozen encoder, official", profile="official", changes=FROZEN_ENCODER),
            Row("compensation, official", profile="official"),
            Row("feature distillation, official", profile="official", changes=FEATURE_DISTILLATION),
            Row("gates alone", changes=GATES_ALONE),
            Row("gates on a frozen encoder", changes=FROZEN_ENCODER),
            Row("compensation"),
            Row("feature distillation", changes=FEATURE_DISTILLATION),
            Row("joint", method="joint"),
        ),
        epochs=100,
    ),
    "hyperparameters": Recipe(
        "ACC_TAG under varying hyperparameters",
        "figure hyperparam",
        (
            Row("as it is"),
            *(
                Row(f"{name} {value:g}", changes={f"options.{name}": value})
                for name, values in SWEEPS.items()
                for value in values
            ),
        ),
        scenarios=("cifar100/5",),
        epochs=20,
    ),
    "capacity": Recipe(
        "Capacity of the gated class-attention block",
        "figure compression",
        (Row("extended"),),
        scenarios=("cifar100/5", "cifar100/10"),
    ),
    "distillation": Recipe(
        "Accuracy after the last task with and without distillation",
        "figure dis_res",
        (Row("extended", capacities=(0.2, 0.4, 0.6, 0.8, 1.0)),),
        scenarios=("cifar100/5", "cifar100/10"),
    ),
    "embedding": Recipe(
        "What becomes of task 1's embedding",
        "figures embedding_tag_red and embedding_tag",
        (Row("without PFR", changes=GATES_ALONE), Row("with PFR")),
        epochs=100,
    ),
    "runtime": Recipe(
        "Runtime and computational cost of one image",
        "table dis",
        (Row("extended", capacities=FAST, distillation={"options.distillation_steps": 1}),),
        epochs=1,  # training changes neither time nor size
        timed=True,
    ),
    "memory": Recipe(  # which no schedule changes
        "Memory",
        "table params",
        (
            Row("extended", capacities=FAST),
            Row("ER, 200 images", method="er", epochs=20),
            Row("ER, 500 images", method="er", changes={"options.buffer": 500}, epochs=20),
        ),
        scenarios=("cifar100/5", "cifar100/10"),
    ),
    **COMPARISONS,
}
