"""What a server that replaces its model lesson after lesson keeps of the memory of earlier ones: nothing."""

import ctypes
from contextlib import suppress

MMAP_THRESHOLD = -3  # glibc's number for the parameter
MAPPED = 4 * 2**20  # bytes of a block that gets pages of its own: weights are larger, what a batch needs is smaller


def map_large_blocks() -> None:
    """Large blocks go back to the system as soon as they are freed.

    By itself glibc would put those below 32 MiB into heaps, which grow for the first half a dozen lessons.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MAPPED)
