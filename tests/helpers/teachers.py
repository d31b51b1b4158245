"""Teachers of three small tasks, trained for a moment, and students of them."""

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gcab.config import resolve
from gcab.data.augment import Augment
from gcab.data.tasks import Task
from gcab.methods.gcab import Gcab, GcabOptions
from gcab.methods.gcab_fast import GcabFast, distill, fast_options
from gcab.methods.method import Method, grow
from gcab.training.trainer import Trainer, finish
from helpers.tasks import ENCODER, images_of, setting

WIDTH, HIDDEN = 20, 40
SETTING = setting(replace(ENCODER, blocks=1, width=WIDTH))
TASKS = (Task(0, 0, ("a", "b")), Task(1, 2, ("c", "d", "e")), Task(2, 5, ("f", "g")))
NEXT = Task(3, 7, ("h", "i"))
PROFILES = ("extended", "official", "paper")
SHORT = {"distillation_steps": 40, "views": 2}


def options(profile: str, **changes: Any) -> GcabOptions:
    found: GcabOptions = resolve("digits/3", "gcab", profile, changes=changes).options
    return found


def train(method: Method, task: Task, epochs: int = 8) -> None:
    """A task's epochs, without its end."""
    changes = {"training.epochs": epochs, "training.lr": 3e-3, "training.warmup_epochs": 0, "training.batch_size": 12}
    config = resolve("digits/3", "gcab", "official", changes={**changes, "augment.crop": "none"})
    grow(method, task, seed=1)
    method.begin_task(task)
    augment = Augment(config.augment, SETTING.mean, SETTING.std)
    Trainer(method, config.training, augment, torch.device("cpu"), seed=1).fit(task, images_of(task), lambda _: None)


def learn(method: Method, task: Task, epochs: int = 8) -> None:
    train(method, task, epochs)
    finish(method, task, images_of(task), seed=1)


@cache
def teacher(profile: str) -> Gcab:
    """Not to be changed: all tests share it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        method = Gcab(SETTING, options(profile))
        for task in TASKS:
            learn(method, task)
    return method.eval()


def student(profile: str = "extended", seed: int = 1, **changes: Any) -> GcabFast:
    """A copy to do anything with: the same student is distilled once."""
    return copy.deepcopy(only_student(profile, seed, **changes))


@cache
def only_student(profile: str, seed: int, **changes: Any) -> GcabFast:
    """Not to be changed."""
    return distilled(profile, seed, **changes)


def distilled(profile: str = "extended", seed: int = 1, **changes: Any) -> GcabFast:
    given = fast_options(teacher(profile).options, **{**SHORT, **changes})
    return distill(teacher(profile), images_of(TASKS[-1]).images, given, seed)


@torch.no_grad()
def logits(method: Method, pixels: Tensor) -> Tensor:
    result: Tensor = method.predictor()(SETTING.normalise(pixels))
    return result
