"""Names of classes and files are shown, whatever is in them: they must not clear the screen, hide or forge a line."""

import logging
from pathlib import Path

import pytest
from helpers.models import awkward_model

from gcab.cli.main import main
from gcab.data.archive import LeftOut

RED = "\x1b[31mred"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return awkward_model(tmp_path_factory.mktemp("models") / "owls.gcab")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["info", "MODEL"], 0),
        (["history", "MODEL"], 0),
        (["rename", "MODEL", RED, "blue"], 2),
        (["rename", "MODEL", "=wren", f"wren\n{RED}"], 0),
        (["undo", f"{RED}.gcab"], 2),
    ],
)
def test_names_are_escaped_by_every_command(
    arguments: list[str], code: int, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.replace("MODEL", str(model)) for argument in arguments]) == code
    shown = "".join(capsys.readouterr())
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown


def test_names_of_files_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    left_out = LeftOut()
    left_out.add(f"{RED}\n.txt")
    with caplog.at_level(logging.WARNING):
        left_out.tell()
    assert caplog.messages == ["1 file left out, as no images or hidden: \\x1b[31mred\\n.txt."]
