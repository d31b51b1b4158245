"""Every tensor of every method has a purpose in words."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.settings import FEW_TOKENS, tiny

from gcab.classifier.audit import UNKNOWN, belongs, purpose, stored_images
from gcab.config import resolve
from gcab.data.tasks import Task, TaskImages
from gcab.methods.gcab_fast import GcabFast, start_one_pass
from gcab.methods.method import Method, grow
from gcab.methods.registry import methods
from gcab.runs.assemble import build_method
from gcab.training.trainer import finish

METHODS = sorted(methods())
PROFILES = ["extended", "official", "paper"]


def grown(name: str, profile: str = "extended") -> Method:
    small = {**tiny(name, profile), **FEW_TOKENS, "encoder.blocks": 2}
    config = resolve("digits/5", name, profile, changes=small)
    method = build_method(config)
    grow(method, Task(0, 0, ("a", "b")), 1)
    if not method.joint:
        grow(method, Task(1, 2, ("c", "d", "e")), 1)
    return method


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", METHODS)
def test_every_tensor_has_a_purpose(name: str, profile: str) -> None:
    method = grown(name, profile)
    without = [tensor for tensor in method.state_dict() if purpose(method, tensor) == UNKNOWN]
    assert without == []


def test_purposes_name_their_task() -> None:
    method = grown("gcab")
    assert purpose(method, "network.heads.1.linear.weight") == "classifier of the classes of task 2"
    assert purpose(method, "network.gate_in.embeddings.0") == "gate: which parts of the decoder are for task 1"
    back = "projector: turns features of task 2 back into those of task 1"
    assert purpose(method, "network.cascade.projectors.0.change.1.weight") == back
    method.register_buffer("smuggled", torch.zeros(3))
    assert purpose(method, "smuggled") == UNKNOWN


def test_a_pass_for_all_tasks_is_called_so() -> None:
    method = grown("gcab-fast")
    assert purpose(method, "network.heads.1.linear.weight") == "classifier of the classes of task 2"
    assert isinstance(method, GcabFast)
    start_one_pass(method.network)  # as the end of the second task does
    assert purpose(method, "network.heads.0.linear.weight") == "classifier of the classes of all tasks"


@pytest.mark.parametrize("name", METHODS)
def test_images_are_counted(name: str) -> None:
    method = grown(name)
    assert stored_images(method) == 0
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (30, 3, 8, 8), dtype=np.uint8))
    if name == "er":
        finish(method, Task(0, 0, ("a", "b")), TaskImages(pixels, torch.zeros(30, dtype=torch.long)), 1)
        assert stored_images(method) == 30
    else:
        method.register_buffer("smuggled", pixels)
        assert stored_images(method) == 30


def test_files_that_belong() -> None:
    own = ["lock", "model.json", "fast.json", "work/checkpoint-000001.json", "generation-0012/weights.safetensors"]
    assert [name for name in own if not belongs(Path(name))] == []
    strange = [
        "cat.jpg",
        "work/cat.jpg",
        "generation-0001/cat.jpg",
        "other/model.json",
        "a/b/lock",
        "generation-x/lock",
    ]
    assert [name for name in strange if belongs(Path(name))] == []
