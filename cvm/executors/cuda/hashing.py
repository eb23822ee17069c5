"""Roots of tensors on a device: it hashes the leaves, so that only 32 bytes of each kilobyte come to the host.

The tree above the leaves is computed on the host. Before a device is used for this, its digests are compared with
`hashlib`'s.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.executors.cuda.device.protocol import Device, Prepared
from cvm.executors.cuda.emit.sha256 import FUNCTION, module_text
from cvm.executors.cuda.emit.threads import covering
from cvm.executors.cuda.network import Held, require_memory, rounded
from cvm.executors.cuda.shown import Roots
from cvm.program.commitments import TensorClaim
from cvm.program.leaves import fast_hasher
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, joined

if TYPE_CHECKING:
    from cvm.executors.cuda.network import Memory

__all__ = ["Hashing"]

_TRIED = (4, 52, 56, 1020, 1024, 1028, 5 * 1024 + 120)
"""The sizes in bytes that are tried: where a message takes a block more, and around a whole leaf."""


class Hashing:
    """The kernel that hashes leaves, loaded on a device. Raises `LimitExceeded` (``limit.device_memory``)."""

    def __init__(self, device: Device) -> None:
        self._device = device
        held = Held(device)
        self.close = weakref.finalize(self, held.close)
        self.close.atexit = False
        self._code = held.code = device.load(module_text())
        self.right = all(map(self._agrees, _TRIED))
        """Whether the device gives the digests of `hashlib`."""

    def of(self, memory: Memory) -> Roots:
        """The function that computes roots of tensors in a memory after its run."""
        return partial(self._roots, memory)

    def _roots(self, memory: Memory, names: Sequence[str]) -> dict[str, bytes]:
        shapes = {name: memory.shape(name) for name in names}
        sizes = [4 * math.prod(shape) for shape in shapes.values()]
        digests = self._digests([memory.starts[name] for name in names], sizes)
        return {
            name: TensorClaim("int32", shape, _joined(digest)).root()
            for (name, shape), digest in zip(shapes.items(), digests, strict=True)
        }

    def _digests(self, addresses: Sequence[int], sizes: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """The digests of the leaves of data at these addresses: (leaves, 32) for each of them."""
        counts = [-(-size // LEAF_BYTES) for size in sizes]
        words, found = rounded(8 * len(sizes)), HASH_BYTES * sum(counts)
        held = Held(self._device)
        try:
            require_memory(self._device, words + rounded(found), "the digests of leaves need")
            table, target = held.allocated(words), held.allocated(rounded(found))
            self._device.upload(table, np.array([size // 4 for size in sizes], np.int64))
            launches, at = [], target
            for number, (address, count) in enumerate(zip(addresses, counts, strict=True)):
                shape = covering(FUNCTION, count)
                launches.append(Prepared(FUNCTION, shape.grid, shape.block, 0, (address, table + 8 * number, at)))
                at += HASH_BYTES * count
            held.run = self._device.prepare(self._code, launches)
            held.run.start()
            held.run.wait()
            digests = np.empty((sum(counts), HASH_BYTES), np.uint8)
            self._device.download(target, digests)
        finally:
            held.close()
        return np.split(digests, np.cumsum(counts)[:-1])

    def _agrees(self, size: int) -> bool:
        """Whether the digests of data of ``size`` bytes are those of `hashlib`."""
        data = bytes((k * k + k // 7) % 256 for k in range(size))
        held = Held(self._device)
        try:
            address = held.allocated(rounded(size))
            self._device.upload(address, np.frombuffer(data, np.uint8))
            (found,) = self._digests([address], [size])
        finally:
            held.close()
        leaves = [data[start : start + LEAF_BYTES] for start in range(0, size, LEAF_BYTES)]
        return found.tobytes() == b"".join(hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves)


def _joined(digests: npt.NDArray[np.uint8]) -> bytes:
    """The root over the hashes of leaves, (leaves, 32)."""
    run = fast_hasher()
    level = np.ascontiguousarray(digests)
    while run is not None and len(level) > 1:
        pairs, odd = divmod(len(level), 2)
        above = np.empty((pairs + odd, HASH_BYTES), np.uint8)
        run.messages(1, level.ctypes.data, 2 * HASH_BYTES, pairs, above.ctypes.data)
        above[pairs:] = level[2 * pairs :]
        level = above
    return joined(row.tobytes() for row in level)
