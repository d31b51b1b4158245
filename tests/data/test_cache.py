"""Decoded images: kept once, block by block, whatever happens while they are written and to the file afterwards."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.processes import LIMIT
from PIL import Image

from gcab.data import cache, decoders
from gcab.data.archive import File, ZipMember
from gcab.errors import GcabError

pytestmark = pytest.mark.usefixtures("forked_interpreters")

COUNT, SIZE = 30, 8
IMAGE = 3 * SIZE**2


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Thirty images, of which a block holds four."""
    monkeypatch.setattr(cache, "BLOCK", 4 * IMAGE)
    made = [tmp_path / "images" / f"{index:02d}.png" for index in range(COUNT)]
    made[0].parent.mkdir()
    for index, file in enumerate(made):
        Image.new("L", (SIZE, SIZE), 8 * index).save(file)
    return made


def decoded(files: list[Path], root: Path) -> torch.Tensor:
    return cache.decoded(files, SIZE, "train", root)


def shades(images: torch.Tensor) -> list[int]:
    assert images.shape == (COUNT, 3, SIZE, SIZE)
    assert all(image.unique().numel() == 1 for image in images)
    return images[:, 0, 0, 0].tolist()


EXPECTED = [8 * index for index in range(COUNT)]


def kept(root: Path) -> Path:
    return root / ".gcab-cache" / "train.images"


def watch_decoding(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all blocks that are decoded from now on."""
    offsets: list[int] = []
    whole = decoders.decode_blocks

    def spy(blocks: list[decoders.Block], size: int, target: Path) -> object:
        offsets.extend(offset for offset, _ in blocks)
        return whole(blocks, size, target)

    monkeypatch.setattr(cache, "decode_blocks", spy)
    return offsets


def test_only_damaged_blocks_are_decoded_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shades(decoded(files, tmp_path)) == EXPECTED
    content = bytearray(kept(tmp_path).read_bytes())
    content[9 * IMAGE + 5] ^= 1  # in the third block
    kept(tmp_path).write_bytes(content)
    offsets = watch_decoding(monkeypatch)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert offsets == [8 * IMAGE]
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert offsets == [8 * IMAGE]


@pytest.mark.parametrize("length", [0, IMAGE, COUNT * IMAGE - 1, COUNT * IMAGE + 1, 4 * COUNT * IMAGE])
def test_a_file_of_another_size_is_made_anew(files: list[Path], tmp_path: Path, length: int) -> None:
    decoded(files, tmp_path)
    kept(tmp_path).write_bytes(kept(tmp_path).read_bytes().ljust(length, b"x")[:length])
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert kept(tmp_path).stat().st_size == COUNT * IMAGE


@pytest.mark.parametrize("journal", [b"", b"0 00000000\n", b"\xff\xfe\n7", None])
def test_a_lost_or_wrong_journal_costs_decoding_only(files: list[Path], tmp_path: Path, journal: bytes | None) -> None:
    decoded(files, tmp_path)
    log = kept(tmp_path).with_suffix(".log")
    log.unlink()
    if journal is not None:
        log.write_bytes(journal)
    assert shades(decoded(files, tmp_path)) == EXPECTED


def test_a_cache_is_checked_for_as_long_as_time_allows_until_somebody_touches_it(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded(files, tmp_path)
    checked: list[int] = []
    read = os.pread

    def spy(descriptor: int, count: int, offset: int) -> bytes:
        checked.append(offset)
        return read(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", spy)
    monkeypatch.setattr(cache, "CHECKING", 1e9)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert sorted(checked) == [4 * block * IMAGE for block in range(8)]
    monkeypatch.setattr(cache, "CHECKING", -1e9)
    checked.clear()
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert checked == []
    offsets, content = watch_decoding(monkeypatch), bytearray(kept(tmp_path).read_bytes())
    content[-1] ^= 1
    kept(tmp_path).write_bytes(content)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert offsets == [28 * IMAGE]


def test_a_cache_that_shrank_unseen_is_made_anew(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is mapped beyond its end would end the process."""
    decoded(files, tmp_path)
    monkeypatch.setattr(cache, "CHECKING", -1e9)
    about = kept(tmp_path).stat()
    os.truncate(kept(tmp_path), 17 * IMAGE)
    os.utime(kept(tmp_path), ns=(about.st_atime_ns, about.st_mtime_ns))
    assert shades(decoded(files, tmp_path)) == EXPECTED


def test_a_bad_image_stops_it_and_what_was_done_stays(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = files[14].read_bytes()
    files[14].write_bytes(good[:20])
    with pytest.raises(GcabError, match=r"14\.png is damaged"):
        decoded(files, tmp_path)
    assert not kept(tmp_path).exists()
    files[14].write_bytes(good)
    offsets = watch_decoding(monkeypatch)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert offsets == [12 * IMAGE + 4 * block * IMAGE for block in range(5)]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_is_told_and_nothing_is_lost(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    write = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if offset + len(content) > 17 * IMAGE:
            if offset >= 17 * IMAGE:
                raise OSError(reason, os.strerror(reason))
            content = content[: 17 * IMAGE - offset]  # what is left of it
        return write(descriptor, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(GcabError, match=r"cannot be written to '.*' \(the disk is full\): make room and start"):
            decoded(files, tmp_path)
    assert not kept(tmp_path).exists()
    offsets = watch_decoding(monkeypatch)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert offsets[0] == 16 * IMAGE


def test_a_limit_on_the_size_of_files(files: list[Path], tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * IMAGE, limits[1]))
    try:
        with pytest.raises(GcabError, match="the disk is full"):
            decoded(files, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert shades(decoded(files, tmp_path)) == EXPECTED


def test_without_a_place_images_are_decoded_in_memory_unless_there_are_too_many(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".gcab-cache").write_text("in the way")
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert len(caplog.messages) == 1
    assert "they are decoded at every start" in caplog.messages[0]
    monkeypatch.setattr(cache, "IN_MEMORY", 1000)
    with pytest.raises(GcabError, match=r"cannot take 0\.0 GB of decoded images.*GCAB_CACHE"):
        decoded(files, tmp_path)
    monkeypatch.setenv("GCAB_CACHE", str(tmp_path / "there" / "it is"))
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert (tmp_path / "there" / "it is" / "train.images").is_file()


def test_who_waits_is_told_how_far_it_is(files: list[Path], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with cache.watched(lambda done, total: told.append((done, total))):
        decoded(files, tmp_path)
        decoded(files, tmp_path)
    assert told == [(done, COUNT) for done in (4, 8, 12, 16, 20, 24, 28, 30)]


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_processes_decode_the_same(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(decoders, "MANY", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    given: list[File] = list(files)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in files:
            archive.write(file, f"inside/{file.name}")
        if kind == "zip":
            given = [ZipMember(archive, info) for info in archive.infolist()]
        archive.close()
        images = cache.decoded(given, SIZE, "train", tmp_path)
    assert shades(images) == EXPECTED


def test_what_processes_meet_is_told_as_ever(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "MANY", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    good = files[20].read_bytes()
    files[20].write_bytes(b"")
    with pytest.raises(GcabError, match=r"20\.png is empty"):
        decoded(files, tmp_path)
    files[20].write_bytes(good)
    with monkeypatch.context() as patch:
        patch.setattr(cache.Cache, "has_room", lambda _: True)
        (tmp_path / ".gcab-cache" / "train.part").unlink(missing_ok=True)
        (tmp_path / ".gcab-cache" / "train.part").mkdir()  # nothing can be written there
        with pytest.raises(GcabError, match="cannot be written"):
            decoded(files, tmp_path)
        (tmp_path / ".gcab-cache" / "train.part").rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(decoders.Decoder, "__init__", dying)
        with pytest.raises(GcabError, match="was ended, perhaps for want of memory"):
            decoded(files, tmp_path)
    assert shades(decoded(files, tmp_path)) == EXPECTED


def dying(self: decoders.Decoder, size: int, target: Path) -> None:
    self.size, self.target = size, target
    program = "import os, signal, sys; sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)"
    self.process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


SLOW = """
import sys, time
from pathlib import Path
from gcab.data import cache, decoders

cache.BLOCK, decoders.MANY = int(sys.argv[2]), int(sys.argv[3])
def told(done, total):
    print(done, flush=True)
    time.sleep(60 if done >= 12 else 0)
files = sorted(Path(sys.argv[1], "images").iterdir())
with cache.watched(told):
    cache.decoded(files, 8, "train", Path(sys.argv[1]))
"""


@pytest.mark.parametrize("many", [1, 1000])
def test_killed_it_goes_on_where_it_was(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path), str(4 * IMAGE), str(many)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 12:
            pass
        process.send_signal(signal.SIGKILL)
    assert not kept(tmp_path).exists()
    wait_for_decoders()
    offsets = watch_decoding(monkeypatch)
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert len(offsets) == 5  # of 8 blocks; three were noted


def wait_for_decoders() -> None:
    """Until no process of a killed gcab is left."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        listed = subprocess.run(["ps", "-A", "-o", "ppid=,args="], capture_output=True, text=True, check=True).stdout
        if not any(line.split()[0] == "1" and "gcab.data.decoders" in line for line in listed.splitlines()):
            return
        time.sleep(0.05)
    raise AssertionError("a decoder outlives the gcab that started it")


def test_what_others_do_to_it_meanwhile_is_noticed(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = cache.Cache.fill

    def disturbed(self: cache.Cache, files: list[File]) -> None:
        fill(self, files)
        self.images.write_bytes(bytes(COUNT * IMAGE))  # as where locks do not work and another wrote as well

    monkeypatch.setattr(cache.Cache, "fill", disturbed)
    with pytest.raises(GcabError, match="changed while they were written"):
        decoded(files, tmp_path)


def test_two_at_once_make_one_cache(files: list[Path], tmp_path: Path) -> None:
    fast = SLOW.replace("60 if done >= 12 else 0", "0.01")
    command = [sys.executable, "-c", fast, str(tmp_path), str(4 * IMAGE), "1000"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=LIMIT)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(map(len, printed)) == 8  # every block once
    assert shades(decoded(files, tmp_path)) == EXPECTED
    assert np.array_equal(np.fromfile(kept(tmp_path), np.uint8)[::IMAGE], EXPECTED)
