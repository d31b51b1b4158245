"""HTTP itself, on uvicorn's h11 protocol: connections that are slow to send their request's head are closed."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gcab.serve.limits import Limits
from gcab.serve.middleware import error_body
from gcab.serve.security import SECURITY_HEADERS

MALFORMED = "this is not a proper HTTP request, or its headers are too long: correct it."
CROWDED = "too many connections at once: try again in a moment."


def protocol_with(limits: Limits) -> type[H11Protocol]:
    """uvicorn makes one object of this class for each connection."""

    class Protocol(LimitedProtocol):
        bounds = limits

    return Protocol


class LimitedProtocol(H11Protocol):
    """Answers malformed requests in JSON too; ends slow heads, endless unread bodies and surplus connections."""

    bounds: Limits

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            self.refuse(503, CROWDED)
        else:
            self.watch()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.calm()
        super().connection_lost(exc)

    def watch(self) -> None:
        """A time limit runs while a head is incomplete, and while a body goes on after its answer was sent."""
        answered = self.conn.our_state is h11.DONE
        if self.conn.their_state is h11.IDLE or (answered and self.conn.their_state is h11.SEND_BODY):
            if self.patience is None:
                self.patience = self.loop.call_later(self.bounds.header_seconds, self.transport.close)
        else:
            self.calm()

    def calm(self) -> None:
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self.refuse(400, MALFORMED)

    def refuse(self, status: int, sentence: str) -> None:
        """An answer below the application, written by hand as h11 may already have given up on the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error_body(sentence)
            headers = {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                "Connection": "close",
                **SECURITY_HEADERS,
            }
            lines = [f"HTTP/1.1 {status} Refused", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            self.transport.write("\r\n".join(lines).encode("ascii") + body)
        self.transport.close()
