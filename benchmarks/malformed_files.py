"""What crafted files cost the commands that read photos: processor time, memory, exit codes, and no traceback.

OMP_NUM_THREADS=1 python benchmarks/malformed_files.py --output malformed-files.json

Each file is one photo of many in a folder that is learned, tested and asked about; a good photo in its place is what
the same command costs without it.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import start
from crafted_files import KINDS

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.photos import make_photos

MEBI = 2**20
MOST_SECONDS, MOST_MEBI = 2.0, 200
GOOD = "a good photo"
CPU = ("--device", "cpu")


def measured(arguments: list[object], output: Path) -> tuple[float, float, int, str]:
    """Processor seconds, MiB at most, exit code and the words of a command."""
    _, status, used = os.wait4(start(arguments, output), 0)
    seconds = used.ru_utime + used.ru_stime
    return seconds, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), output.read_text()


def crafted(folder: Path, largest: int) -> dict[str, list[Path]]:
    """Every kind as files on disk, a small and a large one; the good photo comes first."""
    files = {GOOD: sorted(make_photos(folder / GOOD, ("ash",), 1).rglob("*.png")) * 2}
    for name, make in KINDS.items():
        files[name] = [folder / name / f"{size}.jpg" for size in (20_000, largest)]
        (folder / name).mkdir()
        for file in files[name]:
            file.write_bytes(make(int(file.stem)))
    return files


def commands(root: Path, file: Path) -> Iterator[tuple[str, list[object]]]:
    """Each with the file among the photos; `learn` has a model of its own."""
    photos, model = root / "photos", root / "model.gcab"
    shutil.copy(file, photos / "elm" / "last.jpg")
    yield "predict", ["predict", model, photos / "elm" / "last.jpg", *CPU]
    yield "test", ["test", model, photos, "--out", root / "page.html", *CPU]
    for name, skip in (("learn", []), ("learn --skip-unreadable", ["--skip-unreadable"])):
        shutil.rmtree(root / "new.gcab", ignore_errors=True)
        eye = ["--method", "eye", "--set", "options.features=64"]
        yield name, ["learn", root / "new.gcab", photos, *eye, *CPU, *skip]


def cost_of_all(root: Path, largest: int) -> dict[str, dict[str, Any]]:
    """The most that any command took for a file of each kind beyond what it takes for a good photo."""
    make_photos(root / "photos", ("ash", "elm"))
    output = root / "output"
    taught = ["learn", root / "model.gcab", root / "photos", "--method", "eye", "--set", "options.features=64", *CPU]
    assert measured(taught, output)[2] == 0
    usual: dict[str, tuple[float, float]] = {}
    found: dict[str, dict[str, Any]] = {}
    for kind, files in crafted(root, largest).items():
        record: dict[str, Any] = {"seconds": 0.0, "mebi": 0.0, "ends": Counter(), "tracebacks": 0, "says": ""}
        for file in files:
            for command, arguments in commands(root, file):
                seconds, mebi, code, said = measured(arguments, output)
                if kind == GOOD:
                    usual[command] = seconds, mebi
                    continue
                record["seconds"] = max(record["seconds"], seconds - usual[command][0])
                record["mebi"] = max(record["mebi"], mebi - usual[command][1])
                record["ends"][f"{command} {code}"] += 1
                record["tracebacks"] += "Traceback" in said
                if command == "predict":
                    record["says"] = said.strip().replace(str(root), "")[-200:]
        if kind != GOOD:
            found[kind] = record
            print(f"{kind:34} {record['seconds']:5.2f} s {record['mebi']:6.0f} MiB  {dict(record['ends'])}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=30 * MEBI, help="bytes of the largest files")
    parser.add_argument("--note", help="kept in the output, such as what else the machine had to do")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = cost_of_all(Path(folder), given.largest)
    ends = Counter(end.split()[-1] for record in kinds.values() for end in record["ends"].elements())
    told = {
        "cores": os.cpu_count(),
        "note": given.note,
        "commands": ends.total(),
        "most_seconds": round(max(record["seconds"] for record in kinds.values()), 2),
        "most_mebi": round(max(record["mebi"] for record in kinds.values())),
        "tracebacks": sum(record["tracebacks"] for record in kinds.values()),
        "exit_codes": ends,
    }
    told["above"] = [name for name, record in kinds.items()
                     if record["seconds"] > MOST_SECONDS or record["mebi"] > MOST_MEBI]  # fmt: skip
    print(json.dumps(told))
    if given.output:
        rounded = {name: {**record, "seconds": round(record["seconds"], 2), "mebi": round(record["mebi"])}
                   for name, record in kinds.items()}  # fmt: skip
        given.output.write_text(json.dumps({**told, "kinds": rounded}, indent=1) + "\n")


if __name__ == "__main__":
    main()
