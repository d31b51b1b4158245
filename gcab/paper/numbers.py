"""The paper's tables, and the numbers behind its figures: one function for each recipe, from finished runs to lines."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean as mean
from typing import Any

from gcab.evaluation.metrics import summary_of_part, task_records
from gcab.methods.gcab import UNCOMPENSATED
from gcab.model.referee import HEADS
from gcab.paper.evidence import (
    Record,
    accuracies,
    by_scenario,
    distillations,
    distilled,
    epochs_of,
    fast_title,
    in_epochs,
    teacher_title,
    teachers,
    timings,
    title_of,
)
from gcab.paper.published import ABLATION, ACCURACY, MEMORY, REPLAY, RUNTIME, TITLES
from gcab.paper.recipes import SWEEPS
from gcab.profiles import DEFAULT_PROFILE
from gcab.report.tables import MEGABYTE, Group, group_runs
from gcab.runs.folder import RunFolder

MARK = {True: "✓", False: ""}
FAST_CAPACITY = 0.8  # the paper's tables
WITHOUT, COMPENSATION = "PFR without compensation", "compensation"
COMPONENTS = (
    "fine-tuning",
    "gates alone",
    "gates on a frozen encoder",
    WITHOUT,
    COMPENSATION,
    "feature distillation",
    "without gates",
    "joint",
)


def main(runs: Sequence[RunFolder]) -> list[Record]:
    """Class- and task-incremental accuracy, GCAB-Fast below the run it was distilled from."""
    lines = []
    for scenario, groups in by_scenario(runs).items():
        for group in groups:
            method, common = group.runs[0].method, {"Scenario": scenario, "Epochs": epochs_of(group.runs[0])}
            lines.append(
                {
                    **common,
                    "Method": teacher_title(group),
                    **accuracies(measured := teachers(group)),
                    "Task identified": mean([one["task_identification"] for one in measured]),
                    **published(scenario, method),
                    "Seconds": mean(group.values("seconds")),
                }
            )
            if fast := distilled(group, FAST_CAPACITY):
                students = [figures["gcab-fast"] for figures in fast]
                lines.append(
                    {
                        **common,
                        "Method": fast_title(group),
                        **accuracies(students),
                        "Task identified": mean([student["task_identification"] for student in students]),
                        **published(scenario, "gcab-fast"),
                        "Seconds": mean([figures["seconds"] for figures in fast]),
                    }
                )
    return lines


def published(scenario: str, method: str, images: int = 0) -> Record:
    """The paper's accuracy for a method that stores so many images."""
    found = ACCURACY.get((scenario, method, images))
    return {"Paper ACC_TAG": found and found.tag, "Paper ACC_TAW": found and found.taw}


def ablation(runs: Sequence[RunFolder]) -> list[Record]:
    """One component after the other, in the paper's order; first without class statistics, which the paper has not."""
    lines: list[Record] = []
    owners: list[Group] = []
    for scenario, groups in by_scenario(runs).items():
        for group in groups:
            config = group.runs[0].config
            gates = bool(config["options"].get("network", {}).get("gates"))
            apart = [config["profile"]] if config["profile"] != DEFAULT_PROFILE else []
            if len({epochs_of(other.runs[0]) for other in groups}) > 1:
                apart.append(in_epochs(epochs_of(group.runs[0])))
            for name, statistics, measured in decisions(group):
                owners.append(group)
                lines.append(
                    {
                        "Scenario": scenario,
                        "Row": ", ".join([name, *apart]),
                        "Gates": MARK[gates],
                        "PFR": MARK[name in (WITHOUT, COMPENSATION)],
                        "Compensation": MARK[name == COMPENSATION],
                        "Class statistics": MARK[statistics],
                        "Epochs": epochs_of(group.runs[0]),
                        **accuracies(measured),
                        "Paper ACC_TAG": None if statistics else ABLATION.get(scenario, {}).get(name),
                        "Seconds": mean(group.values("seconds")),
                    }
                )
    tell_apart(lines, owners)
    names = [line["Row"].partition(",")[0] for line in lines]
    order = {name: place for place, name in reversed(list(enumerate([*COMPONENTS, *names])))}
    return sorted(
        lines,
        key=lambda line: (line["Scenario"], bool(line["Class statistics"]), order[line["Row"].partition(",")[0]]),
    )


def tell_apart(lines: Sequence[Record], owners: Sequence[Group]) -> None:
    """Name rows that would be drawn over each other by what sets the groups behind them apart, too."""
    rows: dict[tuple[str, str], list[tuple[Record, Group]]] = {}
    for line, owner in zip(lines, owners, strict=True):
        rows.setdefault((line["Scenario"], line["Row"]), []).append((line, owner))
    for (_, row), members in rows.items():
        if len({line["Class statistics"] for line, _ in members}) < len(members):
            groups = {id(owner): owner for _, owner in members}
            relabelled = group_runs([run for group in groups.values() for run in group.runs])
            labels = {key: group.label for key, group in zip(groups, relabelled, strict=True)}
            for line, owner in members:
                apart = labels[id(owner)].removeprefix(owner.method).strip(" ,()").split(", ")
                line["Row"] = ", ".join(filter(None, dict.fromkeys([*row.split(", "), *apart])))


def decisions(group: Group) -> list[tuple[str, bool, list[Record]]]:
    """The rows that a group's runs answer: (component, whether statistics take part, accuracies of the seeds)."""
    config = group.runs[0].config
    name, statistics = component(config), bool(config["options"].get("statistics"))
    found = [(name, statistics, [*group.finals])]
    for part, row in {HEADS: name, UNCOMPENSATED: WITHOUT}.items():
        if measured := alone(group, part):
            found.append((row, False, measured))
    return found


def alone(group: Group, part: str) -> list[Record]:
    """Results of a part of the method alone after the last task, for every seed; none if a run has not logged them."""
    last = [run.records("task")[-1] for run in group.runs]
    if not all(part in record.get("views", {}) for record in last):
        return []
    return [summary_of_part(record, record["views"][part]) for record in last]


def component(config: dict[str, Any]) -> str:
    """Which row of the ablation a run is, by its settings."""
    if config["method"] != "gcab":
        return {"finetune": "fine-tuning"}.get(config["method"], str(config["method"]))
    options = config["options"]
    if not options["network"]["gates"]:
        return "without gates"
    if options["drift"] == "pfr":
        return COMPENSATION if options["compensation"] else WITHOUT
    return {"none": "gates alone", "frozen": "gates on a frozen encoder"}.get(options["drift"], "feature distillation")


def hyperparameters(runs: Sequence[RunFolder]) -> list[Record]:
    """ACC_TAG over each weight, in series of runs that differ in nothing else."""
    lines = []
    for weight in SWEEPS:
        series: dict[str, list[Group]] = {}
        for groups in by_scenario(runs).values():
            for group in groups:
                if weight in group.runs[0].config["options"]:
                    series.setdefault(settings_but(group, weight), []).append(group)
        swept = [members for members in series.values() if len(members) > 1]
        names = [f"{members[0].runs[0].scenario}, {in_epochs(epochs_of(members[0].runs[0]))}" for members in swept]
        for number, (name, members) in enumerate(zip(names, swept, strict=True), start=1):
            lines += [
                {
                    "Scenario": group.runs[0].scenario,
                    "Series": name if names.count(name) == 1 else f"{name} [{number}]",
                    "Weight": weight,
                    "Value": float(group.runs[0].config["options"][weight]),
                    "Epochs": epochs_of(group.runs[0]),
                    **accuracies(group.finals),
                    "Heads alone": heads_alone(group),
                }
                for group in sorted(members, key=lambda group: group.runs[0].config["options"][weight])
            ]
    return lines


def heads_alone(group: Group) -> float | None:
    """ACC_TAG of the paper's decision, where class statistics join ours."""
    return mean_of("acc_tag", alone(group, HEADS))


def mean_of(name: str, measured: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean over the seeds; None where there are none or one of them lacks it."""
    values = [one[name] for one in measured if name in one]
    return mean(values) if values and len(values) == len(measured) else None


def settings_but(group: Group, weight: str) -> str:
    """Everything that makes a run what it is but one of its options, and its seed."""
    config = {key: value for key, value in group.runs[0].config.items() if key != "seed"}
    config["options"] = {key: value for key, value in config["options"].items() if key != weight}
    return json.dumps(config, sort_keys=True)


def capacity(runs: Sequence[RunFolder]) -> list[Record]:
    """The share of the gates' units in use after each task."""
    lines = []
    for scenario, groups in by_scenario(runs).items():
        for group in groups:
            stories = [task_records(run.records("task")) for run in group.runs]
            for records in zip(*stories, strict=True):
                used = [record["capacity"] for record in records if record["capacity"]]
                if used:
                    shares = {gate: 100 * mean([one[gate] for one in used]) for gate in used[0]}
                    lines.append(
                        {
                            "Scenario": scenario,
                            "Method": title_of(group),
                            "Task": records[0]["task"],
                            **{f"{gate.capitalize()} gate, %": share for gate, share in shares.items()},
                            "Mean, %": mean([*shares.values()]),
                        }
                    )
    return lines


def distillation(runs: Sequence[RunFolder]) -> list[Record]:
    """Accuracy over the share of the decoder that GCAB-Fast uses; the line without a share is GCAB itself.

    Heads alone: ACC_TAG of the paper's decision, where class statistics join ours.
    """
    lines: list[Record] = []
    for scenario, groups in by_scenario(runs).items():
        for group in groups:
            shares = sorted({share for run in group.runs for share in distillations(run)})
            common = {"Scenario": scenario, "Run": teacher_title(group), "Epochs": epochs_of(group.runs[0])}
            if shares:
                lines.append({**common, "Capacity, %": None, **with_heads(teachers(group))})
            for share in shares:
                found = distilled(group, share)
                lines.append(
                    {
                        **common,
                        "Capacity, %": 100 * share,
                        **with_heads([figures["gcab-fast"] for figures in found]),
                        "Below GCAB": mean([one["gcab"]["acc_tag"] - one["gcab-fast"]["acc_tag"] for one in found]),
                        "KL to GCAB": mean_of("divergence", found),
                    }
                )
    return lines


def with_heads(measured: Sequence[Mapping[str, Any]]) -> Record:
    """The accuracies of teachers or students, and ACC_TAG of their heads alone where that was asked of all."""
    heads = [one.get("views", {}).get(HEADS, {}) for one in measured]
    return {**accuracies(measured), "Heads alone": mean_of("acc_tag", heads)}


def runtime(runs: Sequence[RunFolder]) -> list[Record]:
    """Parameters, milliseconds for one image, operations: measured and counted, then the paper's if it has them."""
    lines: list[Record] = []
    timed = {run: found for run in runs if (found := timings(run))}
    for found in timed.values():
        for measured in found:
            for name, model in measured["models"].items():
                lines.append(
                    {
                        "Method": name,
                        "Tasks": measured["tasks"],
                        "Device": measured["device"],
                        "Parameters, M": model["parameters"] / 1e6,
                        **{f"{way.capitalize()}, ms": 1000 * second for way, second in model["seconds"].items()},
                        "MACs, M": model["macs"] / 1e6,
                        "FLOPs, M": 2 * model["macs"] / 1e6,
                        "Over the encoder": model["macs"] / model["encoder_macs"] if model["encoder_macs"] else None,
                    }
                )
    lines += [
        {
            "Method": f"{name}, the paper",
            "Tasks": 10,
            "Device": "Quadro RTX 6000",
            "Parameters, M": cost.parameters,
            "Plain, ms": cost.milliseconds,
            "MACs, M": 1000 * cost.giga_operations,
        }
        for scenario in dict.fromkeys(run.scenario for run in timed)
        for name, cost in RUNTIME.get(scenario, {}).items()
    ]
    return lines


def memory(runs: Sequence[RunFolder]) -> list[Record]:
    """What is kept between tasks, beside the accuracy it buys; then what the paper compares with."""
    lines = []
    for scenario, groups in by_scenario(runs).items():
        for group in groups:
            final, method = group.finals[0], group.runs[0].method
            images, statistics = (final["bytes"].get(part, 0) for part in ("images", "prototypes"))
            models = [(teacher_title(group), method, teachers(group), sum(final["bytes"].values()))]
            if students := [figures["gcab-fast"] for figures in distilled(group, FAST_CAPACITY)]:
                models.append((fast_title(group), "gcab-fast", students, students[0]["bytes"]))
            for title, kind, measured, total in models:
                lines.append(
                    {
                        "Scenario": scenario,
                        "Method": title,
                        "Epochs": epochs_of(group.runs[0]),
                        "Parameters, M": measured[0]["parameters"] / 1e6,
                        "Images, MB": images / MEGABYTE,
                        "Class statistics, MB": statistics / MEGABYTE,
                        "Total, MB": total / MEGABYTE,
                        **accuracies(measured),
                        "Paper total, MB": in_megabytes(MEMORY.get((scenario.partition("/")[0], kind))),
                        "Paper ACC_TAG": published(scenario, kind)["Paper ACC_TAG"],
                    }
                )
        lines += [
            {
                "Scenario": scenario,
                "Method": f"{TITLES[other.method]}, {other.images} images, the paper",
                "Parameters, M": other.parameters,
                "Images, MB": in_megabytes(other.images_size),
                "Paper total, MB": in_megabytes(other.total),
                "Paper ACC_TAG": ACCURACY[scenario, other.method, other.images].tag,
            }
            for other in REPLAY
            if scenario in other.scenarios
        ]
    return lines


def in_megabytes(mebibytes: float | None) -> float | None:
    """The paper counts in 2**20 bytes."""
    return None if mebibytes is None else mebibytes * 2**20 / MEGABYTE
