"""Roots of many tensors, as fast as the machine hashes.

If the processor has instructions for SHA-256 (`cvm.executors.native.runtime.sha256`), tensors are split into pieces
of whole subtrees, which all cores hash at once. On other processors, and for so little data that sharing it would cost
more than it saves, `hashlib` hashes them. The roots are the same.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors import Rooted, cores
from cvm.program.commitments import TensorClaim, tensor_root
from cvm.program.leaves import Hasher, Subtrees, fast_hasher
from cvm.program.merkle import joined

__all__ = ["tensor_roots"]

LITTLE = 2**20
"""Below this many bytes `hashlib` is used, so that a short run does not wait for the code generator."""
ALONE = 2**18
"""Below this many bytes one thread hashes everything, since waking another thread would take longer."""
PIECE = 2**20
"""The bytes that one thread hashes at a time: a power of two of leaves whose digests fit a fast cache."""
SHARES = 4
"""The number of shares for each thread, so that no thread waits long for the last one."""

_INT32 = np.dtype("<i4")

Array = npt.NDArray[Any]
Piece = tuple[str, npt.NDArray[np.uint8]]
"""A piece of the bytes of a tensor."""


def tensor_roots(tensors: Mapping[str, Array], threads: int | None = None) -> dict[str, bytes]:
    """The roots of int32 tensors by name, hashed by ``threads`` threads (None: one per core).

    Tensors on a device that hashes are hashed there.
    """
    known = tensors.roots() if isinstance(tensors, Rooted) else None
    if known is not None:
        return known
    size = sum(tensor.nbytes for tensor in tensors.values())
    # Once the fast hasher is loaded, it is used for little data too.
    run = fast_hasher() if size >= LITTLE or fast_hasher.cache_info().currsize else None
    if run is None:
        return {name: tensor_root(tensor) for name, tensor in tensors.items()}
    pieces = [piece for name, tensor in tensors.items() for piece in _pieces(name, tensor)]
    count = threads or cores()
    nodes: dict[str, list[bytes]] = {name: [] for name in tensors}
    for share in _all_hashed(run, pieces, 1 if size < ALONE else count):
        for name, node in share:
            nodes[name].append(node)
    return {name: TensorClaim("int32", tensor.shape, joined(nodes[name])).root() for name, tensor in tensors.items()}


def _pieces(name: str, tensor: Array) -> list[Piece]:
    assert tensor.dtype.itemsize == _INT32.itemsize
    data = np.ascontiguousarray(tensor, _INT32).reshape(-1).view(np.uint8)
    if data.size <= PIECE:
        return [(name, data)]
    return [(name, data[start : start + PIECE]) for start in range(0, data.size, PIECE)]


def _shares(pieces: Sequence[Piece], count: int) -> Iterator[list[Piece]]:
    """The pieces in order, in shares of about the same size."""
    size = sum(data.size for _, data in pieces) // count
    share, held = list[Piece](), 0
    for piece in pieces:
        share.append(piece)
        held += piece[1].size
        if held >= size:
            yield share
            share, held = [], 0
    if share:
        yield share


def _all_hashed(run: Hasher, pieces: Sequence[Piece], threads: int) -> Iterable[list[tuple[str, bytes]]]:
    if threads == 1:
        return [_hashed(run, pieces)]
    return _pool(threads).map(lambda share: _hashed(run, share), _shares(pieces, SHARES * threads))


def _hashed(run: Hasher, share: Sequence[Piece]) -> list[tuple[str, bytes]]:
    trees = Subtrees(run, PIECE)
    return [(name, trees.root(data)) for name, data in share]


# The threads are kept between calls: a run has many windows per second.

_pools: dict[int, ThreadPoolExecutor] = {}
_making = threading.Lock()


def _pool(threads: int) -> ThreadPoolExecutor:
    with _making:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="cvm-hash")
        return _pools[threads]


def _forget() -> None:
    """Forget the threads in a forked process, which has none of them."""
    global _making
    _making = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
