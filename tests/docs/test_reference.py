"""The reference is what the program does, and grows with it."""

import inspect
import json
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.documents import ADD_A_METHOD, REFERENCE, ROOT, code_spans, text_of, verbs

from gcab.classifier.wishes import Wishes
from gcab.cli.main import main, make_parser
from gcab.cli.train import changes_of
from gcab.config import resolve
from gcab.data.registry import DATASETS, SCENARIOS
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.profiles import PROFILES
from gcab.runs.folder import find_runs


@pytest.fixture(scope="module")
def written() -> Callable[[str], str]:
    """The document with its generated parts made anew."""
    return runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["written"]


def test_the_tables_are_those_of_the_code(written: Callable[[str], str]) -> None:
    assert text_of(REFERENCE) == written(text_of(REFERENCE)), "run: python docs/make_reference.py"


@pytest.mark.repeats
def test_a_new_method_is_in_the_reference(written: Callable[[str], str], example_method: str) -> None:
    new = written(text_of(REFERENCE))
    assert f"| `{example_method}` | distills the old classes' answers" in new
    assert "| `options.weight` | a number | `1.0` | of the distillation term |" in new
    assert example_method not in text_of(REFERENCE)


def test_every_verb_method_profile_data_set_and_scenario_is_documented() -> None:
    assert set(code_spans(REFERENCE)) >= {*methods(), *PROFILES, *DATASETS, *SCENARIOS, "folder/N"}
    assert set(re.findall(r"^### gcab (\w+)$", text_of(REFERENCE), re.MULTILINE)) == verbs()


def test_every_flag_of_a_verb_is_documented() -> None:
    for verb in verbs():
        section = text_of(REFERENCE).partition(f"### gcab {verb}\n")[2].partition("\n### ")[0]
        [group] = [action for action in make_parser([verb])._actions if isinstance(action.choices, dict)]
        assert isinstance(group.choices, dict)
        for flag in group.choices[verb]._option_string_actions:
            assert flag in ("-h", "--help") or "." in flag or f"`{flag}" in section, f"gcab {verb} {flag}"


def test_every_wish_of_a_lesson_is_documented() -> None:
    """On the page of the Python interface, as flags of `gcab learn` are in the reference."""
    assert {*Wishes.__annotations__} <= {*code_spans(ROOT / "docs" / "api.md")}


def test_every_hook_of_a_method_is_documented() -> None:
    """In the guide to new ones."""
    named = {re.split(r"[(. ]", span)[0] for span in code_spans(ADD_A_METHOD)}
    own = {name for name in vars(Method) if not name.startswith("_")} | set(inspect.get_annotations(Method))
    assert own <= named


def test_every_flag_of_the_ablations_builds_a_configuration() -> None:
    section = text_of(REFERENCE).partition("## Ablations")[2].partition("\n## ")[0]
    flags = [shlex.split(span) for span in re.findall(r"`(--[^`]+)`", section)]
    assert len(flags) >= 5
    for given in flags:
        arguments = ["train", "cifar100/10", *given]
        verb, rest = make_parser(arguments).parse_known_args(arguments)
        assert not rest
        resolve(verb.scenario, verb.method, "official", 1, changes_of(verb))


@pytest.mark.repeats
@pytest.mark.usefixtures("rough_embedding")
def test_the_example_method_is_trained_by_the_command_line(
    tmp_path: Path, example_method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "OldAnswers" in {kind.__name__ for kind in methods().values()}
    runs = tmp_path / "runs"
    for weight in (0, 10):
        arguments = ["train", "digits/2", "--method", example_method, "--runs", str(runs), "--device", "cpu"]
        arguments += ["--options.weight", str(weight), "--training.epochs", "3", "--training.warmup_epochs", "0"]
        arguments += ["--encoder.width", "32", "--encoder.blocks", "1"]
        assert main(arguments) == 0
    without, with_distillation = sorted(find_runs([runs]), key=lambda run: run.config["options"]["weight"])
    for run in (without, with_distillation):
        terms = {record["task"]: set(record["losses"]) for record in run.records("epoch")}
        assert terms == {1: {"classification"}, 2: {"classification", "distillation"}}
    kept = [run.records("task")[-1]["taw"][0] for run in (without, with_distillation)]
    learned = with_distillation.records("task")[0]["taw"][0]
    assert learned > 40  # of five digits: chance is 20
    assert kept[1] > kept[0] + 5, "distillation protects nothing"
    description = json.loads((with_distillation.model / "model.json").read_text())
    assert description["config"]["method"] == example_method
    assert main(["evaluate", str(with_distillation.path), "--device", "cpu"]) == 0
    assert "acc_tag" in capsys.readouterr().out
    assert main(["report", str(with_distillation.path)]) == 0
    entries = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in with_distillation.path.iterdir()]
    assert len(entries) > 6
    assert set(entries) <= set(code_spans(REFERENCE)), "a file of a run is not documented"
