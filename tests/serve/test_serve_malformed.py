"""Several hundred malformed requests to a real server: each is answered, soon, and the server serves on."""

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.malformed import HOST, LONG_TEXT, cases, form, image_request, post
from helpers.prepared import Program
from helpers.processes import LIMIT, environment
from helpers.serving import model_folder, photo

from gcab.serve.security import SECURITY_HEADERS

pytestmark = pytest.mark.repeats


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = model_folder(tmp_path_factory.mktemp("malformed") / "birds.gcab")
    with Program([str(folder)], None, environment(), module="helpers.small_server") as process:
        yield process
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def port(process: Program) -> int:
    return int(process.stdout.readline().rsplit(":", 1)[1])


def work_of(process: Program) -> float:
    """Seconds of processor time that it has used; where nobody tells, none."""
    told = Path(f"/proc/{process.pid}/stat")
    ticks = told.read_text().rsplit(")", 1)[1].split()[11:13] if told.exists() else []
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def exchange(port: int, content: bytes) -> tuple[int, str]:
    """The status and the whole answer; 0 where the connection was closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all of it was read
            connection.sendall(content)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, str]:
    received = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(2**16):
            received += chunk
            head, end, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if end and length and len(body) >= int(length[1]):
                break
    return (int(received.split()[1]) if received else 0), received.decode("utf-8", "replace")


def memory(port: int) -> int:
    _, text = exchange(port, b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n")
    found = re.search(r"process_resident_memory_bytes (\d+)", text)
    assert found
    return int(found[1])


def test_every_malformed_request_is_refused(port: int, process: Program) -> None:
    everything, good, slowest, problems = cases(), image_request(photo(7)), 0.0, []
    assert len(everything) > 250
    assert len({name for name, _ in everything}) == len(everything)
    warm = 0
    for index, (name, content) in enumerate(everything):
        before = work_of(process)
        status, text = exchange(port, content)
        slowest = max(slowest, work_of(process) - before)
        if name == LONG_TEXT:  # which is dropped unread: what is left is a good picture
            assert status == 200, text
        elif not 400 <= status < 500 and not ("flipped" in name and status == 200):
            problems.append((name, status, text.partition("\r\n\r\n")[2][:200]))
        elif status >= 400:
            assert set(json.loads(text.partition("\r\n\r\n")[2])) == {"error"}, name
            for header, value in SECURITY_HEADERS.items():
                assert f"{header}: {value}".lower() in text.lower(), (name, header)
            assert not re.search(r'Traceback|File "|/tmp|site-packages|0x[0-9a-f]{6}', text), name
        if index % 40 == 0:
            assert exchange(port, good)[0] == 200, name
        if index == 60:
            warm = memory(port)
    assert problems == [], problems
    assert slowest < 2
    assert memory(port) - warm < 80 * 2**20
    status, text = exchange(port, b"GET /teach HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (status, '"state":"idle"' in text) == (200, True)


def test_heads_that_do_not_end(port: int) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        connection.sendall(b"GET /model HTTP/1.1\r\n")
        assert read_answer(connection)[0] == 0
    assert time.monotonic() - began > 0.3


def test_a_connection_that_says_nothing(port: int) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        assert connection.recv(1) == b""
    assert time.monotonic() - began > 0.3


def test_a_body_that_does_not_end(port: int) -> None:
    status, text = exchange(port, post("/predict", form("images", photo(0))[:50], length=5000))
    assert (status, "too long to arrive" in text) == (408, True)


def test_a_client_that_leaves_in_the_middle(port: int) -> None:
    for length in (10, 100, 300):
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
            connection.sendall(image_request(photo(0))[:length])
    assert exchange(port, image_request(photo(0)))[0] == 200


def test_an_answer_before_the_body_has_ended(port: int) -> None:
    """The client can read why it was refused although it still sends; afterwards the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        connection.sendall(post("/predict", b"x" * 1000, "text/plain", length=10**6))
        assert read_answer(connection)[0] == 415
        until = time.monotonic() + LIMIT
        ended = False
        while not ended:
            assert time.monotonic() < until
            try:
                connection.sendall(b"x")
            except ConnectionError:
                ended = True
            time.sleep(0.05)


def test_a_connection_is_used_again(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        for _ in range(3):
            connection.sendall(image_request(photo(1)))
            assert read_answer(connection)[0] == 200
            time.sleep(0.3)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert read_answer(connection)[0] == 200


def test_two_requests_at_once_on_one_connection(port: int) -> None:
    get = b"GET /healthz HTTP/1.1\r\n" + HOST
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        connection.sendall(get + b"\r\n" + get + b"Connection: close\r\n\r\n")
        received = b""
        while chunk := connection.recv(2**16):
            received += chunk
    assert received.count(b'{"status":"ok"}') == 2


def test_too_many_connections(port: int) -> None:
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT)) for _ in range(60)
        ]
        answers = [read_answer(connection) for connection in connections]
    crowded = [text for status, text in answers if status == 503]
    assert len(crowded) >= 15
    assert "too many connections" in crowded[0]
    assert exchange(port, image_request(photo(0)))[0] == 200
