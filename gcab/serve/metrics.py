"""What the server counts, in the text form that Prometheus reads."""

import resource
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass
class Histogram:
    """How many observations lie at or below each bound."""

    bounds: Sequence[float]
    total: float = 0.0
    counts: list[int] = field(init=False)  # one for each bound and one for what lies above

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, label: str = "") -> list[str]:
        text, below = [], 0
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            text.append(f'{name}_bucket{{{label + "," if label else ""}le="{bound}"}} {below}')
        own = f"{{{label}}}" if label else ""
        return [*text, f"{name}_sum{own} {self.total:.6f}", f"{name}_count{own} {below}"]


@dataclass
class Metrics:
    """Only the event loop's thread writes here."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # (route, method, status)
    latency: dict[str, Histogram] = field(default_factory=dict)  # by route
    batches: Histogram = field(default_factory=lambda: Histogram(SIZES))
    images: Counter[str] = field(default_factory=Counter)  # predicted or refused
    under_way: int = 0

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests[route, method, status] += 1
        self.latency.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def text(self, queued: int, generation: int, ended: int = 0) -> str:
        requests = [
            f'gcab_requests_total{{route="{route}",method="{method}",status="{status}"}} {count}'
            for (route, method, status), count in sorted(self.requests.items())
        ]
        latency = [
            line
            for route, histogram in sorted(self.latency.items())
            for line in histogram.lines("gcab_request_seconds", f'route="{route}"')
        ]
        images = [f'gcab_images_total{{outcome="{name}"}} {self.images[name]}' for name in ("predicted", "refused")]
        now, most = memory_bytes()
        families = [
            ("gcab_requests_total", "counter", "Answered requests.", requests),
            ("gcab_request_seconds", "histogram", "Time from a request's head to its answer's end.", latency),
            ("gcab_images_total", "counter", "Images by what became of them.", images),
            (
                "gcab_batch_images",
                "histogram",
                "Images the network saw at once.",
                self.batches.lines("gcab_batch_images"),
            ),
            (
                "gcab_decoders_ended_total",
                "counter",
                "Decoding processes that an image has brought down.",
                [f"gcab_decoders_ended_total {ended}"],
            ),
            _gauge("gcab_queue_images", "Images decoded or waiting for the network.", queued),
            _gauge("gcab_requests_under_way", "Requests not answered yet.", self.under_way),
            _gauge("gcab_model_generation", "Generation of the model that answers, 0 without generations.", generation),
            _gauge("process_resident_memory_bytes", "Memory in use.", now),
            _gauge("gcab_peak_memory_bytes", "Most memory ever in use.", most),
        ]
        lines = []
        for name, kind, meaning, samples in families:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"


def memory_bytes() -> tuple[int, int]:
    """Resident bytes of this process now and at most; where the system tells only the second, that twice."""
    unit = 1 if sys.platform == "darwin" else 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return most, most
    now = pages * resource.getpagesize()
    return now, max(now, most)  # the two are not counted at the same moment


def _gauge(name: str, meaning: str, value: int) -> tuple[str, str, str, list[str]]:
    return name, "gauge", meaning, [f"{name} {value}"]


def _number(value: float) -> str:
    return f"{value:g}"
