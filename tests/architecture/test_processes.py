"""Tests that run side by side are all reported, also those of a process that breaks down."""

import subprocess
from pathlib import Path

from helpers.prepared import Program
from helpers.processes import LIMIT, unmeasured

TESTS = {
    "test_well.py": "def test_one(): pass\ndef test_two(): pass",
    "test_badly.py": "def test_wrong():\n    print('seen by nobody')\n    assert 1 == 2",
}
DYING = "import os\ndef test_dying(): os._exit(3)\ndef test_after(): pass\ndef test_last(): pass"


def run(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """`pytest --processes=2` there, which knows nothing of the tests here."""
    for name, content in {**TESTS, **{f"{name}.py": content for name, content in files.items()}}.items():
        (folder / name).write_text(content)
    arguments = [
        "-p",
        "helpers.side_by_side",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "--processes=2",
        "-v",
    ]
    with Program(arguments, folder, unmeasured(), module="pytest") as program:
        out, errors = program.communicate(LIMIT)
    return subprocess.CompletedProcess(arguments, program.wait(), out, errors)


def test_all_are_reported(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert all(f"test_well.py::{name} PASSED" in done.stdout for name in ("test_one", "test_two"))
    assert "test_badly.py::test_wrong FAILED" in done.stdout
    assert "assert 1 == 2" in done.stdout
    assert done.stdout.count("seen by nobody") == 2  # in the code that is shown, and as what was captured


def test_a_process_that_breaks_down_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, test_death=DYING)
    assert done.returncode == 1
    assert "the process that ran this test ended with 3, and 2 more were not run" in done.stdout
    assert "test_death.py::test_dying" in done.stdout
