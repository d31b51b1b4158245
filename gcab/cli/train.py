"""The command line of: train."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_run_options, settings_of
from gcab.parallel.launch import Launch

EPILOG = """\
The same command again continues a run that was stopped, and shows one that is finished.

Any setting can be changed, in two ways that mean the same:
  gcab train digits/5 --training.epochs 10
  gcab train digits/5 --set training.epochs=10

examples:
  gcab train digits/5                                         GCAB, 5 tasks of 2 digits, on a CPU
  gcab train cifar100/10 --data DIR --profile official        as the authors ran it
  gcab train digits/5 --options.compensation false            an ablation
  gcab train folder/3 --data photos/ --dry-run                your own images: what would happen
  gcab train cifar100/10 --data DIR --encoder dinov2-small/   on frozen features of a pretrained encoder
  torchrun --nproc-per-node=8 -m gcab train cifar100/10 --data DIR    the same run on 8 GPUs
"""


def register(verb: AddVerb, given: Sequence[str]) -> None:
    """Add this verb; its settings only where it is asked for, as they need torch, which takes a second to load."""
    train = verb("train", train_verb, "train a method on a scenario, task after task", EPILOG)
    if given[:1] == ["train"]:
        add_arguments(train, given)


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """The main options, and one flag for every setting of the chosen method."""
    from gcab.profiles import DEFAULT_PROFILE

    parser.usage = "gcab train SCENARIO [options]"  # argparse would list every setting
    parser.add_argument("scenario", metavar="SCENARIO", help="such as cifar100/10 (see: gcab list scenarios)")
    early = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    early.add_argument("--method")
    early.add_argument("--encoder")
    early.add_argument("--profile", default=DEFAULT_PROFILE)
    chosen = early.parse_known_args(given)[0]
    method = chosen.method or ("gcab" if chosen.encoder is None else "frozen")
    parser.add_argument("--method", default=method, help="see: gcab list methods (gcab; frozen with --encoder)")
    parser.add_argument(
        "--encoder", metavar="NAME|FOLDER|FILE", help="a pretrained encoder, which stays as it is (docs/pretrained.md)"
    )
    add_run_options(parser)
    parser.add_argument("--run", type=Path, metavar="DIR", help="this run's folder, instead of one chosen below --runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    parser.add_argument("--dry-run", action="store_true", help="show settings, tasks and cost; train nothing")
    add_settings(parser, method, chosen.profile)


def add_settings(parser: argparse.ArgumentParser, method: str, profile: str) -> None:
    """One flag for every setting of a method."""
    from gcab.config import SCENARIO_KEYS, RunConfig, describe_type, leaves, override
    from gcab.methods.registry import methods
    from gcab.profiles import PROFILES

    settings = parser.add_argument_group("settings (of the method and profile chosen; a scenario may have others)")
    config = RunConfig()
    if kind := methods().get(method):
        config = override(
            RunConfig(options=kind.Options()), {**PROFILES.get(profile, {}), **kind.profiles.get(profile, {})}
        )
    for key, values, value in leaves(config):
        if "." in key and key not in SCENARIO_KEYS:
            settings.add_argument(f"--{key}", metavar="X", help=escape_percent(f"{describe_type(values)} ({value})"))


def escape_percent(text: str) -> str:
    return text.replace("%", "%%")


def changes_of(verb: argparse.Namespace) -> dict[str, str]:
    """Settings changed by flags and by --set; the later --set wins."""
    flags = {key: value for key, value in vars(verb).items() if "." in key and value is not None}
    if encoder := vars(verb).get("encoder"):  # which `search` does not take
        flags = {"encoder.kind": "pretrained", "encoder.weights": encoder, **flags}
    return {**flags, **settings_of(verb.set)}


def train_verb(verb: argparse.Namespace, console: Console) -> None:
    from gcab.config import resolve
    from gcab.data.cache import watched
    from gcab.parallel.devices import choose_device
    from gcab.parallel.ranks import one_goes_ahead
    from gcab.report.tables import accuracy_table
    from gcab.runs.folder import RunFolder
    from gcab.runs.run import load_data, run_path, train_run
    from gcab.terminal import RunDisplay, WorkDisplay
    from gcab.training.distributed import process_group

    launch = Launch.from_environment()
    console.quiet = not launch.is_first
    config = resolve(verb.scenario, verb.method, verb.profile, verb.seed, changes_of(verb))
    device = choose_device(verb.device, launch)
    if verb.dry_run:
        from gcab.cli.dry_run import show

        show(config, verb.data, device, console)
        return
    if caution := config.training.caution():
        console.print(caution, highlight=False)
    path = verb.run or run_path(verb.runs, config)
    with process_group(launch, device):
        with (
            one_goes_ahead(launch.local_rank == 0),
            WorkDisplay(console, "reading images") as bar,
            watched(lambda done, total: bar(done / total)),
        ):
            data = load_data(config, verb.data)
        with RunDisplay(console, config.method, config.epochs) as display:
            final = train_run(config, data, path, device, display, verb.command)
    if not launch.is_first:
        return
    console.print(accuracy_table([RunFolder.open(path)]))
    console.print(
        f"ACC_TAG {final['acc_tag']:.2f} %  ACC_TAW {final['acc_taw']:.2f} %  ({final['seconds']:.0f} s)\nRun: {path}",
        highlight=False,
        soft_wrap=True,
    )
