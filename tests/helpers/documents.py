"""The documents as tests read them: their code, names, commands, links and tables."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from gcab.cli.main import make_parser

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAPER_MAP = ROOT / "docs" / "paper-map.md"
ADD_A_METHOD = ROOT / "docs" / "add-a-method.md"
REFERENCE = ROOT / "docs" / "reference.md"
SERVING = ROOT / "docs" / "serving.md"
DOCUMENTS = [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "results").rglob("*.md"))
SHELL = re.compile(r" \|+ | > |; ")  # where the arguments of a command end


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def code_blocks(document: Path, language: str) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(document), re.DOTALL | re.MULTILINE)
    return [body for written_in, body in blocks if written_in == language]


def code_spans(document: Path) -> list[str]:
    """What stands between single backticks, outside blocks."""
    prose = re.sub(r"^```.*?^```$", "", text_of(document), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", prose)


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Every function, class, method and assigned name of a module, dotted below its class."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield prefix + statement.name
        if isinstance(statement, ast.ClassDef):
            yield from names_in(statement.body, f"{prefix}{statement.name}.")
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def references(document: Path) -> list[tuple[str, str]]:
    """(file, name) of every `path.py:name` and `path.py::test`."""
    found = [re.fullmatch(r"([\w/.-]+\.py)::?([\w.]+)", span) for span in code_spans(document)]
    return [(match[1], match[2]) for match in found if match]


def missing_references(document: Path) -> list[str]:
    missing = []
    for path, name in references(document):
        file = ROOT / path
        if not file.is_file() or name not in names_in(ast.parse(text_of(file)).body):
            missing.append(f"{path}:{name}")
    return missing


def commands(document: Path) -> list[list[str]]:
    """Arguments of every gcab command: the lines of shell blocks, and spans that say more than a verb."""
    lines = [line for block in code_blocks(document, "bash") for line in block.splitlines()]
    lines += [span for span in code_spans(document) if len(span.split()) > 2 and "--help" not in span]
    return [shlex.split(SHELL.split(line)[0], comments=True)[1:] for line in lines if line.startswith("gcab ")]


def verbs() -> set[str]:
    """Of the command line."""
    return {name for action in make_parser([])._actions if isinstance(action.choices, dict) for name in action.choices}


def missing_files(document: Path) -> list[str]:
    """Every `folder/file.py` that is named and is not there."""
    found = [
        span for span in code_spans(document) if re.fullmatch(r"(?:gcab|tests|docs|benchmarks)/[\w/.-]+\.\w+", span)
    ]
    return [span for span in found if not (ROOT / span).is_file()]


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
