"""Decoding in worker processes, as threads would mostly wait for the interpreter lock on small images.

Each worker (`python -m gcab.data.decoders`) reads one JSON request per line and answers with one line. It ends when its
input does, so none outlives a gcab that was killed; and it never imports the program that started gcab, as
`multiprocessing` would.
"""

import json
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcab.data.archive import File, ZipMember
from gcab.data.decode import decode_many, read_image
from gcab.errors import GcabError
from gcab.sizes import Size, sides, simplest

MANY = 5000  # images from which on workers, which take seconds to start, pay
MOST = 16  # workers

Block = tuple[int, Sequence[File]]  # where its first byte goes in the target, and its images
Work = Callable[[Block], int]


def decode_blocks(blocks: Sequence[Block], size: Size, target: Path) -> Iterator[tuple[Block, int]]:
    """Decode blocks into their places of a file; yields each with the checksum of its bytes, as it completes."""
    workers = min(MOST, os.cpu_count() or 1, len(blocks))
    images = sum(len(files) for _, files in blocks)
    if workers == 1 or images < MANY:
        for block in blocks:
            yield block, write_block(decode_many(block[1], size).numpy(), target, block[0])
        return
    with started(workers, size, target) as work, ThreadPoolExecutor(workers) as pool:
        waiting: dict[Future[int], Block] = {pool.submit(work, block): block for block in blocks}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def write_block(images: NDArray[np.uint8], target: Path, offset: int) -> int:
    """Write a block's bytes at their offset, fsync, and return their CRC-32."""
    content = np.ascontiguousarray(images).reshape(-1).data
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        done = 0
        while done < len(content):  # a write may be partial, as on a nearly full disk
            done += os.pwrite(descriptor, content[done:], offset + done)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return zlib.crc32(content)


class Decoder:
    """A handle of one worker process."""

    def __init__(self, size: Size, target: Path) -> None:
        self.size, self.target = size, target
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "gcab.data.decoders"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )

    def __call__(self, block: Block) -> int:
        offset, files = block
        request = {
            "target": os.fspath(self.target),
            "offset": offset,
            "size": sides(self.size),
            "files": [_address(file) for file in files],
        }
        assert self.process.stdin is not None, "it was started with a pipe"
        assert self.process.stdout is not None, "it was started with a pipe"
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "checksum" in answer:
            return int(answer["checksum"])
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"])
        unexpected = "a process that decodes images was ended, perhaps for want of memory: run the same command again."
        raise GcabError(answer.get("error", unexpected))

    def stop(self) -> None:
        """Kill the worker at once: an unfinished block is of no use."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None, "it was started with pipes"
            with suppress(BrokenPipeError):  # it may have been ended with something left to read
                pipe.close()


@contextmanager
def started(count: int, size: Size, target: Path) -> Iterator[Work]:
    """A pool of workers; the function it gives decodes a block with an idle one, from any thread."""
    idle: SimpleQueue[Decoder] = SimpleQueue()
    with ExitStack() as running:
        for _ in range(count):
            decoder = Decoder(size, target)
            running.callback(decoder.stop)
            idle.put(decoder)

        def work(block: Block) -> int:
            decoder = idle.get()
            try:
                return decoder(block)
            finally:
                idle.put(decoder)

        yield work


def _address(file: File) -> list[str]:
    """A file in a request: a path, or an archive and the name in it."""
    if isinstance(file, ZipMember):
        return [str(file.archive.filename), file.info.filename]
    return [os.fspath(Path(str(file)))]


@cache
def _archive(path: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _file(address: Sequence[str]) -> File:
    if len(address) == 1:
        return Path(address[0])
    archive = _archive(address[0])
    return ZipMember(archive, archive.getinfo(address[1]))


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """A worker's response to a request: a checksum, or what went wrong."""
    size, images = simplest(*request["size"]), []
    try:
        for file in map(_file, request["files"]):
            source = file if isinstance(file, Path) else file.open("rb")
            images.append(read_image(source, size, str(file)).numpy())
        return {"checksum": write_block(np.stack(images), Path(request["target"]), request["offset"])}
    except GcabError as problem:
        return {"error": str(problem)}
    except (KeyError, zipfile.BadZipFile) as problem:
        return {"error": f"{request['files'][0][0]} changed while it was read ({problem}): start again."}
    except OSError as problem:
        return {"error": problem.strerror or str(problem), "errno": problem.errno}


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        print(json.dumps(answer_to(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
