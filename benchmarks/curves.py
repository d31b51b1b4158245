"""Draw the cost of inference over the number of tasks from what `gcab bench --json` wrote.

python benchmarks/curves.py FIGURE FILE...
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

LABELS = {
    "reference": "reference: a readable pass per task",
    "fast": "fast: folded passes",
    "recorded": "fast, recorded",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    draw([json.loads(path.read_text()) for path in given.files], given.figure)


def draw(benchmarks: list[dict[str, Any]], figure: Path) -> None:
    """One panel for each file and size of a batch: milliseconds, whole prediction."""
    import matplotlib.pyplot as plt

    panels = [(found, batch) for found in benchmarks for batch in sorted({row["batch"] for row in found["inference"]})]
    across = max(len({row["batch"] for row in found["inference"]}) for found in benchmarks)
    down = -(-len(panels) // across)
    grid, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.2 * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, (found, batch) in zip(axes.flat, panels, strict=False):
        rows = [row for row in found["inference"] if row["batch"] == batch and row["part"] == "whole"]
        for way in dict.fromkeys(row["way"] for row in rows):
            points = sorted(
                (row["tasks"], 1000 * statistics.fmean(row["seconds"])) for row in rows if row["way"] == way
            )
            axis.plot(*zip(*points, strict=True), marker="o", label=LABELS.get(way, way))
        axis.set_title(f"{found['device']}, {found['inference_precision']}, batch {batch}", fontsize=10)
        axis.set_xlabel("tasks learned")
        axis.set_ylabel("ms a batch")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    figure.parent.mkdir(parents=True, exist_ok=True)
    grid.savefig(figure, dpi=110)
    print(figure)


if __name__ == "__main__":
    main()
