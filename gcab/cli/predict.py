"""The command line of: predict."""

import argparse
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from gcab.cli.prediction_formats import FORMATS
from gcab.cli.verbs import AddVerb, add_formats, add_views, counted, positive, require_model, say
from gcab.errors import GcabError

EPILOG = """\
IMAGES are files, folders (with all folders inside, in order of name; linked ones too, but none twice), patterns in
quotes ('photos/**/*.jpg'), or - for standard input: the bytes of one image, or a list of paths (one a line, or as
find -print0 gives them), told apart by how they begin.

The unknown score is the share of known images that look more familiar than this one: 0.95 means stranger than
95 % of them. Images with at least --unknown are flagged as none of the model's classes. A model that had fewer than 20
held-out photos gives no score (-, null or empty) and flags nothing.

--json gives an object per line: {"file", "top": [{"class", "probability", "task"}], "unknown", "flagged"}, or
{"file", "error"}. --csv gives a row per image; text that a spreadsheet would run as a formula (from = + - @ on) gets a
' in front. In both, a byte of a file's name that is no UTF-8 is written as \\udcNN, where NN is the byte.

Exit code: 0 all images were predicted, 1 some could not be read, 2 none could.

examples:
  gcab predict birds.gcab some.jpg more/ --top 5
  gcab predict birds.gcab photos/ --csv > birds.csv
  find photos -name '*.jpg' -print0 | gcab predict birds.gcab - --json
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    parser = verb("predict", predict_verb, "say what is on images, and what may be none of the known classes", EPILOG)
    parser.add_argument("model", metavar="MODEL", help="a model folder, or a run")
    parser.add_argument("images", nargs="+", metavar="IMAGES", help="files, folders, patterns, or - (see below)")
    parser.add_argument("--top", type=positive, default=3, metavar="K", help="classes per image (3)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", help="an object per line")
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="a row per image")
    form.add_argument("--table", dest="form", action="store_const", const="table", help="for people (the default)")
    parser.add_argument(
        "--unknown", type=share, default=0.95, metavar="X", help="flag from this unknown score on (0.95)"
    )
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="images predicted at once (64)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="(float32)")
    add_views(parser)
    add_formats(parser)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 1")
    return value


def predict_verb(verb: argparse.Namespace, console: Console) -> int:
    require_model(verb.model)
    from gcab.classifier.image_sources import STANDARD_INPUT, find_photos
    from gcab.classifier.model import Classifier
    from gcab.classifier.prediction import predict_files
    from gcab.data.archive import LeftOut

    if STANDARD_INPUT in verb.images and sys.stdin.isatty():
        raise GcabError("'-' means standard input, where a terminal is: pipe an image or a list of paths to it.")
    model = Classifier.load(verb.model, device=verb.device)
    top = min(verb.top, len(model.classes))
    left_out = LeftOut()
    photos = find_photos(verb.images, sys.stdin.buffer, left_out)
    predictions = predict_files(model, photos, verb.batch, top, verb.precision, verb.views)
    errors = Console(stderr=True)
    output = FORMATS[verb.form or "table"](console, errors, model, top, verb.unknown)
    done = failed = 0
    try:
        with warnings.catch_warnings(), counter(errors, shown=is_file(console)) as count:
            warnings.simplefilter("ignore")  # decoders warn of oddities that do not matter here
            for prediction in predictions:
                output.write(prediction)
                done += 1
                failed += prediction.error is not None
                count(done, failed)
    except KeyboardInterrupt:
        errors.print(f"\ngcab: stopped after {counted(done, 'image')}.", highlight=False)
        return 130
    if not done:
        raise GcabError("no image was named: give files, folders, patterns or a list of paths.")
    output.end(done, failed)
    if left_out.count:
        say(errors, f"gcab: {left_out.sentence()}")
    return 2 if failed == done else int(failed > 0)


def is_file(console: Console) -> bool:
    """Whether the output goes to a file; what a pipe leads to may write to the same terminal."""
    try:
        return stat.S_ISREG(os.fstat(console.file.fileno()).st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def counter(errors: Console, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A counter on the terminal while the output goes to a file; the total is unknown."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=16), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not (shown and errors.is_terminal)) as progress:
        bar = progress.add_task("", total=None)

        def count(done: int, failed: int) -> None:
            description = counted(done, "image") + (f", {failed} unreadable" if failed else "")
            progress.update(bar, completed=done, description=description)

        yield count
