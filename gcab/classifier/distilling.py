"""From a model in use and the photos it learned last to one pass for all tasks; resumable after a kill."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gcab.classifier.distillation import Distillation
from gcab.classifier.distilling_runs import require_free
from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.model import Classifier
from gcab.classifier.model_folder import ModelFolder
from gcab.classifier.photos import Photos, left_out
from gcab.classifier.unfinished import CHECKPOINT_SECONDS, Note, Unfinished, tidy, workplace
from gcab.classifier.wishes import files_of
from gcab.config import Overrides
from gcab.data.tasks import OnProgress, ignore
from gcab.methods.method import state_bytes


@dataclass(frozen=True)
class Distilled:
    """The result of distilling a model."""

    generation: int | None  # None: it is in a folder of its own
    tasks: int
    classes: int
    bytes: tuple[int, int]  # before and after
    right: tuple[float, float]  # per cent of the photos, before and after
    agreed: float  # per cent of the photos that are still answered as before


def distill_model(
    model: Path,
    photos: Path,
    capacity: float,
    out: Path | None = None,
    device: str = "auto",
    settings: Overrides | None = None,
    *,
    watch: OnProgress = ignore,
    note: Note = lambda _: None,
    give_up: bool = False,
    labels: Path | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Distilled:
    """Write a model's next generation, or a folder of its own; the same command resumes one that was killed."""
    folder = ModelFolder(model)
    if out is not None:
        tidy(out)
        require_free(out)
    with ExitStack() as held:
        if out is None:
            held.enter_context(folder.locked())
        before = ContinualClassifier.load(folder.path, device)
        found = Photos.read(*files_of(photos, labels), before.image_size, skip_unreadable=True)
        if found.unreadable:
            note(left_out(found.unreadable))
        pixels, names = found.pixels, found.labels
        distillation = Distillation(before, pixels, names, capacity, settings)
        answers = before.predict(pixels)
        place = folder if out is None else held.enter_context(workplace(out))
        work = Unfinished(
            place, "distillation", distillation.facts, distillation.classes, note, give_up, checkpoint_seconds
        )
        known = distillation.run(watch, work)
        after = Classifier(known, before.device).predict(pixels)
        generation = None
        if out is None:
            generation = folder.write(known.save)
        else:
            known.save(out)
    right = [100 * sum(map(str.__eq__, map(str, found), names)) / len(names) for found in (answers, after)]
    return Distilled(
        generation,
        len(known.tasks),
        len(known.labels),
        (state_bytes(before.method), state_bytes(known.method)),
        (right[0], right[1]),
        100 * float((after == answers).mean()),
    )
