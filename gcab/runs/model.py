"""Model folders: `model.json` says what to build, `weights.safetensors` holds every tensor; no pickle.

The promise: every later version of gcab reads every folder an earlier one wrote, and predicts the same from it.
`format` rises only where an older gcab could not make sense of a newer folder, and then that gcab says so in a
sentence; entries it does not know are left alone. tests/teaching/models holds a folder written by each version.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from gcab.errors import GcabError
from gcab.flaws import flaws, model_flaws
from gcab.records import FileRecord
from gcab.runs.files import saving, sha256, sync_folder, write_bytes, write_json
from gcab.version import VERSION

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
GENERATION = "generation-"  # of a folder that holds several models, see gcab/classifier/model_folder.py


class DamagedError(GcabError):
    """A model is corrupt, as opposed to one that this user or this version must not read."""


def save_model(folder: Path, description: Mapping[str, Any], tensors: "Mapping[str, Tensor]") -> None:
    """Replace the model in `folder` as a whole: a reader finds the old one or the new one."""
    import safetensors.torch  # with torch, which takes seconds and which descriptions do not need

    require_utf8(folder)
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise GcabError(f"{folder} is a file: choose a folder for the model.")
    if any(folder.glob(f"{GENERATION}*")):
        raise GcabError(f"{folder} keeps generations of a model: choose another folder, or teach it with 'gcab learn'.")
    if folder.exists() and not (folder / "model.json").exists() and any(folder.iterdir()):
        raise GcabError(f"{folder} is not empty and holds no model: choose another folder.")
    rescue_interrupted(folder)
    fresh, old = hidden_sibling(folder, "new"), hidden_sibling(folder, "old")
    with saving(folder):
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh.mkdir(parents=True)
    try:
        on_host = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_bytes(fresh / "weights.safetensors", safetensors.torch.save(on_host))
        digest = sha256(fresh / "weights.safetensors")
        write_json(fresh / "model.json", {"format": FORMAT, "gcab": VERSION, "weights": digest, **description})
    except GcabError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    with saving(folder):
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)


def load_model(folder: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """The description and the tensors, checked against each other."""
    import safetensors.torch

    description = read_description(folder)
    weights = folder / "weights.safetensors"
    with reading(folder):
        if sha256(weights) != description["weights"]:
            raise DamagedError(f"{weights} does not match its model.json: it is damaged, restore it from a copy.")
        return description, safetensors.torch.load_file(weights)


def read_description(folder: Path) -> dict[str, Any]:
    """`model.json` alone, without reading the weights."""
    rescue_interrupted(folder.resolve())
    with reading(folder):
        description: dict[str, Any] = json.loads((folder / "model.json").read_text())
    for flaw in flaws(description, FileRecord):
        raise DamagedError(f"the model in {folder} is damaged ({flaw}): restore it from a copy.")
    if description["format"] != FORMAT:
        raise GcabError(
            f"{folder} has model format {description['format']}, this gcab {VERSION} reads format {FORMAT}: "
            "use the version that wrote it."
        )
    return description


def digest_of(description: Mapping[str, Any]) -> str:
    """A hash that identifies a model: the checksum of its weights, and after a change of its names and changes, too."""
    if not description.get("changes"):
        return str(description["weights"])
    told = [description[name] for name in ("weights", "tasks", "changes")]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def require_sound(folder: Path, description: dict[str, Any]) -> dict[str, Any]:
    """The description of a model, if it is of its type and its parts agree."""
    for flaw in model_flaws(description):
        raise DamagedError(f"the model in {folder} is damaged ({flaw}): restore it from a copy.")
    return description


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Context manager that turns errors in reading the model in `folder` into a GcabError that says what is wrong."""
    require_utf8(folder)
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedError(f"there is no model in {folder}: {Path(error.filename).name} is missing.") from None
    except OSError as error:
        hint = "change its permissions" if isinstance(error, PermissionError) else "check the path"
        raise GcabError(f"the model in {folder} cannot be read ({error.strerror}): {hint}.") from None
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        raise DamagedError(f"the model in {folder} is damaged: restore it from a copy.") from None


def require_utf8(path: Path) -> None:
    """Raise an error for other paths: safetensors cannot open them, and would say that the file is not its own."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise GcabError(f"the path {path} is not UTF-8, as those of models have to be: rename it.") from None


def rescue_interrupted(folder: Path) -> None:
    """Restore the old model after a save that was killed between its two renames."""
    old = hidden_sibling(folder, "old")
    if (old / "model.json").exists() and not folder.exists():
        with contextlib.suppress(OSError):
            old.rename(folder)


def hidden_sibling(folder: Path, role: str) -> Path:
    """A hidden sibling of a folder, hidden so that it is none of the user's own."""
    return folder.with_name(f".{folder.name}.{role}")
