"""Fuzzer of the stand-alone verifier of receipts (cvm/standalone/verify_receipt.py), in time and in memory.

    python -m tools.fuzz.receipt_tool --count 100000 --seed 1

A case is the four files that the tool reads: a receipt, a program, an archive of inputs, a trace. They come from the
test vectors. One or two of them are damaged, or replaced by large ones: archives that inflate to much or
list many members, deep and long msgpack, vast shapes and attributes. The tool must answer with one of its exit codes,
within `MEBIBYTES` and the time of the harness, and say REPRODUCED only for true claims.
"""

from __future__ import annotations

import io
import random
import resource
import struct
import sys
import tempfile
import zipfile
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgpack
import numpy as np

from cvm.arrays import npz_bytes
from cvm.audit import decode_receipt, encode_trace
from cvm.errors import CvmError
from cvm.standalone import verify_receipt as tool
from tools.fuzz import receipts
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import changed_tree, enlarged_tree, mutate_bytes, packed_tree, with_long_list

__all__ = ["FUZZER", "MEBIBYTES"]

MEBIBYTES = 256
"""The most memory of the tool."""
_CODES = {0: "REPRODUCED", 1: "DIVERGED", 3: "MALFORMED", 4: "TOO_LARGE", 5: "CANNOT_RECOMPUTE"}


@lru_cache(maxsize=1)
def _sources() -> list[list[bytes]]:
    """True receipts with their programs, inputs and a trace."""
    found = []
    for digest, (verified, inputs, receipt) in receipts._subjects().items():
        trace = encode_trace(receipts._traces()[digest][0])
        found.append([receipt, verified.program.to_bytes(), npz_bytes(inputs), trace])
    return found


@lru_cache(maxsize=1)
def _truths() -> frozenset[bytes]:
    """The ids of all true claims, with and without their traces."""
    claims = [decode_receipt(files[0]).claim for files in _sources()]
    plain = [replace(claim, runs=tuple(replace(run, trace=None) for run in claim.runs)) for claim in claims]
    return frozenset(claim.id() for claim in (*claims, *plain))


def make(random_: random.Random) -> bytes:
    """Four files as a msgpack list."""
    files = list(random_.choice(_sources()))
    for index in random_.sample(range(4), random_.choice((0, 1, 1, 1, 2))):
        files[index] = _damaged_archive(random_, files[2]) if index == 2 else _damaged_tree(random_, files[index])
    packed: bytes = msgpack.packb(files)
    return packed


def _damaged_tree(random_: random.Random, data: bytes) -> bytes:
    """A receipt, program or trace that is damaged or made large."""
    kind = random_.random()
    if kind < 0.2:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    if kind < 0.25:
        return with_long_list(random_, data)
    tree = msgpack.unpackb(data, strict_map_key=False)
    if random_.random() < 0.5:  # only once: a tree that is enlarged twice exceeds the size of a case
        return packed_tree(enlarged_tree(random_, tree))
    for _ in range(random_.choice((1, 1, 2, 3))):
        tree = changed_tree(random_, tree)
    return packed_tree(tree)


def _damaged_archive(random_: random.Random, data: bytes) -> bytes:
    """An archive that is damaged, inflates to much, or lists many members."""
    match random_.randrange(6):
        case 0:
            return mutate_bytes(random_, data, random_.choice((1, 2, 4)))
        case 1:
            keep = max(0, len(data) - random_.choice((22, 80, 200)))
            return data[:keep] + mutate_bytes(random_, data[keep:], random_.choice((1, 2)))
        case 2:
            return _directory(random_, random_.choice((10, 5000, 60_000)))
        case 3:
            return _inflating(random_)
        case 4:
            shape = random_.choice(((3,), (120_000,), (1000, 300)))
            kind = random_.choice((np.int8, np.float16, np.float64, np.uint64))
            with np.errstate(all="ignore"):  # not every number fits every type
                array = np.full(shape, random_.choice((0, 1, 5e-324, 1e300)), np.float64).astype(kind)
            return npz_bytes({"x": array})
        case _:
            header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (%d,)}" % random_.choice((3, 10**9, 10**30))
            file = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(12)
            return mutate_bytes(random_, file, random_.choice((0, 1, 2)))


def _directory(random_: random.Random, count: int) -> bytes:
    """An archive of very many members, which may claim to have few."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0) + b"x.npy"
    claimed = random_.choice((count, 1, 0))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, claimed, claimed, len(entry) * count, 30, 0)
    return b"PK\x03\x04" + bytes(26) + entry * count + end


def _inflating(random_: random.Random) -> bytes:
    """An archive of zeros, which may claim to have fewer."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        # A name alone would be given the time of the day, and the case would not be the same twice.
        archive.writestr(zipfile.ZipInfo("x.npy"), bytes(random_.choice((2**16, 2**23, 2**25))), zipfile.ZIP_DEFLATED)
    data = bytearray(buffer.getvalue())
    at = int.from_bytes(data[-6:-2], "little") + 24
    data[at : at + 4] = random_.choice((bytes(data[at : at + 4]), b"\x40\0\0\0", b"\0\0\0\1"))
    return bytes(data)


def examine(case: bytes) -> str:
    """Let the tool verify the four files."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        paths = [Path(folder, name) for name in ("receipt", "program", "inputs", "trace")]
        files = msgpack.unpackb(case)
        for path, data in zip(paths, files, strict=True):
            path.write_bytes(data)
        receipt, program, inputs, trace = map(str, paths)
        said = io.StringIO()
        with redirect_stdout(said):
            code = tool.main([receipt, "--program", program, "-i", inputs, "--trace-file", trace])
    answer = said.getvalue().splitlines()[-1]
    assert answer.startswith(_CODES[code]), f"exit code {code} with {answer!r}"
    used = _most_memory()
    assert used <= MEBIBYTES, f"{used} MiB"
    if code:
        return _CODES[code]
    assert _claim(files[0]) in _truths(), "what is not true is reproduced"
    return "valid, REPRODUCED"


def _most_memory() -> int:
    """The most MiB that this process ever used; the system's own number includes the process that started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _claim(receipt: bytes) -> bytes | None:
    try:
        return decode_receipt(receipt).claim.id()
    except CvmError:
        return None


def _memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


FUZZER = Fuzzer("tools.fuzz.receipt_tool", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
