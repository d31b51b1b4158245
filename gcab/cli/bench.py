"""The command line of: bench."""

import argparse

from rich.console import Console

from gcab.cli.verbs import AddVerb, new_file
from gcab.errors import GcabError

EPILOG = """\
examples:
  gcab bench --quick                                 does it run here
  gcab bench --only training --json training.json
  gcab bench --methods all --json methods.json       a step of every method, in the last of ten tasks
"""
NOT_OF_METHODS = ("only", "tasks", "batches", "compile")


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    about = "measure speed, reference against fast: training step, inference, operations"
    bench = verb("bench", bench_verb, about, EPILOG)
    bench.add_argument("--profile", default="extended", help="extended, official or paper (extended)")
    bench.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    bench.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto", help="(auto)")
    bench.add_argument("--only", choices=("training", "inference"), help="leave the other out")
    bench.add_argument(
        "--methods", type=names, metavar="NAME,...", default=(), help="instead: a step of each of these methods, or all"
    )
    bench.add_argument("--tasks", type=numbers, metavar="T,...", help="numbers of tasks learned before inference")
    bench.add_argument("--batches", type=numbers, metavar="B,...", help="images classified at once")
    bench.add_argument("--compile", action="store_true", help="also compile inference (GPU; seconds for each size)")
    bench.add_argument("--quick", action="store_true", help="a tiny network and few repetitions: seconds on a CPU")
    bench.add_argument("--json", type=new_file, metavar="FILE", help="write all figures to this file")


def bench_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.bench.command import run_bench
    from gcab.bench.workload import make_workload
    from gcab.parallel.devices import choose_device

    if verb.methods and (other := next((name for name in NOT_OF_METHODS if getattr(verb, name)), "")):
        raise GcabError(
            f"--{other} does not go with --methods, which times training steps only: leave one of them out."
        )
    device = choose_device(verb.device)
    work = make_workload(
        verb.profile,
        device,
        verb.precision,
        verb.only,
        verb.quick,
        verb.tasks,
        verb.batches,
        verb.compile,
        verb.methods,
    )
    run_bench(work, verb.json, console, verb.command)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between, at least one."""
    if not (found := tuple(filter(None, map(str.strip, text.split(","))))):
        raise argparse.ArgumentTypeError(f"'{text}' names no method: give some, such as er,derpp, or all")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Positive whole numbers with commas between."""
    if not all(part.isdecimal() and int(part) > 0 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not whole numbers with commas between, such as 1,10")
    return tuple(int(part) for part in text.split(","))
