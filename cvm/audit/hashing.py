"""Roots of many tensors, as fast as the machine hashes.

Where the processor has instructions for SHA-256 (`cvm.executors.native.sha256`), tensors are hashed by all cores at
once; elsewhere, and for so little data that making threads would cost more, by `hashlib`. The roots are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors import cores
from cvm.program.commitments import TensorClaim, tensor_root
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, Tree

if TYPE_CHECKING:
    from cvm.executors.native.sha256 import Hasher

__all__ = ["tensor_roots"]

LITTLE = 2**20
"""Bytes below which plain Python is used, so that a short run does not wait for the code generator."""

Array = npt.NDArray[Any]


def tensor_roots(tensors: Mapping[str, Array], threads: int | None = None) -> dict[str, bytes]:
    """The roots of int32 tensors by name, hashed by ``threads`` threads (None: one per core)."""
    run = _hasher() if sum(tensor.nbytes for tensor in tensors.values()) >= LITTLE else None
    if run is None:
        return {name: tensor_root(tensor) for name, tensor in tensors.items()}
    largest_first = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    with ThreadPoolExecutor(threads or cores(), thread_name_prefix="cvm-hash") as pool:
        roots = dict(zip(largest_first, pool.map(lambda name: _root(run, tensors[name]), largest_first), strict=True))
    return {name: roots[name] for name in tensors}


@cache
def _hasher() -> Hasher | None:
    try:
        from cvm.executors.native.sha256 import hasher
    except ImportError:  # llvmlite does not load here
        return None
    return hasher()


def _root(run: Hasher, tensor: Array) -> bytes:
    little = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<"))
    return TensorClaim(tensor.dtype.name, tensor.shape, _data_root(run, little.reshape(-1).view(np.uint8))).root()


def _data_root(run: Hasher, data: npt.NDArray[np.uint8]) -> bytes:
    """The Merkle root over the leaves of ``data``: as `cvm.program.merkle.Tree`, level by level."""
    whole = data.size // LEAF_BYTES
    level = np.empty(-(-data.size // LEAF_BYTES) * HASH_BYTES, np.uint8)
    run(0, data.ctypes.data, LEAF_BYTES, whole, level.ctypes.data)
    if data.size % LEAF_BYTES:
        rest = Tree.of([data[whole * LEAF_BYTES :].tobytes()]).root
        level[whole * HASH_BYTES :] = np.frombuffer(rest, np.uint8)
    while level.size > HASH_BYTES:
        pairs = level.size // (2 * HASH_BYTES)
        parents = np.empty(-(-level.size // (2 * HASH_BYTES)) * HASH_BYTES, np.uint8)
        run(1, level.ctypes.data, 2 * HASH_BYTES, pairs, parents.ctypes.data)
        parents[pairs * HASH_BYTES :] = level[2 * pairs * HASH_BYTES :]
        level = parents
    return level.tobytes()
