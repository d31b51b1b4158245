"""What `gcab info` says about a model."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gcab.classifier.audit import stored_images
from gcab.classifier.model import Classifier, Knowledge
from gcab.classifier.model_folder import UNITS, ModelFolder, kind_of
from gcab.classifier.presets import ENCODERS
from gcab.config import RunConfig
from gcab.errors import GcabError
from gcab.runs.assemble import pretrained_encoder
from gcab.runs.model import hidden_sibling, read_description


def overview(path: str | Path) -> dict[str, Any]:
    """Tasks, classes, accuracy when learned, capacity left, size: all that needs no image, as JSON writes it."""
    folder = ModelFolder(path)
    known, written_by = folder.read(
        lambda place: (Knowledge.read(place, torch.device("cpu")), read_description(place)["gcab"])
    )
    model = Classifier(known, torch.device("cpu"))
    config = model.config
    pretrained, setting = pretrained_encoder(model.method), model.method.setting
    taught = [asdict(entry) for entry in model.taught]
    return {
        "model": str(folder.path),
        "gcab": written_by,
        "method": config.method,
        "generation": model.generation,
        "generations": list(folder.generations()),
        "can_undo": folder.can_undo,
        "image_size": model.image_size,
        "mirrors": setting.mirrors,
        "encoder": {
            "name": encoder_name(config),
            "width": config.encoder.width,
            "blocks": config.encoder.blocks,
            "heads": config.encoder.heads,
        }
        if model.method.trains
        else None,
        "pretrained": None
        if pretrained is None
        else {**pretrained.to_dict(), "mean": setting.mean, "std": setting.std},
        "classes": len(model.classes),
        "tasks": [
            {"index": task.index + 1, "names": list(task.names), **entry}
            for task, entry in zip(model.tasks, taught, strict=True)
        ],
        "capacity_left": {name: 1 - used for name, used in model.method.capacity().items()},
        "calibration": {
            "temperature": model.calibration.temperature,
            "images": model.calibration.images,
            "tells_unknown": model.calibration.tells_unknown,
            "expected_calibration_error": model.calibration.expected_calibration_error,
            "curve": [part._asdict() for part in model.calibration.curve],
        },
        "verdict": model.method.verdict(),
        "images": {"count": stored_images(model.method), "bytes": model.method.image_bytes()},
        "bytes": {"model": folder_bytes(folder.current()), "folder": folder_bytes(folder.path)},
        "interrupted": interrupted(folder),
    }


def encoder_name(config: RunConfig) -> str | None:
    """The preset of an encoder, or the name that a pretrained one was given by; None for a custom shape."""
    if config.encoder.kind == "pretrained":
        return config.encoder.weights
    shape = {f"encoder.{name}": getattr(config.encoder, name) for name in ("width", "heads", "blocks")}
    return next((name for name, preset in ENCODERS.items() if preset == shape), None)


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def interrupted(folder: ModelFolder) -> dict[str, Any] | None:
    """A lesson or a distillation under way, or waiting to be continued: its classes, and how far it is."""
    run = folder.path.parent if folder.is_run else None
    places = (
        [folder] if run is None else map(ModelFolder, sorted(run.glob(hidden_sibling(run / "fast-*", "work").name)))
    )
    for place in places:
        with suppress(GcabError):
            if (position := place.waiting()) is not None:
                kind = kind_of(position)
                return {"kind": kind, "classes": position["classes"], UNITS[kind]: position[UNITS[kind]]}
    return None
