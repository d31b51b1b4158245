"""The command line of: export."""

import argparse
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, counted, say
from gcab.errors import GcabError

SUFFIXES = {".onnx": "onnx", ".pt2": "torch"}
EPILOG = """\
The file answers with logits, calibrated probabilities and a score for "none of these"; class names, sizes and what the
input must be are in its metadata. It is checked against the model before it takes its place.

examples:
  gcab export birds.gcab birds.onnx --with-preprocessing      photos in, probabilities out
  gcab export birds.gcab birds.pt2                            for torch.export.load
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    export = verb(
        "export", export_verb, "write a model as one file that runs without gcab: ONNX or torch.export", EPILOG
    )
    export.add_argument("model", type=Path, metavar="MODEL", help="a model folder, or a run folder")
    export.add_argument("out", type=Path, metavar="OUT", help="the file to write: .onnx or .pt2")
    export.add_argument("--format", choices=("onnx", "torch"), help="instead of what OUT's ending says")
    export.add_argument(
        "--with-preprocessing",
        action="store_true",
        help="take photos of any size, as bytes (n, height, width, 3); cutting, resizing and normalising happen inside",
    )
    export.add_argument("--opset", type=int, metavar="N", help="of ONNX operators, for older or newer runtimes")


def export_verb(verb: argparse.Namespace, console: Console) -> None:
    kind = format_of(verb.out, verb.format)
    if verb.opset is not None and kind != "onnx":
        raise GcabError("--opset is for ONNX files: leave it out here.")

    from gcab.classifier.model import Classifier
    from gcab.cli.lesson_display import amount
    from gcab.export.writing import export_onnx, export_torch

    model = Classifier.load(verb.model, device="cpu")
    if kind == "onnx":
        done = export_onnx(model, verb.out, verb.with_preprocessing, verb.opset)
    else:
        done = export_torch(model, verb.out, verb.with_preprocessing)
    runtime = "onnxruntime" if kind == "onnx" else "torch.export.load"
    say(
        console,
        f"{done.path}: {counted(len(model.classes), 'class')}, {amount(done.path.stat().st_size)}",
        f"input {done.metadata['input']}",
        f"checked with {runtime} on random images: probabilities differ from the model's by at most "
        f"{done.probabilities:.1g}, logits by {done.logits:.1g} of the largest",
    )


def format_of(out: Path, given: str | None) -> str:
    """The format asked for; OUT's ending may not say another."""
    guessed = SUFFIXES.get(out.suffix.lower())
    if given is None and guessed is None:
        raise GcabError(f"'{out}' does not say which format to write: end it in .onnx or .pt2, or give --format.")
    if given is not None and guessed not in (None, given):
        raise GcabError(f"'{out}' ends like a file of format {guessed}, not {given}: change one of the two.")
    return given or str(guessed)
