"""All methods in one table: which runs it needs, what stands beside the paper's numbers, what stays empty."""

import dataclasses
import json
from pathlib import Path

import pytest
from helpers.recipes import SHORT, jobs_of, made
from helpers.settings import set_flags

from gcab.cli.main import main
from gcab.methods.registry import methods
from gcab.paper.compared import COMPARISONS, EVERY, FAMILIES, MEMORIES, REFERENCE
from gcab.paper.comparison import curves, lines, on_resnet, on_transformers, passes
from gcab.paper.comparison_figures import ALWAYS
from gcab.paper.compass import INNER, OUTER
from gcab.paper.exhibits import EXHIBITS
from gcab.paper.jobs import of_methods, plan
from gcab.paper.published import ACCURACY, STORING, TABLES, TITLES
from gcab.paper.publishing import publish
from gcab.paper.recipes import RECIPES
from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("small_eyes", "rough_embedding")

TABLE = RECIPES["table-cifar"]
ON_DIGITS = ["--scenario", "digits/2", "--epochs", "1", "--device", "cpu", *set_flags(SHORT)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs(root: Path) -> list[RunFolder]:
    """ER with 200 images, GCAB as the authors ran it with its student, joint training; not to be changed."""
    jobs = {job.name.removeprefix("digits/2, "): job for job in jobs_of("table-cifar", root, "digits/2")}
    return made([jobs[name] for name in ("Joint training", "ER, 200 images", "GCAB")])


def as_if_on(scenario: str, runs: list[RunFolder], **settings: object) -> list[RunFolder]:
    """The same runs as if the scenario or a setting of their training had been another."""
    copies = [RunFolder(run.path, json.loads(json.dumps(run.document))) for run in runs]
    for run in copies:
        run.config["scenario"]["name"] = scenario
        run.config["training"] |= settings
    return copies


def test_the_papers_numbers_are_of_methods_that_are_here() -> None:
    for images, scenarios, table in TABLES:
        assert images in MEMORIES
        assert set(table) <= TITLES.keys() - {"finetune"} <= methods().keys()
        assert all(len(values) == 2 * len(scenarios) for values in table.values())
        assert all(value is None or 0 < value < 100 for values in table.values() for value in values)
    (small_cifar, small_tiny), (large_cifar, large_tiny) = (
        [table for _, _, table in TABLES[i : i + 2]] for i in (0, 2)
    )
    for small, large in ((small_cifar, large_cifar), (small_tiny, large_tiny)):
        assert list(small) == list(large)
        for method, values in small.items():
            assert (values == large[method]) == (method not in STORING), "more images change who stores them"
    assert ACCURACY["cifar100/10", "derpp", 500].tag == 36.15
    assert ACCURACY["cifar100/5", "lvt", 500] == dataclasses.replace(
        ACCURACY["cifar100/5", "lvt", 200], tag=44.73, taw=71.54
    )
    assert ACCURACY["imagenet100/10", "rm", 500].tag < ACCURACY["imagenet100/10", "rm", 200].tag, "as printed"
    assert ACCURACY["tiny-imagenet/10", "ad", 0].taw == 18.02
    assert ("tiny-imagenet/10", "gem", 200) not in ACCURACY


def test_every_method_has_its_rows_and_each_memory() -> None:
    assert {row.method for row in EVERY} == TITLES.keys() - {"gcab-fast"}
    assert {
        name for name in TITLES if "buffer" in {item.name for item in dataclasses.fields(methods()[name].Options)}
    } == {*STORING}
    for rows in (EVERY, REFERENCE):
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)
        for row in rows:
            assert ("options.buffer" in row.changes) == (row.method in STORING)
        for method in {row.method for row in rows} & {*STORING}:
            assert [row.changes["options.buffer"] for row in rows if row.method == method] == [*MEMORIES]
    assert {name for members in FAMILIES.values() for name in members} == TITLES.keys() - {"joint", "finetune"}
    assert ALWAYS.keys() <= {row.name for row in EVERY}


@pytest.mark.repeats
def test_the_schedules_are_the_shared_and_the_published_one(tmp_path: Path) -> None:
    for job in plan(TABLE, tmp_path, ["cifar100/10"]):
        assert job.config.training.epochs == 100
        assert (job.config.training.batch_size, job.config.encoder.width) == (128, 384)
        assert job.config.scenario.order == "paper"
    for job in plan(RECIPES["table-cifar-resnet18"], tmp_path, ["cifar100/10"]):
        training, own = job.config.training, job.config.method == "pass"
        assert (job.config.encoder.kind, job.config.encoder.width) == ("resnet18", 512)
        assert (training.epochs, training.optimiser, training.schedule) == (
            (101, "adam", "cosine") if own else (50, "sgd", "constant")
        )
        assert (training.momentum, training.warmup_epochs, training.batch_size) == (0.0, 0, 64 if own else 32)
        assert (job.config.scenario.order, job.config.augment.randaugment) == ("sorted", False)
    shared = {job.path for job in plan(TABLE, tmp_path, ["cifar100/10"])}
    assert {job.path for job in plan(RECIPES["scenarios"], tmp_path, ["cifar100/10"])} == shared
    assert {job.path for job in plan(RECIPES["cleva-compass"], tmp_path)} < shared


def test_methods_and_memories_choose_a_part(tmp_path: Path) -> None:
    jobs = plan(TABLE, tmp_path, ["cifar100/10"])

    def names(given: list[str], buffers: list[int]) -> list[str]:
        return [job.name.removeprefix("cifar100/10, ") for job in of_methods(jobs, given, buffers)]

    assert names([], []) == [row.name for row in EVERY]
    assert names(["derpp", "er"], []) == ["ER, 200 images", "ER, 500 images", "DER++, 200 images", "DER++, 500 images"]
    assert names(["pass", "er"], [500]) == ["ER, 500 images", "PASS"]
    assert names(["gcab-fast"], [200]) == ["GCAB", "GCAB, extended"], "of which it is distilled"
    assert len(names([], [200])) == len(EVERY) - len(STORING), "those without images in any case"


@pytest.mark.repeats
def test_rows_that_have_not_been_run_are_empty_and_the_papers_stand_beside(runs: list[RunFolder]) -> None:
    found = {
        (line["Scenario"], line["Method"], line["Images"]): line for line in lines(TABLE, as_if_on("cifar100/10", runs))
    }
    assert len(found) == 2 * (len(EVERY) + 2), "both scenarios, and two students"
    for (scenario, method, _), line in found.items():
        ran = (
            scenario == "cifar100/10"
            and method in ("Joint training", "ER", "GCAB", "GCAB-Fast")
            and line["Images"] != 500
        )
        assert (line["ACC_TAG"] is not None) == ran
        assert (line["Seconds"] is not None) == ran
    er, final = found["cifar100/10", "ER", 200], runs[1].final()
    assert final is not None
    assert (er["Paper ACC_TAG"], er["Paper ACC_TAW"]) == (14.23, 67.57)
    assert (er["ACC_TAG"], er["Forgetting, %"]) == (final["acc_tag"], final["forgetting"])
    assert er["Average incremental, %"] == final["average_incremental_accuracy"]
    assert (er["Image bytes"], er["Other bytes"], er["Passes per step"]) == (200 * 3 * 8 * 8, 0, 2.0)
    assert found["cifar100/10", "ER", 500]["Paper ACC_TAG"] == 21.54
    assert found["cifar100/5", "HAL", 200]["Paper ACC_TAW"] == 35.61
    assert found["cifar100/10", "GCAB-Fast", 0]["Paper ACC_TAG"] == 35.42
    assert found["cifar100/10", "Fine-tuning", 0]["Paper ACC_TAG"] == 11.90
    assert found["cifar100/10", "EWC", 0]["Paper ACC_TAG"] is None
    assert found["cifar100/10", "Joint training", 0]["Forgetting, %"] is None


def test_a_row_that_was_run_twice_has_two_lines_and_a_run_of_no_row_has_its_own(runs: list[RunFolder]) -> None:
    joint, er, gcab = runs
    [longer], [other] = as_if_on("digits/2", [er], epochs=7), as_if_on("digits/2", [gcab])
    other.config["profile"] = "paper"
    found = [(line["Method"], line["Images"], line["Epochs"]) for line in lines(TABLE, [joint, er, longer, other])]
    assert ("ER (epochs=1)", 200, 1) in found
    assert ("ER (epochs=7)", 200, 7) in found
    assert ("GCAB", 0, None) in found
    assert found[-1] == ("GCAB (paper, epochs=1)", 0, 1)


def test_encoders_do_not_meet_in_a_table(runs: list[RunFolder]) -> None:
    [other] = as_if_on("digits/2", runs[:1])
    other.config["encoder"]["kind"] = "resnet18"
    assert (on_resnet([*runs, other]), on_transformers([*runs, other])) == ([other], runs)


def test_curves_end_where_the_table_does(runs: list[RunFolder]) -> None:
    found = {(line["Method"], line["Images"]): line for line in curves(RECIPES["scenarios"], runs)}
    er, final = found["ER", 200], runs[1].final()
    assert final is not None
    assert er["Task 2, %"] == pytest.approx(final["acc_tag"])
    assert (er["Task 1, %"] + er["Task 2, %"]) / 2 == pytest.approx(final["average_incremental_accuracy"])
    assert found["Joint training", 0]["Task 1, %"] is None, "all tasks at once"
    assert "Task 1, %" not in found["PASS", 0]
    assert ("GCAB-Fast", 0) not in found
    drawn = EXHIBITS["scenarios"].figure(runs, list(found.values()))
    assert [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes] == [
        f"digits/2, {what}" for what in ("200 images", "500 images", "no image")
    ]
    for axes, labelled in zip(drawn.axes, (True, False, False), strict=True):
        curve = next((line for line in axes.get_lines() if line.get_label() == "ER"), None)
        assert (curve is not None and len(curve.get_xdata()) == 2) == labelled  # type: ignore[arg-type]
        assert any(line.get_label() == "GCAB" for line in axes.get_lines()), "to compare with"


@pytest.mark.repeats
def test_the_compass_says_what_is_declared_and_what_was_measured(runs: list[RunFolder]) -> None:
    found = EXHIBITS["cleva-compass"].lines(runs)
    by_name = {line["Method"]: line for line in found}
    assert by_name.keys() >= {TITLES[name] for members in FAMILIES.values() for name in members}
    assert (by_name["ER"]["episodic memory"], by_name["iCaRL"]["episodic memory"]) == ("unsupervised", "supervised")
    assert by_name["GCAB"]["episodic memory"] is None
    assert all(line["task agnostic"] for line in found), "nobody is told the task"
    columns = [column for column in OUTER.values() if column]
    assert [column for column in columns if by_name["ER"][column] is None] == ["MACs, M"], "which was not counted"
    assert all(by_name["RM"][column] is None for column in columns), "it was not run"
    er, final = by_name["ER"], runs[1].final()
    assert final is not None
    assert er["Steps"] == sum(record["step"] for record in runs[1].records("epoch"))
    assert er["Memory, MB"] == pytest.approx(sum(final["bytes"].values()) / 1e6)
    assert by_name["GCAB-Fast"]["Steps"] == SHORT["options.distillation_steps"]
    drawn = EXHIBITS["cleva-compass"].figure(runs, found)
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in drawn.axes]
    assert titles[:5] == [*FAMILIES, "Others"], "joint training is of no family"
    replay = drawn.axes[titles.index("Replay")]
    texts = {text.get_text().replace("\n", " ") for text in replay.texts}
    assert texts == {*INNER, *OUTER}
    heights = [bar.get_height() for bar in replay.patches if bar.get_y() < 1]  # type: ignore[attr-defined]
    members = [line for line in found if line["Family"] == "Replay"]
    assert sum(height > 0 for height in heights) == sum(
        line[element] is not None for line in members for element in INNER
    )
    rings = [bar for bar in replay.patches if bar.get_y() > 1]  # type: ignore[attr-defined]
    assert len(rings) == sum(er[column] is not None for column in columns), "of ER alone"


def test_passes_are_those_of_the_runs_own_settings(runs: list[RunFolder]) -> None:
    [run] = as_if_on("digits/2", [runs[1]])
    run.config["options"]["replay"] = 8
    assert passes(run) == 1 + 8 / 32


def test_a_table_is_made_by_one_command_and_grows(
    root: Path, runs: list[RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["figure", "table-cifar", "--runs", str(root), *ON_DIGITS, "--out", str(out), "--buffers", "200"]
    assert main([*arguments, "--methods", "er,sdc"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of 2: digits/2, ER, 200 images: finished before" in text
    assert "2 of 2: digits/2, SDC: ACC_TAG" in text
    assert "not done yet: 6, digits/2, ER, 500 images: not started" in text
    document = json.loads((out / "table-cifar.json").read_text())
    assert {line["Method"] for line in document["lines"] if line["ACC_TAG"] is not None} == {
        *("Joint training", "ER", "SDC", "GCAB", "GCAB-Fast")
    }, "those of earlier commands, too"
    page = (out / "table-cifar.md").read_text("utf-8")
    assert "| LwF | 0 | – | – |" in page
    assert "From nothing: `gcab figure table-cifar --scenario digits/2`" in page
    for name in COMPARISONS:
        if "resnet" not in name:
            publish(name, runs, tmp_path / name, "")
            assert (tmp_path / name / f"{name}.png").stat().st_size > 5000


def test_bad_input_is_one_sentence(runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in {
        ("table-cifar", "--methods", "derp", "--dry-run"): "unknown method of this figure 'derp': did you mean 'derpp'",
        (
            "table-cifar",
            "--buffers",
            "300",
            "--dry-run",
        ): "--buffers 300 fits none of the 74 runs, whose memories have 200 and 500",
        ("table-cifar", "--buffers", "x", "--dry-run"): "--buffers cannot be 'x': give whole numbers",
        ("capacity", "--buffers", "200", "--dry-run"): "whose methods store no images",
        ("main", "--encoder", "resnet18", "--dry-run"): "the figure main is not made with --encoder resnet18",
        (
            "table-cifar",
            "--methods",
            "gcab,er",
            "--only",
            "LwF",
            "--dry-run",
        ): "no run is of all of --only, --methods and --buffers",
        ("table-cifar", str(runs[0].path), "--methods", "er"): "--methods is for a recipe's own runs",
        ("table-cifar", str(runs[0].path), "--encoder", "resnet18"): "needs a finished run on the encoder",
    }.items():
        assert main(["figure", *arguments]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert main(["figure", "table-cifar", "--encoder", "resnet18", "--methods", "gem", "--dry-run"]) == 0
    assert "50 epochs a task, 78,000 steps left" in " ".join(capsys.readouterr().out.split())
