"""What a published figure says of where it comes from: commands that can be typed, and runs that are not theirs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gcab.config import to_dict
from gcab.paper.jobs import Job, plan
from gcab.paper.origin import origin, published_folder
from gcab.paper.recipes import RECIPES
from gcab.runs.folder import RunFolder

OUT = Path("results/some")


def runs_of(jobs: Sequence[Job]) -> list[RunFolder]:
    """The runs that these jobs would make, as far as their settings."""
    return [RunFolder(job.path, {"config": json.loads(json.dumps(to_dict(job.config)))}) for job in jobs]


def planned(name: str, *scenarios: str, **given: Any) -> list[RunFolder]:
    return runs_of(plan(RECIPES[name], Path("runs"), scenarios, **given))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipes_own_runs_need_no_option_but_the_data(name: str) -> None:
    said = origin(name, planned(name), OUT)
    assert said == (
        f"From nothing: `gcab figure {name} --data DIR`. From the logs in this folder: `gcab figure {name} {OUT}`."
    )


def test_scenarios_schedules_and_seeds_are_told_where_they_are_not_the_recipes() -> None:
    digits = planned("hyperparameters", "digits/5", epochs=40)
    assert origin("hyperparameters", digits, OUT).startswith(
        "From nothing: `gcab figure hyperparameters --scenario digits/5 --epochs 40`. From"
    )
    seeds = planned("main", "cifar100/5", seeds=(2, 3), epochs=100)
    assert origin("main", seeds, OUT).startswith(
        "From nothing: `gcab figure main --data DIR --scenario cifar100/5 --epochs 100 --seeds 2,3`. From"
    )


def test_a_part_of_a_recipe_is_called_one() -> None:
    first, *others = planned("ablation", seeds=(1, 2))
    assert "`gcab figure ablation --data DIR`, 1 of whose 10 runs is here. From" in origin("ablation", [first], OUT)
    assert "--seeds 1,2`, 19 of whose 20 runs are here. From" in origin("ablation", others, OUT)


def test_runs_that_the_recipe_does_not_make_are_named() -> None:
    official, joint = planned("main", "cifar100/10")[1], planned("ablation", epochs=500)[-1]
    assert (
        "`gcab figure main --data DIR --scenario cifar100/10`, 1 of whose 3 runs is here. "
        f"With other settings, by commands of their own below: {published_folder(joint)}. From"
    ) in origin("main", [official, joint], OUT)
    assert "none of whose 3 runs is here" in origin("main", [joint], OUT)


def test_runs_of_two_schedules_get_the_command_of_most() -> None:
    few, full = planned("capacity", epochs=7), planned("capacity")
    said = origin("capacity", [few[0], *full], OUT)
    assert said.startswith(
        f"From nothing: `gcab figure capacity --data DIR`. With other settings, by commands of their "
        f"own below: {published_folder(few[0])}."
    )


def test_a_setting_that_came_later_makes_no_other_run_but_another_value_does() -> None:
    runs = planned("capacity")
    del runs[0].config["options"]["statistics_meet"]
    assert "With other settings" not in origin("capacity", runs, OUT)
    runs[0].config["options"]["statistics_weight"] = 1.0
    assert (
        f"1 of whose 2 runs is here. With other settings, by commands of their own below: {published_folder(runs[0])}."
        in origin("capacity", runs, OUT)
    )


def test_no_folder_of_a_machine_is_told() -> None:
    runs = planned("capacity")
    assert origin("capacity", runs, Path("/somebody/home/my figure")).endswith("`gcab figure capacity 'my figure'`.")
