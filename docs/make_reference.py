"""Writes the tables of docs/reference.md from the code, between their markers; a test compares the two.

python docs/make_reference.py
"""

import argparse
import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gcab.cli.main import make_parser
from gcab.config import SCENARIO_KEYS, RunConfig, describe_type, scenario_preset
from gcab.data.registry import DATASETS, SCENARIOS
from gcab.methods.method import Method
from gcab.methods.registry import methods
from gcab.profiles import DEFAULT_PROFILE, PROFILES

DOCUMENT = Path(__file__).parent / "reference.md"
SHARED = ("scenario", "encoder", "augment", "training")  # groups of settings that every method has
Row = tuple[str, ...]


def table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def typed(value: object) -> str:
    """A value as one would type it behind a flag."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def code(value: object) -> str:
    return f"`{typed(value)}`" if typed(value) else ""


def comments(kind: type[Any]) -> dict[str, str]:
    """The comment behind each field of a dataclass."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    fields = [item for item in definition.body if isinstance(item, ast.AnnAssign)]
    return {
        field.target.id: " ".join(
            text.lstrip("# ") for line, text in found if field.lineno <= line <= (field.end_lineno or field.lineno)
        )
        for field in fields
        if isinstance(field.target, ast.Name)
    }


def settings(config: Any, prefix: str, inherited: frozenset[str] = frozenset()) -> Iterator[Row]:
    """Key, values, default and comment of every setting; groups within are listed in their place."""
    hints = get_type_hints(type(config))
    said: dict[str, str] = {}
    for kind in reversed(type(config).__mro__):
        if dataclasses.is_dataclass(kind):
            said |= comments(kind)
    for item in dataclasses.fields(config):
        value, kind, key = getattr(config, item.name), hints[item.name], f"{prefix}.{item.name}"
        if item.name in inherited or key in SCENARIO_KEYS:
            continue
        if dataclasses.is_dataclass(value):
            yield from settings(value, key)
        else:
            values = get_args(kind) if get_origin(kind) is Literal else ()
            described = ", ".join(map(code, values)) or describe_type(kind)
            yield code(key), described, code(value), said[item.name]


SETTINGS: Row = ("setting", "values", "default", "")


def shared_settings() -> str:
    config = RunConfig()
    return table(SETTINGS, (row for group in SHARED for row in settings(getattr(config, group), group)))


def method_table() -> str:
    return table(("method", ""), ((code(name), method.summary) for name, method in sorted(methods().items())))


def publications() -> str:
    """Of every method: what it keeps, whose it is, and what is not as they had it."""
    head = ("method", "stores between tasks, beside the network", "source", "differs from it")
    cards = {name: method.card for name, method in sorted(methods().items())}
    return table(head, ((code(name), card.stores, card.source, card.differs) for name, card in cards.items()))


def changed(profile: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` {typed(value)}" for key, value in profile.items())


def method_settings(name: str, method: type[Method]) -> str:
    """What is its own: settings of the class it extends are listed with that one."""
    kind = method.Options
    parents = [(other, entry.Options) for other, entry in methods().items() if entry.Options in kind.__mro__[1:]]
    inherited = frozenset(item.name for _, parent in parents for item in dataclasses.fields(parent))
    rows = list(settings(kind(), "options", inherited))
    parts = [f"### Settings of {code(name)}"]
    if parents:
        parts.append(f"Those of {', '.join(code(other) for other, _ in parents)}, and:")
    parts.append(table(SETTINGS, rows) if rows else "None of its own.")
    lines = [f"- `gcab search` tries {searched(method)}."] if method.search_space else []
    for profile, values in method.profiles.items():
        known = {key for other, _ in parents for key in methods()[other].profiles.get(profile, {})}
        if own := {key: value for key, value in values.items() if key not in known}:
            lines.append(f"- Profile {code(profile)} sets {changed(own)}.")
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def searched(method: type[Method]) -> str:
    return ", ".join(f"{code(key)} {values}" for key, values in method.search_space.items())


def every_methods_settings() -> str:
    return "\n\n".join(method_settings(name, method) for name, method in sorted(methods().items()))


def profiles() -> str:
    rows = ((code(name), changed(values) or "nothing") for name, values in PROFILES.items())
    return table(("profile", "sets, for every method"), rows) + f"\n\nThe default is {code(DEFAULT_PROFILE)}."


def data_sets() -> str:
    def row(name: str) -> Row:
        entry = DATASETS[name]
        named = ", ".join(code(scenario) for scenario in SCENARIOS if scenario.startswith(f"{name}/"))
        order = scenario_preset(f"{name}/1").get("scenario.order", RunConfig().scenario.order)
        preset = changed({key: value for key, value in entry.preset.items() if key != "scenario.order"})
        return code(name), entry.summary, named or code(f"{name}/N"), f"{entry.size}", order, preset

    head = ("data set", "", "scenarios", "pixels", "class order", "other settings of its own")
    return table(head, map(row, DATASETS))


def argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Row:
    """Its name with what it takes, and its help."""
    takes = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else None)
    if takes is None and action.nargs != 0:
        takes = action.dest.upper()
    name = " ".join([", ".join(action.option_strings), *([str(takes)] if takes else [])]).strip()
    meaning = parser._get_formatter()._expand_help(action) if action.help else ""
    return code(name), re.sub(r"[<*_]", lambda match: chr(92) + match[0], meaning)


def sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def verbs() -> str:
    parts = []
    for name, verb in sorted(every_verb().items()):
        arguments = [argument(verb, action) for action in verb._actions if shown(action)]
        parts += [f"### gcab {name}", sentence(verb.description or name), table(("argument", ""), arguments)]
        if verb.epilog:
            parts.append(f"```\n{verb.epilog.strip()}\n```")
    return "\n\n".join(parts)


def every_verb() -> dict[str, argparse.ArgumentParser]:
    """Every verb's parser; only the one that is asked for has all arguments."""
    [group] = [action for action in make_parser([])._actions if isinstance(action.choices, dict)]
    found = {}
    for name in group.choices or ():
        [full] = [action for action in make_parser([name])._actions if isinstance(action.choices, dict)]
        assert isinstance(full.choices, dict)
        found[name] = full.choices[name]
    return found


def shown(action: argparse.Action) -> bool:
    """Settings have tables of their own."""
    return action.dest != "help" and "." not in action.dest


PARTS: Mapping[str, Callable[[], str]] = {
    "verbs": verbs,
    "methods": method_table,
    "publications": publications,
    "data sets": data_sets,
    "settings": shared_settings,
    "settings of methods": every_methods_settings,
    "profiles": profiles,
}


def written(text: str) -> str:
    """The document with all its generated parts made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- made by make_reference.py: {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        assert all((found, closed)), f"no place for: {name}"
        text = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
