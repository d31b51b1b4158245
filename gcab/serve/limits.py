"""Limits of what requests from untrusted clients may use, and the errors that refuse them."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gcab.errors import GcabError

MEBI = 2**20


@dataclass(frozen=True)
class Limits:
    """A limit for every resource that a request can use."""

    body_bytes: int = 32 * MEBI  # of one request
    archive_bytes: int = 512 * MEBI  # of the zip one teaches from
    buffered_bytes: int = 1024 * MEBI  # of the bodies of all requests at one time
    pixels: int = 25_000_000  # of one image as it is decoded, known from its header; a JPEG is scaled on the way
    decoding_bytes: int = 192 * MEBI  # of memory for one image, estimated from its header and then enforced
    decoding_seconds: float = 1.8  # of processor time for one image
    request_seconds: float = 10.0  # of processor time for the images of one request
    scans: int = 100  # of a progressive JPEG: a small file can ask for the same pixels a million times
    images: int = 64  # in one request
    batch: int = 32  # images the network sees at once
    wait_seconds: float = 0.003  # for further images of other requests before a batch starts
    queue: int = 256  # images decoded or waiting for the network
    requests: int = 128  # under way at one time
    connections: int = 512
    header_bytes: int = 16 * 1024
    header_seconds: float = 10.0  # until the head of a request is complete
    body_seconds: float = 60.0  # until its body is complete
    answer_seconds: float = 30.0  # until an answer is ready, and until it is taken
    stop_seconds: float = 10.0  # for the requests under way when the server is told to stop
    look_seconds: float = 2.0  # between looks at the folder, which another process may have taught
    zip_files: int = 5_000
    zip_bytes: int = 2048 * MEBI  # unpacked
    zip_ratio: int = 100  # unpacked bytes for each packed one; photos have about 1
    zip_depth: int = 8  # folders around a file
    name_characters: int = 100  # of a class

    def check(self) -> None:
        """Refuse limits under which nothing would ever be answered."""
        for name, value in vars(self).items():
            if not value > 0 and name != "wait_seconds":
                raise GcabError(f"the limit {name} is {value}: give a number above 0.")
        if self.queue < self.images:
            raise GcabError(f"a queue of {self.queue} cannot hold one request of {self.images} images: make it longer.")


class RequestError(Exception):
    """A request that is answered with a status from 400 on and one sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def busy(sentence: str) -> RequestError:
    """A 429 error: the same request may succeed later."""
    return RequestError(429, sentence, {"Retry-After": "1"})


@contextmanager
def needing_room() -> Iterator[None]:
    """Context manager that turns a full disk into a 507 error."""
    try:
        yield
    except (OSError, GcabError) as problem:
        for reason in (problem, problem.__cause__):  # gcab's own sentences are for the operator
            if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
                sentence = "the server's disk is full: try again later, or with fewer photos."
                raise RequestError(507, sentence) from problem
        raise


def in_mebi(count: int) -> str:
    """Bytes as people name them; small limits keep their digits."""
    return f"{count / MEBI:.0f} MiB" if count >= MEBI else f"{count} bytes"
