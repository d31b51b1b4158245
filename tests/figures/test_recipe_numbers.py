"""A tiny, seeded version of every recipe gives the numbers it gave before; helpers/recipes.py stores others."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.recipes import EXPECTED, LOSS_TOLERANCE, POINTS, differences, numbers_of

from gcab.paper.exhibits import EXHIBITS
from gcab.paper.recipes import RECIPES

pytestmark = [pytest.mark.repeats, pytest.mark.usefixtures("small_eyes", "rough_embedding")]


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes share their runs."""
    return tmp_path_factory.mktemp("recipes")


def test_every_recipe_has_an_exhibit_and_stored_numbers() -> None:
    assert list(EXHIBITS) == list(RECIPES) == list(stored())


@pytest.mark.repeats
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_the_stored_numbers(name: str, root: Path) -> None:
    assert differences(stored()[name], numbers_of(name, root)) == []
    for ending in ("png", "svg", "md", "json"):
        assert (root / name / f"{name}.{ending}").stat().st_size > 500


def test_a_difference_is_seen() -> None:
    expected = stored()["main"]
    assert differences(expected, expected) == []

    accuracy = copy.deepcopy(expected)
    accuracy["lines"][0]["ACC_TAG"] += 1.01 * POINTS
    loss = copy.deepcopy(expected)
    run, terms = next(iter(loss["losses"].items()))
    terms["classification"] *= 1.03
    column = copy.deepcopy(expected)
    column["lines"][1]["Extra"] = 1
    term = copy.deepcopy(expected)
    del term["losses"][run]["sparsity"]
    epochs = copy.deepcopy(expected)
    epochs["lines"][0]["Epochs"] = 2
    fewer = copy.deepcopy(expected)
    del fewer["losses"][run]
    for changed in (accuracy, loss, column, term, epochs, fewer):
        assert len(differences(expected, changed)) == 1


def test_images_may_change_sides_but_a_student_may_not_learn_otherwise() -> None:
    expected = stored()["distillation"]
    assert all(line["Heads alone"] is not None for line in expected["lines"])
    assert all(line["KL to GCAB"] > 0 for line in expected["lines"][1:])
    for column, allowed, seen in (
        ("ACC_TAG", POINTS - 0.1, POINTS + 0.1),
        ("Heads alone", POINTS - 0.1, POINTS + 0.1),
        ("KL to GCAB", 0.9 * LOSS_TOLERANCE, 1.1 * LOSS_TOLERANCE),
    ):
        for change, count in ((allowed, 0), (seen, 1)):
            changed = copy.deepcopy(expected)
            line = changed["lines"][1]
            line[column] += change * (line[column] if column.startswith("KL") else 1)
            assert len(differences(expected, changed)) == count
