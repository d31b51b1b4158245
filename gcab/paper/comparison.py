"""The tables that compare all methods: ours beside the paper's; a row that has not been run is empty, not left out."""

from collections.abc import Iterator, Sequence
from statistics import fmean as mean
from typing import Any

from gcab.config import from_dict
from gcab.evaluation.metrics import incremental_tag
from gcab.methods.registry import method_named
from gcab.paper.compared import RESNET
from gcab.paper.evidence import (
    AGAIN,
    Record,
    accuracies,
    by_scenario,
    distilled,
    epochs_of,
    teacher_title,
    teachers,
    title_of,
)
from gcab.paper.numbers import FAST_CAPACITY, published
from gcab.paper.published import ABLATION, TITLES
from gcab.paper.rows import Recipe, Row
from gcab.report.tables import Group, flat_settings, group_runs, results_of
from gcab.runs.folder import RunFolder

BUFFER = "options.buffer"
COLUMNS = (
    *("Scenario", "Method", "Images", "Epochs", "Seeds"),
    *("ACC_TAG", "ACC_TAG ±", "Paper ACC_TAG", "ACC_TAW", "ACC_TAW ±", "Paper ACC_TAW"),
    *("Average incremental, %", "Forgetting, %", "Image bytes", "Other bytes", "Passes per step", "Seconds"),
)
Entry = tuple[str, str, int, Group | None]  # its name, the method, the images it may store, its runs if there are any


def lines(recipe: Recipe, runs: Sequence[RunFolder]) -> list[Record]:
    """Every row on every scenario, GCAB-Fast below the run it was distilled from."""
    found = []
    for scenario, name, method, images, group in every_entry(recipe, runs):
        measured = {} if group is None else of_fast(group) if method == "gcab-fast" else of_group(group)
        line = {
            "Scenario": scenario,
            "Method": name,
            "Images": images,
            **of_paper(scenario, method, images),
            **measured,
        }
        found.append({column: line.get(column) for column in COLUMNS})
    return found


def curves(recipe: Recipe, runs: Sequence[RunFolder]) -> list[Record]:
    """ACC_TAG after each task, for every row on every scenario."""
    found = []
    for scenario, name, method, images, group in every_entry(recipe, runs):
        if method == "gcab-fast":
            continue  # made of the last task's model alone
        line = {"Scenario": scenario, "Method": name, "Images": images}
        line |= {"Paper ACC_TAG": of_paper(scenario, method, images)["Paper ACC_TAG"]}
        if group is not None:
            stories = [incremental_tag(results_of(run)) for run in group.runs if run.final()]
            line |= {"Epochs": epochs_of(group.runs[0]), "Seeds": len(stories)}
            last = len(group.runs[0].tasks)
            line |= dict.fromkeys(map(task, range(1, last + 1)))
            first = last if method_named(method).joint else 1
            line |= {task(number): mean(values) for number, values in enumerate(zip(*stories, strict=True), first)}
        found.append(line)
    return found


def task(number: int) -> str:
    """The column of the accuracy after a task."""
    return f"Task {number}, %"


def every_entry(recipe: Recipe, runs: Sequence[RunFolder]) -> Iterator[tuple[str, str, str, int, Group | None]]:
    """The recipe's rows on its scenarios, or on those of the runs where these are others."""
    groups = by_scenario(runs)
    own = recipe.scenarios if any(scenario in recipe.scenarios for scenario in groups) else ()
    for scenario in dict.fromkeys((*own, *groups)):
        for entry in entries(recipe, groups.get(scenario, [])):
            yield (scenario, *entry)


def entries(recipe: Recipe, groups: Sequence[Group]) -> Iterator[Entry]:
    """The rows with the groups that they mean, then groups that are of no row."""
    left = list(groups)
    for row in recipe.rows:
        images = int(row.changes.get(BUFFER, 0))
        name = row.name.removesuffix(f", {images} images")
        mine = [group for group in groups if is_of(group.runs[0], row)]
        left = [group for group in left if group not in mine]
        for label, group in told_apart(name, mine) or [(name, None)]:
            yield label, row.method, images, group
            if row.capacities:
                fast = label.replace(TITLES["gcab"], TITLES["gcab-fast"], 1).removesuffix(AGAIN)
                yield fast, "gcab-fast", images, group
    for group in left:
        yield title_of(group), group.method, int(group.runs[0].config["options"].get("buffer", 0)), group


def is_of(run: RunFolder, row: Row) -> bool:
    """Whether a run has the method, the profile and the settings of a row."""
    settings = dict(flat_settings(run.config))
    same = (run.method, run.config["profile"]) == (row.method, row.profile)
    return same and all(settings.get(key) == value for key, value in row.changes.items())


def told_apart(name: str, groups: Sequence[Group]) -> list[tuple[str, Group | None]]:
    """Groups of one row by the row's name, and where there are several, by what sets them apart."""
    labelled = group_runs([run for group in groups for run in group.runs])
    aparts = [group.label.removeprefix(group.method) if len(groups) > 1 else "" for group in labelled]
    return [
        (name + apart + AGAIN * teacher_title(group).endswith(AGAIN), group)
        for apart, group in zip(aparts, groups, strict=True)
    ]


def of_paper(scenario: str, method: str, images: int) -> Record:
    """The paper's accuracies; fine-tuning has its own in the ablation alone."""
    if method == "finetune":
        return {"Paper ACC_TAG": ABLATION.get(scenario, {}).get("fine-tuning"), "Paper ACC_TAW": None}
    return published(scenario, method, images)


def of_group(group: Group) -> Record:
    """The results and the costs of a row's runs."""
    run, stored = group.runs[0], group.finals[0]["bytes"]
    return {
        "Epochs": epochs_of(run),
        **accuracies(teachers(group)),
        "Average incremental, %": group.mean("average_incremental_accuracy"),
        "Forgetting, %": group.mean("forgetting"),
        "Image bytes": stored.get("images", 0),
        "Other bytes": stored.get("prototypes", 0),
        "Passes per step": passes(run),
        "Seconds": mean(group.values("seconds")),
    }


def of_fast(group: Group) -> Record:
    """The results of a row's distillations, if there are any, with their seconds alone."""
    found = distilled(group, FAST_CAPACITY)
    if not found:
        return {}
    return {
        "Epochs": epochs_of(group.runs[0]),
        **accuracies([figures["gcab-fast"] for figures in found]),
        "Image bytes": 0,
        "Seconds": mean([figures["seconds"] for figures in found]),
    }


def passes(run: RunFolder) -> float:
    """Images that pass through the network per fresh image of a step."""
    config: Any = from_dict(run.config)
    classes = [len(names) for names in run.tasks]
    return method_named(run.method).passes(config.options, config.training.batch_size, classes)


def on_transformers(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if run.config["encoder"]["kind"] != RESNET]


def on_resnet(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if run.config["encoder"]["kind"] == RESNET]
