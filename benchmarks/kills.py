"""kill -9 at random moments of every command that changes a model: nothing is lost, the same command ends it well.

OMP_NUM_THREADS=1 python benchmarks/kills.py --kills 50 --output kills.json

Half of the kills come at any moment of a command, half while it writes. After each the model is the one before the
command or the one after it: weights, answers to photos, and every generation that `undo` can reach, bit for bit.
Lessons have a checkpoint after every epoch and distillations after every step, so that there is much to continue.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from commands import finished, start

from gcab import ContinualClassifier, GcabError, ModelFolder
from gcab.classifier.distilling import distill_model
from gcab.classifier.distilling_runs import distill_run
from gcab.classifier.model_folder import UNITS, kind_of
from gcab.classifier.teaching import teach
from gcab.classifier.unfinished import place_beside
from gcab.runs.model import hidden_sibling

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.photos import make_photos
from helpers.settings import TINY_GCAB, set_flags, train_flags

CPU = ("--device", "cpu")
LEARN = (*CPU, "--progress", "none", "--epochs", "4", "--patience", "0")
WEEKS = {"week1": ("ash", "elm"), "week2": ("fir", "oak"), "week3": ("bay", "elm", "yew")}
LOOK_SECONDS = 0.0002  # between looks at a process
UNDISTURBED = 3  # runs by which a command's duration is known
NEXT = ("rename", "MODEL", "ash", "rowan")  # a command that every model takes

State = dict[int, str]  # what identifies each generation: weights, classes and answers


@dataclass
class Trial:
    """A command, the model that it is given to, and what has come of its kills."""

    name: str
    command: tuple[object, ...]  # MODEL stands for the model that it changes or makes
    model: Path | None  # as it is before; None: there is none yet
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class World:
    """Photos and models, none of which changes, and a place for the copies that do."""

    def __init__(self, root: Path) -> None:
        self.root, self.output, self.place = root, root / "output", root / "place"
        for seed, (week, names) in enumerate(WEEKS.items()):
            make_photos(root / week, names, seed=seed)
        self.asked = sorted(root.rglob("*.png"))[::3]
        eye = ("--method", "eye", "--set", "options.features=64")
        self.network = self.taught("network.gcab", ("week1", "week2"), set_flags(TINY_GCAB))
        self.eye = self.taught("eye.gcab", ("week1", "week2"), eye)
        self.other = self.taught("other.gcab", ("week3",), eye)
        self.run = root / "run"
        training = train_flags("gcab", {"training.epochs": 1, "training.batch_size": 64})
        code, said = finished(["train", "digits/2", *training, "--run", self.run, *CPU], self.output)
        assert code == 0, said

    def taught(self, name: str, weeks: tuple[str, ...], settings: Any) -> Path:
        for number, week in enumerate(weeks):
            given = ["learn", self.root / name, self.root / week, *LEARN, *(settings if number == 0 else ())]
            code, said = finished(given, self.output)
            assert code == 0, said
        return self.root / name

    def trials(self) -> Iterator[Trial]:
        week1, week2, week3 = (self.root / week for week in WEEKS)
        tiny = set_flags(TINY_GCAB)
        yield Trial("learn", ("learn", "MODEL", week3, *LEARN), self.network)
        yield Trial("undo", ("undo", "MODEL"), self.network)
        steps = (*set_flags({"options.distillation_steps": 30, "options.views": 2}), *CPU)
        yield Trial("distill", ("distill", "MODEL", week2, *steps), self.network)
        yield Trial("distill to a folder", ("distill", self.network, week2, "--out", "MODEL", *steps), None)
        yield Trial("distill a run", ("distill", self.run, "--out", "MODEL", *steps), None)
        yield Trial("forget", ("forget", "MODEL", "elm", "--photos", week1, *CPU), self.network)
        yield Trial("learn, the first lesson", ("learn", "MODEL", week1, *LEARN, *tiny), None)
        yield Trial("learn, method eye", ("learn", "MODEL", week3, *LEARN), self.eye)
        yield Trial("forget, method eye", ("forget", "MODEL", "elm", "--photos", week1, *CPU), self.eye)
        yield Trial("rename", ("rename", "MODEL", "elm", "wych elm"), self.network)
        yield Trial("merge", ("merge", "MODEL", self.other, *CPU), self.eye)

    def fresh(self, model: Path | None) -> Path:
        """A copy in a folder where nothing else is."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        copy = self.place / "model.gcab"
        if model is not None:
            shutil.copytree(model, copy)
        return copy

    def state(self, model: Path) -> State:
        """Every generation, loaded and asked."""
        found = {}
        for number, folder in ModelFolder(model).generations().items():
            try:
                learner = ContinualClassifier.load(folder, "cpu")
                answers = learner.logits(self.asked).numpy().tobytes()
                known = json.dumps(learner.classes).encode()
                weights = (folder / "weights.safetensors").read_bytes()
                found[number] = hashlib.sha256(weights + known + answers).hexdigest()
            except GcabError as problem:
                found[number] = str(problem)
        return found

    def given(self, command: tuple[object, ...], model: Path) -> list[object]:
        return [model if word == "MODEL" else word for word in command]


def is_writing(model: Path) -> bool:
    return any(model.glob(".generation-*")) or hidden_sibling(model, "new").exists()


def steps_behind(model: Path) -> int | None:
    """Epochs or steps that a checkpoint goes on after, 0 where there is only a beginning; None: there is none."""
    for folder in (ModelFolder(model), place_beside(model)):
        if position := folder.waiting():
            return int(position[UNITS[kind_of(position)]])
    return None


def leftovers(place: Path) -> list[str]:
    """What only commands that were killed leave behind."""
    return [entry.name for entry in place.rglob("*") if entry.name.startswith(".") or entry.name == "work"]


def ended(process: int, seconds: float, sign: Callable[[], bool] = lambda: False) -> bool:
    """Whether a process has come to its end; else so much time has passed, or there was the sign."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not sign():
        if os.waitpid(process, os.WNOHANG)[0]:
            return True
        time.sleep(LOOK_SECONDS)
    return False


def undisturbed(world: World, trial: Trial) -> tuple[State, float, float]:
    """What the command leads to, and for how long it runs and writes."""
    states, whole, writing = [], [], []
    for _ in range(UNDISTURBED):
        model = world.fresh(trial.model)
        began = time.monotonic()
        process = start(world.given(trial.command, model), world.output)
        over = ended(process, 600, lambda: is_writing(model))  # noqa: B023
        seen = time.monotonic()
        assert over or ended(process, 600), world.output.read_text()  # over: it wrote for less than a look
        whole.append(time.monotonic() - began)
        writing.append(time.monotonic() - seen)
        states.append(world.state(model))
        assert leftovers(world.place) == []
    assert states[1:] == states[:-1]
    return states[0], statistics.median(whole), statistics.median(writing)


def killed(process: int, model: Path, chance: random.Random, whole: float, writing: float) -> bool:
    """Whether a process was still there to be killed: at any moment, or at one after it began to write."""
    if chance.random() < 0.5:
        early = ended(process, whole * chance.random())
    else:
        early = ended(process, 10 * whole, lambda: is_writing(model)) or ended(process, writing * chance.random())
    if early:
        return False
    os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def check_whole(found: State, before: State, after: State) -> str | None:
    """What is wrong with a model after a kill."""
    if found == before:
        return None
    if max(found, default=0) != max(after) or not after.items() <= found.items() <= (before | after).items():
        return f"neither as before nor as after: {found}"
    return None


def check_undo(world: World, model: Path, found: State) -> str | None:
    """What is wrong with the way back."""
    if len(found) < 2:
        return None
    copy = world.root / "copy"
    shutil.copytree(model, copy)
    number = ModelFolder(copy).undo()
    back = world.state(copy)
    shutil.rmtree(copy)
    return None if back[max(back)] == found[sorted(found)[-2]] else f"undo to generation {number} is another model"


def check_again(world: World, trial: Trial, model: Path, found: State, after: State) -> str | None:
    """What is wrong when the same command is given again, and when no more than that has happened."""
    code, said = finished(world.given(trial.command, model), world.output)
    done = max(found, default=None) == max(after)
    if code != 0 and not (done and code == 2):
        return f"given again it ends with {code}: {said}"
    if "Traceback" in said:
        return said
    now = world.state(model)
    if now.get(max(now)) != after[max(after)] or (code == 0 and now != after):
        return "given again it ends with another model"
    if code == 2:  # it had been done already
        code, said = finished(world.given(NEXT, model), world.output)
        if code != 0:
            return said
    return f"left behind: {left}" if (left := leftovers(world.place)) else None


def kill_often(world: World, trial: Trial, kills: int, chance: random.Random) -> dict[str, Any]:
    """As many kills as asked for, each checked; every second time on average what was killed is killed again."""
    before = {} if trial.model is None else world.state(trial.model)
    after, whole, writing = undisturbed(world, trial)
    counts, problems = trial.counts, trial.problems
    model = world.fresh(trial.model)
    while counts["kills"] < kills:
        counts["started"] += 1
        process = start(world.given(trial.command, model), world.output)
        counts["kills"] += (was_killed := killed(process, model, chance, whole, writing))
        counts["half written"] += was_killed and is_writing(model)
        behind = steps_behind(model) if was_killed else None
        counts["checkpoint left"] += behind is not None
        counts["to be continued"] += bool(behind)  # rather than begun anew
        found = world.state(model)
        counts["as before" if found == before else "as after"] += was_killed
        wrong = check_whole(found, before, after) or check_undo(world, model, found)
        if wrong is None and was_killed and found == before and chance.random() < 0.5:
            continue
        wrong = wrong or check_again(world, trial, model, found, after)
        counts["given again"] += 1
        if wrong:
            problems.append(wrong)
            print(trial.name, wrong)
        model = world.fresh(trial.model)
    return {**counts, "seconds": round(whole, 3), "writing_seconds": round(writing, 3), "problems": problems}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of each command (50)")
    parser.add_argument("--only", help="commands whose name begins so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for command in (teach, distill_model, distill_run):
        assert command.__kwdefaults__ is not None
        command.__kwdefaults__["checkpoint_seconds"] = 0.0  # so that there is much to continue
    began, results = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for trial in world.trials():
            if trial.name.startswith(given.only or ""):
                results[trial.name] = kill_often(world, trial, given.kills, random.Random(given.seed))
                print(trial.name, json.dumps(results[trial.name]), flush=True)
    kills = sum(result["kills"] for result in results.values())
    problems = [problem for result in results.values() for problem in result["problems"]]
    print(f"{kills} kills: {problems or 'nothing lost'}")
    if given.output:
        told = {"cores": os.cpu_count(), "seed": given.seed, "kills": kills, "problems": problems}
        told |= {"seconds": round(time.monotonic() - began), "commands": results}
        given.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
