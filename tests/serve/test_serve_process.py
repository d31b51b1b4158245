"""`gcab serve` as a process of its own: it starts, answers, ends in good order, and says why when it cannot."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.processes import LIMIT
from helpers.serving import form, model_folder, photo

from gcab.cli.main import main

LOAD = Path(__file__).parents[2] / "benchmarks" / "serve_load.py"
TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("process") / "birds.gcab")


@contextmanager
def server(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "gcab", "serve", str(folder), "--port", "0", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **environment}, **pipes) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("birds (generation 2, 5 classes) is served at http://"), line
            yield process, re.findall(r"http://\S+:\d+", line)[0]
        finally:
            process.kill()


def test_requests_load_and_a_good_end(folder: Path, tmp_path: Path) -> None:
    """One process for all of it, as starting one takes seconds."""
    with server(folder) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        answer = httpx.post(f"{url}/predict", files=form("images", photo(0)), params={"top": 2})
        assert len(answer.json()["predictions"][0]["top"]) == 2
        assert "server" not in answer.headers

        load_for_two_seconds(url, tmp_path / "load.json")

        began = threading.Event()
        found: list[int] = []

        def ask_slowly() -> None:
            def body() -> Iterator[bytes]:
                yield b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
                began.set()
                time.sleep(0.7)
                yield photo(0) + b"\r\n--b--\r\n"

            kind = {"Content-Type": "multipart/form-data; boundary=b"}
            found.append(httpx.post(f"{url}/predict", content=body(), headers=kind).status_code)

        asking = threading.Thread(target=ask_slowly)
        asking.start()
        began.wait()
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=LIMIT)
        asking.join()
        assert found == [200]
        assert process.returncode == 0
        assert output == "The server has ended.\n"
        assert errors == ""


def load_for_two_seconds(url: str, figures_file: Path) -> None:
    command = [sys.executable, str(LOAD), url, "--clients", "8", "--seconds", "2", "--json", str(figures_file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    figures = json.loads(figures_file.read_text())
    assert figures == json.loads(result.stdout)
    assert result.returncode == 0, result.stdout
    assert set(figures["statuses"]) <= {"200", "429"}
    assert figures["clients"] == 8
    assert figures["requests_per_second"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert figures["server_memory_mib"]["after"] - figures["server_memory_mib"]["warm"] < 50


@pytest.mark.usefixtures("forked_interpreters")
def test_others_need_the_token_of_the_environment(folder: Path) -> None:
    with server(folder, "--host", "0.0.0.0", GCAB_TOKEN=TOKEN) as (process, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/model").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}", "Host": "birds.example"}
        assert httpx.get(f"{url}/model", headers=right).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["serve", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_port_that_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} is taken" in refusal(capsys, str(folder), "--port", port)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--host", "0.0.0.0"], "give a token (--token or GCAB_TOKEN)"),
        (["--host", "0.0.0.0", "--token", "short"], "at least 16"),
        (["--host", "192.0.2.1", "--token", TOKEN], "cannot listen on 192.0.2.1"),
        (["--host", "no such host", "--token", TOKEN], "no address of this machine"),
        (["--port", "70000"], "not a port from 0 to 65535"),
        (["--batch", "0"], "not a whole number above 0"),
        (["--queue", "3"], "queue of 3 cannot hold"),
        (["--device", "abacus"], "device 'abacus'"),
    ],
)
def test_what_cannot_be_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    monkeypatch.delenv("GCAB_TOKEN", raising=False)
    assert part in refusal(capsys, str(folder), "--port", "0", *arguments)


def test_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no model in" in refusal(capsys, str(tmp_path / "nothing"), "--port", "0")


def test_a_missing_extra(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert "pip install 'gcab[serve]'" in refusal(capsys, str(folder))


def test_a_port_that_needs_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    from gcab.errors import GcabError
    from gcab.serve.server import address, listen

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "no")

    with listen("::1", 0) as listener:
        assert re.fullmatch(r"http://\[::1\]:\d+", address(listener))
    monkeypatch.setattr(socket, "create_server", denied)
    with pytest.raises(GcabError, match="needs more rights"):
        listen("127.0.0.1", 80)
