"""The Python interface: learn some classes, later some more, predict at any time.

model = ContinualClassifier()
model.learn(images, labels)            # the first classes
model.learn(new_images, new_labels)    # more classes; the first images are no longer needed
model.predict(images)
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gcab.assemble import build_method, load_method, save_method
from gcab.config import RunConfig, override, resolve
from gcab.data.arrays import Images, as_batch, as_images, natural_size
from gcab.data.augment import Augment
from gcab.data.folder import labelled_files
from gcab.devices import choose_device, suitable_threads
from gcab.errors import GcabError
from gcab.methods.method import Method, Task, TaskImages
from gcab.training.trainer import Epoch, Trainer, finish, grow

Label = str | int
Labels = Sequence[Label] | np.ndarray[Any, Any] | Tensor
ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"encoder.width": 64, "encoder.heads": 4, "encoder.blocks": 2},
    "small": {"encoder.width": 192, "encoder.heads": 12, "encoder.blocks": 4},
    "paper": {},
}
BATCH = 500


class ContinualClassifier:
    """An image classifier that learns new classes without the images of the old ones."""

    def __init__(
        self,
        method: str = "gcab",
        *,
        encoder: str = "tiny",
        image_size: int | None = None,
        epochs: int = 40,
        seed: int = 1,
        device: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`image_size` None: chosen from the first images; `settings`: any setting of `gcab train`, by dotted key."""
        if encoder not in ENCODERS:
            raise GcabError(f"unknown encoder '{encoder}': give {', '.join(ENCODERS)}.")
        self.device = choose_device(device)
        small = {
            "training.epochs": epochs,
            "training.batch_size": 16,
            "training.lr": 1e-3,
            "augment.crop": "none",  # whoever knows that a mirrored or cut image means the same may turn these on
            "augment.flip": False,
            "augment.randaugment": False,
        }
        changes = {**small, **ENCODERS[encoder], **(settings or {})}
        for key in ("scenario.image_size", "encoder.patch"):
            if key in changes:
                raise GcabError(f"{key} follows from image_size here: give that instead.")
        config: RunConfig = resolve("folder/1", method, seed=seed, changes={**changes, "encoder.patch": 1})
        self._sized = image_size is not None
        self._config = config if image_size is None else _sized(config, image_size)
        self._method: Method | None = None
        self._tasks: list[Task] = []
        self._labels: list[Label] = []

    @property
    def classes(self) -> list[Label]:
        """Every class learned, in the order of `predict_proba`'s columns."""
        return list(self._labels)

    def learn(
        self,
        images: Images,
        labels: Labels | None = None,
        progress: Callable[[Epoch], None] | None = None,
    ) -> "ContinualClassifier":
        """Learn new classes from images and their labels, or from a folder with a subfolder per class.

        If anything goes wrong, the model stays as it was.
        """
        if isinstance(images, str | Path) and labels is None:
            images, labels = labelled_files(Path(images))
        if labels is None:
            raise GcabError("labels are missing: give one per image, or a folder with a subfolder per class.")
        images, names = as_batch(images), _plain_labels(labels)
        if len(names) != len(images):
            raise GcabError(f"{len(images)} images but {len(names)} labels: give one label per image.")
        new = self._new_classes(names)
        config = self._config if self._sized else _sized(self._config, natural_size(images))
        first = len(self._labels)
        position = {name: first + index for index, name in enumerate(new)}
        pixels = as_images(images, config.scenario.image_size)
        data = TaskImages(pixels, torch.tensor([position[name] for name in names]))
        task = Task(len(self._tasks), first, tuple(map(str, new)))
        self._method = self._train(config, task, data, progress or (lambda _: None))
        self._config, self._sized = config, True
        self._tasks.append(task)
        self._labels += new
        return self

    def predict(self, images: Images) -> np.ndarray[Any, Any]:
        """The most probable class of each image."""
        best = self.predict_proba(images).argmax(axis=1)
        return np.array([self._labels[index] for index in best])

    def predict_proba(self, images: Images) -> np.ndarray[Any, Any]:
        """Probabilities (n, classes), columns in the order of `classes`."""
        if self._method is None:
            raise GcabError("this model has learned nothing yet: call learn first.")
        method, pixels = self._method, as_images(images, self._config.scenario.image_size)
        with torch.inference_mode():
            predict = method.predictor()
            logits = [predict(self._ready(part)).float().softmax(dim=1).cpu() for part in pixels.split(BATCH)]
        return torch.cat(logits).numpy()

    def save(self, folder: str | Path) -> None:
        """Write `model.json` and `weights.safetensors`; no image is among them."""
        if self._method is None:
            raise GcabError("this model has learned nothing yet: there is nothing to save.")
        save_method(Path(folder), self._method, self._config, self._tasks, {"labels": self._labels})

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "ContinualClassifier":
        """A saved model, ready to predict and to learn more."""
        method, config, description = load_method(Path(folder))
        model = cls(method=config.method, device=device)
        model._config, model._sized = config, True
        model._method = method.to(model.device)
        first = 0
        for index, names in enumerate(description["tasks"]):
            model._tasks.append(Task(index, first, tuple(names)))
            first += len(names)
        model._labels = list(description.get("labels", [name for task in model._tasks for name in task.names]))
        return model

    def _new_classes(self, names: Sequence[Label]) -> list[Label]:
        if len({type(name) for name in (*self._labels, *names)}) > 1:
            raise GcabError("some labels are text and some are whole numbers: use one kind for all classes.")
        new: list[Label] = sorted(set(names))
        again = [name for name in new if name in self._labels]
        if again:
            raise GcabError(f"class '{again[0]}' was learned before: teach only new classes.")
        if len(new) < 2:
            raise GcabError(f"only one class was given ('{new[0]}'): a task needs at least two.")
        return new

    def _train(self, config: RunConfig, task: Task, data: TaskImages, after_epoch: Callable[[Epoch], None]) -> Method:
        """The method after one more task; the one held so far is not touched."""
        method = copy.deepcopy(self._method) if self._method is not None else build_method(config).to(self.device)
        if method.joint:
            raise GcabError(f"the method {config.method} needs all images at once: choose another to learn in steps.")
        augment = Augment(config.augment, method.setting.mean, method.setting.std)
        grow(method, task, config.seed)
        method.begin_task(task)
        with suitable_threads(self.device, config.features_per_batch()):
            Trainer(method, config.training, augment, self.device, config.seed).fit(task, data, after_epoch)
            finish(method, task, data, config.seed)
        return method.eval()

    def _ready(self, pixels: Tensor) -> Tensor:
        assert self._method is not None
        return self._method.setting.normalise(pixels.to(self.device))


def _sized(config: RunConfig, size: int) -> RunConfig:
    """From 8 to 224 pixels, cut into 8 x 8 patches (4 x 4 for the smallest)."""
    if not 8 <= size <= 224 or size % 8:
        raise GcabError(f"image_size is {size}: give a multiple of 8 from 8 to 224.")
    patch = 2 if size == 8 else size // 8
    sized: RunConfig = override(config, {"scenario.image_size": size, "encoder.patch": patch})
    sized.check()
    return sized


def _plain_labels(labels: Labels) -> list[Label]:
    """Labels as JSON keeps them: text or whole numbers."""
    plain = labels.tolist() if isinstance(labels, np.ndarray | Tensor) else labels
    if isinstance(plain, str) or not isinstance(plain, Iterable):
        raise GcabError(f"labels must be a list or an array, not {type(labels).__name__}: give one per image.")
    names = [label.item() if isinstance(label, np.generic) else label for label in plain]
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise GcabError(f"label {name!r} is a {type(name).__name__}: give text or whole numbers.")
    return names
