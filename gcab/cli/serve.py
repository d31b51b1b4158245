"""The command line of: serve."""

import argparse
import importlib.util
import os
from pathlib import Path

from rich.console import Console

from gcab.cli.verbs import AddVerb, add_formats, add_views, positive, say
from gcab.errors import GcabError
from gcab.serve.limits import MEBI, Limits

EPILOG = """\
The page and the API are on http://127.0.0.1:8000 and reach nobody outside this machine. Another --host needs a
token, which clients send as 'Authorization: Bearer TOKEN'; in the environment (GCAB_TOKEN) it is seen by fewer eyes.

examples:
  gcab serve birds.gcab                                       look, predict
  gcab serve birds.gcab --allow-teach                         and learn new classes from the page
  GCAB_TOKEN=... gcab serve birds.gcab --host 0.0.0.0         for others, who need the token
  curl -F images=@robin.jpg 'http://127.0.0.1:8000/predict?top=3'
"""


def register(verb: AddVerb) -> None:
    """Add the verb of this file."""
    serve = verb("serve", serve_verb, "a web page and a JSON API for a model, on this machine", EPILOG)
    serve.add_argument("model", type=Path, metavar="MODEL", help="a model folder, or a run folder")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
    serve.add_argument("--port", type=port_number, default=8000, help="0: any free one (8000)")
    serve.add_argument("--token", help="what clients must send (environment: GCAB_TOKEN)")
    serve.add_argument(
        "--allow-teach", action="store_true", help="let clients teach new classes and undo the last ones"
    )
    serve.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name a proxy on this machine passes on"
    )
    serve.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (auto)")
    serve.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="(float32)")
    serve.add_argument("--compile", action="store_true", help="compile the network first: a slow start, then faster")
    add_views(serve)
    add_formats(serve)
    usual, bounds = Limits(), serve.add_argument_group("limits")
    for flag, value, meaning in (
        ("--max-body", usual.body_bytes // MEBI, "MiB of one request"),
        ("--max-archive", usual.archive_bytes // MEBI, "MiB of a zip to teach from"),
        ("--max-pixels", usual.pixels, "pixels of one image"),
        ("--max-images", usual.images, "images in one request"),
        ("--max-requests", usual.requests, "requests at one time"),
        ("--queue", usual.queue, "images that may wait"),
        ("--batch", usual.batch, "images the network sees at once"),
        ("--stop-seconds", round(usual.stop_seconds), "time for requests under way when the server is told to stop"),
    ):
        bounds.add_argument(flag, type=positive, default=value, metavar="N", help=f"{meaning} ({value})")


def serve_verb(verb: argparse.Namespace, console: Console) -> None:
    for module in ("fastapi", "uvicorn", "python_multipart"):
        if importlib.util.find_spec(module) is None:
            raise GcabError("serving needs a few more packages: pip install 'gcab[serve]'")
    from gcab.serve.app import make_app
    from gcab.serve.memory import map_large_blocks
    from gcab.serve.security import Door
    from gcab.serve.served import Inference
    from gcab.serve.server import address, listen, run
    from gcab.serve.service import Service

    token = verb.token if verb.token is not None else os.environ.get("GCAB_TOKEN") or None
    door = Door(verb.host, token, tuple(name.lower() for name in verb.allow_host))
    limits = Limits(
        body_bytes=verb.max_body * MEBI,
        archive_bytes=verb.max_archive * MEBI,
        pixels=verb.max_pixels,
        images=verb.max_images,
        requests=verb.max_requests,
        queue=verb.queue,
        batch=verb.batch,
        stop_seconds=verb.stop_seconds,
    )
    map_large_blocks()
    with listen(verb.host, verb.port) as listener:
        if verb.compile:
            say(console, f"{verb.model}  compiling the network, which takes about a minute")
        inference = Inference(verb.device, verb.precision, verb.compile, verb.views)
        service = Service(verb.model, inference, limits, verb.allow_teach)
        told = service.describe()  # not the model itself, which another may replace: two would stay in memory
        what = f"{told['name']} (generation {told['generation']}, {len(told['classes'])} classes)"

        def started() -> None:
            say(console, f"{what} is served at {address(listener)}; Ctrl-C ends it.")

        run(make_app(service, door), listener, limits, started)
    say(console, "The server has ended.")


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 0 to 65535")
    return int(text)
