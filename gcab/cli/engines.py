"""The arguments that choose where the runs of a command are executed: this machine, Ray or Slurm."""

import argparse
from typing import TYPE_CHECKING

from gcab.cli.verbs import positive, settings_of
from gcab.errors import GcabError, unknown

if TYPE_CHECKING:
    from gcab.fleet.engine import Engine

RAY, SLURM = "ray", "slurm"


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options for where runs are executed, and how many at a time."""
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="so many runs side by side (1; with --on: as many as there is room for)",
    )
    parser.add_argument(
        "--on", metavar="ENGINE", help="run on ray, ray://HOST:PORT or slurm, not on this machine alone"
    )
    parser.add_argument(
        "--gpu-share", type=float, metavar="X", help="of a GPU for each run on Ray, such as 0.33 (1 where it has GPUs)"
    )
    parser.add_argument(
        "--slurm", action="append", default=[], metavar="KEY=VALUE", help="an option of sbatch, such as partition=gpu"
    )
    parser.add_argument("--tries", type=positive, default=3, metavar="N", help="how often to start a lost run (3)")


def check_engine(verb: argparse.Namespace) -> None:
    """Refuse arguments that do not go together."""
    if verb.at_once is not None and verb.at_once < 1:
        raise GcabError(f"--at-once is {verb.at_once}: give 1 or more.")
    kind = (verb.on or "").partition("://")[0]
    if verb.on is not None and (kind not in (RAY, SLURM) or verb.on.startswith("slurm://")):
        raise unknown("engine", verb.on, (RAY, SLURM))
    if verb.gpu_share is not None and kind != RAY:
        raise GcabError("--gpu-share is for --on ray: leave it out.")
    if verb.gpu_share is not None and not 0 <= verb.gpu_share <= 1:
        raise GcabError(f"--gpu-share is {verb.gpu_share:g}: give a share of a GPU from 0 to 1.")
    if verb.slurm and kind != SLURM:
        raise GcabError("--slurm is for --on slurm: leave it out.")


def elsewhere(verb: argparse.Namespace) -> bool:
    """Whether runs may be run side by side or on other machines."""
    return verb.on is not None or (verb.at_once or 1) > 1


def engine_of(verb: argparse.Namespace) -> "Engine":
    """The engine that the arguments name; nothing is connected or started."""
    from gcab.fleet.processes import Processes
    from gcab.fleet.ray_cluster import RayCluster
    from gcab.fleet.slurm import Slurm

    if verb.on is None:
        from gcab.parallel.devices import choose_device

        choose_device(verb.device)  # one that is not here is refused before anything is started
        return Processes(verb.at_once or 1)
    if verb.on == SLURM:
        return Slurm(verb.runs / "slurm", settings_of(verb.slurm, "--slurm", "partition=gpu"), verb.at_once)
    address = None if verb.on == RAY else verb.on
    return RayCluster(address, verb.at_once, verb.gpu_share, verb.device != "cpu")
