"""The command line: parses, calls one function per verb, prints."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from gcab.cli import (
    audit,
    bench,
    compare,
    completion,
    demo,
    distill,
    evaluate,
    export,
    figure,
    forget,
    history,
    info,
    join,
    learn,
    listing,
    merge,
    predict,
    rename,
    report,
    search,
    serve,
    test,
    train,
    undo,
)
from gcab.cli.verbs import Call
from gcab.errors import GcabError, unknown
from gcab.parallel.launch import Launch, one_voice
from gcab.terminal import visible
from gcab.version import VERSION

PHOTOS = (learn, predict, test, info, history, audit, undo, rename, join, forget, merge, distill, export, serve, report)
RESEARCH = (demo, evaluate, compare, figure, bench, listing, completion)
RESUMABLE = ("demo", "distill", "figure", "learn", "search", "train")  # verbs that leave checkpoints
DESCRIPTION = """\
Teach a vision transformer new classes, again and again, without keeping a single old image.

  gcab learn birds.gcab photos/week1/         teach a model your own classes, a subfolder of photos for each
  gcab predict birds.gcab photo.jpg           ask it
  gcab serve birds.gcab                       ask it in a browser, correct it there, teach it more
  gcab demo                                   see it work in a minute, on data that is included
  gcab train cifar100/10 --data DIR           the paper's benchmark: 10 tasks of 10 classes
  gcab report MODEL|RUN...                    one HTML page with every figure
"""


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors."""

    def error(self, message: str) -> NoReturn:
        raise GcabError(f"{message} (see '{self.prog} --help').")

    def refuse(self, argument: str) -> NoReturn:
        """The error for an argument that no option takes."""
        if argument.startswith("-"):
            raise unknown("argument", argument, self._option_string_actions)
        self.error(f"there is no use for the argument '{argument}'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit codes: 0 done, 2 a problem the user can solve, 130 stopped by the user."""
    console, errors = Console(), Console(stderr=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with one_voice(Launch.from_environment()):
            verb, rest = make_parser(given).parse_known_args(given)
            if rest:
                verb.parser.refuse(rest[0].partition("=")[0])
            verb.command = shlex.join(["gcab", *given])
            return verb.call(verb, console) or 0
    except GcabError as error:
        errors.print(f"[red]gcab:[/] {escape(visible(str(error)))}", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        goes_on = "; the same command continues from the last checkpoint" if given[:1] and given[0] in RESUMABLE else ""
        errors.print(f"\ngcab: stopped{goes_on}.", highlight=False)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a disk or a folder that no part of gcab expected to fail
        errors.print(f"[red]gcab:[/] {escape(visible(str(error)))}", highlight=False, soft_wrap=True)
        return 2


def make_parser(given: Sequence[str]) -> Parser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="gcab", description=DESCRIPTION, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"gcab {VERSION}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def verb(name: str, call: Call, summary: str, epilog: str = "") -> Parser:
        added = verbs.add_parser(
            name, help=summary, description=summary, epilog=epilog, formatter_class=raw, allow_abbrev=False
        )
        added.set_defaults(call=call, parser=added, commands=parser)
        return added

    for module in (*PHOTOS, *RESEARCH):
        module.register(verb)
    train.register(verb, given)
    search.register(verb, given)
    if given[:1] and not given[0].startswith("-") and given[0] not in verbs.choices:
        raise unknown("command", given[0], verbs.choices)
    return parser
