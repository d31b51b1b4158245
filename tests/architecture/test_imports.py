"""The floor plan: packages import each other one way, and what reads logs needs no torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gcab"

# From the ground up: a part imports only parts of the lines above its own.
FLOORS = (
    ("errors", "version", "profiles", "records", "seeds", "sizes", "terminal"),
    ("flaws",),  # of records
    ("parallel", "fleet"),  # processes that train together, and devices; where runs are run
    ("model",),  # the paper
    ("pretrained",),  # encoders that others trained
    ("data",),  # images in
    ("fast",),  # the paper's functions at speed
    ("methods",),
    ("training",),  # the only loop
    ("config",),
    ("evaluation",),
    ("runs",),  # the researcher's product
    ("classifier", "report"),  # the practitioner's product; what is read out of runs
    ("export", "serve", "bench"),
    ("paper", "search"),
    ("cli",),
    ("__init__", "__main__"),
)


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


@cache
def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        names = ("gcab", *file.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = file
    return found


def imports(block: ast.AST, deferred: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """What a module imports, also after `try` or `if`; inside functions only if `deferred`, for type checkers never."""
    for statement in ast.iter_child_nodes(block):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        elif deferred or not isinstance(statement, ast.FunctionDef):
            yield from imports(statement, deferred)


@cache
def imported(file: Path, deferred: bool = False) -> frozenset[str]:
    """Modules that are loaded with this one; `deferred`: or that its functions load when they are called."""
    known, found = modules(), set[str]()
    for statement in imports(ast.parse(file.read_text()), deferred):
        if isinstance(statement, ast.ImportFrom):
            assert not statement.level, f"{file}: a relative import"
            module = statement.module or ""
            names = {f"{module}.{name.name}" for name in statement.names}
            found |= (names & known.keys()) or {module}
        else:
            found |= {name.name for name in statement.names}
    return frozenset(found)


def own_imports(module: str, deferred: bool = False) -> set[str]:
    return {other for other in imported(modules()[module], deferred) if other.split(".")[0] == "gcab"}


def test_every_part_has_its_floor() -> None:
    parts = [part for floor in FLOORS for part in floor]
    assert len(parts) == len(set(parts))
    assert {part_of(module) for module in modules()} == set(parts)


@pytest.mark.parametrize("module", modules())
def test_imports_go_down(module: str) -> None:
    floor = {part: number for number, parts in enumerate(FLOORS) for part in parts}
    own = part_of(module)
    for other in own_imports(module, deferred=True):
        below = part_of(other)
        if below != own and module != "gcab":
            assert floor[below] < floor[own], f"{module} imports {other}, which is not below it"


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: own_imports(module) & modules().keys() for module in modules()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' -> '.join((*path, module))}"
        if module not in done:
            for other in graph[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_only_method_files_know_each_other_by_name() -> None:
    """What is true of one method only is asked of it, so that a new method needs no other edit."""
    general = {"method", "registry", "memory", "gradients"}
    parts = ("training", "evaluation", "config", "data", "model", "fast")
    several = [module for module in modules() if part_of(module) in parts]
    for module in (*several, "gcab.classifier.audit", "gcab.classifier.lesson"):
        imports_of = own_imports(module, deferred=True)
        named = {other.split(".")[2] for other in imports_of if other.startswith("gcab.methods.")}
        assert named <= general, f"{module} names a method"


def test_reading_runs_needs_no_torch() -> None:
    """Modules that need one another come first, so that whoever loads torch is the one that is named."""
    readers = [module for module in modules() if part_of(module) == "report"]
    for module in readers:
        loaded = imported(modules()[module], deferred=True)
        assert not [name for name in loaded if "torch" in name.split(".")], f"{module} imports torch"
    several = ["gcab", "gcab.cli.main", "gcab.cli.compare", "gcab.cli.report", "gcab.report.tables", *readers]
    program = f"import sys\nfor name in {several}:\n    __import__(name)\n    assert 'torch' not in sys.modules, name"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_compare_needs_no_torch() -> None:
    runs = PACKAGE.parent / "results" / "runs" / "digits"
    program = (
        "import sys; from gcab.cli.main import main; "
        f"code = main(['compare', {str(runs)!r}]); sys.exit(code or 'torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_model_is_loaded_without_a_compiler() -> None:
    """`torch._dynamo` would double the time that every command takes to start."""
    program = (
        "import sys, gcab.classifier.overview, gcab.classifier.prediction; sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
