"""The README is short, and what it shows is so."""

import re
from pathlib import Path

import pytest
from helpers.documents import README, ROOT, code_blocks, commands, text_of, verbs

from gcab.classifier.learner import ContinualClassifier
from gcab.evaluation.metrics import acc_tag, acc_taw
from gcab.methods.gcab import Gcab
from gcab.report.tables import results_of
from gcab.runs.folder import find_runs

LONGEST = 140  # lines: read in five minutes
PAIR = re.compile(r"\d\d\.\d+ / \d\d\.\d+")  # ACC_TAG / ACC_TAW


def test_the_readme_is_short_and_has_two_pictures() -> None:
    assert len(text_of(README).splitlines()) <= LONGEST
    assert re.findall(r"^!\[[^\]]+\]\(([^)]+)\)", text_of(README), re.MULTILINE) == [
        "docs/images/demo.svg",
        "docs/images/architecture.svg",
    ]


def test_the_readme_names_both_make_targets() -> None:
    makefile = text_of(ROOT / "Makefile")
    for target in ("demo", "test"):
        assert f"make {target}" in "\n".join(code_blocks(README, "bash"))
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_command_of_the_readme_is_one_of_the_programs() -> None:
    assert {arguments[0] for arguments in commands(README)} <= verbs()


def test_every_accuracy_of_the_readme_is_among_the_results() -> None:
    measured = "".join(text_of(ROOT / "docs" / name) for name in ("results.md", "records.md"))
    shown = PAIR.findall(text_of(README).replace("\N{NO-BREAK SPACE}", " "))
    assert len(shown) >= 10
    assert set(shown) <= set(PAIR.findall(measured))


def test_the_picture_of_the_demo_is_of_stored_runs() -> None:
    """Those that the command below it draws, with the accuracies of the results."""
    assert ["report", "results/demo-digits-5", "--out", "demo.html"] in commands(README)
    runs = find_runs([ROOT / "results" / "demo-digits-5"])
    assert {run.method for run in runs} == {"finetune", "untrained", "eye", "gcab"}
    rows = re.findall(r"^\| `(\w+)`[^|]*\| ([\d.]+) / ([\d.]+) \|", text_of(ROOT / "docs" / "results.md"), re.MULTILINE)
    published = {method: (tag, taw) for method, tag, taw in rows}
    for run in runs:
        results = results_of(run)
        assert (f"{acc_tag(results):.1f}", f"{acc_taw(results):.1f}") == published[run.method]


def test_the_readme_shows_every_folder_of_the_package() -> None:
    [tree] = [block for block in code_blocks(README, "") if block.startswith("gcab/")]
    listed = re.findall(r"\b(\w+(?:\.py|/))", tree.partition("\n")[2])
    package = ROOT / "gcab"
    private = {"__init__.py", "__main__.py", "version.py", "errors.py"}
    present = {path.name for path in package.glob("*.py")} - private
    present |= {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    assert {name for name in listed if (package / name).exists()} == set(listed) - {"method.py"}
    assert present <= set(listed)


@pytest.mark.repeats
def test_the_python_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = code_blocks(README, "python")
    assert "epochs=40" in example
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(Gcab.profiles["extended"], "options.eye", 512)  # takes less long
    names: dict[str, object] = {}
    exec(compile(example.replace("epochs=40", "epochs=1"), "README.md", "exec"), names)
    model = names["model"]
    assert isinstance(model, ContinualClassifier)
    assert model.classes == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / "digits-model" / "model.json").is_file()
