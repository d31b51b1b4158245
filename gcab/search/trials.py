"""The trials of a search: the default first, then settings spread evenly over the method's ranges."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from torch.quasirandom import SobolEngine

from gcab.config import Overrides, RunConfig, config_hash, leaves, override, resolve
from gcab.errors import GcabError
from gcab.methods.registry import method_named
from gcab.methods.space import Space
from gcab.parallel.devices import choose_device
from gcab.runs.run import load_data, run_path, train_run
from gcab.seeds import derived_seed
from gcab.terminal import RunDisplay
from gcab.training.trainer import DivergedError

VALIDATION = "scenario.validation"
SHARE = 0.1  # of the training images, held out to choose by
IN_VAIN = 100  # draws of settings that were tried before, after which there are hardly others


@dataclass(frozen=True)
class Trial:
    """One run of a search, and what it has changed."""

    number: int  # from 1, which is the default
    settings: dict[str, Any]
    config: RunConfig
    path: Path


@dataclass(frozen=True)
class Search:
    """What is searched: all settings that do not change, and ranges of those that do."""

    base: RunConfig
    ranges: Space
    folder: Path  # of its results and runs

    @property
    def key(self) -> str:
        """A key that tells searches of the same method and scenario apart."""
        return f"{self.base.seed}-{config_hash(self.base)}"

    def trials(self, count: int) -> list[Trial]:
        """The first `count` trials; more may be asked for later. Fewer where the ranges have no more values."""
        found: list[Trial] = []
        for settings in itertools.islice(self.proposals(), count):
            config: RunConfig = override(self.base, settings)
            config.check()
            path = self.folder / run_path(Path(), config).name
            found.append(Trial(len(found) + 1, settings, config, path))
        return found

    def proposals(self) -> Iterator[dict[str, Any]]:
        """Different settings, on a scrambled Sobol sequence: every prefix of it covers the ranges."""
        default = {key: value for key, _, value in leaves(self.base) if key in self.ranges}
        seen, vain = [default], 0
        yield default
        points = SobolEngine(len(self.ranges), scramble=True, seed=derived_seed(self.base.seed, "search"))
        while vain < IN_VAIN:
            [place] = points.draw(1).tolist()
            settings = {
                key: values.at(share, default[key])
                for (key, values), share in zip(self.ranges.items(), place, strict=True)
            }
            if settings in seen:
                vain += 1
                continue
            seen.append(settings)
            vain = 0
            yield settings


def plan_search(
    runs: Path, scenario: str, method: str, profile: str, seed: int, changes: Overrides | None = None
) -> Search:
    """A search on held-out training images; what `changes` set is not searched."""
    given = {VALIDATION: SHARE, **(changes or {})}
    base = resolve(scenario, method, profile, seed, given)
    if not base.scenario.validation > 0:
        raise GcabError(
            f"--{VALIDATION} is 0, so that the test images would choose: give the share of training images to hold out."
        )
    ranges = {key: values for key, values in method_named(method).search_space.items() if key not in given}
    if not ranges:
        declared = ", ".join(method_named(method).search_space)
        raise GcabError(
            f"nothing is left to search: {declared} of {method} are all given."
            if declared
            else f"the method {method} has no setting to search: it can be trained as it is."
        )
    return Search(base, ranges, runs / "search" / scenario / method)


def run_trial(trial: Trial, title: str, root: Path | None, device: str, command: str) -> str:
    """Run a trial; a diverged loss is a result, too, and is returned in words."""
    console, config = Console(force_terminal=False), trial.config
    try:
        with RunDisplay(console, title, config.epochs) as display:
            train_run(config, load_data(config, root), trial.path, choose_device(device), display, command)
    except DivergedError as error:
        return error.where
    return ""
