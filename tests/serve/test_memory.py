"""A server's memory does not grow with the number of models that it has held."""

import subprocess
import sys

import pytest

# Once a block of 16 MiB was freed, glibc takes smaller ones from its heap, where they leave gaps.
ALLOCATING = """
import ctypes, sys
from gcab.serve.memory import map_large_blocks
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc.mallinfo2.restype = Mallinfo2
if sys.argv[1] == "mapped":
    map_large_blocks()
libc.free(libc.malloc(16 * 2**20))
before = libc.mallinfo2().hblkhd
libc.malloc(8 * 2**20)
print(libc.mallinfo2().hblkhd - before >= 8 * 2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize(("how", "given_back"), [("mapped", "True"), ("usual", "False")])
def test_large_blocks_go_back_to_the_system(how: str, given_back: str) -> None:
    told = subprocess.run([sys.executable, "-c", ALLOCATING, how], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == given_back
