"""The command line of: search."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from gcab.cli.engines import add_engine, check_engine, engine_of
from gcab.cli.train import add_settings, changes_of
from gcab.cli.verbs import AddVerb, add_run_options, positive, say
from gcab.errors import GcabError

if TYPE_CHECKING:
    from gcab.search.trials import Search, Trial

EPILOG = """\
The first trial is the default, the others are spread over the ranges that the method declares. All are tested on
training images that are held out, never on the test images. The same command again continues what was stopped; a larger
--trials adds to it. Settings given as flags are those of every trial, and are not searched.

examples:
  gcab search derpp digits/5 --trials 6                       on data that is included
  gcab search gcab cifar100/10 --data DIR --training.epochs 20 --at-once 3
  gcab search er cifar100/10 --data DIR --on ray --gpu-share 0.33
"""


def register(verb: AddVerb, given: Sequence[str]) -> None:
    """Add this verb; its settings only where it is asked for, as those of `train`."""
    search = verb("search", search_verb, "choose settings of a method on held-out training images", EPILOG)
    if given[:1] == ["search"]:
        add_arguments(search, given)


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    from gcab.methods.registry import methods
    from gcab.profiles import DEFAULT_PROFILE

    parser.usage = "gcab search METHOD SCENARIO [options]"  # argparse would list every setting
    parser.add_argument("method", metavar="METHOD", help="see: gcab list methods")
    parser.add_argument("scenario", metavar="SCENARIO", help="such as cifar100/10 (see: gcab list scenarios)")
    parser.add_argument("--trials", type=positive, default=6, metavar="N", help="the same for all that is compared (6)")
    add_run_options(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of all trials"
    )
    add_engine(parser)
    method = next((word for word in given if word in methods()), "")
    early = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    early.add_argument("--profile", default=DEFAULT_PROFILE)
    add_settings(parser, method, early.parse_known_args(given)[0].profile)


def search_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.runs.lock import RunLock
    from gcab.search.results import best_of, finished_trials, flags_of, results_table
    from gcab.search.trials import plan_search

    check_engine(verb)
    search = plan_search(verb.runs, verb.scenario, verb.method, verb.profile, verb.seed, changes_of(verb))
    trials = search.trials(verb.trials)
    if len(trials) < verb.trials:
        say(console, f"There are {len(trials)} different trials only.")
    with RunLock(search.folder):
        done = finished_trials(search)
        failure: GcabError | None = None
        try:
            run_trials(verb, search, [trial for trial in trials if trial.number not in done], console)
        except GcabError as error:  # told after what the others came to
            failure = error
        results = [result for number, result in finished_trials(search).items() if number <= verb.trials]
    best = best_of(results)
    if results:
        console.print(results_table(search, results))
        say(console, f"Folder: {search.folder}")
    if failure:
        raise failure
    if best is None:
        raise GcabError("the loss of every trial became infinite: try a lower --training.lr.")
    say(console, f"Best: trial {best['trial']}. Flags for gcab train:", flags_of(best["settings"]))


def run_trials(verb: argparse.Namespace, search: "Search", trials: "list[Trial]", console: Console) -> None:
    """Run the missing trials, each recorded as it ends."""
    from dataclasses import replace

    from gcab.fleet.dispatch import Work, run_all
    from gcab.search.results import record_trial
    from gcab.search.trials import run_trial

    def finished(trial: "Trial", diverged: str) -> str:
        record = record_trial(search, trial, diverged)
        return diverged or f"ACC_TAG {record['acc_tag']:.2f} %  ACC_TAW {record['acc_taw']:.2f} %"

    works, root = [], verb.data and verb.data.resolve()
    for trial in trials:
        name, there = f"trial {trial.number}", replace(trial, path=trial.path.resolve())
        call = partial(run_trial, there, f"{verb.method} {name}", root, verb.device, verb.command)
        works.append(Work(name, call, partial(finished, there)))
    run_all(works, engine_of(verb), console, verb.tries)
