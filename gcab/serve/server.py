"""From a service to a listening process that shuts down gracefully."""

import asyncio
import errno
import logging
import signal
import socket
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from gcab.errors import GcabError
from gcab.serve.limits import Limits
from gcab.serve.middleware import Middleware
from gcab.serve.protocol import protocol_with


def listen(host: str, port: int) -> socket.socket:
    """The socket this server listens on; raises an error that says why it cannot have it."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except socket.gaierror:
        raise GcabError(f"'{host}' is no address of this machine: give --host 127.0.0.1 or another.") from None
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise GcabError(f"port {port} is taken by another program: stop it or choose one with --port.") from None
        if problem.errno == errno.EACCES:
            raise GcabError(f"port {port} needs more rights: choose one from 1024 on with --port.") from None
        raise GcabError(f"cannot listen on {host}, port {port} ({problem.strerror}): choose another.") from None


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's, but a signal to stop is a normal end: it is not raised again."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self.announce = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.announce()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        stops = (signal.SIGINT, signal.SIGTERM)
        for stop in stops:
            loop.add_signal_handler(stop, self.handle_exit, stop, None)
        try:
            yield
        finally:
            for stop in stops:
                loop.remove_signal_handler(stop)


def run(app: Middleware, listener: socket.socket, limits: Limits, started: Callable[[], None]) -> None:
    """Serve until a signal; requests under way may finish."""
    # A client that sends damaged files gets an error; it must not fill the log.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        http=protocol_with(limits),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_graceful_shutdown=max(1, round(limits.stop_seconds)),
    )
    Server(config, started).run(sockets=[listener])
