"""What crafted files and malformed requests cost a server: processor time and memory of it and its decoders.

gcab serve birds.gcab --allow-teach --port 8000 2> serve.log &
python benchmarks/malformed_requests.py http://127.0.0.1:8000 --server $! --log serve.log --output malformed.json
python benchmarks/malformed_requests.py http://127.0.0.1:8000 --server $! --log serve.log --output load.json \\
    --requests 0 --clients 64 --minutes 10 --teach

First every kind of file at its full size, then again and again small; between them requests that are no proper HTTP,
form or zip; one at a time, so that what is measured belongs to it. With --clients many at once: good photos and small
crafted files; with --teach lessons in between, each undone when it has ended, so that the model is as large as before.
"""

import argparse
import contextlib
import http.client
import io
import itertools
import json
import os
import socket
import statistics
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from crafted_files import KINDS
from PIL import Image

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers import malformed  # the requests that the tests send, too

TICKS = os.sysconf("SC_CLK_TCK")
MEBI = 2**20
SIZES = 5  # of the small files of each kind
SAMPLE_SECONDS = 5.0  # between looks at the memory
WARMING = 0.2  # share of the time
MOST_SECONDS, MOST_MEBI = 2.0, 200
REQUESTS = {
    "request: no HTTP, or for what is not there": malformed.lines,
    "request: no proper form": malformed.forms,
    "request: no proper zip to teach from": malformed.zips,
    "request: a claim of too many pixels": malformed.bombs,
    "request: a picture cut short": malformed.cut_images,
    "request: a picture with flipped bits": malformed.flipped_images,
    "request: no picture": malformed.no_images,
}
LESSONS = ("zip: large images",)  # malformed only for a server with lower limits
GROWTH = 10  # MiB by which the last third may exceed the first, and which the last half may gain in ten minutes


class Processes:
    """The server and the processes it has started, as the system counts them."""

    def __init__(self, server: int) -> None:
        self.server = server

    def all(self) -> list[int]:
        children = Path(f"/proc/{self.server}/task").glob("*/children")
        return [self.server, *(int(name) for file in children for name in file.read_text().split())]

    def seconds(self) -> float:
        """Processor time of all of them, also of those that have ended."""
        total = 0.0
        for process in self.all():
            numbers = self.read(process, "stat").rpartition(")")[2].split()
            counted = numbers[11:15] if process == self.server else numbers[11:13]  # its ended children too
            total += sum(map(int, counted)) / TICKS
        return total

    def decoders(self) -> list[int]:
        """Those that decode, but not one that learns."""
        return [process for process in self.all() if "gcab.serve.decoder" in self.read(process, "cmdline")]

    def memory(self, field: str) -> dict[int, float]:
        """MiB of each by one line of its status."""
        found = {}
        for process in self.all():
            for line in self.read(process, "status").splitlines():
                if line.startswith(field):
                    found[process] = int(line.split()[1]) / 1024
        return found

    def forget_peaks(self) -> None:
        for process in self.all():
            try:
                Path(f"/proc/{process}/clear_refs").write_text("5")
            except OSError:  # it has ended meanwhile
                continue

    @staticmethod
    def read(process: int, name: str) -> str:
        try:
            return Path(f"/proc/{process}/{name}").read_text()
        except OSError:
            return ") 0 " + "0 " * 30


def exchange(url: str, request: bytes) -> tuple[int, str]:
    """The status of the answer and its text; 0 where none came."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=120) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all of it was read
            connection.sendall(request)
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as problem:
            return 0, str(problem)


def image_request(content: bytes) -> bytes:
    return malformed.post("/predict", malformed.form("images", content, b"a.jpg"))


def file_requests(make: Callable[[int], bytes], largest: int) -> Iterator[bytes]:
    """The largest file, then small ones."""
    small = [image_request(make(2000 + 9000 * step)) for step in range(SIZES)]
    return itertools.chain([image_request(make(largest))], itertools.cycle(small))


def all_requests(largest: int) -> dict[str, Iterator[bytes]]:
    """Endless ones of each kind."""
    files = {name: file_requests(make, largest) for name, make in KINDS.items()}
    requests = {
        kind: itertools.cycle([request for name, request in cases() if name not in LESSONS])
        for kind, cases in REQUESTS.items()
    }
    return files | requests


def one_at_a_time(url: str, processes: Processes, count: int, largest: int) -> dict[str, Any]:
    """The worst of every kind."""
    worst: dict[str, dict[str, Any]] = {}
    kinds = all_requests(largest)
    for name in itertools.islice(itertools.cycle(kinds), count):
        request = next(kinds[name])
        processes.forget_peaks()
        resident, before = processes.memory("VmRSS"), processes.seconds()
        status, text = exchange(url, request)
        spent = processes.seconds() - before
        peaks = processes.memory("VmHWM")
        usual = min(resident.values())  # of a decoder: also of one that was started meanwhile
        grown = max(peak - resident.get(process, usual) for process, peak in peaks.items())
        record = worst.setdefault(name, {"seconds": 0.0, "mebi": 0.0, "statuses": Counter(), "says": text[:160]})
        record["seconds"], record["mebi"] = max(record["seconds"], spent), max(record["mebi"], grown)
        record["statuses"][status] += 1
    return worst


def good_photo(seed: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((640, 480)).save(stream, "JPEG")
    return stream.getvalue()


def lesson(number: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("first", "second"):
            for index in range(8):
                archive.writestr(f"{name}{number}/{index}.jpg", good_photo(100 * number + index))
    return stream.getvalue()


def many_at_once(url: str, processes: Processes, clients: int, minutes: float, teach: bool) -> dict[str, Any]:
    """Statuses of all, and the server's memory over time."""
    until = time.monotonic() + 60 * minutes
    contents = [good_photo(0), good_photo(1), good_photo(2), *(make(20_000) for make in KINDS.values())]
    files = [image_request(content) for content in contents]
    statuses: Counter[str] = Counter()
    lock = threading.Lock()

    def count(what: str) -> None:
        with lock:
            statuses[what] += 1

    def ask(client: int) -> None:
        turn = client
        while time.monotonic() < until:
            good = turn % 2
            status, _ = exchange(url, files[turn % 3 if good else turn % len(files)])
            turn += 1 + client % 5
            count(f"{'good photo' if good else 'any file'} {status}")

    def learn() -> None:
        for number in itertools.count():
            status, _ = exchange(url, malformed.zip_request(lesson(number)))
            count(f"lesson {status}")
            while (state := lesson_state(url)) == "running" and time.monotonic() < until:
                time.sleep(1)
            if time.monotonic() >= until:
                return
            count(f"lesson {state}")
            status, _ = exchange(url, malformed.post("/undo", b""))
            count(f"undo {status}")

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    threads += [threading.Thread(target=learn)] if teach else []
    for thread in threads:
        thread.start()
    memory: dict[str, list[float]] = {"server": [], "decoders": []}
    while time.monotonic() < until:
        time.sleep(min(SAMPLE_SECONDS, max(0.1, until - time.monotonic())))
        resident = processes.memory("VmRSS")
        memory["server"].append(resident[processes.server])
        memory["decoders"].append(sum(resident.get(process, 0) for process in processes.decoders()))
    for thread in threads:
        thread.join()
    return {"clients": clients, "minutes": minutes, "statuses": statuses, "memory_mebi": memory}


def lesson_state(url: str) -> str:
    status, text = exchange(url, b"GET /teach HTTP/1.1\r\n" + malformed.HOST + b"\r\n")
    return json.loads(text)["state"] if status == 200 else str(status)


def growth(measured: list[float]) -> dict[str, float]:
    """How far from flat: mean and least of the first and the last third, and the slope of the last half, in MiB.

    All of it once the server is warm: the first batches and the first lesson take memory that is used again.
    """
    warm = int(WARMING * len(measured))
    memory = measured[warm:]
    third, half = max(1, len(memory) // 3), memory[len(memory) // 2 :]
    minutes = [place * SAMPLE_SECONDS / 60 for place in range(len(half))]
    return {
        "first_sample": measured[0],
        "warming_up": statistics.fmean(measured[: max(1, warm)]),
        "first_third": statistics.fmean(memory[:third]),
        "last_third": statistics.fmean(memory[-third:]),
        "least_of_first_third": min(memory[:third]),
        "least_of_last_third": min(memory[-third:]),
        "largest": max(memory),
        "per_minute_in_last_half": statistics.linear_regression(minutes, half).slope,
    }


def is_flat(server: dict[str, float], decoders: dict[str, float]) -> bool:
    """Decoders are judged by what they keep between two pictures, as each takes what it needs."""
    kept = decoders["least_of_last_third"] - decoders["least_of_first_third"]
    grown = max(server["last_third"] - server["first_third"], 10 * server["per_minute_in_last_half"])
    return max(kept, grown) <= GROWTH


def rounded(value: Any) -> Any:
    """Numbers with as many digits as were measured."""
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 2) if isinstance(value, float) else value


def judge_kinds(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Tell of every kind, the worst first, and of all together."""
    for name, record in sorted(kinds.items(), key=lambda item: -item[1]["seconds"]):
        print(f"{name:44} {record['seconds']:5.2f} s {record['mebi']:6.0f} MiB  {dict(record['statuses'])}")
    statuses: Counter[int] = sum((record["statuses"] for record in kinds.values()), Counter())
    late, large = (max(kind[which] for kind in kinds.values()) for which in ("seconds", "mebi"))
    failed = sum(count for status, count in statuses.items() if status == 0 or status >= 500)
    met = late <= MOST_SECONDS and large <= MOST_MEBI and not failed
    print(f"{statuses.total()} requests, {len(kinds)} kinds: at most {late:.2f} s, {large:.0f} MiB; {failed} failed")
    print("met" if met else "MISSED")
    totals = {"requests": statuses.total(), "most_seconds": late, "most_mebi": large, "failed": failed, "met": met}
    return {**totals, "statuses": statuses, "kinds": kinds}


def judge_load(found: dict[str, Any]) -> dict[str, Any]:
    """Tell how the requests ended, and whether the memory stayed flat."""
    grown = {name: growth(memory) for name, memory in found["memory_mebi"].items()}
    failed = sum(count for what, count in found["statuses"].items() if what.split()[-1][0] in "05f")
    met = is_flat(**grown) and not failed
    print(dict(found["statuses"]))
    print(json.dumps(rounded(grown), indent=1))
    print("met" if met else "MISSED")
    return {**found, "growth": grown, "failed": failed, "met": met}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--server", type=int, required=True, metavar="PID")
    parser.add_argument("--log", type=Path, required=True, help="what the server prints as its errors")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--largest", type=int, default=30 * MEBI, help="bytes of the largest files")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--teach", action="store_true", help="needs a server with --allow-teach")
    parser.add_argument("--note", help="kept in the output, such as what else the machine had to do")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    processes = Processes(given.server)
    found: dict[str, Any] = {"cores": os.cpu_count(), "note": given.note}
    if given.requests:
        kinds = one_at_a_time(given.url, processes, given.requests, given.largest)
        found["one at a time"] = judge_kinds(kinds)
    if given.clients:
        many = many_at_once(given.url, processes, given.clients, given.minutes, given.teach)
        found["many at once"] = judge_load(many)
    found["tracebacks"] = given.log.read_text().count("Traceback")
    print(f"{found['tracebacks']} tracebacks in the server's log")
    if given.output:
        given.output.write_text(json.dumps(rounded(found), indent=1) + "\n")


if __name__ == "__main__":
    main()
