"""From a folder of photos to the next generation of a model folder; resumable after a kill at any moment.

from gcab import teach
teach("birds.gcab", "photos/week1")    # a subfolder per class; creates the model
teach("birds.gcab", "photos/week2")    # new classes; week1 can be gone
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

from gcab.classifier.audit import keeping, stored_images
from gcab.classifier.forecast import losses
from gcab.classifier.learner import ContinualClassifier, Taught
from gcab.classifier.logits import HeldOutLogits, held_out_logits
from gcab.classifier.mirrors import note_on_mirrors
from gcab.classifier.model_folder import ModelFolder, require_steps
from gcab.classifier.photos import Photos, left_out, usual_side
from gcab.classifier.presets import RECIPES, own_size
from gcab.classifier.unfinished import CHECKPOINT_SECONDS, Unfinished, identity_of
from gcab.classifier.unsure import Unsure, least_sure
from gcab.classifier.wishes import HELD_OUT, Wishes, beside, files_of, new_learner, only, require_others, stored_learner
from gcab.errors import GcabError
from gcab.runs.model import require_sound
from gcab.training.trainer import DivergedError, Epoch

READ = 250  # photos read per progress event
TOLD = 50  # progress events of a long end of a lesson, at most

# {"event": "reading" | "start" | "note" | "epoch" | "ending" | "done", ...}, as `gcab learn --progress json` prints it
Event = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The result of a lesson."""

    generation: int
    classes: tuple[str, ...]  # the new ones; those of which there were more photos are in `taught.again`
    taught: Taught
    calibration_error: float | None  # 0..1; None where too few photos were held out to measure it
    skipped: tuple[str, ...]  # photos that could not be read
    unsure: tuple[Unsure, ...] = ()  # the held-out photos it is least sure of; nothing of them is stored
    verdict: str | None = None  # who decides from now on, where that was tried
    optimistic: bool = False  # whether the held-out photos chose the epoch that they measure


def teach(
    model: str | Path,
    photos: str | Path,
    *,
    progress: Callable[[Event], object] = lambda _: None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    **wishes: Unpack[Wishes],
) -> Result:
    """Teach the model in a folder the classes of another folder, which has a subfolder of photos for each.

    The same photos and settings a second time change nothing: after a kill at any moment just ask again.
    """
    folder = ModelFolder(model)
    folder.check_writable()
    require_steps(wishes.get("keep") or 0)
    files, names = files_of(photos, wishes.get("labels"))

    def taking(place: Path | None) -> Teaching:
        """The lesson as the model in `place` would take it; None: a model that has learned nothing yet."""
        learner = new_learner(files, wishes) if place is None else stored_learner(place, wishes)
        skip = wishes.get("skip_unreadable", False)
        found = Photos.read(
            files, names, learner.image_size, skip, lambda done: tell_reading(done, len(files), progress)
        )
        return Teaching(folder, learner, found, wishes, progress, checkpoint_seconds)

    with ExitStack() as held:
        if folder.path.exists():
            held.enter_context(folder.locked())
            kept = [*folder.generations().values()]
            if kept and last_lesson(require_sound(folder.path, folder.description())) == set(names):
                before = taking(kept[-2] if len(kept) > 1 else None)
                if done := before.ended():
                    return done
        teaching = taking(folder.path if folder.generation is not None else None)
        held.enter_context(folder.locked())  # only now does a new model get its folder: a refusal leaves none
        if folder.digest != teaching.learner.digest:
            raise GcabError(f"{folder.path} was taught by another process meanwhile: give the command again.")
        if (keep := wishes.get("keep")) is not None:
            folder.set_keep(keep)
        return teaching.learn()


def tell_reading(done: int, photos: int, progress: Callable[[Event], object]) -> None:
    """Report progress of reading photos, every `READ` of them."""
    if done % READ == 0:
        progress({"event": "reading", "done": done, "photos": photos})


class Teaching:
    """A lesson for the model of a folder, with checkpoints and events; the folder must be locked before it begins."""

    def __init__(
        self,
        folder: ModelFolder,
        learner: ContinualClassifier,
        photos: Photos,
        wishes: Wishes,
        progress: Callable[[Event], object],
        checkpoint_seconds: float,
    ) -> None:
        require_others(learner, photos)
        self.folder, self.learner, self.progress = folder, learner, progress
        self.sized = bool(learner.taught or wishes.get("size") or own_size(wishes.get("encoder") or "tiny"))
        self.share = wishes.get("held_out", HELD_OUT)
        self.skipped, self.before, self.files = photos.unreadable, learner.taught, photos.files
        self.disputed = photos.disputed
        self.lesson = learner.lesson(photos.pixels, photos.labels, self.share, wishes.get("patience"))
        self.asked = any(wishes.get(name) for name in ("epochs", "recipe", "settings")) or not learner.taught
        facts = identity_of(photos.digest, learner.digest, self.lesson.config)
        facts |= {"held_out": str(float(self.share)), "patience": str(self.lesson.patience)}
        classes, give_up = [*self.lesson.material.classes.values()], wishes.get("give_up", False)
        self.work = Unfinished(folder, "lesson", facts, classes, self.note, give_up, checkpoint_seconds)
        self.first_epoch: tuple[int, float] | None = None  # (epochs done, time) since when the speed is measured
        self.ending_seconds = 0.0  # estimated, from the last epoch to the end
        self.last_epoch, self.told = time.monotonic(), 0  # when it ended, and the progress events since

    def learn(self) -> Result:
        """Train, measure, write the next generation."""
        if (checkpoint := self.work.restore()) is not None:
            self.lesson.resume(checkpoint.position, checkpoint.state)
        try:
            self.announce()
            if not self.lesson.epochs:
                self.work.save(self.lesson.position(), self.lesson.state())
            self.lesson.run(self.after_epoch, self.ending)
        except DivergedError as problem:
            self.folder.discard_work()  # to resume it would lead here again
            raise GcabError(f"{problem.where}: the model is as it was before; {problem.advice}") from problem
        said = self.learner.adopt(self.lesson, self.work.seconds(), self.work.name, self.work.facts["photos"])
        return self.done(self.learner, self.folder.write(self.learner.save), said)

    def ended(self) -> Result | None:
        """The result of this lesson, if the folder's current model contains it already."""
        learner = ContinualClassifier.load(self.folder.path, "cpu")
        if learner.taught[-1].lesson != self.work.name:
            return None
        self.note("these photos are learned already, with these settings: nothing is left to do")
        held_out = self.lesson.material.held_out
        said = None if held_out is None else held_out_logits(learner.method, held_out, learner.device)
        return self.done(learner, learner.generation or 0, said)

    def done(self, learner: ContinualClassifier, generation: int, said: HeldOutLogits | None) -> Result:
        if images := stored_images(learner.method):
            self.note(keeping(learner.config.method, images, learner.method.image_bytes()))
        last, *before = reversed(learner.taught)
        for note in losses(self.before, learner.taught):
            self.note(note)
        unsure = () if said is None else self.unsure(learner, said)
        accuracy = {"held_out": last.accuracy, "previous": before[0].accuracy if before else None}
        which = {"generation": generation, "digest": self.folder.digest}
        told = {"unsure": [asdict(photo) for photo in unsure]} if unsure else {}
        self.progress({"event": "done", **which, "accuracy": accuracy, "seconds": last.seconds, **told})
        error = learner.calibration.expected_calibration_error
        names, verdict = self.lesson.material.task.names, learner.method.verdict()
        optimistic = bool(last.epochs and self.lesson.patience) and learner.method.answers_by_training
        return Result(generation, names, last, error, self.skipped, unsure, verdict, optimistic)

    def unsure(self, learner: ContinualClassifier, said: HeldOutLogits) -> tuple[Unsure, ...]:
        """The photos of this lesson that the model is least sure of, among those it was tested with."""
        return least_sure(learner, [str(self.files[place]) for place in self.lesson.material.places], *said)

    def announce(self) -> None:
        """Report what is about to happen and how long it will take."""
        lesson, material, held_out = self.lesson, self.lesson.material, self.lesson.material.held_out
        if self.skipped:
            self.note(left_out(self.skipped))
        if held_out is None and self.share > 0:
            self.note("no class has five photos: none is held out, so the accuracy stays unknown")
        elif material.too_small:
            self.note(f"too few photos to hold one out: {', '.join(material.too_small)}")
        size = lesson.config.scenario.image_size
        if not self.sized and (side := usual_side(self.files)) != size:
            self.note(f"most photos are {side} pixels wide: the model will look at {size} x {size} (--size N: at more)")
        by_itself = not (self.learner.taught or self.learner.config.augment.flip)
        alike = beside(material.task.names, self.learner.classes)
        first = None if len(self.learner.classes) + len(material.new) > 1 else only(*material.task.names)
        for line in (*alike, self.disputed, first, lesson.scope, note_on_mirrors(lesson, by_itself)):
            if line:
                self.note(line)
        if lesson.epochs:
            self.note(f"continuing after epoch {lesson.epochs}")
        if not self.asked and lesson.planned not in (0, *(recipe["training.epochs"] for recipe in RECIPES.values())):
            many = f"{lesson.planned} epoch{'s' * (lesson.planned != 1)}"
            self.note(f"at most {many}, as an earlier lesson was told: --epochs changes that")
        self.ending_seconds = lesson.estimate_ending(material.train.images)
        self.progress(
            {
                "event": "start",
                "classes": list(material.task.names),
                "again": list(material.again.values()),
                "images": len(material.train.labels),
                "held_out": 0 if held_out is None else len(held_out.labels),
                "epochs": lesson.planned,
                "image_size": size,
                "device": str(lesson.device),
                "estimated_seconds": round(lesson.estimate() + self.ending_seconds, 3),
            }
        )
        self.last_epoch = time.monotonic()
        self.first_epoch = (lesson.epochs, self.last_epoch)

    def after_epoch(self, epoch: Epoch, accuracy: float | None) -> None:
        assert self.first_epoch is not None
        epochs, (before, since) = self.lesson.planned, self.first_epoch
        self.last_epoch = time.monotonic()
        pace = (self.last_epoch - since) / (epoch.number - before)
        self.progress(
            {
                "event": "epoch",
                "epoch": epoch.number,
                "epochs": epochs,
                "loss": sum(epoch.losses.values()),
                "held_out_accuracy": accuracy,
                "seconds_left": round(pace * (epochs - epoch.number) + self.ending_seconds, 3),
            }
        )
        if self.work.is_due:
            self.work.save(self.lesson.position(), self.lesson.state())

    def ending(self, share: float) -> None:
        """Report progress of the work after the last epoch, at most `TOLD` times."""
        if share * TOLD >= self.told + 1:
            self.told = int(share * TOLD)
            left = (time.monotonic() - self.last_epoch) * (1 - share) / share
            self.progress({"event": "ending", "share": round(share, 3), "seconds_left": round(left, 3)})

    def note(self, text: str) -> None:
        self.progress({"event": "note", "text": text})


def last_lesson(description: Mapping[str, Any]) -> set[str]:
    """The classes that a model's last lesson had photos of."""
    again = [entry.get("again", ()) for entry in description.get("taught", ())[-1:]]
    return {*description["tasks"][-1], *(name for names in again for name in names)}
