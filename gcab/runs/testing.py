"""Testing the saved model of a run again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gcab.evaluation.evaluate import accuracies
from gcab.evaluation.metrics import results_from_records, summary, summary_of_part
from gcab.runs.assemble import load_method
from gcab.runs.folder import RunFolder
from gcab.runs.run import data_of, make_evaluator

WHOLE = "whole"  # the name of a method's own decision beside those of its parts


@dataclass(frozen=True)
class Tested:
    """Summaries of a run's saved model, for the tasks it has learned."""

    now: dict[str, Any]
    recorded: dict[str, Any]
    parts: dict[str, dict[str, Any]]  # what parts of the method would reach alone, now
    decisions: dict[str, np.ndarray[Any, Any]]  # logits of the whole method and of these parts, for all test images
    labels: np.ndarray[Any, Any]
    classes: Sequence[int]  # of each task


def evaluate_run(run: RunFolder, root: Path | None, device: torch.device, views: int = 1) -> Tested:
    """Test the saved model of a run again, with so many views of each image."""
    run.require_model()
    method, config, description = load_method(run.model)
    data = data_of(run, config, root)
    evaluator = make_evaluator(method.to(device), data, device, views)
    tasks = data.scenario.tasks if method.joint else data.scenario.tasks[: len(description["tasks"])]
    record, logits, labels = evaluator.record(tasks, {})
    decisions = evaluator.decisions(tasks)
    parts = accuracies(decisions, labels.numpy(), record["classes"])
    recorded = [stored for stored in run.records("task") if stored["task"] == len(tasks)]
    return Tested(
        summary(results_from_records([record])),
        summary(results_from_records(recorded)),
        {name: summary_of_part(record, part) for name, part in parts.items()},
        {WHOLE: logits.numpy(), **decisions},
        labels.numpy(),
        record["classes"],
    )
