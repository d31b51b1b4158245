"""Settings are chosen with equal effort for all methods, on held-out training images, and nothing is done twice."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refusal, succeeds
from helpers.processes import LIMIT, start
from helpers.settings import FEW_TOKENS, TINY, flags

import gcab.cli.search
import gcab.runs.run
from gcab.cli.main import main
from gcab.config import config_hash, override, resolve
from gcab.data.images import ImageSet, Split
from gcab.data.registry import dataset
from gcab.fleet.engine import Call, Engine, Outcome, attempt
from gcab.methods.registry import methods
from gcab.methods.space import Near
from gcab.search.results import FILE, best_of, finished_trials, record_trial, results_table
from gcab.search.trials import Search, plan_search
from gcab.sizes import Size

SEARCHED = sorted(name for name, kind in methods().items() if kind.search_space)
SHORT = flags({**TINY, **FEW_TOKENS, "training.epochs": 1, "training.warmup_epochs": 0})
FINETUNE = ("search", "finetune", "digits/2", "--device", "cpu", *SHORT)


class Here(Engine):
    """Calls are made in this process, where a test can see them; some are refused."""

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        super().__init__(at_once=1)
        self.refused, self.called = refused, 0
        self.outcomes: dict[int, Outcome] = {}

    def open(self) -> None:
        """Always open."""

    def start(self, number: int, call: Call) -> None:
        self.called += 1
        self.outcomes[number] = Outcome(problem="refused") if number in self.refused else attempt(call)

    def ended(self, seconds: float) -> dict[int, Outcome]:
        assert seconds > 0
        outcomes, self.outcomes = self.outcomes, {}
        return outcomes

    def close(self) -> None:
        """Nothing is left running."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Here]:
    """The engine of the commands from now on."""

    def use(*refused: int) -> Here:
        engine = Here(refused)
        monkeypatch.setattr(gcab.cli.search, "engine_of", lambda _: engine)
        return engine

    return use


def planned(method: str, folder: Path = Path(), seed: int = 1, changes: dict[str, Any] | None = None) -> Search:
    return plan_search(folder, "digits/2", method, "extended", seed, changes)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


@pytest.mark.parametrize("method", SEARCHED)
def test_the_first_trial_is_the_default_and_every_other_can_be_built(method: str) -> None:
    search = planned(method)
    trials = search.trials(6)
    assert trials[0].config == search.base
    assert len({config_hash(trial.config) for trial in trials}) == 6
    assert "training.lr" in search.ranges
    assert len(search.ranges) <= 4
    default = trials[0].settings
    assert set(default) == set(search.ranges)
    for place in (0.0, 1 - 1e-9):
        ends = {key: values.at(place, default[key]) for key, values in search.ranges.items()}
        override(search.base, ends).check()


def test_what_has_nothing_to_learn_has_nothing_to_search() -> None:
    assert {name for name, kind in methods().items() if not kind.search_space} == {
        name for name, kind in methods().items() if not kind.trains
    }


def test_trials_follow_from_the_seed_and_can_be_added() -> None:
    settings = [trial.settings for trial in planned("derpp").trials(8)]
    assert [trial.settings for trial in planned("derpp").trials(3)] == settings[:3]
    assert [trial.settings for trial in planned("derpp", seed=2).trials(8)][1:] != settings[1:]
    for key, values in planned("derpp").ranges.items():
        tried = [values.at(share / 4, settings[0][key]) for share in range(4)]
        assert min(trial[key] for trial in settings[1:]) < tried[1], "no trial in the lowest quarter"
        assert max(trial[key] for trial in settings[1:]) > tried[3], "no trial in the highest quarter"


def test_what_is_given_is_not_searched() -> None:
    search = planned("lwf", changes={"training.lr": 0.02, "options.weight": 3.0})
    assert set(search.ranges) == {"options.temperature"}
    trials = search.trials(6)
    assert sorted(trial.settings["options.temperature"] for trial in trials) == [1.0, 2.0, 4.0]
    assert all((trial.config.training.lr, trial.config.options.weight) == (0.02, 3.0) for trial in trials)


def test_ranges_follow_the_default() -> None:
    assert [Near(10).at(place, 0.5) for place in (0.0, 0.5, 1.0)] == [0.05, 0.5, 5.0]


def test_a_search_reads_no_test_image_and_ends_with_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Callable[..., Here]
) -> None:
    asked: list[Split] = []
    info = dataset("digits")

    def load(root: Path | None, split: Split, size: Size) -> ImageSet:
        asked.append(split)
        return info.load(root, split, size)

    monkeypatch.setattr(gcab.runs.run, "dataset", lambda _: replace(info, load=load))
    command = (*FINETUNE, "--runs", str(tmp_path), "--trials")
    folder = tmp_path / "search" / "digits" / "2" / "finetune"
    first = here()
    said = succeeds(capsys, *command, "3")
    assert (first.called, set(asked)) == (3, {"train"})
    assert "the test images were not read" in " ".join(said.split())
    found = lines(folder)
    assert [line["trial"] for line in found] == [1, 2, 3]
    best = max(found, key=lambda line: (line["acc_tag"], -line["trial"]))
    chosen = said.splitlines()[-1]
    assert shlex.split(chosen) == [word for key, value in best["settings"].items() for word in (f"--{key}", str(value))]
    here()
    assert main(["train", "digits/2", "--method", "finetune", "--dry-run", *shlex.split(chosen)]) == 0

    with (folder / FILE).open("a") as file:
        file.write('{"search": "torn')
    more = here()
    assert succeeds(capsys, *command, "4").count("ACC_TAG") > 0
    assert more.called == 1, "finished trials are not run again"
    assert lines(folder)[:3] == found
    assert lines(folder)[3]["trial"] == 4
    again = here()
    assert succeeds(capsys, *command, "3").splitlines()[-1] == chosen
    assert again.called == 0


@pytest.mark.repeats
def test_a_killed_search_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str], here: Callable[..., Here]) -> None:
    command = [*FINETUNE, "--trials", "2", "--runs", str(tmp_path)]
    folder = tmp_path / "search" / "digits" / "2" / "finetune"
    program = start(*command)
    end = time.monotonic() + LIMIT
    while not (folder / FILE).exists() and time.monotonic() < end:
        time.sleep(0.02)
    program.kill()
    program.communicate()
    before = (folder / FILE).read_text()
    [first] = [line["run"] for line in lines(folder)][:1]
    log = (folder / first / "metrics.jsonl").read_bytes()
    engine = here()
    succeeds(capsys, *command)
    assert engine.called == 2 - before.count("\n")
    assert (folder / FILE).read_text().startswith(before)
    assert [line["trial"] for line in lines(folder)] == [1, 2]
    assert (folder / first / "metrics.jsonl").read_bytes() == log


def test_a_trial_that_fails_is_named_after_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: Callable[..., Here]
) -> None:
    here(0)
    assert main([*FINETUNE, "--runs", str(tmp_path), "--trials", "2"]) == 2
    said = capsys.readouterr()
    assert "Trials of finetune" in said.out
    assert "Flags" not in said.out, "the default is not among them"
    assert said.err.startswith("gcab: 1 of 2 runs failed (trial 1)")


def test_a_trial_whose_loss_is_infinite_is_a_result(tmp_path: Path) -> None:
    search = planned("finetune", tmp_path)
    trials = search.trials(2)
    record_trial(search, trials[0], "the loss became infinite in task 1, epoch 1, step 1")
    results = list(finished_trials(search).values())
    assert best_of(results) is None
    assert results_table(search, results).rows[0][-2:] == ["–", "–"]
    result = {**results[0], "trial": 2, "acc_tag": 1.0, "acc_taw": 2.0}
    equal = {**result, "trial": 3}
    assert best_of([*results, equal, result]) is result  # type: ignore[list-item]


def test_searches_with_other_settings_are_apart(tmp_path: Path) -> None:
    search, longer = planned("finetune", tmp_path), planned("finetune", tmp_path, changes={"training.epochs": 3})
    record_trial(search, search.trials(1)[0], "diverged")
    assert finished_trials(longer) == {}
    assert search.folder == longer.folder
    (search.folder / FILE).write_text("{}\n")
    with pytest.raises(Exception, match=r"line 1 of .* is damaged"):
        finished_trials(search)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("finetune", "digits/2", "--scenario.validation", "0"), "--scenario.validation is 0, so that the test images"),
        (("untrained", "digits/2"), "the method untrained has no setting to search"),
        (("er", "digits/2", "--training.lr", "1", "--options.loss", "ce"), "nothing is left to search: training.lr"),
        (("finetone", "digits/2"), "unknown method 'finetone'"),
        (("finetune", "digits/2", "--trials", "0"), "argument --trials: '0' is not a whole number above 0"),
        (("finetune", "digits/2", "--at-once", "0"), "--at-once is 0: give 1 or more."),
        (("finetune", "digits/2", "--on", "moon"), "unknown engine 'moon'"),
    ],
)
def test_bad_requests_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, "search", *arguments, "--runs", tmp_path).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_the_settings_of_a_trial_are_those_of_its_run() -> None:
    trial = planned("derpp").trials(2)[1]
    changes = {"scenario.validation": 0.1, **trial.settings}
    assert trial.config == resolve("digits/2", "derpp", "extended", 1, changes)
    assert trial.path.name == f"1-{config_hash(trial.config)}"
