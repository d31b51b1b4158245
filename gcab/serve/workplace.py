"""The temporary folder of one lesson, deleted at its end, however that comes.

gcab-teach-x7ab/
  lock              while a server holds it, no other removes this folder
  photos/           a folder for each class, the files numbered
  copy/birds.gcab/  what learns, with the checkpoints of the lesson
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gcab.classifier.audit import OWN_FILES
from gcab.classifier.model import Classifier
from gcab.classifier.model_folder import ModelFolder
from gcab.errors import GcabError
from gcab.runs.files import saving
from gcab.runs.lock import RunLock
from gcab.serve.limits import RequestError

PREFIX = "gcab-teach-"


class Workplace:
    """The photos of one lesson, and a copy of the model: a lesson that is given up leaves nothing in the model."""

    def __init__(self, place: Path, folder: ModelFolder) -> None:
        self.folder, self.before = folder, folder.digest
        self.photos = place / "photos"
        self.copy = ModelFolder(place / "copy" / folder.path.name)

    def copy_model(self) -> None:
        """All generations, as what is learned depends on them; not the unfinished lesson of another process."""
        with saving(self.copy.path):
            self.copy.path.parent.mkdir()
            self.copy.path.mkdir()
            for generation in self.folder.generations().values():
                target = self.copy.path / generation.relative_to(self.folder.path)
                target.mkdir(exist_ok=True)
                for name in OWN_FILES:
                    shutil.copyfile(generation / name, target / name)

    def hand_over(self) -> None:
        """Give the model's folder the generation that the copy has learned; without a new one nothing changes."""
        if self.copy.digest == self.before:
            return
        if self.folder.digest != self.before:
            raise GcabError("the model's folder was moved or changed during the lesson: teach again.")
        self.folder.write(Classifier.load(self.copy.path, "cpu").save)


@contextlib.contextmanager
def workplace(folder: ModelFolder) -> Iterator[Workplace]:
    """A context manager for one lesson's temporary folder, which holds the model's write lock."""
    if folder.generation is None:  # to lock it would make the folder anew
        raise RequestError(503, "the model's folder is gone: whoever runs the server must put it back.")
    with folder.locked():
        place = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            with RunLock(place):
                yield Workplace(place, folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def remove_abandoned() -> None:
    """Delete folders of killed servers, whose locks are free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, GcabError):
            entry = folder.lstat()
            if stat.S_ISDIR(entry.st_mode) and entry.st_uid == os.getuid():  # anyone may put things in this place
                with RunLock(folder):
                    shutil.rmtree(folder)
