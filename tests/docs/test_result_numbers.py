"""Every pair of accuracies in docs/results.md is kept in results/, but for those that the page says are not."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from helpers.documents import ROOT, text_of

PAIR = re.compile(r"(\d+\.\d+) / (\d+\.\d+)")
PRINTED = re.compile(r"(\d+\.\d+) % +(\d+\.\d+) %")  # by a command, in a table
NOT_KEPT = ("## The ablation on digits", "## The demo: digits", "## Every method on digits")
TWO_VIEWS = {("60.70", "88.19"), ("65.07", "89.06"), ("63.49", "83.63")}  # `gcab evaluate --views 2` keeps nothing


def accuracies(content: Any) -> Iterator[tuple[float, float]]:
    """ACC_TAG and ACC_TAW wherever they are in a record, also of rows of the accuracy matrices."""
    if isinstance(content, dict):
        if content.get("acc_tag") is not None:
            yield content["acc_tag"], content["acc_taw"]
        if isinstance(content.get("tag"), list):
            yield mean(content["tag"]), mean(content["taw"])
        content = [*content.values()]
    for inside in content if isinstance(content, list) else ():
        yield from accuracies(inside)


def stored(results: Path) -> set[tuple[str, str]]:
    found = set[tuple[str, str]]()
    for file in results.rglob("*.*"):
        if file.suffix in (".gz", ".json"):
            text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
            lines = text.splitlines() if file.suffix == ".gz" else [text]
            pairs = [pair for line in lines if "tag" in line for pair in accuracies(json.loads(line))]
            found |= {(f"{tag:.{digits}f}", f"{taw:.{digits}f}") for tag, taw in pairs for digits in (1, 2)}
        elif file.suffix == ".txt":
            found |= {*PAIR.findall(file.read_text()), *PRINTED.findall(file.read_text())}
    return found


def published() -> set[str]:
    """The numbers of the paper's tables."""
    return set(re.findall(r"\d+\.\d+", text_of(ROOT / "gcab" / "paper" / "published.py")))


def test_every_accuracy_of_the_results_is_stored() -> None:
    known, of_paper, section = stored(ROOT / "results") | TWO_VIEWS, published(), ""
    for line in text_of(ROOT / "docs" / "results.md").splitlines():
        section = line if line.startswith("## ") else section
        if not section.startswith(NOT_KEPT) and "mean" not in line:
            missing = {pair for pair in PAIR.findall(line) if pair not in known and not of_paper.issuperset(pair)}
            assert not missing, f"{section}: {missing}"
