"""What a published figure says of where it comes from: commands that can be typed, and runs that are not theirs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gcab.config import to_dict
from gcab.paper.jobs import Job, plan
from gcab.paper.origin import origin
from gcab.paper.recipes import RECIPES
from gcab.paper.store import usual_name
from gcab.runs.folder import RunFolder

pytestmark = pytest.mark.repeats

OUT = Path("results/some")


def runs_of(jobs: Sequence[Job]) -> list[RunFolder]:
    """The runs that these jobs would make, as far as their settings."""
    return [RunFolder(job.path, {"config": json.loads(json.dumps(to_dict(job.config)))}) for job in jobs]


def said(name: str, runs: Sequence[RunFolder], out: Path = OUT) -> str:
    return origin(name, runs, [str(usual_name(run)) for run in runs], out)


def planned(name: str, *scenarios: str, **given: Any) -> list[RunFolder]:
    return runs_of(plan(RECIPES[name], Path("runs"), scenarios, **given))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipes_own_runs_need_no_option_but_the_data(name: str) -> None:
    assert said(name, planned(name)) == (
        f"From nothing: `gcab figure {name} --data DIR`. From its logs: `gcab figure {name} {OUT}`."
    )


def test_scenarios_schedules_and_seeds_are_told_where_they_are_not_the_recipes() -> None:
    digits = planned("hyperparameters", "digits/5", epochs=40)
    assert said("hyperparameters", digits).startswith(
        "From nothing: `gcab figure hyperparameters --scenario digits/5 --epochs 40`. From"
    )
    seeds = planned("main", "cifar100/5", seeds=(2, 3), epochs=100)
    assert said("main", seeds).startswith(
        "From nothing: `gcab figure main --data DIR --scenario cifar100/5 --epochs 100 --seeds 2,3`. From"
    )


def test_a_part_of_a_recipe_is_called_one() -> None:
    first, *others = planned("ablation", seeds=(1, 2))
    assert "`gcab figure ablation --data DIR`, 1 of whose 10 runs is here. From" in said("ablation", [first])
    assert "--seeds 1,2`, 19 of whose 20 runs are here. From" in said("ablation", others)


def test_runs_that_the_recipe_does_not_make_are_named() -> None:
    official, joint = planned("main", "cifar100/10")[1], planned("ablation", epochs=500)[-1]
    assert (
        "`gcab figure main --data DIR --scenario cifar100/10`, 1 of whose 3 runs is here. "
        f"With other settings, by commands of their own below: {usual_name(joint)}. From"
    ) in said("main", [official, joint])
    assert "none of whose 3 runs is here" in said("main", [joint])


def test_runs_of_two_schedules_get_the_command_of_most() -> None:
    few, full = planned("capacity", epochs=7), planned("capacity")
    assert said("capacity", [few[0], *full]).startswith(
        f"From nothing: `gcab figure capacity --data DIR`. With other settings, by commands of their "
        f"own below: {usual_name(few[0])}."
    )


def test_a_setting_that_came_later_makes_no_other_run_but_another_value_does() -> None:
    runs = planned("capacity")
    del runs[0].config["options"]["statistics_meet"]
    assert "With other settings" not in said("capacity", runs)
    runs[0].config["options"]["statistics_weight"] = 0.2
    assert (
        f"1 of whose 2 runs is here. With other settings, by commands of their own below: {usual_name(runs[0])}."
        in said("capacity", runs)
    )


def test_no_folder_of_a_machine_is_told() -> None:
    runs = planned("capacity")
    assert said("capacity", runs, Path("/somebody/home/my figure")).endswith("`gcab figure capacity 'my figure'`.")
