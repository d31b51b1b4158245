"""Run folders with plausible numbers, written without training anything."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gcab.evaluation.metrics import accuracy_row, results_from_records, summary
from gcab.runs.folder import RunFolder

ANIMALS = ["ant", "bear", "cat", "dog", "eagle", "fox", "goat", "hare", "ibis", "jay"]
IMAGES_PER_CLASS = 20
EMBEDDED_PER_CLASS = 10  # few: t-SNE is the slow part of a report


def write_run(
    root: Path,
    method: str = "gcab",
    seed: int = 1,
    tasks: int = 5,
    classes: int = 4,
    learned: int | None = None,
    options: Mapping[str, Any] | None = None,
    names: list[str] | None = None,
    epochs: int = 12,
    profile: str = "extended",
) -> RunFolder:
    """A run of `method`, finished unless it `learned` fewer tasks than it has."""
    settings = dict(options or {})
    names = names or [f"{ANIMALS[k % 10]} {k // 10 + 1}" for k in range(tasks * classes)]
    streams = [names[t * classes : (t + 1) * classes] for t in range(tasks)]
    variant = "-".join(f"{key}{value}" for key, value in settings.items())
    path = root / f"toy-{tasks}" / method / f"{seed}-{variant}x"
    document = {
        "format": 1,
        "versions": {"gcab": "0.1.0", "torch": "2.13.0", "python": "3.11.9", "numpy": "2.4.6"},
        "commit": "0123abc",
        "device": "CPU, 1 thread",
        "command": f"gcab train toy-{tasks} --method {method} --seed {seed}",
        "config": {
            "profile": profile,
            "method": method,
            "seed": seed,
            "scenario": {"name": f"toy-{tasks}", "tasks": tasks},
            "encoder": {"width": 384, "depth": 5},
            "training": {"epochs": epochs, "lr": 1e-4},
            "options": settings,
        },
        "tasks": streams,
    }
    run = RunFolder.prepare(path, document)
    random = np.random.default_rng([seed, len(method), len(variant)])
    done = tasks if learned is None else learned
    for task in [tasks] if method == "joint" else range(1, done + 1):
        _write_epochs(run, method, task, epochs, random)
        run.append(_task_record(run, method, task, classes, settings.get("compensation", True), random))
    if done == tasks:
        records = run.records("task")
        cost = {key: records[-1][key] for key in ("parameters", "bytes", "seconds")}
        run.append({"kind": "final", **summary(results_from_records(records)), **cost})
    return run


def write_comparison(root: Path, tasks: int = 5, classes: int = 4) -> list[RunFolder]:
    """Three methods with two seeds each."""
    return [
        write_run(root, method, seed, tasks, classes) for method in ("gcab", "finetune", "joint") for seed in (1, 2)
    ]


def _write_epochs(run: RunFolder, method: str, task: int, epochs: int, random: np.random.Generator) -> None:
    for epoch in range(1, epochs + 1):
        noise = 1 + 0.05 * random.standard_normal()
        losses = {"classification": noise * (0.7 * float(np.exp(-4 * epoch / epochs)) + 0.01)}
        if method == "gcab":
            losses["sparsity"] = 0.05 * noise / (1 + epoch / task)
            losses["drift"] = 0.0 if task == 1 else 0.4 * noise / epoch**0.3
        record = {"kind": "epoch", "task": task, "epoch": epoch, "epochs": epochs, "step": 40 * epoch, "losses": losses}
        run.append({**record, "lr": 1e-4, "seconds": 1.2})


def _task_record(
    run: RunFolder, method: str, task: int, classes: int, compensation: bool, random: np.random.Generator
) -> dict[str, Any]:
    """Draw logits that remember as well as the method would, and measure them as a real run is measured."""
    labels = np.repeat(np.arange(task * classes), IMAGES_PER_CLASS)
    owner = labels // classes + 1
    age = task - owner
    strength = {
        "gcab": 3.4 - (0.15 if compensation else 0.5) * age,
        "finetune": 3.0 - 1.5 * age,
        "joint": 3.6 + 0 * age,
    }
    logits = random.standard_normal((len(labels), task * classes))
    logits[np.arange(len(labels)), labels] += strength[method]
    if method == "finetune":
        logits[:, -classes:] += 2.5
    run.save_arrays(f"task-{task:02}", labels=labels, logits=logits.astype(np.float16))
    tag, taw, identification = accuracy_row(logits, labels, [classes] * task)
    moved = [0.12 * (task - old) ** 0.7 for old in range(1, task)]
    if method == "gcab":
        _save_embedding(run, task, classes)
    gates = {"input": 1 - 0.6**task, "hidden": 1 - 0.7**task} if method == "gcab" else {}
    undone = 0.3 if compensation else 1.0
    return {
        "kind": "task",
        "task": task,
        "tag": tag,
        "taw": taw,
        "classes": [classes] * task,
        "images": [classes * IMAGES_PER_CLASS] * task,
        "task_identification": identification,
        "views": {"heads": {"tag": [t / 2 for t in tag], "taw": taw, "task_identification": 0.5 * identification}}
        if method == "gcab"
        else {},
        "capacity": gates,
        "drift": [
            {"task": old, "raw": far, "compensated": undone * far}
            for old, far in enumerate(moved, start=1)
            if method == "gcab"
        ],
        "probe": {"before": 30.0 + task, "untrained": 22.0} if method != "joint" else None,
        "parameters": 13_900_000,
        "bytes": {"model": 55_600_000, "images": 0, "prototypes": 1_500},
        "seconds": 61.0 * task,
    }


def _save_embedding(run: RunFolder, task: int, classes: int) -> None:
    """Clusters that slide and blur with every task, and a compensation that brings most of it back."""
    random = np.random.default_rng(run.seed)
    labels = np.repeat(np.arange(classes), EMBEDDED_PER_CLASS)
    home = 6 * random.standard_normal((classes, 16))[labels] + random.standard_normal((len(labels), 16))
    away = 2.5 * (task - 1) * (random.standard_normal(16) + 0.6 * random.standard_normal((len(labels), 16)))
    run.save_arrays(
        f"embedding-{task:02}",
        labels=labels,
        raw=(home + away).astype(np.float32),
        compensated=(home + 0.15 * away).astype(np.float32),
    )


def rewrite_metrics(run: RunFolder, change: Mapping[str, Any], kind: str) -> None:
    """Overwrite entries in all records of a kind."""
    records = [{**record, **change} if record["kind"] == kind else record for record in run.records()]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (run.path / "metrics.jsonl").write_text(lines, encoding="utf-8")
