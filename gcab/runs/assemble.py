"""From a configuration to a method, from a method to a model folder, and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gcab.config import RunConfig, from_dict, to_dict
from gcab.data.augment import Channels
from gcab.data.registry import dataset
from gcab.data.tasks import Setting, Task
from gcab.errors import GcabError
from gcab.methods.method import Method, grow
from gcab.methods.registry import method_named
from gcab.model.eye import VERSION, Eye
from gcab.pretrained.description import Description, PretrainedWeights
from gcab.pretrained.encoder import PretrainedEncoder
from gcab.pretrained.source import read_pretrained
from gcab.runs.model import GENERATION, DamagedError, load_model, require_sound, save_model
from gcab.seeds import seeded


def build_method(config: RunConfig) -> Method:
    """A method that has learned nothing yet."""
    info, weights = dataset(config.scenario.dataset), None
    mean, std = info.mean, info.std
    if config.encoder.kind == "pretrained":
        found = read_pretrained(config.encoder.weights)
        return _build(config, config.augment.flip, found.mean, found.std, found)
    if config.encoder.weights:
        weights, mean, std = encoder_of(Path(config.encoder.weights))
    return _build(config, config.augment.flip, mean, std, weights)


def _build(
    config: RunConfig, mirrors: bool, mean: Channels, std: Channels, weights: Mapping[str, Tensor] | None = None
) -> Method:
    setting = Setting(config.encoder, config.scenario.image_size, mean, std, mirrors, weights)
    with seeded(config.seed, "build"):
        method = method_named(config.method)(setting, config.options)
    method.setting = replace(setting, weights=None)  # the method has its own by now
    return method


def encoder_of(path: Path) -> tuple[dict[str, Tensor], Channels, Channels]:
    """The weights of the encoder in a run or a model, and the mean and deviation that its images are normalised by.

    Its position embedding is (1, rows, columns, D): an encoder for images of another shape needs to know its grid.
    """
    generations = sorted(path.glob(f"{GENERATION}*"))
    folder = path / "model" if (path / "model").is_dir() else (generations or [path])[-1]
    description, tensors = load_model(folder)
    weights = {name.partition("encoder.")[2]: value for name, value in tensors.items() if "encoder." in name}
    if not weights:
        raise GcabError(f"{path} has no encoder to start from: give a run or a model that has trained one.")
    config = from_dict(description["config"])
    grid = config.encoder.grid(config.scenario.image_size)
    if "position" in weights and weights["position"].shape[1] == math.prod(grid):
        weights["position"] = weights["position"].unflatten(1, grid)
    return weights, tuple(description["mean"]), tuple(description["std"])


def save_method(
    folder: Path, method: Method, config: RunConfig, tasks: Sequence[Task], extra: Mapping[str, Any] | None = None
) -> None:
    """A model folder from which `load_method` builds the same method again."""
    eye = {"eye": VERSION} if has_eye(method) else {}
    encoder = pretrained_encoder(method)
    pretrained = {} if encoder is None else {"pretrained": encoder.to_dict()}
    description = {
        "config": to_dict(config),
        "tasks": [list(task.names) for task in tasks],
        "image_size": to_dict(config)["scenario"]["image_size"],
        "mean": list(method.setting.mean),
        "std": list(method.setting.std),
        "mirrors": method.setting.mirrors,
        **eye,
        **pretrained,
        **(extra or {}),
    }
    save_model(folder, description, method.state_dict())


def has_eye(method: Method) -> bool:
    return any(isinstance(part, Eye) for part in method.modules())


def pretrained_encoder(method: Method) -> Description | None:
    """The description of a method's pretrained encoder; None for a method that trains its own."""
    found = (part.description for part in method.modules() if isinstance(part, PretrainedEncoder))
    return next(found, None)


def load_method(folder: Path) -> tuple[Method, RunConfig, dict[str, Any]]:
    """The method of a model folder, ready to predict."""
    description, tensors = load_model(folder)
    require_sound(folder, description)
    if description.get("eye", VERSION) != VERSION:
        raise GcabError(
            f"{folder} has sums of version {description['eye']} of the eye, this gcab sees with version {VERSION}: "
            "use the gcab that wrote it."
        )
    try:
        config = from_dict(description["config"])
    except GcabError as problem:
        raise DamagedError(
            f"{folder}/model.json is damaged ({str(problem).rstrip('.')}): restore it from a copy."
        ) from None
    if description["image_size"] != to_dict(config)["scenario"]["image_size"]:
        raise DamagedError(f"{folder}/model.json contradicts itself in image_size: restore it from a copy.")
    try:
        info = dataset(config.scenario.dataset)
        mean, std = (tuple(description.get(key, of_data)) for key, of_data in (("mean", info.mean), ("std", info.std)))
        stored = description.get("pretrained")
        weights = None if stored is None else PretrainedWeights(Description(**stored), mean, std, {})
        require_room(config, tensors)
        mirrors = description.get("mirrors", config.augment.flip)  # later tasks may augment otherwise than the first
        method = _build(config, mirrors, mean, std, weights)
        first = 0
        for index, names in enumerate(description["tasks"]):
            grow(method, Task(index, first, tuple(names)), config.seed)
            first += len(names)
        method.load_state_dict(tensors, strict=True)
    except (ArithmeticError, AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        raise DamagedError(
            f"{folder}/model.json does not fit its weights: it is damaged, restore it from a copy."
        ) from None
    return method.eval(), config, description


def require_room(config: RunConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise an error for an encoder larger than the stored one: building it could take all memory."""
    stored, encoder = [value for name, value in tensors.items() if "encoder." in name], config.encoder
    if not stored or encoder.kind == "pretrained":
        return
    least = encoder.width * max(encoder.width, encoder.mlp_ratio * encoder.width)
    if encoder.blocks > len(stored) or least > sum(value.numel() for value in stored):
        raise ValueError("the stored encoder is smaller")
    if encoder.kind != "resnet18" and encoder.tokens(config.scenario.image_size) > max(map(Tensor.numel, stored)):
        raise ValueError("the stored encoder sees fewer patches")
