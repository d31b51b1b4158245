"""From a configuration to a method, from a method to a model folder, and back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcab.config import RunConfig, from_dict, to_dict
from gcab.data.registry import dataset
from gcab.errors import GcabError
from gcab.methods.method import Method, Setting, Task
from gcab.methods.registry import method_named
from gcab.model.eye import VERSION, EyeClassifier
from gcab.runs.model import load_model, save_model
from gcab.training.seeds import seeded
from gcab.training.trainer import grow


def build_method(config: RunConfig) -> Method:
    info = dataset(config.scenario.dataset)
    setting = Setting(config.encoder, config.scenario.image_size, info.mean, info.std, config.augment.flip)
    with seeded(config.seed, "build"):
        return method_named(config.method)(setting, config.options)


def save_method(
    folder: Path, method: Method, config: RunConfig, tasks: Sequence[Task], extra: Mapping[str, Any] | None = None
) -> None:
    """A model folder from which `load_method` builds the same method again."""
    info = dataset(config.scenario.dataset)
    eye = {"eye": VERSION} if has_eye(method) else {}
    description = {
        "config": to_dict(config),
        "tasks": [list(task.names) for task in tasks],
        "image_size": config.scenario.image_size,
        "mean": list(info.mean),
        "std": list(info.std),
        **eye,
        **(extra or {}),
    }
    save_model(folder, description, method.state_dict())


def has_eye(method: Method) -> bool:
    return any(isinstance(part, EyeClassifier) for part in method.modules())


def load_method(folder: Path) -> tuple[Method, RunConfig, dict[str, Any]]:
    """The method of a model folder, ready to predict."""
    description, tensors = load_model(folder)
    if description.get("eye", VERSION) != VERSION:
        raise GcabError(
            f"{folder} has sums of version {description['eye']} of the eye, this gcab sees with version {VERSION}: "
            "use the gcab that wrote it."
        )
    try:
        config = from_dict(description["config"])
        method = build_method(config)
        first = 0
        for index, names in enumerate(description["tasks"]):
            grow(method, Task(index, first, tuple(names)), config.seed)
            first += len(names)
        method.load_state_dict(tensors, strict=True)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        raise GcabError(
            f"{folder}/model.json does not fit its weights: it is damaged, restore it from a copy."
        ) from None
    return method.eval(), config, description
