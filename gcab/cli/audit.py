"""The command line of: audit."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from gcab.cli.verbs import AddVerb, require_model, say, say_table
from gcab.terminal import visible

if TYPE_CHECKING:
    from gcab.classifier.audit import Audit


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    audit = verb("audit", audit_verb, "list everything a model stores: every tensor, its bytes and its purpose")
    audit.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    audit.add_argument("--json", action="store_true", help="print JSON")


def audit_verb(verb: argparse.Namespace, console: Console) -> None:
    require_model(verb.model)
    from gcab.classifier.audit import audit
    from gcab.cli.lesson_display import print_json

    found = audit(verb.model)
    if verb.json:
        print_json(console, found.to_dict(), indent=1)
    else:
        show_audit(found, console)


def show_audit(found: "Audit", console: Console) -> None:
    """Print an audit: every tensor, then the totals."""
    from gcab.classifier.audit import FEW
    from gcab.cli.lesson_display import amount

    rows = [["bytes", "shape", "kind", "tensor", "purpose"]]
    for stored in found.tensors:
        shape = " x ".join(map(str, stored.shape)) or "1"
        rows.append([str(stored.bytes), shape, stored.dtype, stored.name, stored.purpose])
    say_table(console, rows, left=(1, 2, 3, 4))
    total = sum(stored.bytes for stored in found.tensors)
    say(console, f"{len(found.tensors)} tensors, {amount(total)} in all.")
    for name, size in found.files.items():
        inside = ""
        if beside := found.beside.get(name):
            inside = f", {beside.purpose}: {beside.tensors} tensors, {beside.images or 'no'} images"
        say(console, f"{name}: {amount(size)}{inside}")
    if found.strangers:
        names = ", ".join(found.strangers)
        console.print(f"[yellow]not of this model:[/] {escape(visible(names))}", highlight=False, soft_wrap=True)
    images = found.images + sum(beside.images for beside in found.beside.values())
    if images:
        console.print(f"[bold red]{images} stored images are among them.[/]", highlight=False)
    if found.pictures:
        names = ", ".join(found.pictures)
        console.print(
            f"[bold red]Files that look like images:[/] {escape(visible(names))}", highlight=False, soft_wrap=True
        )
    if found.few:
        few = ", ".join(f"{name} ({count})" for name, count in found.few.items())
        say(console, f"Means and sums over fewer than {FEW} photos tell much of each: {few}")
    if found.closed:
        say(console, f"Not looked into: {', '.join(found.closed)}")
    if not images and not found.pictures:
        say(console, "No image is among the rest." if found.closed else "No image is among them.")
