"""How many requests a server answers while many clients ask at once, how long they wait, and whether its memory grows.

    python benchmarks/serve_load.py birds.gcab --clients 64 --seconds 60 --json load.json
    python benchmarks/serve_load.py http://127.0.0.1:8000 --image robin.jpg --token TOKEN

Given a model folder, it serves that itself (`gcab serve`, on a free port, with the arguments after `--`); an ONNX file
gets the plain server of `serve_onnx.py`; given an address, it uses the server there. Every client sends POST /predict
with one image on a connection that stays open, waits for the answer and sends the next; after 429 it waits as long as
the server asks for. The first second is left out of the latencies. The exit code is 1 if any answer was neither 200
nor 429.
"""

import argparse
import asyncio
import io
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

BOUNDARY = "gcab-load"
WARM_UP = 1.0  # seconds


@dataclass
class Load:
    """What all clients together have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of answers with 200, after the first second


def photo(side: int = 224) -> bytes:
    """A JPEG with something in it: the same for everyone who measures."""
    y, x = np.mgrid[:side, :side] / side
    pixels = np.stack([np.sin(9 * x), np.cos(7 * y), np.sin(11 * x * y)], axis=-1) * 127 + 128
    stream = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def request(host: str, image: bytes, token: str | None) -> bytes:
    """The bytes of one request."""
    disposition = 'Content-Disposition: form-data; name="images"; filename="photo.jpg"'
    body = f"--{BOUNDARY}\r\n{disposition}\r\n\r\n".encode() + image + f"\r\n--{BOUNDARY}--\r\n".encode()
    head = [
        "POST /predict HTTP/1.1",
        f"Host: {host}",
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
        f"Content-Length: {len(body)}",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def client(host: str, port: int, message: bytes, began: float, ends: float, load: Load) -> None:
    """One client, until the time is over; a lost connection is counted and opened again."""
    while time.monotonic() < ends:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            try:
                while (asked := time.monotonic()) < ends:
                    writer.write(message)
                    await writer.drain()
                    status, headers, _ = await answer(reader)
                    load.statuses[str(status)] += 1
                    if status == 200 and asked - began > WARM_UP:
                        load.seconds.append(time.monotonic() - asked)
                    elif status == 429:
                        await asyncio.sleep(float(headers.get("retry-after", "1")))
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError, KeyError) as problem:
            load.statuses[type(problem).__name__] += 1
            await asyncio.sleep(0.1)


async def memory(host: str, port: int, name: str, token: str | None) -> int:
    """Resident bytes of the server, as it says itself."""
    reader, writer = await asyncio.open_connection(host, port)
    secret = f"Authorization: Bearer {token}\r\n" if token else ""
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: {name}\r\n{secret}Connection: close\r\n\r\n".encode())
    _, _, body = await answer(reader)
    writer.close()
    found = re.search(rb"^process_resident_memory_bytes (\d+)", body, re.MULTILINE)
    return int(found[1]) if found else 0


async def measure(url: str, clients: int, seconds: float, image: bytes, token: str | None) -> dict[str, Any]:
    """The whole load; memory is read before, after a short warming up, halfway, and at the end."""
    place = urlsplit(url)
    host, port, name = place.hostname or "127.0.0.1", place.port or 80, place.netloc
    resident = {"before": await memory(host, port, name, token)}
    load, began = Load(), time.monotonic()
    message = request(name, image, token)
    asking = [client(host, port, message, began, began + WARM_UP + seconds, load) for _ in range(clients)]
    everyone = asyncio.gather(*asking)
    await asyncio.sleep(WARM_UP)
    resident["warm"] = await memory(host, port, name, token)
    await asyncio.sleep(seconds / 2)
    resident["halfway"] = await memory(host, port, name, token)
    await everyone
    resident["after"] = await memory(host, port, name, token)
    took = time.monotonic() - began - WARM_UP
    waits = np.sort(load.seconds) * 1000
    return {
        "clients": clients,
        "seconds": round(took, 2),
        "image_bytes": len(image),
        "requests_per_second": round(len(waits) / took, 1),
        "p50_ms": round(float(np.quantile(waits, 0.50)), 1) if len(waits) else None,
        "p99_ms": round(float(np.quantile(waits, 0.99)), 1) if len(waits) else None,
        "statuses": dict(sorted(load.statuses.items())),
        "server_memory_mib": {moment: round(value / 2**20, 1) for moment, value in resident.items()},
    }


@contextmanager
def served(target: str, further: Sequence[str]) -> Iterator[str]:
    """The address to ask: the one that was given, or that of a server of our own."""
    if target.startswith("http://"):
        yield target
        return
    if target.endswith(".onnx"):
        command = [sys.executable, str(Path(__file__).with_name("serve_onnx.py")), target]
    else:
        command = [sys.executable, "-m", "gcab", "serve", target, "--port", "0", *further]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+:\d+", process.stdout.readline())
            if found is None:
                sys.exit("the server did not start.")
            yield found[0]
        finally:
            process.terminate()


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="MODEL|URL")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--image", type=Path, help="a photo to send (a generated JPEG of 224 x 224 pixels)")
    parser.add_argument("--token")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file as well")
    options = parser.parse_args(given[:split])
    image = options.image.read_bytes() if options.image else photo()
    with served(options.target, given[split + 1 :]) as url:
        figures = asyncio.run(measure(url, options.clients, options.seconds, image, options.token))
    text = json.dumps(figures, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0 if good(figures) else 1


def good(figures: dict[str, Any]) -> bool:
    """Every answer was one, or said that there are too many requests."""
    return set(figures["statuses"]) <= {"200", "429"}


if __name__ == "__main__":
    sys.exit(main())
