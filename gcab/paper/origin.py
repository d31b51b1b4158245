"""Where a published figure comes from, in words: what makes its runs from nothing, and what draws it again."""

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gcab.config import RunConfig, to_dict
from gcab.data.registry import dataset
from gcab.paper.evidence import epochs_of
from gcab.paper.jobs import Job, plan
from gcab.paper.recipes import RECIPES
from gcab.report.tables import flat_settings
from gcab.runs.folder import RunFolder


def origin(name: str, runs: Sequence[RunFolder], names: Sequence[str], out: Path) -> str:
    """The commands that make a figure from nothing and from its logs; runs that the recipe would not make are named."""
    command, jobs = recipe_command(name, runs)
    here = sum(any(is_of(run, job) for run in runs) for job in jobs)
    others = [own for run, own in zip(runs, names, strict=True) if not any(is_of(run, job) for job in jobs)]
    part = f", {here or 'none'} of whose {len(jobs)} runs {'is' if here < 2 else 'are'} here" * (here < len(jobs))
    besides = f"With other settings, by commands of their own below: {', '.join(others)}. " if others else ""
    folder = shlex.quote(out.name if out.is_absolute() else str(out))
    return f"From nothing: `{command}`{part}. {besides}From its logs: `gcab figure {name} {folder}`."


def recipe_command(name: str, runs: Sequence[RunFolder]) -> tuple[str, list[Job]]:
    """The recipe on these scenarios, seeds and, of the schedules of these runs, the one that most have; its jobs."""
    recipe, seeds = RECIPES[name], sorted({run.seed for run in runs})
    scenarios = list(dict.fromkeys(run.scenario for run in runs))
    if set(scenarios) == set(recipe.scenarios):
        scenarios = []
    plans = {
        epochs: plan(recipe, Path("runs"), scenarios, seeds, epochs)
        for epochs in (None, *sorted({epochs_of(run) for run in runs}))
    }
    epochs = max(plans, key=lambda epochs: sum(is_of(run, job) for run in runs for job in plans[epochs]))
    words = ["gcab", "figure", name]
    if any(dataset(job.config.scenario.dataset).needs_root for job in plans[epochs]):
        words += ["--data", "DIR"]
    if scenarios:
        words += ["--scenario", *scenarios]
    if epochs is not None:
        words += ["--epochs", str(epochs)]
    if seeds != [1]:
        words += ["--seeds", ",".join(map(str, seeds))]
    return shlex.join(words), plans[epochs]


def is_of(run: RunFolder, job: Job) -> bool:
    """Whether a job would make this run; earlier versions did not know all of today's settings."""
    if (run.seed, run.method) != (job.config.seed, job.config.method):
        return False
    wanted = settings_of(job.config)
    return all(wanted[key] == value for key, value in flat_settings(run.config) if key in wanted)


@cache
def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings of a configuration by dotted key, as in a run's config.json."""
    return dict(flat_settings(to_dict(config)))
