"""Roots of many tensors, as fast as the machine hashes.

Where the processor has instructions for SHA-256 (`cvm.executors.native.sha256`), tensors are hashed by all cores at
once; elsewhere, and for so little data that making threads would cost more, by `hashlib`. The roots are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors import cores
from cvm.program.commitments import TensorClaim, tensor_root
from cvm.program.leaves import data_root, fast_hasher

if TYPE_CHECKING:
    from cvm.executors.native.sha256 import Hasher

__all__ = ["tensor_roots"]

LITTLE = 2**20
"""Bytes below which plain Python is used, so that a short run does not wait for the code generator."""

Array = npt.NDArray[Any]


def tensor_roots(tensors: Mapping[str, Array], threads: int | None = None) -> dict[str, bytes]:
    """The roots of int32 tensors by name, hashed by ``threads`` threads (None: one per core)."""
    run = fast_hasher() if sum(tensor.nbytes for tensor in tensors.values()) >= LITTLE else None
    if run is None:
        return {name: tensor_root(tensor) for name, tensor in tensors.items()}
    largest_first = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    with ThreadPoolExecutor(threads or cores(), thread_name_prefix="cvm-hash") as pool:
        roots = dict(zip(largest_first, pool.map(lambda name: _root(run, tensors[name]), largest_first), strict=True))
    return {name: roots[name] for name in tensors}


def _root(run: Hasher, tensor: Array) -> bytes:
    little = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<"))
    return TensorClaim(
        tensor.dtype.name, tensor.shape, data_root([little.reshape(-1).view(np.uint8)], little.nbytes, run)
    ).root()
