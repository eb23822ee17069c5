"""The search for the smallest network that still fails: steps, each of which tries networks that are smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from itertools import combinations

import numpy as np

from cvm.errors import CvmError
from cvm.records import dataclass
from cvm.reduction.network import Array, Feed, Form, Network, Part, joined, parts, pruned, renamed
from cvm.reduction.values import simpler

__all__ = ["Bound", "Reduced", "reduced"]

Fails = Callable[[Network], bool]
_AXES = 6
"""Up to so many axes of one extent, every choice among them is tried."""


@dataclass(frozen=True, slots=True)
class Bound:
    """When the search ends although it might find more."""

    tries: int = 2000
    """How often it is asked whether a network fails."""
    seconds: float = 60.0
    """Of the clock."""


@dataclass(frozen=True, eq=False, slots=True)
class Reduced:
    """The smallest network that was found."""

    network: Network
    before: tuple[int, ...]
    """The size of the network that was given."""
    after: tuple[int, ...]
    tries: int
    complete: bool
    """Whether no step finds a smaller one; else a bound was reached."""


class _Ended(Exception):
    """A bound is reached."""


@dataclass(slots=True)
class _Search:
    form: Form
    best: Network
    fails: Fails
    bound: Bound
    progress: Callable[[str], None]
    clock: Callable[[], float]
    tries: int = 0
    started: float = 0.0
    known: set[bytes] = field(default_factory=set)

    def attempt(self, network: Network | None, piece: bool = False) -> bool:
        """Whether a network is smaller, valid and fails; then it is the best one. Raises `_Ended`.

        Of a ``piece`` of a valid network only the cheap part of validity is checked.
        """
        if network is None or not network.inputs or not network.outputs:
            return False
        if network.size(self.form) >= self.best.size(self.form):
            return False
        if self.clock() - self.started > self.bound.seconds:
            raise _Ended
        digest = network.digest
        if digest in self.known:
            return False
        self.known.add(digest)
        try:
            (self.form.read if piece else self.form.check)(network)
        except CvmError:
            return False
        if self.tries >= self.bound.tries:
            raise _Ended
        self.tries += 1
        if not self.fails(network):
            return False
        self.best = network
        operations, _, elements, *_ = network.size(self.form)
        self.progress(f"{operations} operations, {elements} elements, {self.tries} tries")
        return True

    def exhaust(self, step: Callable[[Network], Iterable[Network | None]]) -> bool:
        """Go on with a step as long as it finds something."""
        found = False
        while any(self.attempt(network) for network in step(self.best)):
            found = True
        return found


def reduced(
    network: Network,
    form: Form,
    fails: Fails,
    bound: Bound = Bound(),
    progress: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Reduced:
    """The smallest network found for which ``fails`` is true, as it must be for ``network``.

    The same network and the same answers give the same result, unless a bound ends the search.
    """
    search = _Search(form, network, fails, bound, progress, clock, started=clock())
    complete = True
    try:
        while _round(search):
            pass
    except _Ended:
        complete = False
    return Reduced(search.best, network.size(form), search.best.size(form), search.tries, complete)


def _round(search: _Search) -> bool:
    """Every step once, as far as it goes; whether one of them found a smaller network."""
    before = search.best
    _fewer_runs(search)
    _fewer_parts(search)
    search.exhaust(search.form.fewer)
    search.exhaust(lambda network: _bypassed(network, search.form))
    search.exhaust(lambda network: _fewer_outputs(network))
    search.exhaust(search.form.plainer)
    search.exhaust(lambda network: _shorter(network, search.form))
    search.exhaust(_simpler_runs)
    search.exhaust(_simpler_constants)
    return search.best is not before


def _fewer_runs(search: _Search) -> None:
    """Without runs: halves, or one of the first."""
    form = search.form
    while (count := len(search.best.runs)) > 1:
        whole, data = search.best, form.tensors(search.best)
        half = count // 2
        pieces = [slice(0, half), slice(half, count), *(slice(n, n + 1) for n in range(min(count, 8)))]
        for piece in pieces:
            smaller = _with_runs(whole, whole.runs[piece])
            if not whole.state:  # with state, runs depend on those before them
                form.remember(smaller, data[piece])
            if search.attempt(smaller, piece=not whole.state):
                break
        else:
            return


def _with_runs(network: Network, runs: tuple[Feed, ...]) -> Network:
    return Network(network.nodes, network.inputs, network.outputs, network.constants, runs, network.state)


def _fewer_outputs(network: Network) -> Iterator[Network]:
    names = network.outputs
    count = len(names)
    while count > 1:
        count = (count + 1) // 2
        for first in range(0, len(names), count):
            if len(names[first : first + count]) < len(names):
                yield pruned(network, names[first : first + count])
        if count == 1:
            return


def _fewer_parts(search: _Search) -> None:
    """Find the parts that fail: where they end and where they begin by bisection, then without pieces of them."""
    whole = search.best
    found = parts(whole, search.form)
    if len(found) < 2 and not whole.state:
        return
    _pieced(search, whole, found, quick=True)
    try:
        search.form.check(search.best)
    except CvmError:  # a piece that has no program; every piece is checked now
        search.best = whole
        search.known.clear()
        _pieced(search, whole, found, quick=False)


def _pieced(search: _Search, whole: Network, found: list[Part], quick: bool) -> None:
    form = search.form
    data = form.tensors(whole)

    def tried(kept: list[Part], frozen: bool) -> bool:
        piece = joined(whole, form, kept, data, frozen)
        if piece is not None and not piece.state:
            form.remember(piece, data)
        return search.attempt(piece, piece=quick)

    frozen = bool(whole.state) and tried(found, frozen=True)

    def fails(kept: list[Part]) -> bool:
        return tried(kept, frozen)

    kept = found[: _least(len(found), lambda end: fails(found[:end]))]
    count = len(kept)
    kept = kept[count - _least(count, lambda length: fails(kept[count - length :])) :]
    size = len(kept) // 2
    while size:
        first = 0
        while first < len(kept) and len(kept) > 1:
            less = kept[:first] + kept[first + size :]
            if fails(less):
                kept = less
            else:
                first += size
        size //= 2


def _least(count: int, holds: Callable[[int], bool]) -> int:
    """A number at which ``holds`` and below which it does not, found by bisection; it holds at ``count``."""
    below, above = 0, count
    while above - below > 1:
        middle = (below + above) // 2
        if holds(middle):
            above = middle
        else:
            below = middle
    return above


def _bypassed(network: Network, form: Form) -> Iterator[Network]:
    """Networks without one part: something of the same shape that it reads stands for its result."""
    found = parts(network, form)
    if len(found) < 2:
        return
    first = form.tensors(network)[0]
    for part in found:
        made = {name for number in part.nodes for name in network.nodes[number].outputs}
        read = dict.fromkeys(name for number in part.nodes for name in network.nodes[number].inputs)
        for before in part.makes:
            for after in read:
                fits = after in first and after not in made and first[after].shape == first[before].shape
                if fits and first[after].dtype == first[before].dtype:
                    yield renamed(network, before, after)


# Extents ----------------------------------------------------------------------------------------------------------


def _shorter(network: Network, form: Form) -> Iterator[Network]:
    """Networks in which axes of one extent are shortened, in inputs and constants."""
    leaves = {name: network.runs[0][name] for name in network.inputs} | dict(network.constants)
    axes: dict[int, list[tuple[str, int]]] = {}
    for name, array in leaves.items():
        for axis, extent in enumerate(array.shape):
            if extent > 1:
                axes.setdefault(extent, []).append((name, axis))
    for extent in sorted(axes, reverse=True):
        for part in _pieces(extent):
            length = len(range(*part.indices(extent)))
            for chosen in _choices(axes[extent]):
                cut = _cut(network, chosen, part)
                other = form.resized(cut, extent, length)
                yield from (other, cut) if other is not cut else (cut,)
                yield from _with_plain_windows(cut, form)


def _with_plain_windows(network: Network, form: Form) -> Iterator[Network]:
    """The network with simpler windows, which a shorter kernel or image may need."""
    if len(network.nodes) <= 12:
        yield from form.plainer(network)


def _pieces(extent: int) -> Iterator[slice]:
    """Pieces of an axis: single indices of short axes, halves, all but one end."""
    if extent <= 4:
        yield from (slice(k, k + 1) for k in range(extent))
    else:
        yield from (slice(k, k + 1) for k in (extent // 2, 0, extent - 1))
    half = extent // 2
    if extent > 8:
        yield from (slice(0, extent // 4), slice(extent - extent // 4, extent))
    if half > 1:
        yield from (slice(0, half), slice(extent - half, extent), slice(half // 2, half // 2 + half))
    if extent > 2:
        yield from (slice(0, extent - 1), slice(1, extent))


def _choices(axes: list[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Choices among axes: all of them first."""
    yield tuple(axes)
    if len(axes) > _AXES:
        yield from ((axis,) for axis in axes)
        return
    for count in range(len(axes) - 1, 0, -1):
        yield from combinations(axes, count)


def _cut(network: Network, axes: tuple[tuple[str, int], ...], piece: slice) -> Network:
    def shorter(name: str, array: Array) -> Array:
        chosen = [axis for other, axis in axes if other == name]
        index = tuple(piece if axis in chosen else slice(None) for axis in range(array.ndim))
        return np.ascontiguousarray(array[index]) if chosen else array

    constants = {name: shorter(name, array) for name, array in network.constants.items()}
    runs = tuple({name: shorter(name, array) for name, array in run.items()} for run in network.runs)
    return Network(network.nodes, network.inputs, network.outputs, constants, runs, network.state)


# Elements ---------------------------------------------------------------------------------------------------------


def _simpler_runs(network: Network) -> Iterator[Network]:
    for number, run in enumerate(network.runs):
        for name, array in run.items():
            for other in simpler(array):
                runs = (*network.runs[:number], {**run, name: other}, *network.runs[number + 1 :])
                yield _with_runs(network, runs)


def _simpler_constants(network: Network) -> Iterator[Network]:
    for name, array in network.constants.items():
        for other in simpler(array):
            constants = {**network.constants, name: other}
            yield Network(network.nodes, network.inputs, network.outputs, constants, network.runs, network.state)
