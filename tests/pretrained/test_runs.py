"""Runs with a pretrained encoder run like others, and are kept apart from those from scratch."""

from pathlib import Path

import pytest
from helpers.commands import succeeds
from helpers.runs import Case, finished_run
from helpers.synthetic_runs import write_run

from gcab.errors import GcabError
from gcab.pretrained.description import Description
from gcab.report.report import write_report
from gcab.report.tables import comparisons
from gcab.runs.assemble import load_method, pretrained_encoder
from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.repeats


@pytest.fixture(scope="module")
def run(dino: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    changes = {"encoder.kind": "pretrained", "encoder.weights": str(dino)}
    return finished_run(Case("frozen", "official").config(changes=changes), tmp_path_factory.mktemp("run") / "a").run


def test_a_run_stores_its_encoder(run: RunFolder) -> None:
    method, config, _ = load_method(run.model)
    found = pretrained_encoder(method)
    assert isinstance(found, Description)
    assert (found.origin, config.encoder.width, config.encoder.heads) == ("tiny-dino", 32, 4)
    assert method.setting.mean == (0.4, 0.5, 0.6)
    final = run.final()
    assert final is not None
    assert final["acc_tag"] > 50  # of six classes, by random weights


def test_tables_keep_it_apart(run: RunFolder, tmp_path: Path) -> None:
    scratch = write_run(tmp_path, "gcab", 1, 3)
    first, second = comparisons([run, scratch])
    assert [row[0] for row in first.rows] == ["gcab"]
    assert [row[0].split(" (")[0] for row in second.rows] == ["frozen on tiny-dino"]
    assert "pretrained" in second.title
    assert second.note.startswith("Encoders that were trained elsewhere")
    assert [table.title for table in comparisons([scratch])] == ["Comparison"]
    page = write_report([run, scratch], tmp_path / "report.html").read_text()
    assert "not to be compared with methods from scratch" in page
    assert "frozen on tiny-dino" in page


@pytest.mark.parametrize(("flags", "method"), [((), "frozen"), (("--method", "finetune"), "finetune")])
def test_one_flag_names_the_encoder(
    dino: Path, flags: tuple[str, ...], method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = succeeds(capsys, "train", "digits/5", "--encoder", dino, *flags, "--device", "cpu", "--dry-run")
    assert {f"method = {method}", "encoder.kind = pretrained"} <= set(said.splitlines())


def test_settings_without_an_encoder_are_refused() -> None:
    with pytest.raises(GcabError, match=r"needs encoder\.weights"):
        Case("frozen", "official").config(changes={"encoder.kind": "pretrained"})
