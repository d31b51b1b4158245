"""Everything a resume needs, on disk as safetensors and JSON: verified when read, and never the only copy at risk.

A checkpoint is a pair of files. The tensors are written first and the manifest last, so a manifest vouches for both.
"""

import hashlib
import json
import math
import re
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from gcab.errors import GcabError
from gcab.runs.files import parsed, remove_temporaries, saving, write_bytes, write_json

FORMAT = 1
RESERVED_NAMES = ("", "__metadata__")  # safetensors keeps the second for itself


@dataclass(frozen=True)
class Checkpoint:
    """The position of a training, and its nested state (tensors on the CPU)."""

    position: dict[str, Any]
    state: dict[str, Any]


class CheckpointStore:
    """Keep the newest checkpoints of one run in one folder."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self._refused: set[int] = set()
        self._writing: Future[Path] | None = None

    def save(self, position: dict[str, Any], state: dict[str, Any]) -> Path:
        """Write a new checkpoint, and only then delete the oldest; returns its manifest."""
        self.wait()
        return self._write(position, *flatten(state))

    def save_in_background(self, position: dict[str, Any], state: dict[str, Any]) -> None:
        """Copy the state now and write it in a background thread; a failure is raised at the next save or wait."""
        self.wait()
        worker = ThreadPoolExecutor(1)
        self._writing = worker.submit(self._write, position, *flatten(state))
        worker.shutdown(wait=False)

    def wait(self) -> None:
        """Block until a background write is on disk."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, position: dict[str, Any], tensors: dict[str, Tensor], structure: Any) -> Path:
        manifests, interrupted = self._numbers()
        remove_temporaries(self.folder)
        self._delete(interrupted)
        number = max(manifests | interrupted, default=0) + 1
        data = safetensors.torch.save(tensors)
        body = {
            "format": FORMAT,
            "position": position,
            "tensors": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
            "state": structure,
        }
        write_bytes(self._tensors(number), data)
        write_json(self._manifest(number), {"sha256": _digest(body), "checkpoint": body})
        # A damaged checkpoint must not count as one of those kept, or it would push out an intact one.
        intact = [*sorted(manifests - self._refused), number]
        self._delete((manifests | {number}) - set(intact[-self.keep :]))
        self._refused.clear()
        return self._manifest(number)

    def load_latest(self) -> tuple[Checkpoint | None, list[str]]:
        """Give the newest intact checkpoint (None if there never was one), and a warning for each one passed over."""
        self.wait()
        manifests, interrupted = self._numbers()
        warnings = []
        for number in sorted(manifests | interrupted, reverse=True):
            if number in interrupted:
                warnings.append(f"{self._tensors(number)} has no manifest (its saving was interrupted): not used")
                continue
            try:
                return self._read(number), warnings
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                self._refused.add(number)
                warnings.append(f"{self._manifest(number)} is damaged ({_reason(error)}): not used")
        if manifests:
            raise GcabError(
                f"no checkpoint in {self.folder} can be used: {'; '.join(warnings)}; "
                "delete that folder and run the same command again to start from the beginning"
            )
        return None, warnings

    def _read(self, number: int) -> Checkpoint:
        document = parsed(self._manifest(number).read_bytes())
        body = document["checkpoint"]
        if document["sha256"] != _digest(body):
            raise ValueError("the manifest's checksum does not match")
        if body["format"] != FORMAT:
            raise ValueError(f"it has format {body['format']}, this gcab reads format {FORMAT}")
        data = self._tensors(number).read_bytes()
        expected = body["tensors"]
        if len(data) != expected["bytes"]:
            raise ValueError(f"the tensors have {len(data)} bytes instead of {expected['bytes']}")
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise ValueError("the tensors' checksum does not match")
        return Checkpoint(body["position"], unflatten(safetensors.torch.load(data), body["state"]))

    def _manifest(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06d}.json"

    def _tensors(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06d}.safetensors"

    def _numbers(self) -> tuple[set[int], set[int]]:
        """Find the numbers with a manifest, and those whose saving ended before it had one."""
        found: dict[str, set[int]] = {"json": set(), "safetensors": set()}
        for path in self.folder.glob("checkpoint-*"):
            if match := re.fullmatch(r"checkpoint-(\d+)\.(json|safetensors)", path.name):
                found[match[2]].add(int(match[1]))
        return found["json"], found["safetensors"] - found["json"]

    def _delete(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            with saving(self.folder):
                # The manifest goes first: it may never vouch for tensors that are gone.
                self._manifest(number).unlink(missing_ok=True)
                self._tensors(number).unlink(missing_ok=True)


def flatten(state: Any) -> tuple[dict[str, Tensor], Any]:
    """Split a nested state into named tensors and a JSON value that says where each belongs.

    In the JSON value every object is a tag ("tensor", "dict", "tuple", "float"), so that integer keys, tuples and
    infinities, which JSON does not have, come back as what they were.
    """
    tensors: dict[str, Tensor] = {}

    def visit(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Tensor):
            name = "/".join(path)
            while name in tensors or name in RESERVED_NAMES:
                name += "'"
            # A copy of its own: safetensors takes neither shared memory nor gaps.
            tensors[name] = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            return {"tensor": name}
        if isinstance(value, dict):
            return {"dict": [[_key(key), visit(item, (*path, str(key)))] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            items = [visit(item, (*path, str(index))) for index, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"a checkpoint cannot hold {type(value).__name__} (at {'/'.join(path)})")

    structure = visit(state, ())
    return tensors, structure


def unflatten(tensors: dict[str, Tensor], structure: Any) -> Any:
    """Put back together what `flatten` took apart."""
    if isinstance(structure, list):
        return [unflatten(tensors, item) for item in structure]
    if not isinstance(structure, dict):
        return structure
    [(tag, content)] = structure.items()
    if tag == "tensor":
        return tensors[content]
    if tag == "dict":
        return {key: unflatten(tensors, item) for key, item in content}
    if tag == "tuple":
        return tuple(unflatten(tensors, item) for item in content)
    return float(content)


def _key(key: Any) -> str | int:
    if isinstance(key, str | int):
        return key
    raise TypeError(f"a checkpoint's dict keys are str or int, not {type(key).__name__}")


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "the manifest is not readable JSON"
    if isinstance(error, KeyError | TypeError):
        return "the manifest lacks an entry"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
