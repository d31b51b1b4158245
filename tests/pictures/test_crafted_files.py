"""Files made to hold a decoder are refused or read in little time and memory; at worst a process ends with them."""

import importlib.util
import io
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import unmeasured

from gcab.serve.decoding import Decoders
from gcab.serve.limits import MEBI, Limits, RequestError

CRAFTED = Path(__file__).parents[2] / "benchmarks" / "crafted_files.py"
PROBE = """
import json, resource, sys
from PIL import Image
from gcab.data.containers.contents import Bounds
from gcab.data.pictures import enough_for, examine, read_picture
from gcab.errors import GcabError
content = sys.stdin.buffer.read()
Image.init()
def used():
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024
began, before = used()
bounds = Bounds(memory=192 * 2**20, pixels=25_000_000)
try:
    said = str(read_picture(examine(content, "it", bounds, enough_for(64)), 64, "it").size)
except GcabError as problem:
    said = str(problem)
seconds, peak = used()
print(json.dumps({"seconds": seconds - began, "mebi": peak - before, "said": said, "torch": "torch" in sys.modules}))
"""


def kinds() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("crafted_files", CRAFTED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.KINDS)


CASES = [(name, "") for name in kinds()]
CASES += [(name, "tiff,ppm") for name in kinds() if name.startswith(("TIFF", "PPM"))]


@pytest.mark.parametrize(("name", "formats"), CASES)
def test_a_crafted_file_costs_little(name: str, formats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCAB_FORMATS", formats)
    content = kinds()[name](30 * MEBI)
    command = [sys.executable, "-c", PROBE]
    ended = subprocess.run(command, input=content, capture_output=True, check=False, env=unmeasured())
    assert ended.returncode == 0, ended.stderr.decode()
    found = json.loads(ended.stdout)
    assert found["seconds"] < 2, found  # of processor time, however slow the machine is otherwise
    assert found["mebi"] < 200, found
    assert not found["torch"]


def long_picture() -> bytes:
    """A good one that takes more than a few milliseconds."""
    return bytes(kinds()["PNG as large as allowed"](0))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems count otherwise")
def test_a_worker_that_takes_too_long_is_replaced() -> None:
    decoders = Decoders(1, Limits(decoding_seconds=0.02))
    decoders.start()
    (before,) = decoders.workers
    spent: list[float] = []
    with pytest.raises(RequestError, match=r"p takes more than 0\.02 s to decode") as refused:
        decoders.decode(io.BytesIO(long_picture()), "p", 8, spent.append)
    assert (refused.value.status, spent, decoders.ended) == (413, [0.02], 1)
    assert before.process.returncode is not None
    small = bytes(kinds()["JPEG of one EXIF value"](0))
    decoders.limits = Limits()
    assert len(decoders.decode(io.BytesIO(small), "p", 8)) == 3 * 8 * 8
    decoders.close()
    assert not decoders.workers


@pytest.mark.repeats
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems count otherwise")
def test_memory_is_not_only_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.serve.decoding.SLACK", -160 * MEBI)  # the estimate allows it, the system does not
    decoders = Decoders(1, Limits())
    with pytest.raises(RequestError, match="memory") as refused:
        decoders.decode(io.BytesIO(long_picture()), "p", 8)
    assert refused.value.status in (413, 422)
    decoders.close()


def test_a_worker_that_cannot_start_is_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.serve.decoding.COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    decoders = Decoders(1, Limits())
    with pytest.raises(RuntimeError, match=r"cannot start \(exit code 3\)"):
        decoders.decode(io.BytesIO(b"x"), "p", 8)
    decoders.close()


def test_this_process_keeps_its_own_limits() -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)
    decoders = Decoders(1, Limits())
    with pytest.raises(RequestError, match="p is not an image"):
        decoders.decode(io.BytesIO(b"x"), "p", 8)
    decoders.close()
    assert resource.getrlimit(resource.RLIMIT_AS) == limit
