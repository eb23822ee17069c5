"""Stored tensors as the reference reads them, made once for all references within a block.

Calibration evaluates many graphs that differ in a few quantisers. Most of their weights are the same arrays with the
same quantisers, and rounding the weights of a large network takes as long as a run of it. Within `sharing`, a reference
takes over what another living reference has made of the same array. Nothing lives longer than the references do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakValueDictionary

from cvm.records import dataclass
from cvm.reference.registry import Array
from cvm.reference.values import Compact

__all__ = ["Made", "made", "sharing"]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Made:
    """What a reference made of a stored array. What it depends on lives as long, so that its identity is its own."""

    sources: tuple[object, ...]
    value: Array | Compact


_shared: ContextVar[WeakValueDictionary[Hashable, Made] | None] = ContextVar("shared", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Let references share what they make of stored arrays. No array may be written to within the block."""
    token = _shared.set(WeakValueDictionary())
    try:
        yield
    finally:
        _shared.reset(token)


def made(sources: tuple[object, ...], how: Hashable, make: Callable[[], Array | Compact]) -> Made:
    """What ``make`` gives for an array and its quantisers, or what a living reference has of them.

    ``how`` says all that it depends on beside the ``sources``, which are compared by identity: to compare a thousand
    scales takes longer than to round by them.
    """
    known, key = _shared.get(), (*map(id, sources), how)
    found = None if known is None else known.get(key)
    if found is None:
        found = Made(sources, make())
        if known is not None:
            known[key] = found
    return found
