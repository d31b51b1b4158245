"""The profiles: named sets of settings that hold for every method; a method may add its own (`Method.profiles`)."""

from collections.abc import Mapping
from typing import Any

DEFAULT_PROFILE = "extended"
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "extended": {},
    "official": {"encoder.drop_path_over": "network", "training.lr_lag": 1},
    "paper": {
        "encoder.kind": "vit",
        "encoder.drop_path": 0.0,
        "training.optimiser": "adam",
        "training.lr": 1e-4,
        "training.min_lr": 1e-4,
        "training.warmup_epochs": 0,
        "training.weight_decay": 0.0,
        "training.clip": 0.0,
    },
}
