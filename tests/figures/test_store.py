"""Where published runs are kept: once for all figures in results, and with a figure that lies elsewhere."""

import json
import shutil
from pathlib import Path

import pytest
from helpers.recipes import jobs_of, made

from gcab.cli.main import main
from gcab.errors import GcabError
from gcab.paper.publishing import publish
from gcab.paper.store import store_of, usual_name
from gcab.runs.folder import RunFolder, find_runs

pytestmark = pytest.mark.usefixtures("small_eyes", "rough_embedding")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks; not to be changed."""
    return made(jobs_of("capacity", tmp_path_factory.mktemp("trained"), "digits/2"))[0].path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunFolder:
    return RunFolder.open(Path(shutil.copytree(trained, tmp_path / "trained")))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def kept(results: Path) -> list[str]:
    """The names of the runs in a store."""
    return [str(config.parent.relative_to(results / "runs")) for config in sorted(results.rglob("config.json"))]


def add_timing(run: RunFolder, milliseconds: int) -> None:
    model = {"parameters": 1, "macs": 2, "encoder_macs": 1, "seconds": {"plain": milliseconds / 1000}}
    timed = {"models": {"GCAB": model}, "tasks": 2, "device": "CPU"}
    (run.path / "runtime-cpu.json").write_text(json.dumps(timed))


def times(folder: Path) -> list[object]:
    document = json.loads((folder / "runtime.json").read_text())
    drawn = json.loads((folder / document["runs"][0]["folder"] / "runtime-cpu.json").read_text())
    return [document["lines"][0]["Plain, ms"], 1000 * drawn["models"]["GCAB"]["seconds"]["plain"]]


def test_figures_of_one_results_folder_share_their_runs(run: RunFolder, results: Path) -> None:
    for name in ("main", "capacity"):
        publish(name, [run], results / name, "")
    assert kept(results) == [str(usual_name(run))]
    (stored,) = find_runs([results])
    assert stored.records() == run.records()
    assert stored.log() == run.log()
    for name in ("main", "capacity"):
        assert json.loads((results / name / "runs.json").read_text()) == [f"../runs/{usual_name(run)}"]
        assert [found.path.resolve() for found in find_runs([results / name])] == [stored.path.resolve()]
        assert f"| [{usual_name(run)}](../runs/{usual_name(run)}) |" in (results / name / f"{name}.md").read_text()


def test_a_figure_elsewhere_has_its_runs_with_it(run: RunFolder, tmp_path: Path) -> None:
    publish("main", [run], tmp_path / "mine", "")
    assert not (tmp_path / "runs").exists()
    shutil.rmtree(run.path)
    moved = (tmp_path / "mine").rename(tmp_path / "given away")
    (stored,) = find_runs([moved])
    assert stored.path == moved / "runs" / usual_name(stored)
    assert f"]({stored.path.relative_to(moved)}) |" in (moved / "main.md").read_text()


def test_where_a_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path / "results")
    assert store_of(Path("main")).resolve() == tmp_path / "results" / "runs", "by its real folder"
    assert store_of(Path("results/main")) == Path("results/runs")
    assert store_of(Path("main/more")) == Path("main/more/runs")


def test_a_stored_run_is_reported_and_compared(
    run: RunFolder, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("main", [run], results / "main", "")
    shutil.rmtree(run.path)
    for folder in (results / "main", results / "runs" / usual_name(run), results):
        assert main(["compare", str(folder)]) == 0
        assert "gcab" in capsys.readouterr().out
        assert main(["report", str(folder), "--out", str(tmp_path / "report.html")]) == 0
        assert any((tmp_path / "report-figures").iterdir())
    assert main(["train", "digits/2", "--run", str(results / "runs" / usual_name(run))]) == 2
    assert "is a published run, to which nothing is added" in " ".join(capsys.readouterr().err.split())


def test_another_run_of_the_same_settings_gets_a_name_of_its_own(run: RunFolder, results: Path) -> None:
    publish("main", [run], results / "main", "")
    run.append({"kind": "note"})
    publish("main", [run], results / "again", "")
    name = str(usual_name(run))
    assert kept(results) == [name, f"{name}-2"]
    assert f"[{name}-2](../runs/{name}-2)" in (results / "again" / "main.md").read_text()
    assert [len(find_runs([results / place])) for place in ("main", "again")] == [1, 1]
    for place in ("again", "main"):  # from what is stored: nothing moves
        publish("main", find_runs([results / place]), results / place, "")
    publish("main", find_runs([results]), results / "both", "")
    assert kept(results) == [name, f"{name}-2"]
    assert len(find_runs([results / "both"])) == 2


@pytest.mark.repeats
def test_what_another_figure_is_made_of_is_not_written_over(run: RunFolder, results: Path) -> None:
    add_timing(run, 7)
    publish("runtime", [run], results / "one", "")
    add_timing(run, 8)
    publish("runtime", [run], results / "one", "")
    assert times(results / "one") == [8, 8], "its own file, measured again"
    add_timing(run, 9)
    publish("runtime", [run], results / "two", "")
    assert (times(results / "one"), times(results / "two")) == ([8, 8], [9, 9])
    publish("main", [run], results / "three", "")
    assert kept(results) == [str(usual_name(run)), f"{usual_name(run)}-2"], "a figure without it does not mind"


def test_a_correction_of_a_stored_run_stays(run: RunFolder, results: Path) -> None:
    publish("main", [run], results / "main", "")
    file = results / "runs" / usual_name(run) / "config.json"
    file.write_text(json.dumps({**run.document, "commit_corrected": "b" * 40}))
    publish("main", [run], results / "more", "")
    assert json.loads(file.read_text())["commit_corrected"] == "b" * 40


def test_figures_in_one_folder_keep_each_others_runs(run: RunFolder, results: Path) -> None:
    other = RunFolder(run.path, json.loads(json.dumps(run.document)))
    other.config["seed"] = 2
    publish("main", [run], results / "all", "")
    publish("capacity", [other], results / "all", "")
    assert json.loads((results / "all" / "runs.json").read_text()) == [
        f"../runs/{usual_name(one)}" for one in (run, other)
    ]
    publish("main", [other], results / "all", "")
    assert json.loads((results / "all" / "runs.json").read_text()) == [f"../runs/{usual_name(other)}"]


@pytest.mark.parametrize("content", ["", "7", "[1]", "{", "\xff"])
def test_a_damaged_list_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "runs.json").write_text(content)
    with pytest.raises(GcabError, match=r"runs.json is damaged: restore it"):
        find_runs([tmp_path])


def test_a_listed_run_that_is_gone_is_named(run: RunFolder, results: Path) -> None:
    publish("main", [run], results / "main", "")
    shutil.rmtree(results / "runs")
    with pytest.raises(GcabError, match=r"runs.json names the run .*, which is not there"):
        find_runs([results])
