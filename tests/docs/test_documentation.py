"""The documents say what is so: every name, link, command, setting and example in them is tried."""

import inspect
import re
from pathlib import Path

import pytest
from helpers.documents import (
    ADD_A_METHOD,
    DOCUMENTS,
    PAPER_MAP,
    README,
    RESULTS,
    ROOT,
    SERVING,
    anchors,
    code_spans,
    commands,
    missing_files,
    missing_references,
    references,
    text_of,
)

from gcab.cli.main import make_parser
from gcab.cli.train import changes_of
from gcab.config import RunConfig, leaves, override, resolve
from gcab.methods.registry import methods
from gcab.paper.recipes import RECIPES
from gcab.profiles import PROFILES
from gcab.serve.app import make_app
from gcab.serve.limits import Limits
from gcab.serve.metrics import Metrics
from gcab.serve.security import OPEN_PATHS

pytestmark = pytest.mark.repeats

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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_function_file_and_test_that_is_named_exists(document: Path) -> None:
    assert missing_references(document) == []
    example = "gcab/methods/old_answers.py"  # which the document tells to write
    assert [file for file in missing_files(document) if (document, file) != (ADD_A_METHOD, example)] == []


def test_a_name_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "wrong.md"
    document.write_text(
        "`gcab/errors.py:unknown`, `gcab/errors.py:unknow`, `gcab/lost.py:unknown`, `tests/a.py::test_b`"
    )
    assert missing_references(document) == ["gcab/errors.py:unknow", "gcab/lost.py:unknown", "tests/a.py:test_b"]
    document.write_text("`gcab/errors.py`, `gcab/lost.py`, `docs/lost.png`")
    assert missing_files(document) == ["gcab/lost.py", "docs/lost.png"]


def test_the_paper_map_names_functions_and_tests() -> None:
    named = references(PAPER_MAP)
    assert len([path for path, _ in named if path.startswith("gcab/")]) > 30
    assert len([path for path, _ in named if path.startswith("tests/")]) > 30


def test_the_paper_map_has_every_label_of_the_paper() -> None:
    assert [label for label in PAPER_LABELS if label not in code_spans(PAPER_MAP)] == []


def test_what_is_said_to_be_missing_is_missing() -> None:
    """When a method arrives, the map has to say so."""
    tables = text_of(PAPER_MAP).partition("## Tables")[2].partition("## Where")[0]
    last_column = [line.rstrip(" |").rpartition("|")[2] for line in tables.splitlines() if line.startswith("| `")]
    assert len(last_column) > 10
    there = {name.replace("-", "") for name in methods()}
    for word in {word.strip() for cell in last_column for word in cell.split(",")}:
        assert word.lower().replace("++", "pp").replace("-", "") not in there, word


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", text_of(document)):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = re.findall(r"^ +- [^:]+: (\S+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE)
    assert len(menu) == len(set(menu))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(menu)


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_path_of_a_machine_is_in_a_document(document: Path) -> None:
    assert not re.search(r"(?<![\w.:/<>*])/(home|root|tmp|work|mnt|data|Users)/", text_of(document))


def test_every_command_is_accepted(monkeypatch: pytest.MonkeyPatch, example_method: str) -> None:
    monkeypatch.chdir(ROOT)
    assert len(commands(README)) >= 15
    for document in RESULTS:
        assert document.parent == ROOT / "results" or len(commands(document)) >= 3, document
    for arguments in [arguments for document in [*DOCUMENTS, *RESULTS] for arguments in commands(document)]:
        verb, rest = make_parser(arguments).parse_known_args(arguments)
        assert not rest, arguments
        if arguments[0] == "train" and verb.encoder is None:  # which would have to be there
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
