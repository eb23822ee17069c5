"""Fuzzer of tensor files: random ones of every item type and width, most of them damaged.

    python -m tools.fuzz.tensors --count 100000 --seed 1

A file that is read must have the shape and the number of items that its header states.
"""

from __future__ import annotations

import math
import random
import struct
import sys
from contextlib import suppress

from cvm.errors import CvmError
from cvm.frontends.nnef.tensor_file import read_tensor
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes

__all__ = ["FUZZER", "tensor_file"]

_CODES = (0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x10, 0x11)
_RANGES = ((0.0, 1.0), (-1.0, 1.0), (-0.5, 0.25), (1.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0), (0.0, 1e-40))


def tensor_file(random_: random.Random) -> bytes:
    """A file with a consistent header; its item type, width and range may not fit together."""
    rank = random_.choice((0, 1, 2, 2, 3, 4, 8))
    shape = [random_.choice((1, 1, 2, 3, 5)) for _ in range(rank)]
    code = random_.choice(_CODES)
    bits = random_.choice((16, 32, 64)) if code == 0 else random_.choice((1, 2, 3, 5, 7, 8, 12, 16, 24, 32, 33, 63, 64))
    count = math.prod(shape) * bits
    size = (count + 7) // 8
    data = bytearray(random_.randbytes(size))
    if data and count % 8:
        data[-1] &= random_.choice(((1 << count % 8) - 1, 0xFF & ~((1 << -count % 8) - 1), 0))
    parameters = struct.pack("<ff24x", *random_.choice(_RANGES))
    if code == 1:
        parameters = struct.pack("<I28x", random_.choice((0, 1, 1, 2)))
    extents = [*shape, *[0] * (8 - rank)]
    return struct.pack("<2sBBII8III32s44x", b"N\xef", 1, 0, size, rank, *extents, bits, code, parameters) + bytes(data)


def make(random_: random.Random) -> bytes:
    """A tensor file, two in three damaged."""
    data = tensor_file(random_)
    return data if random_.random() < 1 / 3 else mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))


def examine(case: bytes) -> str:
    """Read a tensor file, in both bit orders."""
    with suppress(CvmError):
        read_tensor(case, bit_order="msb")
    stored = read_tensor(case)
    values = stored.data.values
    assert values.shape == stored.header.shape, "the tensor has not the shape of its header"
    assert values.size == math.prod(stored.header.shape), "the tensor has not as many items as its header says"
    return f"valid {stored.header.item.name.lower()}"


FUZZER = Fuzzer("tools.fuzz.tensors", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
