"""Fuzzer of archives: models as ``.tar`` and ``.tgz``, most of them with damaged members, headers or compression.

python -m tools.fuzz.archives --count 100000 --seed 1
"""

from __future__ import annotations

import gzip
import io
import random
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cvm.frontends import nnef
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes, mutate_text
from tools.fuzz.tensors import tensor_file

__all__ = ["FUZZER"]

_DOCUMENT = b"""version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1,2]);
    w = variable(shape = [2,2], label = 'w');
    y = linear(x, w, 0.0);
}
"""
_QUANT = b'"y": linear_quantize(min = 0.0, max = 1.0, bits = 8);\n'
_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
_NAMES = (
    "graph.nnef",
    "./graph.nnef",
    "/graph.nnef",
    "../w.dat",
    "w.dat",
    "a/../w.dat",
    "W.DAT",
    "graph.quant",
    "x" * 300,
)


@lru_cache(maxsize=1)
def _weights() -> bytes:
    import numpy as np

    return nnef.write_tensor(np.ones((2, 2), np.float32))


@dataclass(slots=True)
class _Member:
    name: str
    data: bytes
    type: bytes = tarfile.REGTYPE


def make(random_: random.Random) -> bytes:
    """An archive; its members, its bytes or its compressed bytes may be damaged."""
    members = [_Member("graph.nnef", _DOCUMENT), _Member("w.dat", _weights())]
    if random_.random() < 0.5:
        members.append(_Member("graph.quant", _QUANT))
    if random_.random() < 0.2:
        members.append(_Member(random_.choice(_NAMES), tensor_file(random_), random_.choice(_TYPES)))
    member = random_.choice(members)
    match random_.randrange(6):
        case 0:
            member.data = mutate_text(random_, member.data, 2)
        case 1:
            member.data = mutate_bytes(random_, member.data, 2)
        case 2:
            member.name = random_.choice(_NAMES)
        case 3:
            member.type = random_.choice(_TYPES)
    buffer = io.BytesIO()
    form = random_.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.size, info.type = len(member.data), member.type
            info.linkname = "w.dat" if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            try:
                archive.addfile(info, io.BytesIO(member.data))
            except ValueError:  # the format cannot hold this name
                continue
    data = buffer.getvalue().rstrip(b"\0") + bytes(random_.choice((0, 512, 1024, 10240)))
    if random_.random() < 0.3:
        data = _with_checksums(random_, data)
    if random_.random() < 0.4:
        data = gzip.compress(data, mtime=0)
    return mutate_bytes(random_, data, random_.choice((1, 2, 4))) if random_.random() < 0.5 else data


def _with_checksums(random_: random.Random, data: bytes) -> bytes:
    """An archive with one changed header and a corrected checksum, so that readers accept the header."""
    result = bytearray(data)
    blocks = [at for at in range(0, len(result) - 511, 512) if result[at + 257 : at + 262] == b"ustar"]
    if not blocks:
        return data
    at = random_.choice(blocks)
    field = random_.choice(((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)))
    changed = mutate_bytes(random_, bytes(result[at + field[0] : at + sum(field)]), 2)
    result[at + field[0] : at + sum(field)] = changed[: field[1]].ljust(field[1], b"\0")
    result[at + 148 : at + 156] = b" " * 8
    result[at + 148 : at + 156] = b"%06o\0 " % sum(result[at : at + 512])
    return bytes(result)


def examine(case: bytes) -> str:
    """Check and load an archive: a valid model can be loaded, unless its data are wrong."""
    suffix = ".tgz" if case[:2] == b"\x1f\x8b" else ".tar"
    with tempfile.NamedTemporaryFile(suffix=suffix, dir=_memory()) as file:
        file.write(case)
        file.flush()
        report = nnef.check(file.name)
        nnef.load(file.name)
        assert report.valid, "a model can be loaded but is not valid"
    return "valid"


def _memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


FUZZER = Fuzzer("tools.fuzz.archives", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
