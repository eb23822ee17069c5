"""Tensors that lie on a device until somebody asks for their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from cvm.executors.base import Int32Array

if TYPE_CHECKING:
    from cvm.executors.cuda.network import Memory

__all__ = ["Roots", "Shown"]

Roots = Callable[[Sequence[str]], dict[str, bytes]]
"""Computes the roots of tensors by name."""


class Shown(Mapping[str, Int32Array]):
    """Tensors of the last run in a memory by name; each is fetched when it is first read.

    It is valid as long as the watch that gets it has not returned. ``lock`` is held while the device is used.
    """

    def __init__(
        self, names: Sequence[str], memory: Memory, lock: AbstractContextManager[Any], roots: Roots | None
    ) -> None:
        self._names, self._memory, self._lock, self._roots = dict.fromkeys(names), memory, lock, roots
        self._fetched: dict[str, Int32Array] = {}

    def __getitem__(self, name: str) -> Int32Array:
        if name not in self._fetched:
            if name not in self._names:
                raise KeyError(name)
            with self._lock:
                self._fetched[name] = self._memory.fetched(name)
        return self._fetched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def roots(self) -> dict[str, bytes] | None:
        """The roots of all these tensors, hashed on the device; None if the device does not hash."""
        if self._roots is None:
            return None
        with self._lock:
            return self._roots([*self._names])
