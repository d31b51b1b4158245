"""Lists what a model folder holds, by tensor and by file, so that anyone can see that there is no image in it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from gcab.classifier.image_sources import SIGNATURES
from gcab.classifier.model_folder import KEEP, ModelFolder, number_of
from gcab.data.archive import IMAGE_SUFFIXES
from gcab.methods.method import Method
from gcab.runs.assemble import load_method
from gcab.sizes import sides

FEW = 3  # photos of a class, below which its mean and its sums are almost those photos' own features
UNKNOWN = "unknown: gcab has no use for it"
OWN_FILES = ("model.json", "weights.safetensors")


@dataclass(frozen=True)
class Stored:
    """One tensor of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    purpose: str


@dataclass(frozen=True)
class Beside:
    """The tensors of a file that is not of the current generation, summed up."""

    purpose: str
    tensors: int
    bytes: int
    images: int


@dataclass(frozen=True)
class Audit:
    """Everything in a model folder."""

    tensors: tuple[Stored, ...]  # of the current generation
    images: int  # training images among them
    files: dict[str, int]  # of the folder that belong to it, with their bytes
    beside: dict[str, Beside]  # those with tensors of the generation kept for undo, or of work not yet ended
    strangers: dict[str, int]  # those that do not belong to it
    pictures: tuple[str, ...]  # strangers that look like images
    closed: tuple[str, ...]  # files that could not be inspected
    few: dict[str, int]  # classes learned from so few photos that these could be inferred from what is stored

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bytes": sum(stored.bytes for stored in self.tensors)}


def audit(path: str | Path) -> Audit:
    """Look at every tensor and at every file of the folder."""
    folder = ModelFolder(path)
    method, _, description = folder.read(load_method)
    names = [name for task in description["tasks"] for name in task]
    few = {name: count for name, count in zip(names, method.image_counts() or (), strict=False) if count < FEW}
    tensors = tuple(
        Stored(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), value.nbytes, purpose(method, name))
        for name, value in method.state_dict().items()
    )
    files: dict[str, int] = {}
    beside: dict[str, Beside] = {}
    strangers: dict[str, int] = {}
    pictures: list[str] = []
    closed: list[str] = []
    for file in sorted(folder.path.rglob("*")):
        if not file.is_file():
            continue
        place = file.relative_to(folder.path)
        name, size = place.as_posix(), file.stat().st_size
        if not belongs(place):
            strangers[name] = size
            (pictures if is_picture(file) else closed).append(name)
            continue
        files[name] = size
        if file.suffix == ".safetensors" and file.parent != folder.current():
            try:
                beside[name] = sum_up(file, method)
            except (OSError, SafetensorError):
                closed.append(name)
    return Audit(tensors, stored_images(method), files, beside, strangers, tuple(pictures), tuple(closed), few)


def sum_up(file: Path, method: Method) -> Beside:
    """Sums up the tensors of a file beside the current generation; empty places for images do not count."""
    tensors = safetensors.torch.load(file.read_bytes()).values()
    pixels = 3 * math.prod(sides(method.setting.image_size))
    images = [value.reshape(-1, pixels).any(dim=1).sum() for value in tensors if looks_like_images(value, method)]
    words = "of a lesson or distillation not yet ended" if file.parent.name == "work" else "kept for undo"
    return Beside(words, len(tensors), sum(value.nbytes for value in tensors), int(sum(images)))


def is_picture(file: Path) -> bool:
    """Whether a file has the name of an image, or begins as images do."""
    if file.suffix.lower() in IMAGE_SUFFIXES:
        return True
    try:
        with file.open("rb") as opened:
            return SIGNATURES.match(opened.read(16)) is not None
    except OSError:
        return False


def keeping(method: str, images: int, size: int) -> str:
    """The warning that a model stores photos."""
    return f"the method {method} keeps photos in the model ({images}, {size / 1e6:.2f} MB): 'gcab audit' lists them"


def purpose(method: Method, name: str) -> str:
    """Why a tensor is there: the words of the innermost module around it that has some in its `purposes`.

    {this} in them: the tasks that the first number in the tensor's name stands for; {next}: those of the number after.
    """
    parts = name.split(".")
    modules: list[nn.Module] = [method]
    for part in parts[:-1]:
        modules.append(modules[-1].get_submodule(part))
    number = next((int(part) for part in parts if part.isdigit()), 0)
    for module, part in reversed(list(zip(modules, parts, strict=True))):
        purposes: Mapping[str, str] = getattr(type(module), "purposes", {})
        if words := purposes.get(part) or purposes.get(""):
            return words.format(this=method.tasks_of(number), next=method.tasks_of(number + 1))
    return UNKNOWN


def stored_images(method: Method) -> int:
    """Images that a method keeps for rehearsal, and any other tensor of bytes in the shape of images."""
    memories = {id(memory.images) for memory in method.memories()}
    others = (value for value in method.state_dict(keep_vars=True).values() if id(value) not in memories)
    return method.stored_images() + sum(len(value) for value in others if looks_like_images(value, method))


def looks_like_images(value: Tensor, method: Method) -> bool:
    return value.dtype == torch.uint8 and value.shape[-3:] == (3, *sides(method.setting.image_size))


def belongs(name: Path) -> bool:
    """Whether gcab puts a file of this name into a model folder."""
    if len(name.parts) == 1:
        return name.name in (*OWN_FILES, "lock", KEEP, "fast.json")  # the last is what `gcab distill` measured
    if len(name.parts) == 2 and name.parts[0] == "work":
        return name.name.startswith("checkpoint-") and name.suffix in (".json", ".safetensors")
    return len(name.parts) == 2 and number_of(name.parent) > 0 and name.name in OWN_FILES
