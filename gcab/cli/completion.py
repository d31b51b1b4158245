"""The command line of: completion; the shells' completions are generated from the parser itself."""

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console

from gcab.cli.verbs import AddVerb

EPILOG = """\
install:
  bash   gcab completion bash > ~/.local/share/bash-completion/completions/gcab
  zsh    gcab completion zsh > ~/.zfunc/_gcab         with ~/.zfunc in fpath, before compinit
  fish   gcab completion fish > ~/.config/fish/completions/gcab.fish
"""


@dataclass(frozen=True)
class Verb:
    """What can follow a verb: options with their choices, and choices of its own."""

    summary: str
    options: Mapping[str, tuple[str, ...]]
    choices: tuple[str, ...]


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    parser = verb("completion", completion_verb, "print what bash, zsh or fish need to complete commands", EPILOG)
    parser.add_argument("shell", choices=tuple(SHELLS))


def completion_verb(verb: argparse.Namespace, console: Console) -> None:
    console.file.write(SHELLS[verb.shell](verbs_of(verb.commands)))


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, Verb]:
    """Every verb of a parser with subparsers."""
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {action.dest: action.help or "" for action in subparsers._choices_actions}
    verbs = {}
    for name, added in subparsers.choices.items():
        options = {option: _choices(action) for action in added._actions for option in action.option_strings}
        own = tuple(word for action in added._actions if not action.option_strings for word in _choices(action))
        verbs[name] = Verb(summaries.get(name, ""), options, own)
    return verbs


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(str(choice) for choice in action.choices or ())


def bash(verbs: Mapping[str, Verb]) -> str:
    return f"""\
_gcab() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words={shlex.quote(" ".join(verbs))}
  else
    case "${{COMP_WORDS[1]}} $previous" in
{_cases(verbs, "words=")}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gcab gcab
"""


def zsh(verbs: Mapping[str, Verb]) -> str:
    return f"""\
#compdef gcab
_gcab() {{
  local found=
  if (( CURRENT == 2 )); then
    found={shlex.quote(" ".join(verbs))}
  else
    case "$words[2] $words[CURRENT-1]" in
{_cases(verbs, "found=")}
    esac
  fi
  compadd -- ${{=found}}
  (( CURRENT == 2 )) || _files
}}
compdef _gcab gcab
"""


def _cases(verbs: Mapping[str, Verb], assign: str) -> str:
    """Choices after an option that has some, else the options and choices of the verb."""
    lines = []
    for name, verb in verbs.items():
        for option, choices in verb.options.items():
            if choices:
                lines.append(f'    "{name} {option}") {assign}{shlex.quote(" ".join(choices))} ;;')
        lines.append(f'    "{name} "*) {assign}{shlex.quote(" ".join((*verb.choices, *verb.options)))} ;;')
    return "\n".join(lines)


def fish(verbs: Mapping[str, Verb]) -> str:
    lines = []
    for name, verb in verbs.items():
        lines.append(f"complete -c gcab -n __fish_use_subcommand -f -a {name} -d {shlex.quote(verb.summary)}")
        here = f"complete -c gcab -n '__fish_seen_subcommand_from {name}'"
        if verb.choices:
            lines.append(f"{here} -f -a {shlex.quote(' '.join(verb.choices))}")
        for option, choices in verb.options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"{here} {flag}" + (f" -x -a {shlex.quote(' '.join(choices))}" if choices else ""))
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[Mapping[str, Verb]], str]] = {"bash": bash, "fish": fish, "zsh": zsh}
