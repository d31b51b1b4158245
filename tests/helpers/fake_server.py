"""A server that keeps the contract of `gcab serve` with canned answers, so that the page alone is under test."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gcab.report
import gcab.serve

PAGE = Path(gcab.serve.__file__).parent / "page"
REPORT_STYLE = Path(gcab.report.__file__).parent / "style.css"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HOSTILE = "<img src=x onerror=alert(1)>"
SIDE = 8
FLAT = [0.93 + 0.07 * place / (SIDE**2 - 1) for place in range(SIDE**2)]  # an attention map that says nothing

Document = dict[str, Any]


def task(
    index: int, names: list[str], accuracy: float | None, now: float | None = None, again: Sequence[str] = ()
) -> Document:
    photos = 12 * len([*names, *again])
    return {
        "index": index,
        "classes": names,
        "again": [*again],
        "accuracy": accuracy,
        "held_out": photos,
        "now": now,
    }


def corner(row: int, column: int) -> list[float]:
    """An attention map that looks at one place, row by row."""
    return [2.0 ** -((y - row) ** 2 + (x - column) ** 2) for y in range(SIDE) for x in range(SIDE)]


@dataclass
class Fake:
    """What the canned server knows; tests change it while it runs."""

    tasks: list[Document] = field(
        default_factory=lambda: [
            task(1, ["blackbird", "great tit", "robin"], 93.4, 61.7),
            task(2, ["kingfisher", HOSTILE], 88.1),
            task(3, [f"warbler {number}" for number in range(1, 21)], 71.25),
        ]
    )
    token: str | None = None
    can_teach: bool = True
    distilled: bool = False  # since the last task
    stores_images: bool = False
    broken: bool = False  # cuts every connection, as a server that is gone
    full: int = 0  # photos get 429 this often
    job: Document = field(
        default_factory=lambda: {
            "state": "idle",
            "events": [],
            "accuracy_before": None,
            "accuracy_after": None,
            "error": None,
        }
    )
    script: list[Document] = field(default_factory=list)  # the next job, one state per GET /teach
    steps: int = 1000  # so many states the job may still go on
    refusal: str | None = None  # what POST /teach answers instead of 202
    content: str = "<p>Nothing.</p>"  # of the report
    archive: bytes = b""  # the last form that was sent to teach
    asked: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Of the weights: the same tasks are the same model here."""
        return "/".join([*one["classes"], *one["again"]][0] for one in self.tasks)

    def model(self) -> Document:
        return {
            "name": "birds",
            "version": "0.1.0",
            "method": "gcab",
            "generation": len(self.tasks),
            "digest": self.digest,
            "image_size": 32,
            "classes": [{"name": name, "task": one["index"]} for one in self.tasks for name in one["classes"]],
            "tasks": self.tasks,
            "capacity": {"input": 0.38, "hidden": 0.55},
            "bytes": 5_412_345,
            "expected_accuracy": 68.4,
            "warnings": ["Lesson 1 had 93 % when it was learned, and about 62 % now."],
            "verdict": "the eye alone decides",
            "stores_images": self.stores_images,
            "can_undo": len(self.tasks) > 1,
            "undoes": "distillation" if self.distilled else "task" if len(self.tasks) > 1 else None,
            "can_teach": self.can_teach,
            "limits": {"body_bytes": 1_000_000, "archive_bytes": 1_000_000, "pixels": 64_000_000, "batch": 32},
        }

    def predict(self, name: str) -> tuple[int, Document]:
        if name.startswith("damaged"):
            return 422, {"error": f"{name} is damaged: save it again as PNG."}
        strange = name.startswith("strange")
        shares = [0.31, 0.27, 0.2, 0.12, 0.1] if strange else [0.874, 0.081, 0.03, 0.01, 0.005]
        known = [("kingfisher", 2), (HOSTILE, 2), ("robin", 1), ("warbler 3", 3), ("blackbird", 1)]
        prediction = {
            "file": name,
            "top": [{"class": n, "task": t, "probability": p} for (n, t), p in zip(known, shares, strict=True)],
            "unknown": 0.982 if strange else None if name.startswith("unscored") else 0.124,
            "flagged": strange,
            "tasks": [
                {"task": number, "probability": share}
                for number, share in enumerate([0.035, 0.955, 0.01] + [0.0] * (len(self.tasks) - 3), start=1)
            ],
            "answered_by": 2,
            "attention": {"side": SIDE, "maps": [corner(1, 1), corner(4, 3), corner(6, 6)]},
            **({"attention": {"side": SIDE, "maps": [FLAT] * 3}} if name.startswith("flat") else {}),
        }
        return 200, {"model": {"generation": len(self.tasks), "digest": self.digest}, "predictions": [prediction]}

    def teach(self) -> tuple[int, Document]:
        if self.refusal is not None:
            return 422, {"error": self.refusal}
        if self.job["state"] == "running":
            return 409, {"error": "A job is running already: wait until it is done."}
        self.job = self.script.pop(0)
        return 202, {"job": "1"}

    def watch(self) -> tuple[int, Document]:
        shown = self.job
        if shown["state"] == "running" and self.script and self.steps > 0:
            self.steps -= 1
            self.job = self.script.pop(0)
            if self.job["state"] == "done":
                self.tasks = [*self.tasks, task(len(self.tasks) + 1, ["bullfinch", "wren"], 84.0)]
        return 200, shown

    def undo(self) -> tuple[int, Document]:
        if len(self.tasks) < 2:
            return 409, {"error": "There is nothing to undo."}
        if not self.distilled:
            self.tasks = self.tasks[:-1]
        self.distilled = False
        return 200, self.model()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Document]:
        match method, path:
            case "GET", "/model":
                return 200, self.model()
            case "POST", "/predict":
                name = re.search(rb'name="images"; filename="([^"]*)"', body)
                return self.predict(name[1].decode()) if name else (422, {"error": "No image was sent."})
            case "GET", "/report":
                return 200, {"digest": self.digest, "content": self.content}
            case "POST", "/teach":
                self.archive = body
                return self.teach()
            case "GET", "/teach":
                return self.watch()
            case "POST", "/undo":
                return self.undo()
        return 404, {"error": f"There is nothing at {path}."}


def lesson(epochs: int = 3, error: str | None = None) -> list[Document]:
    """The states of one job, from the moment it is accepted."""
    start = {
        "event": "start",
        "classes": ["bullfinch", "wren"],
        "images": 80,
        "held_out": 16,
        "epochs": epochs,
        "estimated_seconds": 9,
    }
    events: list[Document] = [start]
    states: list[Document] = [{"state": "running", "events": list(events)}]
    for epoch in range(1, epochs + 1):
        events.append(
            {"event": "epoch", "epoch": epoch, "epochs": epochs, "loss": 1.2 / epoch, "seconds_left": epochs - epoch}
            | {"held_out_accuracy": 100 - 50 / epoch}
        )
        states.append({"state": "running", "events": list(events)})
    if error is None:
        digest = "blackbird/kingfisher/warbler 1/bullfinch"
        events.append({"event": "done", "generation": 4, "digest": digest, "accuracy": {}, "seconds": 8.6})
    states.append({"state": "done" if error is None else "failed", "events": list(events), "error": error})
    ended = {"accuracy_before": 88.1, "accuracy_after": 86.4}
    blank = {"accuracy_before": None, "accuracy_after": None, "error": None}
    return [blank | state | (ended if state["state"] == "done" else {}) for state in states]


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests look at `Fake.asked` instead."""

    def respond(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        own = PAGE / ("index.html" if path == "/" else path.removeprefix("/page/"))
        file = REPORT_STYLE if path == "/page/report.css" else own
        self.fake.asked.append(f"{self.command} {self.path}")
        if self.command == "GET" and (path == "/" or path.startswith("/page/")) and file.is_file():
            self.respond(200, TYPES[file.suffix], file.read_bytes())
            return
        if self.fake.broken:
            self.close_connection = True
            return
        if self.fake.token is not None and self.headers.get("Authorization") != f"Bearer {self.fake.token}":
            status, document = 401, {"error": "This server asks for a token."}
        elif path == "/predict" and self.fake.full > 0:
            self.fake.full -= 1
            status, document = 429, {"error": "The server is busy: try again in a second."}
        else:
            status, document = self.fake.answer(self.command, path, body)
        self.respond(status, "application/json", json.dumps(document).encode())

    do_GET = do_POST = handle_any  # noqa: N815 (names given by http.server)


@contextmanager
def running(fake: Fake) -> Iterator[str]:
    """The address of a server for `fake` on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
