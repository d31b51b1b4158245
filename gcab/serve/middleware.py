"""ASGI middleware around the whole application: access, body limits, time limits, response headers."""

import asyncio
import json
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gcab.serve.limits import Limits, RequestError, busy, in_mebi
from gcab.serve.metrics import Metrics
from gcab.serve.security import SECURITY_HEADERS, Door

UNLIMITED = frozenset(("/healthz", "/metrics"))  # they must answer above all when the server is busy
INTERNAL = "the server made a mistake: try again, and tell whoever runs it if it stays."


class Middleware:
    """Admits a request, bounds its body and its time, and counts how it ended."""

    def __init__(
        self, app: ASGIApp, door: Door, limits: Limits, metrics: Metrics, routes: Collection[str] = frozenset()
    ) -> None:
        self.app, self.door, self.limits, self.metrics = app, door, limits, metrics
        self.routes = routes  # what metrics may name: clients choose the other paths
        self.buffered = 0  # bytes of bodies under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, path = time.perf_counter(), scope["path"]
        answer, body = Answer(send, self.limits.answer_seconds), Body(receive, self, path)
        self.metrics.under_way += 1
        try:
            self.admit(scope)
            await self.app(scope, body.receive, answer.send)
        except RequestError as refused:
            await answer.refuse(refused)
        except (ClientDisconnect, TimeoutError):  # the client is gone
            answer.status = answer.status or 499
        except Exception:
            logging.getLogger("gcab.serve").exception("a request failed")
            await answer.refuse(RequestError(500, INTERNAL))
        finally:
            self.metrics.under_way -= 1
            self.buffered -= body.size
            route = path if path in self.routes else "other"
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            self.metrics.answered(route, method, answer.status or 499, time.perf_counter() - began)

    def admit(self, scope: Scope) -> None:
        """Admit a request by its head; a head in one piece is limited here, as h11 limits incomplete ones only."""
        size = len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if size > self.limits.header_bytes:
            raise RequestError(431, f"the headers are larger than {self.limits.header_bytes} bytes: send less in them.")
        if scope["http_version"] not in ("1.0", "1.1"):
            raise RequestError(400, "this server speaks HTTP/1.1: use that.")
        self.door.check(scope["method"], scope["path"], Headers(scope=scope))
        if self.metrics.under_way > self.limits.requests and scope["path"] not in UNLIMITED:
            raise busy("too many requests at once: try again in a moment.")


class Body:
    """Limits the time and the size of a request's body, by what arrives and not by what was announced."""

    def __init__(self, receive: Receive, middleware: Middleware, path: str) -> None:
        self._receive, self._middleware = receive, middleware
        self.limit = middleware.limits.archive_bytes if path == "/teach" else middleware.limits.body_bytes
        self.size, self.complete = 0, False
        self.deadline = time.monotonic() + middleware.limits.body_seconds

    async def receive(self) -> Message:
        if self.complete:  # from here on the application only waits for the client to go away
            return await self._receive()
        try:
            async with asyncio.timeout(self.deadline - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise RequestError(408, "the request took too long to arrive: send it again, faster or smaller.") from None
        self.complete = not message.get("more_body", False)
        count = len(message.get("body", b""))
        self.size += count
        self._middleware.buffered += count
        if self.size > self.limit:
            raise RequestError(413, f"the request is larger than {in_mebi(self.limit)}: send less at a time.")
        if self._middleware.buffered > self._middleware.limits.buffered_bytes:
            raise busy("too many large requests at once: try again in a moment.")
        return message


@dataclass
class Answer:
    """Adds the security headers, remembers the status, and gives up on clients that do not read."""

    _send: Send
    seconds: float
    status: int = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        async with asyncio.timeout(self.seconds):
            await self._send(message)

    async def refuse(self, refused: RequestError) -> None:
        if self.status:  # the answer has begun: it can only end early
            return
        body = error_body(refused.sentence)
        given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refused.headers}
        headers: list[Any] = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def error_body(sentence: str) -> bytes:
    """The one shape of every error."""
    return json.dumps({"error": sentence}, ensure_ascii=False).encode()
