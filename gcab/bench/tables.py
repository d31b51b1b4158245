"""The figures of a benchmark for the terminal: means over its sets of measurements, with their spread."""

import statistics
from collections.abc import Sequence

from gcab.bench.workload import Row
from gcab.report.tables import NOTHING, Table

MEGABYTE = 1_000_000
SPREAD = "Means of the medians of two sets of measurements; ± is half their difference."


def tables(figures: Row) -> list[Table]:
    """Whatever was measured, and what was counted."""
    where = f"{figures['device']}, profile {figures['config']['profile']}"
    found = []
    if figures["training"]:
        found.append(training_table(f"Training step ({where})", figures["training"]))
    if figures["inference"]:
        title = f"Inference in {figures['inference_precision']} ({where})"
        found.append(inference_table(title, figures["inference"]))
    if methods := figures.get("methods"):  # files of earlier versions have none
        found.append(method_table(f"Training step of task {methods[0]['task']} ({where})", methods))
    if figures["counts"]:
        found.append(count_table(figures["counts"]))
    return found


def milliseconds(seconds: Sequence[float]) -> str:
    mean = statistics.fmean(seconds)
    return f"{1000 * mean:.2f} ±{50 * (max(seconds) - min(seconds)) / mean:.0f}%"


def megabytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / MEGABYTE:.0f}"


def training_table(title: str, rows: Sequence[Row]) -> Table:
    columns = ["task, way", "ms a step", "images/s", "of matmul rate", "start-up s", "peak MB"]
    lines = [
        [
            f"{row['task']}, {row['way']}",
            milliseconds(row["seconds"]),
            f"{statistics.fmean(row['images_per_second']):.0f}",
            f"{100 * statistics.fmean(row['share_of_matmul_rate']):.1f} %",
            NOTHING if row["way"] == "plain" else ", ".join(f"{seconds:.1f}" for seconds in row["start_up_seconds"]),
            megabytes(row["peak_bytes"]),
        ]
        for row in rows
    ]
    recorded = any(row["way"] == "recorded" for row in rows)
    start_up = "Start-up is compiling and recording, in the first and in the second set: compilers remember."
    note = f"{SPREAD} {start_up if recorded else 'Recorded steps need a GPU: not available here.'}"
    return Table(title, columns, lines, note)


def method_table(title: str, rows: Sequence[Row]) -> Table:
    columns = ["method", "ms a step", f"over {rows[0]['method']}", "passes", "recorded", "start-up s", "peak MB"]
    baseline = statistics.fmean(rows[0]["seconds"])
    lines = [
        [
            row["method"],
            milliseconds(row["seconds"]),
            f"{statistics.fmean(row['seconds']) / baseline:.2f} x",
            f"{statistics.fmean(row['passes']):.2f}",
            "yes" if row["recorded"] else "no",
            ", ".join(f"{seconds:.1f}" for seconds in row["start_up_seconds"]),
            megabytes(row["peak_bytes"]),
        ]
        for row in rows
    ]
    reasons = dict.fromkeys(f"{row['method']}: {reason}." for row in rows for reason in row["not_recorded"])
    passes = "Passes: images that a step passes through the trained network, per fresh image."
    return Table(title, columns, lines, " ".join([SPREAD, passes, *reasons]))


def inference_table(title: str, rows: Sequence[Row]) -> Table:
    found = {(row["tasks"], row["batch"], row["part"], row["way"]): row for row in rows}
    ways = list(dict.fromkeys(row["way"] for row in rows))
    columns = ["tasks, batch", "encoder ms", *(f"{way} ms" for way in ways), "fast", "passes fast", "images/s"]
    lines = []
    for tasks, batch in dict.fromkeys((row["tasks"], row["batch"]) for row in rows):
        timed = [found[tasks, batch, "encoder", "reference"], *(found[tasks, batch, "whole", way] for way in ways)]
        gains = [statistics.fmean(found[tasks, batch, part, "fast"]["speed_up"]) for part in ("whole", "passes")]
        lines.append(
            [
                f"{tasks}, {batch}",
                *(milliseconds(row["seconds"]) for row in timed),
                *(f"{gain:.2f} x" for gain in gains),
                f"{statistics.fmean(timed[-1]['images_per_second']):.0f}",
            ]
        )
    return Table(title, columns, lines, f"{SPREAD} x: reference over fast, whole and without encoder and cascade.")


def count_table(rows: Sequence[Row]) -> Table:
    columns = ["tasks", "encoder", "whole, fast", "over encoder", "whole, reference", "over encoder"]
    lines = [
        [
            str(row["tasks"]),
            *(f"{row['macs'][part] / 1e6:.1f}" for part in ("encoder", "fast")),
            f"{row['over_encoder']['fast']:.3f} x",
            f"{row['macs']['reference'] / 1e6:.1f}",
            f"{row['over_encoder']['reference']:.3f} x",
        ]
        for row in rows
    ]
    return Table("Million multiply-accumulates for one image", columns, lines, "One is two floating-point operations.")
