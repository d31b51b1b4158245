"""Every figure draws the numbers of the runs, and none where there are none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.synthetic_runs import rewrite_metrics, write_comparison, write_run

from gcab.evaluation.metrics import incremental_tag, incremental_taw
from gcab.methods.registry import methods
from gcab.report import embedding
from gcab.report.figures import FIGURES, draw, save_figures
from gcab.report.plotting import METHOD_COLOURS, PALETTE, clip, every, looks
from gcab.report.tables import results_of
from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("rough_embedding")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    return write_comparison(tmp_path_factory.mktemp("runs"), tasks=4)


def axes_of(name: str, runs: Sequence[RunFolder]) -> list[Any]:
    figure = draw(name, runs)
    assert figure is not None
    return list(figure.axes)


def line(axes: Any, label: str) -> Any:
    return next(line for line in axes.get_lines() if line.get_label() == label)


def numbers(axes: Any) -> list[int]:
    return [int(text.get_text()) for text in axes.texts]


def test_accuracy_curves_are_the_metrics(comparison: list[RunFolder]) -> None:
    agnostic, aware = axes_of("accuracy", comparison)
    for axes, curve, style in ((agnostic, incremental_tag, "-"), (aware, incremental_taw, "--")):
        for method in ("gcab", "finetune"):
            seeds = [curve(results_of(run)) for run in comparison if run.method == method]
            drawn = line(axes, method)
            assert drawn.get_xdata().tolist() == [1, 2, 3, 4]
            np.testing.assert_allclose(drawn.get_ydata(), np.mean(seeds, axis=0))
            assert drawn.get_linestyle() == style
            assert drawn.get_color() == METHOD_COLOURS[method]
        joint = [curve(results_of(run))[-1] for run in comparison if run.method == "joint"]
        np.testing.assert_allclose(line(axes, "joint").get_ydata(), np.mean(joint))
        assert len(axes.collections) == 2  # a band for each method with several seeds


def test_seeds_that_have_come_unequally_far_are_averaged_as_far_as_they_go(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "gcab", 1, 3), write_run(tmp_path, "gcab", 2, 3, learned=1)]
    drawn = line(axes_of("accuracy", runs)[0], "gcab").get_ydata()
    first, second = (incremental_tag(results_of(run)) for run in runs)
    np.testing.assert_allclose(drawn, [(first[0] + second[0]) / 2, *first[1:]])


def test_matrices_show_the_mean_over_seeds(comparison: list[RunFolder]) -> None:
    panels = axes_of("matrices", comparison)
    assert [axes.get_title("left") for axes in panels[:2]] == [
        "gcab, TAG, mean of 2 seeds",
        "gcab, TAW, mean of 2 seeds",
    ]
    seeds = [results_of(run).taw for run in comparison if run.method == "gcab"]
    mean = [(a + b) / 2 for one, two in zip(*seeds, strict=True) for a, b in zip(one, two, strict=True)]
    assert numbers(panels[1]) == [int(f"{value:.0f}") for value in mean]
    assert len(numbers(panels[4])) == 4  # joint: one row of four tasks
    assert [tick.get_text() for tick in panels[4].get_yticklabels()] == ["4"]


def test_matrices_of_an_unfinished_seed_are_left_out_of_the_mean(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "gcab", 1, 3), write_run(tmp_path, "gcab", 2, 3, learned=1)]
    assert axes_of("matrices", runs)[0].get_title("left") == "gcab, TAG"


def test_capacity_in_per_cent_for_each_gate_and_their_mean(comparison: list[RunFolder]) -> None:
    (axes,) = axes_of("capacity", comparison)
    drawn = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata())]
    tasks = np.arange(1, 5)
    gates = 100 * (1 - 0.6**tasks), 100 * (1 - 0.7**tasks)
    for values, expected in zip(drawn, (*gates, np.mean(gates, axis=0)), strict=True):
        np.testing.assert_allclose(values, expected)
    labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert labels == ["gcab", "mean of the gates", "input gate", "hidden gate"]


def test_losses_follow_the_tasks_and_joint_spans_them_all(comparison: list[RunFolder]) -> None:
    classification, sparsity, drift, spare = axes_of("losses", comparison)
    assert [axes.get_title("left") for axes in (classification, sparsity, drift)] == [
        "classification",
        "sparsity",
        "drift",
    ]
    assert not spare.axison
    logged = [record["losses"]["classification"] for record in comparison[0].records("epoch")]
    drawn = line(classification, "gcab")
    np.testing.assert_allclose(drawn.get_ydata(), np.array(logged, dtype=float))
    np.testing.assert_allclose(drawn.get_xdata(), np.arange(1, 49) / 12)
    np.testing.assert_allclose(line(classification, "joint").get_xdata(), np.arange(1, 13) / 3)
    assert len(line(sparsity, "finetune").get_xdata()) == 0
    boundaries = [line.get_xdata()[0] for line in classification.get_lines()[-3:]]
    assert boundaries == [1, 2, 3]


def test_losses_over_several_magnitudes_are_logarithmic_and_gaps_allowed(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 2, learned=0)
    for epoch, value in enumerate((100.0, float("nan"), 0.1), start=1):
        run.append({"kind": "epoch", "task": 1, "epoch": epoch, "epochs": 3, "losses": {"classification": value}})
    (axes,) = axes_of("losses", [run])
    assert axes.get_yscale() == "log"
    np.testing.assert_array_equal(line(axes, "finetune").get_ydata(), [100.0, np.nan, 0.1])


def test_a_repeated_epoch_is_drawn_once(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 2, learned=0)
    for value in (9.0, 0.5):
        run.append({"kind": "epoch", "task": 1, "epoch": 1, "epochs": 2, "losses": {"classification": value}})
    assert line(axes_of("losses", [run])[0], "finetune").get_ydata() == [0.5]


def test_embedding_compares_task_two_and_the_last_in_one_plane(comparison: list[RunFolder]) -> None:
    panels = axes_of("embedding", comparison)
    titles = [axes.get_title("left") for axes in panels]
    assert titles == [
        "after task 1",
        "after task 2, as is",
        "after task 2, compensated",
        "after task 1",
        "after task 4, as is",
        "after task 4, compensated",
    ]
    names = comparison[0].tasks[0]
    clouds = [{cloud.get_label(): cloud.get_offsets() for cloud in axes.collections} for axes in panels]
    assert list(clouds[0]) == names
    for name in names:
        np.testing.assert_array_equal(clouds[0][name], clouds[3][name])  # the same task-1 picture in both rows
    moved = [
        np.mean([np.linalg.norm(cloud[name] - clouds[0][name], axis=1).mean() for name in names]) for cloud in clouds
    ]
    assert moved[5] < moved[4]
    assert [text.get_text() for text in panels[0].figure.legends[0].get_texts()] == names


def test_embedding_thins_many_points_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "POINTS", 60)
    monkeypatch.setattr(embedding, "CLASSES", 3)
    panels = axes_of("embedding", [write_run(tmp_path, "gcab", 1, 2)])
    assert [sum(len(cloud.get_offsets()) for cloud in axes.collections) for axes in panels] == [20, 20, 20]
    assert [len(axes.collections) for axes in panels] == [3, 3, 3]


def test_embedding_needs_two_finite_sets(tmp_path: Path) -> None:
    run = write_run(tmp_path, "gcab", 1, 2, learned=1)
    assert draw("embedding", [run]) is None
    arrays = run.load_arrays("embedding-01")
    assert arrays is not None
    run.save_arrays("embedding-02", **{**arrays, "raw": np.full_like(arrays["raw"], np.nan)})
    assert draw("embedding", [run]) is None


def test_embedding_rows_are_named_where_several_methods_share_the_classes(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "gcab", 1, 2, options={"compensation": value}) for value in (True, False)]
    other = write_run(tmp_path, "gcab", 1, 2, names=[f"other {k}" for k in range(8)], options={"compensation": None})
    panels = axes_of("embedding", [*runs, other])
    assert [axes.get_ylabel() for axes in panels[::3]] == ["gcab (compensation=True)", "gcab (compensation=False)"]


def test_drift_is_averaged_over_earlier_tasks(comparison: list[RunFolder]) -> None:
    (axes,) = axes_of("drift", comparison)
    raw = [np.mean([0.12 * (t - s) ** 0.7 for s in range(1, t)]) for t in range(2, 5)]
    drawn = line(axes, "gcab")
    assert drawn.get_xdata().tolist() == [2, 3, 4]
    np.testing.assert_allclose(drawn.get_ydata(), 0.3 * np.array(raw))
    as_is = next(line for line in axes.get_lines() if line.get_linestyle() == "--")
    np.testing.assert_allclose(as_is.get_ydata(), raw)


def test_drift_without_compensation_has_no_second_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 2)
    rewrite_metrics(run, {"drift": [{"task": 1, "raw": 0.4, "compensated": None}]}, "task")
    (axes,) = axes_of("drift", [run])
    assert np.isnan(line(axes, "finetune").get_ydata()).all()
    as_is = next(line for line in axes.get_lines() if line.get_linestyle() == "--")
    np.testing.assert_allclose(as_is.get_ydata(), 0.4)


def test_parts_stand_beside_the_whole(comparison: list[RunFolder]) -> None:
    agnostic, aware = axes_of("parts", comparison)
    for axes, share in ((agnostic, 0.5), (aware, 1.0)):
        whole = line(axes, "gcab")
        alone = next(other for other in axes.get_lines() if other.get_linestyle() == "--" and len(other.get_xdata()))
        np.testing.assert_allclose(alone.get_ydata(), share * whole.get_ydata())
    assert [text.get_text() for text in agnostic.figure.legends[0].get_texts()] == ["gcab", "heads"]


def test_confusion_between_tasks_by_hand(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, tasks=2, classes=1)
    # Task 1: three images of four go to task 2. Task 2: both right.
    chosen = np.array([0, 1, 1, 1, 1, 1])
    run.save_arrays("task-02", labels=np.array([0, 0, 0, 0, 1, 1]), logits=np.eye(2, dtype=np.float16)[chosen])
    used, spare = axes_of("confusion", [run])
    assert numbers(used) == [25, 75, 0, 100]
    assert not spare.axison


@pytest.mark.parametrize("name", FIGURES)
def test_no_data_no_figure(name: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 3, learned=0)
    assert draw(name, [run]) is None


def test_figures_are_saved_as_png_and_svg_and_missing_ones_skipped(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "finetune", 1, 2)
    written = save_figures([run], tmp_path / "deep" / "figures")
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in ("accuracy", "matrices", "confusion", "losses") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 1000 for path in written)
    assert (tmp_path / "deep" / "figures" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    before = written[1].read_bytes()
    assert save_figures([run], tmp_path / "again")[1].read_bytes() == before


@pytest.mark.repeats
def test_twenty_tasks_fit(tmp_path: Path) -> None:
    run = write_run(tmp_path, "gcab", 1, 20, 2, epochs=1)
    rewrite_metrics(run, {"drift": []}, "task")
    assert {name for name in FIGURES if draw(name, [run])} == set(FIGURES) - {"drift"}
    assert every(20) == [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]


def test_colours_belong_to_methods() -> None:
    assert looks(["finetune", "gcab"])[1][0] == looks(["gcab"])[0][0] == METHOD_COLOURS["gcab"]
    several = [colour for colour, _ in looks(["gcab", "gcab", "er", "joint", "finetune"])]
    assert len(set(several)) == 5
    assert several[-1] == METHOD_COLOURS["finetune"]
    assert len(set(looks(["er"] * 40))) == 40, "by colour or by marker"
    assert {colour for colour, _ in looks(["er"] * 8)} == set(PALETTE)


def test_long_names_are_cut() -> None:
    assert clip("short") == "short"
    assert clip("a very long class name indeed", 10) == "a very lo…"


def test_colours_belong_to_methods_that_there_are() -> None:
    assert METHOD_COLOURS.keys() <= methods().keys()
