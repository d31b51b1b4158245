"""The command line: parses, calls one function per verb, prints."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from gcab.commands import distill, evaluate, export, figure, forget, learn, predict, serve
from gcab.commands.verbs import Call, settings_of
from gcab.errors import GcabError, unknown
from gcab.launch import Launch, one_voice
from gcab.version import VERSION

RESUMABLE = ("demo", "figure", "learn", "train")  # verbs that leave checkpoints
DESCRIPTION = """\
Teach a vision transformer new classes, again and again, without keeping a single old image.

  gcab demo                                   see it work in a minute, on data that is included
  gcab train cifar100/10 --data DIR           the paper's benchmark: 10 tasks of 10 classes
  gcab report RUN...                          one HTML page with every figure
"""

TRAIN_EPILOG = """\
The same command again continues a run that was stopped, and shows one that is finished.

Any setting can be changed, in two ways that mean the same:
  gcab train digits/5 --training.epochs 10
  gcab train digits/5 --set training.epochs=10

examples:
  gcab train digits/5                                         GCAB, 5 tasks of 2 digits, on a CPU
  gcab train cifar100/10 --data DIR --profile official        as the authors ran it
  gcab train digits/5 --options.compensation false            an ablation
  gcab train folder/3 --data photos/ --dry-run                your own images: what would happen
  torchrun --nproc-per-node=8 -m gcab train cifar100/10 --data DIR    the same run on 8 GPUs
"""


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors."""

    def error(self, message: str) -> NoReturn:
        raise GcabError(f"{message} (see '{self.prog} --help').")

    def refuse(self, argument: str) -> NoReturn:
        """For an argument that no option takes."""
        if argument.startswith("-"):
            raise unknown("argument", argument, self._option_string_actions)
        self.error(f"there is no use for the argument '{argument}'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 a problem the person can solve, 130 stopped by the person."""
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
        errors.print(f"[red]gcab:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        goes_on = "; the same command continues from the last checkpoint" if given[:1] and given[0] in RESUMABLE else ""
        errors.print(f"\ngcab: stopped{goes_on}.", highlight=False)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a disk or a folder that no part of gcab expected to fail
        errors.print(f"[red]gcab:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
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
        added.set_defaults(call=call, parser=added)
        return added

    demo = verb("demo", demo_verb, "train GCAB and its baselines on handwritten digits and compare (about a minute)")
    demo.add_argument("--seed", type=int, default=1)
    demo.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")

    train = verb("train", train_verb, "train a method on a scenario, task after task", TRAIN_EPILOG)
    if given[:1] == ["train"]:  # its settings need torch, which takes a second to load
        add_train_arguments(train, given)

    evaluate.register(verb)

    report = verb("report", report_verb, "write one self-contained HTML page (and PNG, SVG figures) about runs")
    report.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of runs")
    report.add_argument("--out", type=Path, metavar="FILE", help="the page (report.html in the run, or here)")

    compare = verb("compare", compare_verb, "rank runs in a table: mean and deviation over seeds")
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders of runs")

    bench = verb("bench", bench_verb, "measure speed, reference against fast: training step, inference, operations")
    bench.add_argument("--profile", default="extended", help="extended, official or paper (extended)")
    bench.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")
    bench.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto", help="(auto)")
    bench.add_argument("--only", choices=("training", "inference"), help="leave the other out")
    bench.add_argument("--tasks", type=numbers, metavar="T,...", help="numbers of tasks learned before inference")
    bench.add_argument("--batches", type=numbers, metavar="B,...", help="images classified at once")
    bench.add_argument("--compile", action="store_true", help="also compile inference (GPU; seconds for each size)")
    bench.add_argument("--quick", action="store_true", help="a tiny network and few repetitions: seconds on a CPU")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")

    listing = verb("list", list_verb, "list what is there: methods, scenarios or data sets")
    listing.add_argument("what", choices=("methods", "scenarios", "datasets"))

    for product in (learn, predict, forget, distill, export, serve, figure):
        product.register(verb)
    if given[:1] and not given[0].startswith("-") and given[0] not in verbs.choices:
        raise unknown("command", given[0], verbs.choices)
    return parser


def add_train_arguments(parser: Parser, given: Sequence[str]) -> None:
    """The main options, and one flag for every setting of the chosen method."""
    from gcab.config import DEFAULT_PROFILE, PROFILES, SCENARIO_KEYS, RunConfig, describe_type, leaves, override
    from gcab.methods.registry import methods

    parser.usage = "gcab train SCENARIO [options]"  # argparse would list every setting
    parser.add_argument("scenario", metavar="SCENARIO", help="such as cifar100/10 (see: gcab list scenarios)")
    parser.add_argument("--method", default="gcab", help="see: gcab list methods (gcab)")
    parser.add_argument("--profile", default=DEFAULT_PROFILE, help=f"{', '.join(PROFILES)} ({DEFAULT_PROFILE})")
    parser.add_argument("--seed", type=int, default=1, help="decides every random choice (1)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of the data set (not for digits)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")
    parser.add_argument("--run", type=Path, metavar="DIR", help="this run's folder, instead of one chosen below --runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    parser.add_argument("--dry-run", action="store_true", help="show settings, tasks and cost; train nothing")
    settings = parser.add_argument_group("settings (of the method and profile chosen; a scenario may have others)")
    early = Parser(prog=parser.prog, add_help=False, allow_abbrev=False)
    early.add_argument("--method", default="gcab")
    early.add_argument("--profile", default=DEFAULT_PROFILE)
    chosen = early.parse_known_args(given)[0]
    config = RunConfig()
    if method := methods().get(chosen.method):
        config = override(
            RunConfig(options=method.Options()),
            {**PROFILES.get(chosen.profile, {}), **method.profiles.get(chosen.profile, {})},
        )
    for key, kind, value in leaves(config):
        if "." in key and key not in SCENARIO_KEYS:
            settings.add_argument(f"--{key}", metavar="X", help=escape_percent(f"{describe_type(kind)} ({value})"))


def numbers(text: str) -> tuple[int, ...]:
    """Positive whole numbers with commas between."""
    if not all(part.isdecimal() and int(part) > 0 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not whole numbers with commas between, such as 1,10")
    return tuple(int(part) for part in text.split(","))


def escape_percent(text: str) -> str:
    return text.replace("%", "%%")


def changes_of(verb: argparse.Namespace) -> dict[str, str]:
    """Settings changed by flags and by --set; the later --set wins."""
    flags = {key: value for key, value in vars(verb).items() if "." in key and value is not None}
    return {**flags, **settings_of(verb.set)}


def train_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.config import resolve
    from gcab.devices import choose_device
    from gcab.experiment import load_data, run_experiment, run_path
    from gcab.ranks import one_goes_ahead
    from gcab.report.tables import accuracy_table
    from gcab.runs.folder import RunFolder
    from gcab.terminal import RunDisplay
    from gcab.training.distributed import process_group

    launch = Launch.from_environment()
    console.quiet = not launch.is_first
    config = resolve(verb.scenario, verb.method, verb.profile, verb.seed, changes_of(verb))
    device = choose_device(verb.device, launch)
    if verb.dry_run:
        from gcab.dry_run import show

        show(config, verb.data, device, console)
        return
    if caution := config.training.caution():
        console.print(caution, highlight=False)
    path = verb.run or run_path(verb.runs, config)
    with process_group(launch, device):
        with one_goes_ahead(launch.local_rank == 0):
            data = load_data(config, verb.data)
        with RunDisplay(console, config.method, config.epochs) as display:
            final = run_experiment(config, data, path, device, display, verb.command)
    if not launch.is_first:
        return
    console.print(accuracy_table([RunFolder.open(path)]))
    console.print(
        f"ACC_TAG {final['acc_tag']:.2f} %  ACC_TAW {final['acc_taw']:.2f} %  ({final['seconds']:.0f} s)\nRun: {path}",
        highlight=False,
        soft_wrap=True,
    )


def report_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.report.figures import save_figures
    from gcab.report.logs import read_runs
    from gcab.report.report import write_report

    runs = read_runs(verb.runs)
    page = verb.out or (runs[0].report if len(runs) == 1 else Path("report.html"))
    figures = runs[0].figures if len(runs) == 1 and verb.out is None else page.with_name(page.stem + "-figures")
    write_report(runs, page)
    saved = save_figures(runs, figures)
    console.print(f"{page}\n{len(saved)} figures in {figures}", highlight=False, soft_wrap=True)


def compare_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.report.logs import read_runs
    from gcab.report.tables import compare_table

    console.print(compare_table(read_runs(verb.runs)))


def bench_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.bench.command import run_bench
    from gcab.bench.workload import make_workload
    from gcab.devices import choose_device

    device = choose_device(verb.device)
    work = make_workload(
        verb.profile, device, verb.precision, verb.only, verb.quick, verb.tasks, verb.batches, verb.compile
    )
    run_bench(work, verb.json, console, verb.command)


def list_verb(verb: argparse.Namespace, console: Console) -> None:
    from rich.table import Table

    from gcab.config import SCENARIOS, scenario_preset
    from gcab.data.registry import DATASETS
    from gcab.methods.registry import methods

    if verb.what == "methods":
        rows = [(name, method.summary) for name, method in sorted(methods().items())]
    elif verb.what == "datasets":
        rows = [(entry.name, entry.summary) for entry in DATASETS.values()]
    else:
        presets = [(name, scenario_preset(name)) for name in SCENARIOS]
        rows = [
            (name, f"{preset['scenario.tasks']} tasks, images {preset['scenario.image_size']} pixels wide")
            for name, preset in presets
        ]
        rows.append(("folder/N", "your own images in N tasks (--data DIR)"))
    table = Table(box=None, show_header=False)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def demo_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.demo import run_demo

    run_demo(verb.runs, console, verb.seed)
