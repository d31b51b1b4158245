"""The report is one file that says what happened, needs nothing else, and believes no name it is given."""

import base64
import re
from importlib import resources
from pathlib import Path

import pytest
from helpers.synthetic_runs import rewrite_metrics, write_comparison, write_run

from gcab.errors import GcabError
from gcab.evaluation.metrics import METRICS, describe
from gcab.report.figures import FIGURES
from gcab.report.report import write_report
from gcab.report.tables import compare_table, group_runs
from gcab.runs.folder import RunFolder

SCRIPT = "<script>alert(1)</script>"

pytestmark = pytest.mark.usefixtures("rough_embedding")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[RunFolder], str]:
    root = tmp_path_factory.mktemp("report")
    runs = write_comparison(root / "runs", tasks=3)
    return runs, write_report(runs, root / "deep" / "report.html").read_text("utf-8")


def cards(page: str) -> dict[str, str]:
    found = re.findall(r'<div class="card"><h2>(.*?)</h2><div class="number">(.*?)</div>', page)
    return dict(found)


def test_the_template_has_a_place_for_every_figure() -> None:
    template = resources.files("gcab.report").joinpath("runs.html").read_text("utf-8")
    assert set(re.findall(r"\$figure_(\w+)", template)) == set(FIGURES)


def test_headline_numbers_are_those_of_the_best_method_that_is_not_joint(
    comparison: tuple[list[RunFolder], str],
) -> None:
    runs, page = comparison
    gcab = next(group for group in group_runs(runs) if group.method == "gcab")
    shown = cards(page)
    assert shown["ACC_TAG"] == f"{gcab.mean('acc_tag'):.1f}"
    assert shown["ACC_TAW"] == f"{gcab.mean('acc_taw'):.1f}"
    assert shown["Forgetting"] == f"{gcab.mean('forgetting'):.1f}"
    assert shown["Images stored"] == "0"
    assert "storing no image" in page
    assert "<h1>gcab, finetune, joint on toy-3</h1>" in page


def test_every_number_of_the_comparison_and_every_explanation_is_there(
    comparison: tuple[list[RunFolder], str],
) -> None:
    runs, page = comparison
    for row in compare_table(runs).rows:
        assert all(f">{cell}<" in page for cell in row)
    for name in METRICS:
        assert f"<dt>{describe(name).title}</dt>" in page
    for entry in FIGURES.values():
        assert f"<h2>{entry.title}</h2>" in page
        assert entry.caption.replace("'", "&#x27;") in page


def test_it_needs_nothing_from_outside(comparison: tuple[list[RunFolder], str]) -> None:
    _, page = comparison
    assert not re.search(r"https?://|@import|<script|<link|url\(", page)
    assert all(source.startswith("data:image/") for source in re.findall(r'src="(.*?)"', page))
    assert page.count("<img ") == len(FIGURES)
    assert len(page.encode()) < 5_000_000


def test_it_says_how_it_was_made(comparison: tuple[list[RunFolder], str]) -> None:
    _, page = comparison
    assert "gcab train toy-3 --method gcab --seed 2" in page
    assert "torch 2.13.0" in page
    assert "0123abc" in page
    assert "CPU, 1 thread" in page
    assert "&quot;lr&quot;: 0.0001" in page
    assert re.search(r"Written \d{4}-\d\d-\d\d \d\d:\d\d UTC by gcab", page)
    assert "3.0 min" in page  # 61 s for each of three tasks


def test_it_says_what_was_computed_on_as_far_as_it_was_recorded(tmp_path: Path) -> None:
    run = write_run(tmp_path, "gcab", 1, 2)
    run.document.update(device="card", precision="bfloat16", cuda="12.8", driver=None, platform="Linux x86_64")
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert "<dt>Device</dt><dd>card, bfloat16, CUDA 12.8, Linux x86_64</dd>" in page


def test_names_are_escaped(tmp_path: Path) -> None:
    names = [SCRIPT, "$x$ & y", "${style}", *"abc"]
    run = write_run(tmp_path, "gcab", 1, 2, 3, names=names, options={"note": SCRIPT})
    run.document["command"] = f"gcab train {SCRIPT}"
    run.document["config"]["scenario"]["name"] = SCRIPT
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert "${style}" in page
    pictures = [base64.b64decode(data) for data in re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', page)]
    assert pictures
    assert not any(b"<script" in picture for picture in pictures)


def test_an_unfinished_run_says_so_and_shows_what_is_there(tmp_path: Path) -> None:
    run = write_run(tmp_path, "gcab", 4, 3, learned=2)
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert "<strong>Unfinished:</strong> gcab, seed 4: 2 of 3 tasks learned." in page
    assert "No run has finished yet" in page
    assert cards(page)["ACC_TAG"].endswith("<small>so far</small>")
    assert "<h2>Accuracy over tasks</h2>" in page
    assert "gcab (unfinished)" in page


def test_a_run_that_has_only_begun_still_has_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 3, learned=0)
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert "0 of 3 tasks learned" in page
    assert set(cards(page).values()) == {"–"}
    assert "<img" not in page


def test_a_finished_run_beside_an_unfinished_one_leads(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "finetune", 1, 2, learned=1), write_run(tmp_path, "gcab", 1, 2)]
    page = write_report(runs, tmp_path / "report.html").read_text("utf-8")
    assert "<h1>gcab, finetune on toy-2</h1>" in page
    assert page.count("<strong>Unfinished:</strong>") == 1
    assert "so far" not in cards(page)["ACC_TAG"]


def test_joint_alone_has_no_forgetting(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path, "joint", 1, 3)], tmp_path / "report.html").read_text("utf-8")
    assert cards(page)["Forgetting"] == "–"
    assert "<strong>Unfinished:</strong>" not in page
    assert 'id="capacity"' not in page


def test_stored_images_are_counted_in_megabytes(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 2)
    rewrite_metrics(run, {"bytes": {"model": 1, "images": 614_400, "prototypes": 0}, "seconds": 9000.0}, "final")
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert cards(page)["Images stored"] == "0.61 MB"
    assert "storing 0.61 MB of images" in page
    assert "2.5 h" in page


def test_dense_figures_become_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.report.page.LARGEST_SVG", 0)
    run = write_run(tmp_path, "finetune", 1, 2, learned=1)
    page = write_report([run], tmp_path / "report.html").read_text("utf-8")
    assert "data:image/png;base64,iVBOR" in page
    assert "image/svg" not in page


@pytest.mark.repeats
def test_many_variants_leave_the_cards_readable(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "finetune", 1, 2, options={"x": value}) for value in range(5)]
    page = write_report(runs, tmp_path / "report.html").read_text("utf-8")
    assert "</div><dl>" not in page
    page = write_report(runs[:2], tmp_path / "report.html").read_text("utf-8")
    assert "</div><dl><dt>finetune (x=" in page


def test_no_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GcabError, match="no run to report on"):
        write_report([], tmp_path / "report.html")


def test_short_runs_are_timed_in_seconds(tmp_path: Path) -> None:
    run = write_run(tmp_path, "finetune", 1, 2)
    rewrite_metrics(run, {"seconds": 42.4}, "final")
    assert "<dd>42 s</dd>" in write_report([run], tmp_path / "report.html").read_text("utf-8")
