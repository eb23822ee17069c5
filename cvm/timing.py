"""Where the time of a computation goes, for a caller that asks.

Code that takes long marks its parts with `timed`. Nothing is recorded, and next to nothing computed, unless a caller
listens (`recorded`). Times are exclusive: the time of an inner part does not count for the outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from time import perf_counter

from cvm.records import dataclass

__all__ = ["Part", "Times", "recorded", "timed"]


@dataclass(slots=True)
class Part:
    """The seconds of all parts with one stage and name, and how many parts these were."""

    stage: str
    name: str
    seconds: float = 0.0
    count: int = 0


@dataclass(slots=True)
class Times:
    """The times of the parts of a computation, in the order in which they first began."""

    began: Callable[[str, str], None]
    """Receives the stage and the name of each part that begins."""
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=list)
    """For each open part, the seconds of the parts within it."""

    def _begin(self, stage: str, name: str) -> tuple[Part, float]:
        self.began(stage, name)
        part = self.parts.setdefault((stage, name), Part(stage, name))
        self._inner.append(0.0)
        return part, perf_counter()

    def _end(self, part: Part, start: float) -> None:
        whole = perf_counter() - start
        part.seconds += whole - self._inner.pop()
        part.count += 1
        if self._inner:
            self._inner[-1] += whole


_listening: ContextVar[Times | None] = ContextVar("listening", default=None)


@contextmanager
def timed(stage: str, name: str = "") -> Iterator[None]:
    """A part of a computation, for the current recording."""
    times = _listening.get()
    if times is None:
        yield
        return
    part, start = times._begin(stage, name)
    try:
        yield
    finally:
        times._end(part, start)


@contextmanager
def recorded(began: Callable[[str, str], None] = lambda stage, name: None) -> Iterator[Times]:
    """Record the times of the parts within the block. ``began`` receives each part that begins."""
    times = Times(began)
    token = _listening.set(times)
    try:
        yield times
    finally:
        _listening.reset(token)
