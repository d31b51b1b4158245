"""What `pip install .` installs works without the checkout, and nothing that gcab reads was left behind."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import LIMIT, unmeasured
from helpers.synthetic_runs import write_run

from gcab.methods.registry import methods
from gcab.version import VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DATA = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "gcab").rglob("*")
    if path.is_file() and path.suffix not in (".py", ".pyc")
)


def test_the_patterns_of_package_data_cover_every_file_that_is_no_code() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["gcab"]
    assert "gcab/py.typed" in DATA
    for name in DATA:
        inside = name.removeprefix("gcab/")
        assert any(fnmatch(inside, pattern) and inside.count("/") == pattern.count("/") for pattern in patterns), (
            f"no pattern of package-data in pyproject.toml covers {name}: it would not be installed"
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content in a folder, built from a copy, as building leaves files behind."""
    source, built, folder = (tmp_path_factory.mktemp(name) for name in ("source", "built", "installed"))
    shutil.copytree(ROOT / "gcab", source / "gcab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    backend = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", backend, built], cwd=source, capture_output=True, text=True, env=unmeasured()
    )
    assert done.returncode == 0, done.stderr
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


PROGRAM = """
import contextlib, importlib, io, json, sys
from pathlib import Path
module, function, commands = sys.argv[1:]
said = []
for words in json.loads(commands):
    sys.argv = ["gcab", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        sys.exit(getattr(importlib.import_module(module), function)())
    said.append(out.getvalue())
import gcab
from gcab.model.eye import filters
from gcab.serve.app import PAGE
print(json.dumps({
    "said": said,
    "package": str(Path(gcab.__file__).parent),
    "data": len(filters()) > 0 and (PAGE / "index.html").is_file(),
    "checkout": any(Path(folder, "pyproject.toml").exists() for folder in sys.path),
}))
"""


@pytest.fixture(scope="module")
def found(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a Python says that finds the wheel's content and the dependencies; without `site`, no editable install."""
    folder = tmp_path_factory.mktemp("report")
    run = write_run(folder, tasks=2, epochs=2).path
    report = ["report", str(run), "--out", str(folder / "report.html")]
    [target] = PROJECT["project"]["scripts"].values()
    commands = json.dumps([["--version"], ["list", "methods"], report])
    search = os.pathsep.join([str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    command = [sys.executable, "-S", "-P", "-c", PROGRAM, *target.split(":"), commands]
    environment = {**unmeasured(), "PYTHONPATH": search}
    done = subprocess.run(command, cwd=installed.parent, capture_output=True, text=True, timeout=LIMIT, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return {**json.loads(done.stdout), "page": (folder / "report.html").read_text(encoding="utf-8")}


def test_every_file_is_installed(installed: Path) -> None:
    code = [str(path.relative_to(ROOT)) for path in (ROOT / "gcab").rglob("*.py")]
    assert [name for name in (*code, *DATA) if not (installed / name).is_file()] == []


@pytest.mark.repeats
def test_the_command_is_installed(installed: Path, found: dict[str, Any]) -> None:
    [entry_points] = installed.glob("gcab-*.dist-info/entry_points.txt")
    [(name, target)] = PROJECT["project"]["scripts"].items()
    assert f"{name} = {target}" in entry_points.read_text()
    version, listed, _ = found["said"]
    assert version == f"gcab {VERSION}\n"
    assert all(f" {name} " in listed for name in methods())


def test_the_package_finds_its_data(installed: Path, found: dict[str, Any]) -> None:
    assert (found["package"], found["data"], found["checkout"]) == (str(installed / "gcab"), True, False)


def test_a_report_is_written(found: dict[str, Any]) -> None:
    assert "<html" in found["page"]
