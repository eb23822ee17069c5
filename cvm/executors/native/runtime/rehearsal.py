"""The rehearsal of a network: its machine code is run on test data before it returns its first result to a caller.

The checker proves the plan; the rehearsal tests the code that was emitted for it. First every call runs alone, in parts
as threads would share it, and all elements that it writes are compared with the tensors of the NumPy executor. Then the
whole network runs, in each way in which it may run, alone or with workers. It must give the same results, and refuse
inputs beyond their intervals. A network is rehearsed once: its code is stored only after the rehearsal.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Int32Array
from cvm.executors.native.descriptions.formats import INT32, Format
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.plan.claims import Claim, Computes, Copies, Fills
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.plan.residence import state_format
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.limits import INT32_MAX
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.executors.native.runtime.batches import Batches
    from cvm.executors.native.runtime.jit import Loaded
    from cvm.program import Program
    from cvm.program.model import Value
    from cvm.program.verifier import VerifiedProgram

__all__ = ["expectations", "rehearse"]

Tensors = Mapping[str, npt.NDArray[Any]]
Runs = Callable[[Sequence[npt.NDArray[Any]]], bool]
QUICK = 450_000
"""A network is also tried on extreme values if the estimated time of a run is at most this many nanoseconds."""
STRETCH = 61
"""The number of successive elements that are all at the same end of their interval."""
PATTERN = 0x5A
"""The byte with which memory is filled before a kernel writes to it."""
FENCE = 64
"""The number of elements before and behind every array of the caller that no kernel may write."""
EDGE = 17
"""This many elements at both ends of an input are tried one by one; the widest vector has fewer lanes."""
SAMPLES = 3
"""The samples of a batch."""
FEW = 8
"""With more inputs than this, only the first and the last element of each input are tried."""


def rehearse(
    verified: VerifiedProgram,
    plan: Plan,
    loaded: Loaded,
    constants: npt.NDArray[np.uint8],
    ways: Sequence[Runs],
    batches: Batches | None,
    expected: Sequence[Tensors],
) -> None:
    """Raise `Distrusted` if the code of a plan gives other values than the NumPy executor.

    Each of the ``ways`` runs the whole network on the arrays of the plan, and returns False if the network refuses
    them; ``batches`` runs several samples, if the network can. ``expected`` are the `expectations`.
    """
    for tensors in expected:
        trial = _Trial(verified, plan, loaded, constants, tensors)
        trial.calls()
        for run in ways:
            trial.whole(run)
        if batches is not None:
            trial.batch(batches)
    for run in ways:
        trial.refuses(run)


def expectations(verified: VerifiedProgram, plan: Plan) -> Iterator[Tensors]:
    """The tensors of the NumPy executor for each run of a rehearsal: inputs, state, results, and constants that a run
    returns.
    """
    quick = sum(call.cost for call in plan.calls) <= QUICK
    tensors = _tensors(verified, quick)
    states = [one.value.name for one in verified.program.state]
    needed = {*plan.arrays, *(one.update for one in verified.program.state)}
    known = {one.name: one.array() for one in verified.program.constants if one.name in needed}
    for feed in _feeds(verified, quick):
        state = {name: feed[name] for name in states}
        inputs = {name: array for name, array in feed.items() if name not in state}
        yield {**tensors(inputs, state), **feed, **known}


def _tensors(verified: VerifiedProgram, quick: bool) -> Callable[[Tensors, Tensors], Tensors]:
    """The function that computes all tensors from inputs and state by NumPy, for many runs (``quick``) or for one."""
    from cvm.executors.numpy import NumpyExecutor
    from cvm.executors.numpy.executor import every_tensor

    if not quick:
        return partial(every_tensor, verified)
    numpy = NumpyExecutor(verified)
    return lambda inputs, state: numpy.run(inputs, state, "all").values


def _feeds(verified: VerifiedProgram, quick: bool) -> Iterator[Tensors]:
    """Inputs and state for a rehearsal.

    With ``quick`` there are four feeds: numbers from the whole intervals, only the greatest numbers, only the least,
    and both of these mixed. Otherwise there is one feed, which also contains runs of the greatest and of the least
    number.
    """
    program = verified.program
    values = _fed(program)
    random = np.random.default_rng(list(bytes.fromhex(program.digest)))
    if not quick:
        yield {one.name: _mixed(random, one) for one in values}
    else:
        yield {one.name: random.integers(one.lo, one.hi + 1, one.shape).astype(np.int32) for one in values}
        yield {one.name: np.full(one.shape, one.hi, np.int32) for one in values}
        yield {one.name: np.full(one.shape, one.lo, np.int32) for one in values}
        yield {one.name: random.choice([one.lo, one.hi], one.shape).astype(np.int32) for one in values}


def _mixed(random: np.random.Generator, value: Value) -> Int32Array:
    """Numbers from a whole interval, with runs of its greatest and of its least number, which make sums large."""
    size = math.prod(value.shape)
    length = max(1, min(STRETCH, size // 8))
    kinds = random.integers(0, 8, -(-size // length)).repeat(length)[:size]
    numbers = random.integers(value.lo, value.hi + 1, size)
    chosen = np.where(kinds == 0, value.lo, np.where(kinds == 1, value.hi, numbers))
    return chosen.reshape(value.shape).astype(np.int32)


def _fed(program: Program) -> list[Value]:
    """The values that a network reads: the inputs, then the state."""
    return [*(one.value for one in program.inputs), *(one.value for one in program.state)]


@dataclass(slots=True)
class _Trial:
    """One test run of a network. ``expected`` are the tensors of the NumPy executor."""

    verified: VerifiedProgram
    plan: Plan
    loaded: Loaded
    constants: npt.NDArray[np.uint8]
    expected: Tensors

    def calls(self) -> None:
        """Run the calls one by one, and compare the tensors that each of them writes."""
        arena = aligned(self.plan.arena + SLACK)
        arena[:] = PATTERN
        arrays = self._arrays()
        claims: dict[int, list[Claim]] = {}
        for claim in self.plan.claims:
            if isinstance(claim, Computes | Copies | Fills):
                claims.setdefault(_last(claim), []).append(claim)

        def memory(buffer: Buffer) -> npt.NDArray[np.uint8]:
            if buffer.kind == "arena":
                return arena[self.plan.offsets[buffer] :]
            if buffer.kind == "constants":
                return self.constants
            return arrays[buffer.index].reshape(-1).view(np.uint8)

        for number, call in enumerate(self.plan.calls):
            addresses = [memory(buffer).ctypes.data + offset for buffer, offset in call.arguments]
            kinds = [ctypes.c_void_p] * len(addresses) + [ctypes.c_int64] * 2
            function = ctypes.CFUNCTYPE(None, *kinds)(self.loaded.address(call.function))
            for first, end in _parts(call.units):
                function(*addresses, first, end)
            for claim in claims.get(number, ()):
                self._compare(claim, memory)
        self._require_spared([*map(_fences, arrays), arena[self.plan.arena :]])

    def _arrays(self) -> list[npt.NDArray[Any]]:
        """The caller's arrays, each between two fences: first those that the network reads, then those it writes."""
        arrays: list[npt.NDArray[Any]] = []
        for index, name in enumerate(self.plan.arrays):
            shape, format_ = self.verified.shapes[name], self._format(index)
            room = np.full(math.prod(shape) + 2 * FENCE, PATTERN, format_.dtype)
            arrays.append(room[FENCE:-FENCE].reshape(shape))
            if index < self.plan.written:
                arrays[-1][...] = format_.stored(self.expected[name])
        return arrays

    def _format(self, index: int) -> Format:
        """The format of an array of the caller."""
        values = _fed(self.verified.program)
        kept = index < len(values) and values[index].name in self.plan.kept
        return state_format(values[index]) if kept else INT32

    def _require_spared(self, areas: Sequence[npt.NDArray[Any]]) -> None:
        """Raise `Distrusted` if a kernel has written to memory that no kernel may write."""
        self._require(all(bool((area == PATTERN).all()) for area in areas), "memory beside a tensor")

    def _compare(self, claim: Claim, memory: Callable[[Buffer], npt.NDArray[np.uint8]]) -> None:
        match claim:
            case Computes():
                for value, home in zip(claim.root.outputs, claim.targets, strict=True):
                    found = _elements(memory(home.buffer), home).reshape(value.shape)
                    self._require(np.array_equal(found, self.expected[value.name]), value.name)
            case Copies():
                source, target = (_elements(memory(home.buffer), home) for home in (claim.source, claim.target))
                self._require(np.array_equal(source, target), "a copy")
            case Fills():
                found = _elements(memory(claim.target.buffer), claim.target)
                self._require(bool((found == claim.value).all()), "a border")

    def _require(self, same: bool, what: str) -> None:
        if not same:
            raise Distrusted(f"{what} came out otherwise when the code was tried")

    def whole(self, run: Runs) -> None:
        """Run the whole network twice, since a run must not disturb the next one."""
        updates = {one.value.name: one.update for one in self.verified.program.state if self.plan.kept}
        for _ in range(2):
            arrays = self._arrays()
            self._require(run(arrays), "what is within its interval")
            self._compare_arrays(arrays, updates)

    def batch(self, batches: Batches) -> None:
        """Run a batch of equal samples, then one whose last sample is refused."""
        samples = [self._arrays() for _ in range(SAMPLES)]
        tables = np.array([[array.ctypes.data for array in arrays] for arrays in samples], np.int64)
        tables = tables.reshape(SAMPLES, -1)
        self._require(batches.run(tables) is None, "what is within its interval")
        for arrays in samples:
            self._compare_arrays(arrays, {})
        for value, array in zip(_fed(self.verified.program), samples[-1], strict=False):
            if value.hi < INT32_MAX:
                array.reshape(-1)[-1] = INT32_MAX
                self._require(batches.run(tables) == SAMPLES - 1, f"an element of {value.name} beyond its interval")
                break

    def _compare_arrays(self, arrays: Sequence[npt.NDArray[Any]], updates: Mapping[str, str]) -> None:
        for index, (name, array) in enumerate(zip(self.plan.arrays, arrays, strict=True)):
            after = updates.get(name, name) if index < self.plan.written else name
            found = array.astype(np.int64) - self._format(index).bias
            self._require(np.array_equal(found, self.expected[after]), after)
        self._require_spared([*map(_fences, arrays)])

    def refuses(self, run: Runs) -> None:
        """Require that the network refuses elements beyond their interval, at the ends and in the middle of inputs."""
        arrays, program = self._arrays(), self.verified.program
        values = [one.value for one in program.inputs] if self.plan.kept else _fed(program)
        edge = EDGE if len(values) <= FEW else 1
        for value, array in zip(values, arrays, strict=False):
            elements, size = array.reshape(-1), array.size
            for position in {*range(min(edge, size)), size // 2, *range(max(size - edge, 0), size)}:
                within = elements[position]
                for beyond in (value.lo - 1, value.hi + 1, -(2**31), INT32_MAX):
                    if -(2**31) <= beyond < 2**31 and not value.lo <= beyond <= value.hi:
                        elements[position] = beyond
                        self._require(not run(arrays), f"an element of {value.name} beyond its interval")
                elements[position] = within


def _fences(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements before and behind an array that `_Trial._arrays` made."""
    room = array.base
    assert room is not None
    return np.concatenate([room[:FENCE], room[-FENCE:]])


def _last(claim: Computes | Copies | Fills) -> int:
    """The number of the call after which a claim holds."""
    if isinstance(claim, Computes) and isinstance(claim.kernel, Contraction):
        return claim.call + claim.targets[0].view.shape[1] // claim.kernel.channels - 1
    return claim.call


def _parts(units: int) -> Iterator[tuple[int, int]]:
    """The units of a call, divided into up to three parts, in reverse order."""
    bounds = sorted({0, min(1, units), units // 2, units})
    yield from reversed(list(itertools.pairwise(bounds)))


def _elements(memory: npt.NDArray[np.uint8], home: Home) -> npt.NDArray[np.int64]:
    """The values that a home holds, in row-major order."""
    format_, size = home.format, home.format.bytes
    factors = [factor for axis in home.view.axes for factor in axis]
    first = home.view.offset + sum(min(0, (n - 1) * step) for n, step in factors)
    last = home.view.offset + sum(max(0, (n - 1) * step) for n, step in factors)
    stored: npt.NDArray[Any] = memory[first * size : (last + 1) * size].view(format_.dtype)
    shape, steps = tuple(n for n, _ in factors), tuple(step * size for _, step in factors)
    view = np.lib.stride_tricks.as_strided(stored[home.view.offset - first :], shape, steps)
    values: npt.NDArray[np.int64] = view.astype(np.int64) - format_.bias
    return values.reshape(home.view.shape)
