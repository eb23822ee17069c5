"""Compares the ways in which a caller may run a program through `cvm.Session` with one run after the other.

Arrays of all kinds of memory go in. Outputs are written into new arrays, into arrays that are given again and again,
and into arrays of a bound session; samples come one by one, as a batch, and as a list; several Python threads call one
session at the same time. In every way each output must be the one that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.executors import RunResult
from cvm.program.verifier import VerifiedProgram
from cvm.session import Session
from tools.fuzz.edge_feeds import Feed

__all__ = ["session_differences"]

_REFUSED = ("machine code is not used", "plain, since otherwise")
"""Signs of results that may be right, but do not come from the code under test."""
CALLERS = 3
"""How many Python threads call a session at the same time."""

Arrays = Mapping[str, npt.NDArray[Any]]
Known = Sequence[Arrays]


def session_differences(
    verified: VerifiedProgram,
    runs: Sequence[Feed],
    known: Sequence[RunResult],
    random: Random,
    threads: Sequence[int] = (1, 2),
) -> list[str]:
    """What is wrong, one line each. ``known`` are the results of ``runs``, one after the other, state and all."""
    program = verified.program
    right = [{one.name: run.values[one.value] for one in program.outputs} for run in known]
    found = []
    for count in threads:
        session = Session(verified, "native", count)
        found += [f"{count} threads, {line}" for line in session.explain() if any(sign in line for sign in _REFUSED)]
        ways = _WITH_STATE if program.state else _WITHOUT_STATE
        for name, way in ways.items():
            found += [f"{count} threads, {name}: {line}" for line in way(session, runs, right, random)]
            session.reset()
    return found


def _differing(what: str, found: Arrays, right: Arrays) -> Iterator[str]:
    for name, array in right.items():
        if found[name].dtype != np.int32 or not np.array_equal(found[name], array):
            yield f"{what}: output {name!r}"


# One after the other: also programs with state ----------------------------------------------------------------------


def _singly(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """One run after the other, some with every tensor captured; the state goes on."""
    for number, (feed, known) in enumerate(zip(runs, right, strict=True)):
        capture = "all" if random.random() < 0.2 else None
        yield from _differing(f"run {number}", session.run(_disguised(feed, random), capture, codes=True), known)


def _disguised(feed: Feed, random: Random) -> dict[str, npt.NDArray[Any]]:
    """The same integers in other memory: read-only, as columns, backwards, unaligned, or in another type."""
    return {name: random.choice(_DISGUISES)(array) for name, array in feed.items()}


def _columns(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.asfortranarray(array)


def _frozen(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def _backwards(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    copy: npt.NDArray[np.int32] = np.flip(array).copy()
    return np.flip(copy)


def _inner(array: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Memory that begins at an address that is no multiple of a vector's length."""
    whole = np.empty(array.size + 3, np.int32)
    part = whole[3:].reshape(array.shape)
    part[...] = array
    return part


_DISGUISES: tuple[Callable[[npt.NDArray[np.int32]], npt.NDArray[Any]], ...] = (
    _columns, _frozen, _backwards, _inner, lambda array: array, lambda array: array.astype(np.int64),
    lambda array: array.astype(">i4"),
)  # fmt: skip


def _given(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """Outputs into the same arrays in every run, then into others; inputs in the same and in other arrays."""
    outs = [{name: np.full(array.shape, 77, np.int32) for name, array in right[0].items()} for _ in range(2)]
    kept = {name: array.copy() for name, array in runs[0].items()}
    for number, (feed, known) in enumerate(zip(runs, right, strict=True)):
        out = outs[0] if number < 2 else random.choice(outs)
        fed: dict[str, npt.NDArray[Any]] = dict(feed) if number % 2 else kept
        for name, array in kept.items():
            array[...] = feed[name]
        yield from _differing(f"run {number} into arrays", session.run(fed, codes=True, out=out), known)
        yield from _differing(f"run {number}, the arrays", out, known)
    yield from _refused(session, kept, outs[0])


def _refused(session: Session, fed: dict[str, npt.NDArray[Any]], out: dict[str, npt.NDArray[Any]]) -> Iterator[str]:
    """An output that shares memory with an input must be refused, also if the output's array was accepted before."""
    for name, array in out.items():
        for other, given in fed.items():
            if given.size <= array.size:
                shared = {**fed, other: array.reshape(-1)[: given.size].reshape(given.shape)}
                array[...] = given.reshape(-1)[0]
                try:
                    session.run(shared, codes=True, out=out)
                except Invalid as error:
                    if error.code != "out.overlap":
                        yield f"output {name!r} in the memory of {other!r}: {error.code}"
                else:
                    yield f"output {name!r} in the memory of {other!r}: accepted"


def _bound(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """Runs on the fixed arrays of a bound session."""
    bound = session.bind()
    values = {one.name: one.value for one in session.program.outputs}
    for number, (feed, known) in enumerate(zip(runs, right, strict=True)):
        for name, array in feed.items():
            bound.inputs[name][...] = array
        bound.run()
        yield from _differing(f"run {number}", {name: bound.outputs[value] for name, value in values.items()}, known)


# Several at once: programs without state ------------------------------------------------------------------------------


def _stacked(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """All inputs as one batch, again and again, more of them than threads and fewer; also into given arrays."""
    for samples in (1, 2, 3, len(runs), 3 * len(runs)) if session.declared else ():
        chosen = [random.randrange(len(runs)) for _ in range(samples)]
        fed = {name: np.stack([runs[k][name] for k in chosen]) for name in runs[0]}
        known = {name: np.stack([right[k][name] for k in chosen]) for name in right[0]}
        out = {name: np.empty_like(array) for name, array in known.items()} if random.random() < 0.5 else None
        yield from _differing(f"batch of {samples}", session.run(fed, codes=True, out=out), known)


def _listed(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """All inputs as a list, with arrays of any memory among them."""
    for samples in (1, len(runs), 5 * len(runs)):
        chosen = [random.randrange(len(runs)) for _ in range(samples)]
        fed = [_disguised(runs[k], random) if random.random() < 0.3 else runs[k] for k in chosen]
        for number, (k, found) in enumerate(zip(chosen, session.run_many(fed, codes=True), strict=True)):
            yield from _differing(f"number {number} of {samples}", found, right[k])


def _together(session: Session, runs: Sequence[Feed], right: Known, random: Random) -> Iterator[str]:
    """Several Python threads, each of which takes the other ways in an order of its own."""
    seeds = [random.getrandbits(64) for _ in range(CALLERS)]

    def caller(seed: int) -> list[str]:
        own = Random(seed)
        ways = [_singly, _given, _stacked, _listed, _bound]
        own.shuffle(ways)
        return [f"{way.__name__} {line}" for way in ways for line in way(session, runs, right, own)]

    with ThreadPoolExecutor(CALLERS) as pool:
        for number, lines in enumerate(pool.map(caller, seeds)):
            yield from (f"caller {number}: {line}" for line in lines)


Ways = Mapping[str, Callable[[Session, Sequence[Feed], Known, Random], Iterator[str]]]
_WITH_STATE: Ways = {"singly": _singly, "into given arrays": _given, "bound": _bound}
_WITHOUT_STATE: Ways = {**_WITH_STATE, "as a batch": _stacked, "as a list": _listed, "together": _together}
