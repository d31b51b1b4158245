"""`gcab predict`: every output parsed back, exit codes, standard input, awkward names, and what a terminal shows."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.eyes import eye, many
from helpers.models import AWKWARD, awkward_model
from helpers.photos import RED_PNG, some_photos
from helpers.processes import LIMIT
from PIL import Image
from rich.console import Console

from gcab.classifier.learner import ContinualClassifier
from gcab.classifier.prediction import Guess, Prediction
from gcab.cli import predict as command
from gcab.cli.main import main
from gcab.cli.prediction_formats import TableLines

EVERY = {name for names in AWKWARD for name in names}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return awkward_model(tmp_path_factory.mktemp("models") / "m.gcab")


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    return some_photos(Path("p"), 5)


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.repeats
def test_json_lines(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(model), "p", "--json", "--top", "99", "--batch", "2"]) == 0
    out, err = capsys.readouterr()
    rows = json_lines(out)
    assert err == ""
    assert [row["file"] for row in rows] == [f"p/00{number}.png" for number in range(5)]
    for row in rows:
        assert set(row) == {"file", "top", "unknown", "flagged"}
        assert {guess["class"] for guess in row["top"]} == EVERY  # --top is clipped to the four classes
        assert {guess["class"] for guess in row["top"] if guess["task"] == 2} == set(AWKWARD[1])
        shares = [guess["probability"] for guess in row["top"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert row["flagged"] == (row["unknown"] >= 0.95)


def test_the_limit_of_unknown_decides_what_is_flagged(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(model), "p", "--json", "--unknown", "0"]) == 0
    assert all(row["flagged"] for row in json_lines(capsys.readouterr().out))
    rows = [Prediction("x.png", (Guess("a", 1.0, 1),), unknown) for unknown in (0.89, 0.9)]
    output, loaded = io.StringIO(), ContinualClassifier.load(model, device="cpu")
    table = TableLines(Console(file=output), Console(file=output), loaded, 1, 0.9)
    for row in rows:
        table.write(row)
    assert [line.endswith("none of these?") for line in output.getvalue().splitlines()] == [False, False, True]


def test_csv(model: Path, photos: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    odd = Path('p/a "quoted", odd\nname.png')
    photos[0].rename(odd)
    Path("p/=2.png").write_bytes(b"no image")
    assert main(["predict", str(model), "p/=2.png", str(odd), "p/001.png", "--csv", "--top", "4"]) == 1
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert list(rows[0])[:6] == ["file", "unknown", "flagged", "class_1", "probability_1", "task_1"]
    assert [row["file"] for row in rows] == ["p/=2.png", str(odd), "p/001.png"]
    assert "is not an image" in rows[0]["error"]
    assert rows[0]["class_1"] == rows[0]["unknown"] == rows[0]["flagged"] == ""
    for row in rows[1:]:
        assert row["error"] == ""
        assert row["flagged"] in ("true", "false")
        assert {row[f"class_{rank}"] for rank in range(1, 5)} == EVERY - {"=wren"} | {"'=wren"}  # no formula
        assert 0 <= float(row["unknown"]) <= 1
        assert sum(float(row[f"probability_{rank}"]) for rank in range(1, 5)) == pytest.approx(1, abs=1e-5)


def test_a_file_named_like_a_formula_is_harmless_in_csv(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("=1+1.png", "+1.png", "@sum.png"):
        Path(name).write_bytes(RED_PNG)
        assert main(["predict", str(model), name, "--csv"]) == 0
        assert [row["file"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == [f"'{name}"]


def test_table_for_another_program(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = Path("p") / ("x" * 100 + ".png")
    long.write_bytes(RED_PNG)
    assert main(["predict", str(model), "p", "--top", "4"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["file", "class", "probability", "task", "unknown"]
    assert len(lines) == 1 + 6 * 4
    assert str(long) in out  # whole, however long
    assert "\x1b" not in out
    assert "[red]robin[/] " in out  # markup is shown, not followed
    assert "owl\\nby \\x1b[31mnight" in out  # and nothing breaks the line or colours it
    assert err == ""
    start = lines[0].index("class")
    assert {line[start:].split("  ")[0] for line in lines[1:5]} == {"=wren", "[red]robin[/]"} | {
        "Käuzchen 🦉",
        "owl\\nby \\x1b[31mnight",
    }


def test_table_in_a_terminal_keeps_to_its_width(model: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=90, color_system=None)
    table = TableLines(console, console, ContinualClassifier.load(model, device="cpu"), 2, 0.95)
    path = "photos/a folder with a long name/and another/鳥鳥鳥鳥/the robin.png"
    table.write(Prediction(path, (Guess("[red]robin[/]", 0.912, 1), Guess("=wren", 0.05, 1)), 0.97))
    table.write(Prediction("a.png", (Guess("an owl whose name is very much too long for it", 1.0, 2),), 0.1))
    lines = output.getvalue().splitlines()
    assert all(len(line) <= 90 for line in lines)
    assert "…" in lines[1]
    assert "the robin.png  [red]robin[/]" in lines[1]
    assert lines[1].endswith("none of these?")
    assert lines[2].split() == ["=wren", "5.0%", "1"]
    assert "…" in lines[3]
    ends = [
        line.index(word) + len(word)
        for line, word in zip(lines[:1] + lines[2:], ("probability", "5.0%", "100.0%"), strict=True)
    ]
    assert len(set(ends)) == 1


def test_without_calibration_nothing_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = awkward_model(tmp_path / "bare.gcab", held_out=0.0)
    assert main(["predict", str(bare), "p/000.png", "--unknown", "0", "--top", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].endswith(" -")
    why = "its last change had no held-out photos. A lesson with some measures it."
    assert err == f"gcab: nothing is flagged as unknown: {why}\n"
    assert main(["predict", str(bare), "p/000.png", "--unknown", "0", "--json"]) == 0
    (row,) = json_lines(capsys.readouterr().out)
    assert (row["unknown"], row["flagged"]) == (None, False)
    assert main(["predict", str(bare), "p/000.png", "--unknown", "0", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("p/000.png,,false,")
    Path("p/empty.png").write_bytes(b"")
    assert main(["predict", str(bare), "p/empty.png"]) == 2
    assert "flagged" not in capsys.readouterr().err  # no image could be read, so none could be flagged
    few = eye().learn(*many(0, 1), held_out=0.2)
    few.save("few.gcab")
    assert main(["predict", "few.gcab", "p/000.png"]) == 0
    why = f"too few photos were held out ({few.calibration.images}). A lesson with some measures it."
    assert capsys.readouterr().err == f"gcab: nothing is flagged as unknown: {why}\n"
    assert few.calibration.images > 0


def test_unreadable_files_are_listed_and_the_rest_goes_on(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("p/empty.png").write_bytes(b"")
    Path("p/cut.png").write_bytes(Path("p/000.png").read_bytes()[:200])
    Path("p/bad [red].png").write_bytes(b"no image")
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    frames[0].save("p/moves.gif", save_all=True, append_images=frames[1:])
    for side in (8100, 10000):  # more than gcab reads; more than Pillow reads without a warning
        Image.new("1", (side, side)).save(f"p/huge{side}.png")
    assert main(["predict", str(model), "p", "missing.png", "--top", "1"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + 5
    assert err.splitlines()[0] == "gcab: 7 of 12 could not be read:"
    for sentence, line in zip(
        (
            "p/bad [red].png is not an image",
            "p/cut.png is damaged or cut short",
            "p/empty.png is empty (0 bytes)",
            "p/huge10000.png has more than 64 million pixels",
            "p/huge8100.png has more than 64 million pixels",
            "p/moves.gif is animated",
            "image missing.png cannot be opened (No such file or directory)",
        ),
        err.splitlines()[1:],
        strict=True,
    ):
        assert sentence in line
    assert main(["predict", str(model), "p", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [set(row) for row in json_lines(out) if "error" in row] == [{"file", "error"}] * 6
    assert err == "gcab: 6 of 11 could not be read; each is listed with its error.\n"


def test_a_table_lists_no_more_than_a_thousand(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"missing.png\n" * 1003)
    assert main(["predict", str(model), "-"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gcab: 1003 of 1003 could not be read:"
    assert lines[-1] == "  and 3 more; --json lists all."
    assert len(lines) == 1002


@pytest.mark.parametrize("images", [["nothing.png"], ["empty"], ["*.png"], [""]])
def test_nothing_to_predict_is_a_failure(model: Path, images: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert main(["predict", str(model), *images]) == 2
    said = capsys.readouterr()
    assert "1 of 1 could not be read" in said.err
    assert not said.out, "a table without a row has no heading"


def test_one_image_through_standard_input(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, Path("p/001.png").read_bytes())
    assert main(["predict", str(model), "-", "p/001.png", "--json"]) == 0
    piped, same = json_lines(capsys.readouterr().out)
    assert piped.pop("file") == "-"
    assert same.pop("file") == "p/001.png"
    assert piped == same


def test_a_list_through_standard_input(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"p/003.png\np/001.png\n")
    assert main(["predict", str(model), "-", "--json"]) == 0
    assert [row["file"] for row in json_lines(capsys.readouterr().out)] == ["p/003.png", "p/001.png"]
    pipe(monkeypatch, b"\0\0")
    assert main(["predict", str(model), "-", "--json"]) == 2
    assert "no image was named" in capsys.readouterr().err


def test_a_damaged_image_through_standard_input(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"\x89PNG\r\n\x1a\n\0\0")
    assert main(["predict", str(model), "-", "--json"]) == 2
    (row,) = json_lines(capsys.readouterr().out)
    assert row["file"] == "-"
    assert row["error"].startswith("the image is")


def test_a_terminal_is_no_image(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["predict", str(model), "-"]) == 2
    assert "pipe an image or a list of paths" in capsys.readouterr().err


def test_names_that_are_no_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, other = (os.fsdecode(b"caf%c.png" % byte) for byte in b"\xe9\xe8")
    Path(name).write_bytes(RED_PNG)
    printed = []
    for file, form, code in ((name, "--json", 0), (name, "--csv", 0), (name, "--table", 0), (other, "--csv", 2)):
        assert main(["predict", str(model), file, form, "--top", "1"]) == code
        printed.append(capsys.readouterr().out.splitlines())
    as_json, as_csv, as_table, as_other = printed
    assert json.loads(as_json[0])["file"] == name
    assert as_csv[1].startswith("caf\\udce9.png,")
    assert as_other[1].startswith("caf\\udce8.png,")
    assert as_table[1].startswith("caf\\udce9.png ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--top", "0"], "'0' is not a whole number above 0"),
        (["--batch", "many"], "'many' is not a whole number above 0"),
        (["--unknown", "1.5"], "'1.5' is not a number from 0 to 1"),
        (["--unknown", "nan"], "'nan' is not a number from 0 to 1"),
        (["--unknown", "x"], "'x' is not a number from 0 to 1"),
        (["--json", "--csv"], "not allowed with"),
        (["--precision", "float16"], "invalid choice"),
        (["--device", "tpu"], "device 'tpu'"),
        (["--tops", "1"], "did you mean '--top'"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(
    model: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(model), "p", *arguments]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_folder_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "p", "p"]) == 2
    assert "gcab: " in capsys.readouterr().err


def test_stopped_by_the_person(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TableLines, "write", stopped)
    assert main(["predict", str(model), "p"]) == 130
    assert "gcab: stopped after 0 images." in capsys.readouterr().err


def test_a_count_is_shown_where_a_person_watches() -> None:
    for shown in (True, False):
        output = io.StringIO()
        watched = Console(file=output, force_terminal=True, width=80)
        with command.counter(watched, shown=shown) as count:
            count(1200, 3)
        assert ("1200 images, 3 unreadable" in output.getvalue()) == shown


def test_a_reader_that_leaves_early_ends_it_quietly(model: Path) -> None:
    listed = b"p/000.png\n" * 3000
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    arguments = [sys.executable, "-m", "gcab", "predict", str(model), "-", "--json"]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(listed)
        process.stdin.close()
        first = process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert json.loads(first)["file"] == "p/000.png"
        assert process.wait(LIMIT) == 1
