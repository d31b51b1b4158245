"""What a user asks of a lesson: its photos, its options, and the model that takes it; or a refusal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from gcab.classifier.housekeeping import place_of
from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.overview import encoder_name
from gcab.classifier.photos import Photos, usual_side
from gcab.classifier.presets import ENCODERS, is_pretrained, own_size
from gcab.data.arrays import suitable_size
from gcab.data.folder import as_read, labelled_files
from gcab.data.labels import labelled_by, require_folder
from gcab.errors import GcabError
from gcab.pretrained.source import describe
from gcab.runs.assemble import pretrained_encoder
from gcab.sizes import Size

HELD_OUT = 0.2


class Wishes(TypedDict, total=False):
    """Options of a lesson; left out or None: as the model learned before, or for a new model as the comment says."""

    method: str | None  # gcab; with a pretrained encoder frozen
    encoder: str | None  # tiny; or a pretrained one: a folder, an ONNX file or a name
    size: Size | None  # one that suits the photos
    recipe: str | None  # plain
    epochs: int | None  # the recipe's
    seed: int | None  # 1
    settings: Mapping[str, Any] | None  # any setting of `gcab train`, by dotted key
    held_out: float  # share of each class that is not trained on, but judges: 0.2
    patience: int | None  # epochs without a better held-out accuracy: a quarter of all
    device: str  # auto
    skip_unreadable: bool  # leave out photos that cannot be read
    give_up: bool  # drop an interrupted lesson of other photos or settings, or a distillation
    labels: str | Path | None  # a CSV table of file,label for photos without class folders
    keep: int | None  # steps that `undo` can go back from now on: 1


def files_of(photos: str | Path, labels: str | Path | None = None) -> tuple[list[Path], list[str]]:
    """The photos of a folder and their classes, by its subfolders or by a table."""
    require_folder(Path(photos), None if labels is None else Path(labels))
    return labelled_files(Path(photos)) if labels is None else labelled_by(Path(labels), Path(photos))


def new_learner(files: Sequence[Path], wishes: Wishes) -> ContinualClassifier:
    """A model that has learned nothing yet."""
    seed, size, encoder = wishes.get("seed"), wishes.get("size"), wishes.get("encoder") or "tiny"
    return ContinualClassifier(
        wishes.get("method"),
        encoder=encoder,
        image_size=(own_size(encoder) or suitable_size(usual_side(files))) if size is None else size,
        recipe=wishes.get("recipe") or "plain",
        epochs=wishes.get("epochs"),
        seed=1 if seed is None else seed,
        device=wishes.get("device", "auto"),
        settings=wishes.get("settings"),
    )


def stored_learner(place: Path, wishes: Wishes) -> ContinualClassifier:
    """The model of a folder, configured by the options of a lesson."""
    learner = ContinualClassifier.load(place, wishes.get("device", "auto"))
    method, encoder = wishes.get("method"), wishes.get("encoder")
    if method not in (None, learner.config.method):
        raise GcabError(f"this model learns with {learner.config.method}: it cannot change to {method}.")
    own = encoder_name(learner.config)
    elsewhere = encoder is not None and is_pretrained(encoder)
    if encoder is not None and (elsewhere or (encoder in ENCODERS and own not in (None, encoder))):
        require_same_encoder(learner, own or "one of its own", encoder)
    return learner.configure(
        encoder=None if elsewhere else encoder,
        image_size=wishes.get("size"),
        recipe=wishes.get("recipe"),
        epochs=wishes.get("epochs"),
        seed=wishes.get("seed"),
        settings=wishes.get("settings"),
    )


def require_same_encoder(learner: ContinualClassifier, own: str, asked: str) -> None:
    """Refuse another encoder than the model's; a pretrained one is in the model, so its files may be gone by now."""
    inside = pretrained_encoder(learner.method)
    if inside is not None:
        own, gone = inside.origin, asked == learner.config.encoder.weights and not Path(asked).exists()
        if asked not in ENCODERS and (gone or describe(asked).same_encoder(inside)):
            return
    raise GcabError(f"this model's encoder is {own} since its first task: it cannot change to {asked}.")


def require_others(learner: ContinualClassifier, photos: Photos) -> None:
    """Refuse the photos of an earlier lesson, which would count twice; not where a class of theirs was forgotten."""
    known = all(place_of(name, learner.classes) is not None for name in set(photos.labels))
    for number, entry in enumerate(learner.taught, start=1):
        if known and entry.photos == photos.digest:
            raise GcabError(
                f"these photos were learned in lesson {number} and would count twice: give others, or take that "
                "lesson back first ('gcab undo')."
            )


def beside(new: Sequence[str], known: Sequence[object]) -> tuple[str, ...]:
    """A sentence about each new class whose name is a known one's but for capitals: most are slips of the keyboard."""
    names = {as_read(str(name)).casefold(): str(name) for name in known}
    return tuple(
        f"'{name}' is a new class beside '{names[key]}': if they are one, 'gcab join' makes it of them"
        for name in new
        if (key := as_read(name).casefold()) in names
    )


def only(name: str) -> str:
    """A sentence about a model of one class, whose accuracy is 100 % and means nothing."""
    return f"{name} is the only class so far: whatever is on a photo will be named so until another is learned"
