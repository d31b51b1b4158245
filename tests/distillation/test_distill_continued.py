"""`gcab distill` stopped or killed at any moment: the same command goes on where it was, another one is refused."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refusal, sentence, succeeds
from helpers.interruptions import KilledError, interrupt
from helpers.models import lessons
from helpers.photos import WEEK1, WEEK2, make_photos
from helpers.settings import flags, tiny

from gcab import ContinualClassifier, ModelFolder
from gcab.classifier.unfinished import Unfinished
from gcab.cli.main import main
from gcab.methods.gcab_fast import GcabFast
from gcab.methods.one_pass import Imitation
from gcab.model.network import Masks
from gcab.serve.workplace import workplace

STEPS = 9
EVERY = 5  # moments, of which each takes two commands
QUICK = ("--set", f"options.distillation_steps={STEPS}", "--set", "options.views=2", "--device", "cpu")
LEARN = ("--device", "cpu", "--progress", "none")
CONTINUES = "gcab: stopped; the same command continues from the last checkpoint."
Command = tuple[str | Path, ...]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, a model that has learned them in two lessons, and a run; not to be changed."""
    root = tmp_path_factory.mktemp("world")
    make_photos(root / "week1", WEEK1)
    make_photos(root / "week2", WEEK2, seed=1)
    for model in lessons((WEEK1, WEEK2)):
        ModelFolder(root / "shapes.gcab").write(model.save)
    small = flags({**tiny("gcab"), "encoder.patch": 4, "training.batch_size": 64, "training.epochs": 1})
    assert main(["train", "digits/2", "--run", str(root / "run"), "--device", "cpu", *small]) == 0
    return root


@pytest.fixture(params=["model", "folder", "run"])
def command(request: pytest.FixtureRequest, world: Path, tmp_path: Path) -> Command:
    """What distills a model in place, a model into a folder of its own, and a run into one."""
    own = () if request.param == "model" else ("--out", tmp_path / "fast")
    if request.param == "run":
        return ("distill", shutil.copytree(world / "run", tmp_path / "run"), *own, *QUICK)
    model = shutil.copytree(world / "shapes.gcab", tmp_path / "shapes.gcab")
    return ("distill", model, world / "week2", *own, *QUICK)


@pytest.fixture
def model(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world / "shapes.gcab", tmp_path / "shapes.gcab"))


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every step, and no steps but those that count."""
    monkeypatch.setattr(Unfinished, "is_due", True)
    monkeypatch.setattr(GcabFast, "estimate_seconds", lambda *_: (1.0, 1.0))


def stopped(command: Command, steps: int) -> None:
    """Give a command, and Ctrl-C in the step after so many."""
    taken, intact = 0, Imitation.step

    def step(self: Imitation, masks: Masks) -> None:
        nonlocal taken
        if taken == steps:
            raise KeyboardInterrupt
        taken += 1
        intact(self, masks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Imitation, "step", step)
        assert main([*map(str, command)]) == 130


def result(command: Command) -> Path:
    """The folder of the student that a command makes."""
    place = Path(command[1])
    if "--out" in command:
        return Path(command[command.index("--out") + 1])
    return place / "fast-80" if (place / "config.json").exists() else place / "generation-0003"


def weights(command: Command) -> bytes:
    return (result(command) / "weights.safetensors").read_bytes()


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def left_behind(command: Command) -> list[str]:
    """What only an unfinished command leaves."""
    parent = Path(command[1]).parent
    return [entry.name for entry in parent.rglob("*") if entry.name.startswith(".") or entry.name == "work"]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    """The weights of a student that was left alone, by what was distilled."""
    return {}


def left_alone(command: Command, undisturbed: dict[str, bytes]) -> bytes:
    """What the command leads to where nobody stops it; the folder of its own holds what the next generation would."""
    kind = Path(command[1]).name
    if kind not in undisturbed:
        copy = Path(shutil.copytree(command[1], Path(command[1]).parent / "alone" / kind))
        alone = ("distill", copy, *(word for word in command[2:] if word not in ("--out", result(command))))
        assert main([*map(str, alone)]) == 0
        undisturbed[kind] = weights(alone)
        shutil.rmtree(copy.parent)
    return undisturbed[kind]


@pytest.mark.repeats
@pytest.mark.parametrize("stops", [[0], [2, 5, STEPS - 1]])
def test_one_that_is_interrupted_ends_as_one_that_is_not(
    stops: list[int], command: Command, undisturbed: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    expected, before = left_alone(command, undisturbed), files(Path(command[1]))
    steps = 0
    for stop in stops:
        capsys.readouterr()
        stopped(command, stop - steps)
        assert capsys.readouterr().err == f"\n{CONTINUES}\n"
        assert files(Path(command[1])).items() >= before.items()
        assert not result(command).exists()
        assert left_behind(command)
        steps = stop
    said = succeeds(capsys, *command)
    assert [line for line in said.splitlines() if "continuing" in line] == (
        [f"{command[1]}  distilling: continuing after step {steps}"] if steps else []
    )
    assert weights(command) == expected
    assert left_behind(command) == []


def change_photos(model: Path, world: Path) -> Command:
    changed = Path(shutil.copytree(world / "week2", model.parent / "week2"))
    shutil.copy(changed / "bar" / "001.png", changed / "bar" / "000.png")
    return ("distill", model, changed, *QUICK)


def change_model(model: Path, world: Path) -> Command:
    assert main(["rename", str(model), "bar", "rod"]) == 0
    renamed = Path(shutil.copytree(world / "week2", model.parent / "week2"))
    (renamed / "bar").rename(renamed / "rod")
    return ("distill", model, renamed, *QUICK)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (change_photos, "other photos"),
        (change_model, "other photos; the model has changed since"),
        (
            lambda *of: ("distill", of[0], of[1] / "week2", *QUICK, "--capacity", "0.6"),
            "options.capacity is 0.6, was 0.8",
        ),
        (
            lambda *of: ("distill", of[0], of[1] / "week2", *QUICK, "--set", "options.views=3"),
            "options.views is 3, was 2",
        ),
    ],
)
def test_another_one_is_refused_unless_it_may_give_up(
    other: Callable[[Path, Path], Command], words: str, model: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(("distill", model, world / "week2", *QUICK), 3)
    another = other(model, world)
    before = files(model)
    assert refusal(capsys, *another) == (
        f"{model} has an interrupted distillation (bar, cross, ring; after step 3) and this is another ({words}): "
        "give the photos and options of that one to continue it, or --give-up to drop it."
    )
    assert files(model).keys() == before.keys()
    said = succeeds(capsys, *another, "--give-up")
    assert "an interrupted distillation of other photos or settings is given up: bar, cross, ring\n" in said
    assert not (model / "work").exists()


@pytest.mark.repeats
def test_one_of_other_images_is_refused_for_a_run_too(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    stopped(("distill", run, *QUICK), 3)
    another = ("distill", run, *QUICK, "--set", "options.temperature=3")
    assert "fast-80.work has an interrupted distillation (" in refusal(capsys, *another)
    assert "options.temperature is 3.0, was 10.0" in refusal(capsys, *another)
    assert not (run / "fast-80").exists()
    succeeds(capsys, "distill", run, *QUICK, "--capacity", "0.6")  # which goes elsewhere
    assert "is given up: " in succeeds(capsys, *another, "--give-up")
    assert [entry.name for entry in run.iterdir() if entry.name.startswith(".")] == []


def test_a_run_with_one_tells_of_it(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    assert "waits to be continued" not in succeeds(capsys, "info", run)
    stopped(("distill", run, *QUICK), 3)
    assert succeeds(capsys, "info", run).endswith(
        "a distillation is under way, or waits to be continued: 5, 6, 7, 8, 9 (after step 3)\n"
    )


def test_one_without_a_step_behind_it_is_nothing_to_lose(
    model: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(("distill", model, world / "week2", *QUICK), 0)
    assert "is given up" in succeeds(capsys, "distill", model, world / "week2", *QUICK, "--capacity", "0.6")


@pytest.mark.repeats
def test_a_lesson_and_a_distillation_do_not_give_each_other_up(
    model: Path, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    week3 = make_photos(tmp_path / "week3", ("dot", "star"))
    distill, learn = ("distill", model, world / "week2", *QUICK), ("learn", model, week3, *LEARN, "--epochs", "2")
    stopped(distill, 3)
    assert "has an interrupted distillation (bar, cross, ring; after step 3) and this is a lesson: " in refusal(
        capsys, *learn
    )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gcab.classifier.teaching.Teaching.ending", stop)
        patch.setattr("gcab.training.task.TaskTraining.end", stop)
        assert main([*map(str, learn), "--give-up"]) == 130
    assert "has an interrupted lesson (dot, star; after epoch 2) and this is a distillation: " in refusal(
        capsys, *distill
    )
    assert "an interrupted lesson is given up: dot, star\n" in succeeds(capsys, *distill, "--give-up")


@pytest.mark.repeats
def test_a_model_with_one_tells_of_it_and_is_used_as_before(
    model: Path, world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("distill", model, world / "week2", *QUICK)
    stopped(command, 0)
    waits = "a distillation is under way, or waits to be continued: bar, cross, ring"
    assert succeeds(capsys, "info", model).endswith(f"{waits}\n")
    stopped(command, 3)
    assert succeeds(capsys, "info", model).endswith(f"{waits} (after step 3)\n")
    found = json.loads(succeeds(capsys, "info", model, "--json"))["interrupted"]
    assert found == {"kind": "distillation", "classes": [*sorted(WEEK2)], "step": 3}
    audit = succeeds(capsys, "audit", model)
    assert "of a lesson or distillation not yet ended: " in audit
    assert audit.endswith("No image is among them.\n")
    with workplace(ModelFolder(model)) as lesson:  # of a server
        lesson.copy_model()
        assert not lesson.copy.work.exists()
        lesson.copy.write(ContinualClassifier.load(lesson.copy.path, "cpu").rename("bar", "rod").save)
        lesson.hand_over()
    succeeds(capsys, "undo", model)
    assert f"{waits} (after step 3)" in succeeds(capsys, "info", model)
    assert "continuing after step 3\n" in succeeds(capsys, *command)


def test_a_damaged_checkpoint_costs_time_only(
    command: Command, undisturbed: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = left_alone(command, undisturbed)
    stopped(command, 3)
    for file in Path(command[1]).parent.rglob("checkpoint-*"):
        if file.parent.name == "work":
            file.write_bytes(b"noise")
    said = succeeds(capsys, *command)
    assert "an interrupted command left a damaged checkpoint: this distillation starts from the beginning" in said
    assert weights(command) == expected
    assert left_behind(command) == []


def test_killed_when_all_was_written_it_cleans_up(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ModelFolder, "discard_work", stop)
        assert main([*map(str, command)]) == 130
    written = weights(command)
    assert left_behind(command)
    if (Path(command[1]) / "config.json").exists():  # a run is measured once more
        (result(command) / "fast.json").unlink()
        assert f"continuing after step {STEPS}" in succeeds(capsys, *command)
        assert (result(command) / "fast.json").exists()
    else:
        assert "already" in refusal(capsys, *command)
    assert weights(command) == written
    assert left_behind(command) == []


@pytest.mark.repeats
def test_killed_while_it_writes_the_same_command_ends_it(
    command: Command,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """At some of the last calls that reach the disk: the checkpoint of the last step, the model, the cleaning up."""
    expected = left_alone(command, undisturbed)
    stopped(command, STEPS - 1)
    place = Path(command[1]).parent
    kept = Path(shutil.copytree(place, tmp_path_factory.mktemp("kept") / "place"))
    for moment in range(1, 60, EVERY):
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        with monkeypatch.context() as patch, suppress(KilledError):
            came = interrupt(patch, moment, KilledError())
            main([*map(str, command)])
        capsys.readouterr()
        code, said = main([*map(str, command)]), capsys.readouterr()
        if (Path(command[1]) / "config.json").exists():
            assert code == 0
            assert (result(command) / "fast.json").exists()
        assert code == 0 or "already" in sentence(said.err), said
        assert weights(command) == expected
        assert left_behind(command) == []
        if not came():
            assert moment > 10
            return
    raise AssertionError("it never came to an end")


@pytest.mark.repeats
def test_what_has_lost_its_way_is_nothing_to_continue(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    wild = ("--set", "options.distillation_lr=1e30")
    assert "the student has lost its way (KL nan)" in refusal(capsys, *command, *wild)
    assert left_behind(command) == []
    succeeds(capsys, *command)


def test_the_seconds_of_all_processes_are_counted(world: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    with pytest.MonkeyPatch.context() as patch:
        clock: Any = iter(range(0, 10**6, 100))
        patch.setattr("gcab.classifier.unfinished.time.monotonic", lambda: float(next(clock)))
        stopped(("distill", run, *QUICK), 3)
    assert main(["distill", str(run), *QUICK]) == 0
    assert json.loads((run / "fast-80" / "fast.json").read_text())["seconds"] > 300
