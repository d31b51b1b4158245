"""What crafted files cost a server: processor time and memory of it and its decoders for each, and every status.

gcab serve birds.gcab --allow-teach --port 8000 2> serve.log &
python benchmarks/malformed_requests.py http://127.0.0.1:8000 --server $! --requests 10000 --output malformed.json
python benchmarks/malformed_requests.py http://127.0.0.1:8000 --server $! --requests 0 --clients 64 --minutes 10 --teach

First every kind at its full size, then again and again small, one request at a time, so that what is measured belongs
to it. With --clients many at once: good photos and small crafted files, with --teach lessons and undos in between.
"""

import argparse
import http.client
import io
import json
import os
import threading
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from crafted_files import KINDS
from PIL import Image

TICKS = os.sysconf("SC_CLK_TCK")
MEBI = 2**20
HEAD = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="a.jpg"\r\n\r\n'
SIZES = 5  # of the small files of each kind
MOST_SECONDS, MOST_MEBI = 2.0, 200


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


def post(url: str, path: str, field: str, content: bytes) -> tuple[int, str]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    body = HEAD % field.encode() + content + b"\r\n--b--\r\n"
    try:
        connection.request("POST", path, body, {"Content-Type": "multipart/form-data; boundary=b"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except OSError as problem:
        return 0, str(problem)
    finally:
        connection.close()


def one_at_a_time(url: str, processes: Processes, count: int, largest: int) -> dict[str, Any]:
    """The worst of every kind."""
    worst: dict[str, dict[str, Any]] = {}
    statuses: Counter[int] = Counter()
    names = list(KINDS)
    small = {name: [make(2000 + 9000 * step) for step in range(SIZES)] for name, make in KINDS.items()}
    for index in range(count):
        name = names[index % len(names)]
        turn = index // len(names)
        content = small[name][turn % SIZES] if turn else KINDS[name](largest)
        processes.forget_peaks()
        resident, before = processes.memory("VmRSS"), processes.seconds()
        status, text = post(url, "/predict", "images", content)
        spent = processes.seconds() - before
        peaks = processes.memory("VmHWM")
        usual = min(resident.values())  # of a decoder: also of one that was started meanwhile
        grown = max(peak - resident.get(process, usual) for process, peak in peaks.items())
        statuses[status] += 1
        record = worst.setdefault(name, {"seconds": 0.0, "mebi": 0.0, "statuses": Counter(), "says": text[:160]})
        record["seconds"], record["mebi"] = max(record["seconds"], spent), max(record["mebi"], grown)
        record["statuses"][status] += 1
    return {"requests": count, "statuses": statuses, "kinds": worst}


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
    files = [good_photo(0), good_photo(1), good_photo(2), *(make(20_000) for make in KINDS.values())]
    statuses: Counter[str] = Counter()
    lock = threading.Lock()

    def ask(client: int) -> None:
        turn = client
        while time.monotonic() < until:
            good = turn % 2
            status, _ = post(url, "/predict", "images", files[turn % 3 if good else turn % len(files)])
            turn += 1 + client % 5
            with lock:
                statuses[f"{'good photo' if good else 'any file'} {status}"] += 1

    def learn() -> None:
        number = 0
        while time.monotonic() < until:
            status, _ = post(url, "/teach", "archive", lesson(number))
            with lock:
                statuses[f"lesson {status}"] += 1
            number += 1
            time.sleep(20)
            if number % 2 == 0:
                status, _ = post(url, "/undo", "archive", b"")
                with lock:
                    statuses[f"undo {status}"] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    threads += [threading.Thread(target=learn)] if teach else []
    for thread in threads:
        thread.start()
    memory = []
    while time.monotonic() < until:
        time.sleep(min(5.0, max(0.1, until - time.monotonic())))
        resident = processes.memory("VmRSS")
        memory.append({"server": resident[processes.server], "all": sum(resident.values())})
    for thread in threads:
        thread.join()
    return {"clients": clients, "minutes": minutes, "statuses": statuses, "memory_mebi": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--server", type=int, required=True, metavar="PID")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--largest", type=int, default=30 * MEBI, help="bytes of the largest files")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--teach", action="store_true", help="needs a server with --allow-teach")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    processes, found = Processes(given.server), {}
    if given.requests:
        found["one at a time"] = measured = one_at_a_time(given.url, processes, given.requests, given.largest)
        for name, record in sorted(measured["kinds"].items(), key=lambda item: -item[1]["seconds"]):
            print(f"{name:34} {record['seconds']:5.2f} s {record['mebi']:6.0f} MiB  {dict(record['statuses'])}")
        kinds = measured["kinds"].values()
        late, large = max(kind["seconds"] for kind in kinds), max(kind["mebi"] for kind in kinds)
        failed = sum(count for status, count in measured["statuses"].items() if status == 0 or status >= 500)
        print(f"{given.requests} requests, {len(kinds)} kinds: at most {late:.2f} s, {large:.0f} MiB; {failed} failed")
        print("met" if late <= MOST_SECONDS and large <= MOST_MEBI and not failed else "MISSED")
    if given.clients:
        found["many at once"] = many = many_at_once(given.url, processes, given.clients, given.minutes, given.teach)
        print(dict(many["statuses"]))
        print("memory of the server, MiB:", [round(sample["server"]) for sample in many["memory_mebi"]])
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
