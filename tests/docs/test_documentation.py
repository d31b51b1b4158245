"""The documents say what is so: every name, link, command, setting and example in them is tried."""

import ast
import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gcab.methods
from gcab.classifier.learner import ContinualClassifier
from gcab.cli.main import main, make_parser
from gcab.cli.train import changes_of
from gcab.config import RunConfig, leaves, override, resolve
from gcab.data.registry import DATASETS, SCENARIOS
from gcab.methods.registry import methods
from gcab.paper.recipes import RECIPES
from gcab.profiles import PROFILES
from gcab.runs.folder import find_runs
from gcab.serve.app import make_app
from gcab.serve.limits import Limits
from gcab.serve.metrics import Metrics
from gcab.serve.security import OPEN_PATHS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAPER_MAP = ROOT / "docs" / "paper-map.md"
ADD_A_METHOD = ROOT / "docs" / "add-a-method.md"
SERVING = ROOT / "docs" / "serving.md"
SHELL = re.compile(r" \|+ | > |; ")  # where the arguments of a command end
DOCUMENTS = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "results").rglob("*.md"))

# Every label of the paper's source, in its order.
PAPER_LABELS = (
    "fig:allscenarios",
    "fig:cleva",
    "fig:trasf",
    "eq:ViTblock",
    "fig:gating_proj",
    "eq:mask",
    "eq:SA",
    "eq:MLP",
    "fig:embedding_tag_red",
    "eq:loss_prj",
    "eq:projection",
    "fig:distill",
    "tab:200_cifar",
    "tab:200_tinyimagenet",
    "tab:ablation2",
    "tab:params",
    "fig:hyperparam",
    "fig:dis_res",
    "fig:compression",
    "tab:dis",
    "tab:500_cifar",
    "tab:500_tiny",
    "fig:embedding_tag",
)


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


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_function_and_test_that_is_named_exists(document: Path) -> None:
    assert missing_references(document) == []


def test_a_name_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "wrong.md"
    document.write_text(
        "`gcab/errors.py:unknown`, `gcab/errors.py:unknow`, `gcab/lost.py:unknown`, `tests/a.py::test_b`"
    )
    assert missing_references(document) == ["gcab/errors.py:unknow", "gcab/lost.py:unknown", "tests/a.py:test_b"]


def test_the_paper_map_names_functions_and_tests() -> None:
    named = references(PAPER_MAP)
    assert len([path for path, _ in named if path.startswith("gcab/")]) > 30
    assert len([path for path, _ in named if path.startswith("tests/")]) > 30


def test_the_paper_map_has_every_label_of_the_paper() -> None:
    assert [label for label in PAPER_LABELS if label not in code_spans(PAPER_MAP)] == []


def test_what_is_said_to_be_missing_is_missing() -> None:
    """When a method arrives, the README and the map have to say so."""
    [listed] = re.findall(r"methods of the paper's tables \(([^)]+)\)", text_of(README))
    missing = {name.strip() for name in listed.split(",")}
    assert {"GEM", "DyTox"} <= missing
    tables = text_of(PAPER_MAP).partition("## Tables")[2].partition("## Where")[0]
    last_column = [line.rstrip(" |").rpartition("|")[2] for line in tables.splitlines() if line.startswith("| `")]
    assert {name for cell in last_column for name in missing if name in cell} == missing
    for name in {*missing, *(word.strip() for cell in last_column for word in cell.split(","))}:
        assert name.lower() not in methods(), name


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", text_of(document)):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_path_of_a_machine_is_in_a_document(document: Path) -> None:
    assert not re.search(r"(?<![\w.:/<>*])/(home|root|tmp|work|mnt|data|Users)/", text_of(document))


def test_every_command_is_accepted(monkeypatch: pytest.MonkeyPatch, example_method: str) -> None:
    monkeypatch.chdir(ROOT)
    assert len(commands(README)) >= 10
    for document in RESULTS:
        assert document.parent == ROOT / "results" or len(commands(document)) >= 3, document
    for arguments in [arguments for document in [*DOCUMENTS, *RESULTS] for arguments in commands(document)]:
        verb, rest = make_parser(arguments).parse_known_args(arguments)
        assert not rest, arguments
        if arguments[0] == "train":
            resolve(verb.scenario, verb.method, verb.profile, verb.seed, changes_of(verb))
        if arguments[0] == "figure":
            assert verb.name in RECIPES
            assert [path for path in verb.given if path.parts[0] == "results" and not path.is_dir()] == []
    assert ["train", "digits/5", "--method", example_method, "--options.weight", "2"] in commands(ADD_A_METHOD)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(document: Path) -> None:
    known = {key for name in methods() for key, _, _ in leaves(resolve("digits/5", name))}
    named = re.findall(r"\b(?:scenario|encoder|training|augment|options)(?:\.[a-z_]+)+", " ".join(code_spans(document)))
    files = ("options.py", "scenario.py", "encoder.py", "augment.py")
    assert [key for key in named if key not in known and key not in files] == []


def test_every_flag_of_the_ablations_builds_a_configuration() -> None:
    section = text_of(README).partition("### Ablations")[2].partition("\n### ")[0]
    flags = [shlex.split(span) for span in re.findall(r"`(--[^`]+)`", section)]
    assert len(flags) >= 5
    for given in flags:
        arguments = ["train", "cifar100/10", *given]
        verb, rest = make_parser(arguments).parse_known_args(arguments)
        assert not rest
        resolve(verb.scenario, verb.method, "official", 1, changes_of(verb))


def test_the_table_of_profiles_is_what_the_program_does() -> None:
    section = text_of(PAPER_MAP).partition("## Where the profiles differ")[2]
    head, *rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line
    ]
    profiles = head[1:]
    assert set(profiles) == set(PROFILES)
    configs = [resolve("cifar100/10", "gcab", profile) for profile in profiles]
    values = {key: [value_of(config, key) for config in configs] for key, _, _ in leaves(configs[0])}
    shown = {key: cells for key, *cells in rows[1:]}
    differing = {key for key, settings in values.items() if len(set(map(str, settings))) > 1 and key != "profile"}
    assert shown.keys() == differing
    for key, cells in shown.items():
        for config, cell, value in zip(configs, cells, values[key], strict=True):
            assert value_of(override(config, {key: cell}), key) == value, key


def value_of(config: RunConfig, key: str) -> object:
    return next(value for name, _, value in leaves(config) if name == key)


def test_the_readme_names_both_make_targets() -> None:
    makefile = text_of(ROOT / "Makefile")
    for target in ("demo", "test"):
        assert f"make {target}" in "\n".join(code_blocks(README, "bash"))
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_readme_names_every_method_profile_data_set_scenario_and_verb() -> None:
    spans = set(code_spans(README))
    assert spans >= {*methods(), *PROFILES, *DATASETS, *SCENARIOS, "folder/N"}
    shown = {arguments[0] for arguments in commands(README)} | {"demo"}
    actions = make_parser([])._actions
    assert shown == {verb for action in actions if isinstance(action.choices, dict) for verb in action.choices}


def test_the_limits_of_the_server_are_those_of_the_document() -> None:
    section = text_of(SERVING).partition("## Limits")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|[^|]+\| ([\d,]+)[^|]*\| `(--[\w-]+)`", section, re.MULTILINE)
    shown = {flag: int(value.replace(",", "")) for value, flag in rows}
    defaults = vars(make_parser([]).parse_args(["serve", "birds.gcab"]))
    flags = {f"--{name.replace('_', '-')}" for name in defaults if name.startswith("max_")} | {"--queue", "--batch"}
    assert shown.keys() == flags
    assert shown == {flag: defaults[flag.strip("-").replace("-", "_")] for flag in flags}
    usual = Limits()
    for value in (usual.zip_files, usual.connections, usual.name_characters, usual.scans, usual.zip_ratio):
        assert f"{value:,}" in section
    for seconds in (usual.header_seconds, usual.body_seconds, usual.answer_seconds):
        assert f"{seconds:.0f} s" in section


def test_every_metric_endpoint_and_flag_of_the_server_is_documented() -> None:
    document, spans = text_of(SERVING), set(code_spans(SERVING))
    for name in re.findall(r"^# TYPE (\S+)", Metrics().text(0, 0), re.MULTILINE):
        assert any(re.match(rf"{name}\b", span) for span in spans), name
    source = text_of(Path(inspect.getfile(make_app)))
    endpoints = re.findall(r"@api\.(get|post)\(\s*\"(/\w+)\"", source)
    assert len(endpoints) >= 7
    for method, path in endpoints:
        assert any(span.startswith(f"{method.upper()} {path}") for span in spans), path
    for path in OPEN_PATHS - {"/favicon.ico"}:
        assert f"GET {path}" in spans
    for flag in make_parser([])._subparsers._group_actions[0].choices["serve"]._option_string_actions:  # type: ignore
        assert flag in ("-h", "--help", "--token") or flag in document, flag


def test_the_readme_shows_every_folder_of_the_package() -> None:
    [tree] = [block for block in code_blocks(README, "") if block.startswith("gcab/")]
    listed = re.findall(r"\b(\w+(?:\.py|/))", tree.partition("\n")[2])
    package = ROOT / "gcab"
    private = {"__init__.py", "__main__.py", "version.py", "errors.py"}
    present = {path.name for path in package.glob("*.py")} - private
    present |= {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    assert {name for name in listed if (package / name).exists()} == set(listed) - {"method.py"}
    assert present <= set(listed)


def test_the_python_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = code_blocks(README, "python")
    assert "epochs=40" in example
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example.replace("epochs=40", "epochs=1"), "README.md", "exec"), names)
    model = names["model"]
    assert isinstance(model, ContinualClassifier)
    assert model.classes == [0, 1, 2, 3, 4, 5]
    assert (tmp_path / "digits-model" / "model.json").is_file()


@pytest.fixture
def example_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The documented method, in a file of its own that the registry finds as if it lay in the package's folder."""
    [example] = code_blocks(ADD_A_METHOD, "python")
    assert len(example.splitlines()) < 62
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "old_answers.py").write_text(example, encoding="utf-8")
    monkeypatch.setattr(gcab.methods, "__path__", [*gcab.methods.__path__, str(folder)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield "old-answers"
    sys.modules.pop("gcab.methods.old_answers", None)
    vars(gcab.methods).pop("old_answers", None)


def test_the_example_method_is_trained_by_the_command_line(
    tmp_path: Path, example_method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "OldAnswers" in {kind.__name__ for kind in methods().values()}
    runs = tmp_path / "runs"
    for weight in (0, 10):
        arguments = ["train", "digits/2", "--method", example_method, "--runs", str(runs), "--device", "cpu"]
        arguments += ["--options.weight", str(weight), "--training.epochs", "3", "--training.warmup_epochs", "0"]
        arguments += ["--encoder.width", "32", "--encoder.blocks", "1"]
        assert main(arguments) == 0
    without, with_distillation = sorted(find_runs([runs]), key=lambda run: run.config["options"]["weight"])
    for run in (without, with_distillation):
        terms = {record["task"]: set(record["losses"]) for record in run.records("epoch")}
        assert terms == {1: {"classification"}, 2: {"classification", "distillation"}}
    kept = [run.records("task")[-1]["taw"][0] for run in (without, with_distillation)]
    learned = with_distillation.records("task")[0]["taw"][0]
    assert learned > 40  # of five digits: chance is 20
    assert kept[1] > kept[0] + 5, "distillation protects nothing"
    description = json.loads((with_distillation.model / "model.json").read_text())
    assert description["config"]["method"] == example_method
    assert main(["evaluate", str(with_distillation.path), "--device", "cpu"]) == 0
    assert "acc_tag" in capsys.readouterr().out
