"""Agreement: whether executors give the same integers for every tensor, and whether FORMAL gives the same elements.

`compare` runs whole programs on several executors. `judge` lets FORMAL compute single elements of another executor's
tensors, each from the operands that the executor had: for programs too large for FORMAL to run whole.

An executor that returns every tensor may use other kernels than one that returns the outputs alone, which fuses
ops. So both functions run every executor but FORMAL in both ways, and compare the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import formal.executor
from cvm.errors import Mismatch
from cvm.executors import Executor, Int32Array, RunResult, initial_state
from cvm.inputs import Feed
from cvm.program import Program
from cvm.program.model import Node
from cvm.records import dataclass
from formal.tensor import Stored

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = [
    "Agreement",
    "Difference",
    "compare",
    "drawn_indices",
    "first_difference",
    "judge",
    "laid_open",
    "left_difference",
    "makers",
    "tensor_of",
]

Index = tuple[int, ...]
Progress = Callable[[int], None]
"""A function that receives the number of each run after it has been compared, counted from 1."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element on which two executors differ, in execution order."""

    run: int
    op: str
    """The op that computes the tensor; "input" or "state" if the tensor is an input or a state."""
    tensor: str
    index: Index
    values: Mapping[str, int]
    """The values of the element, by the name of the executor."""

    def error(self) -> Mismatch:
        """The difference as an error."""
        found = ", ".join(f"{name} has {value}" for name, value in self.values.items())
        where = f"run {self.run}: tensor {self.tensor!r} (op {self.op}) differs at {list(self.index)}"
        return Mismatch("agreement.difference", f"{where}: {found}")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The extent of a comparison, and the first difference (None: there is none)."""

    runs: int
    tensors: int
    """How many tensors one run has."""
    elements: int
    """How many elements were compared, over all runs."""
    difference: Difference | None = None


def compare(
    program: Program,
    executors: Sequence[Executor],
    samples: Iterable[Sequence[Feed]],
    progress: Progress = lambda _: None,
) -> Agreement:
    """Run all ``executors`` on every sample, each a sequence of cycles, and compare every tensor and the next state.

    Each executor but FORMAL also runs without capture, and must then give the same outputs and the same state. Every
    sample begins with the initial state. Stops at the first run that differs.
    """
    made_by = makers(program)
    count = elements = 0
    for feeds in samples:
        states = [initial_state(program) for _ in executors]
        for feed in feeds:
            results = [executor.run(feed, state, "all") for executor, state in zip(executors, states, strict=True)]
            compared, difference = _compared(count, made_by, executors, results)
            elements += compared
            for executor, state, result in zip(executors, states, results, strict=True):
                difference = difference or _difference_without_capture(program, count, executor, feed, state, result)
            if difference is not None:
                return Agreement(count + 1, len(made_by), elements, difference)
            states = [result.state for result in results]
            count += 1
            progress(count)
    return Agreement(count, len(made_by), elements)


def makers(program: Program) -> dict[str, str]:
    """The op that makes each tensor except constants, in execution order; "input" and "state" for inputs and states."""
    made_by = {item.value.name: "input" for item in program.inputs}
    made_by |= {item.value.name: "state" for item in program.state}
    return made_by | {value.name: node.op for node in program.nodes for value in node.outputs}


def laid_open(name: str) -> str:
    """The label, in a difference, of the executor ``name`` in the run that captured every tensor."""
    return f"{name} with every tensor laid open"


def first_difference(run: int, op: str, tensor: str, found: Mapping[str, Int32Array]) -> Difference | None:
    """The first element on which several results for one tensor differ; ``found`` holds them by executor."""
    (first_name, first), *others = found.items()
    for name, array in others:
        if not np.array_equal(first, array):
            index = tuple(np.argwhere(first != array)[0].tolist())
            return Difference(run, op, tensor, index, {first_name: int(first[index]), name: int(array[index])})
    return None


def left_difference(
    program: Program, run: int, found: Mapping[str, RunResult], made_by: Mapping[str, str]
) -> Difference | None:
    """The first difference in the results of runs: the outputs, then the next state. ``found`` is by executor."""
    for output in program.outputs:
        arrays = {name: result.values[output.value] for name, result in found.items()}
        difference = first_difference(run, made_by.get(output.value, "constant"), output.value, arrays)
        if difference is not None:
            return difference
    for kept in program.state:
        arrays = {name: result.state[kept.value.name] for name, result in found.items()}
        difference = first_difference(run, made_by.get(kept.update, "constant"), kept.update, arrays)
        if difference is not None:
            return difference
    return None


def _compared(
    run: int, made_by: Mapping[str, str], executors: Sequence[Executor], results: Sequence[RunResult]
) -> tuple[int, Difference | None]:
    """The number of elements that were compared, and the first difference between executors that gave every tensor."""
    elements = 0
    for name, op in made_by.items():
        found = {executor.name: result.values[name] for executor, result in zip(executors, results, strict=True)}
        elements += results[0].values[name].size
        difference = first_difference(run, op, name, found)
        if difference is not None:
            return elements, difference
    return elements, None


def _difference_without_capture(
    program: Program,
    run: int,
    executor: Executor,
    feed: Feed,
    state: Mapping[str, Int32Array],
    captured: RunResult,
) -> Difference | None:
    """The first difference between ``captured`` and the results of the same executor without capture.

    FORMAL computes the same tensors in the same way whatever is returned, so it does not run again.
    """
    if executor.name == "formal":
        return None
    found = {executor.name: executor.run(feed, state), laid_open(executor.name): captured}
    return left_difference(program, run, found, makers(program))


def judge(
    verified: VerifiedProgram,
    executor: Executor,
    samples: Iterable[Sequence[Feed]],
    count: int,
    progress: Progress = lambda _: None,
    state: Mapping[str, Int32Array] | None = None,
    salt: str = "",
) -> Agreement:
    """Let FORMAL compute ``count`` elements of every output of every node from the operands of ``executor``.

    The executor also runs without capture, and must then give the same outputs and the same state. The first sample
    begins with ``state``, if it is given; every other sample with the initial state. SHA-256 of the program's digest,
    ``salt``, the run and the node determines the judged elements, and nothing else does.
    """
    program = verified.program
    constants: dict[str, npt.NDArray[Any]] = {constant.name: constant.array() for constant in program.constants}
    tensors = sum(len(node.outputs) for node in program.nodes)
    run = elements = 0
    for feeds in samples:
        before = initial_state(program) if state is None or run else state
        for feed in feeds:
            result = executor.run(feed, before, "all")
            found = _difference_without_capture(program, run, executor, feed, before, result)
            if found is not None:
                return Agreement(run + 1, tensors, elements, found)
            known = {**constants, **result.values, **feed, **before}
            before = result.state
            for number, node in enumerate(program.nodes):
                seed = f"{program.digest}{salt and '/' + salt}/{run}/{number}"
                for difference in _judged(node, known, run, executor.name, count, seed):
                    elements += 1
                    if difference is not None:
                        return Agreement(run + 1, tensors, elements, difference)
            run += 1
            progress(run)
    return Agreement(run, tensors, elements)


def _judged(
    node: Node, known: Mapping[str, npt.NDArray[Any]], run: int, name: str, count: int, seed: str
) -> Iterator[Difference | None]:
    """Compare elements of the outputs of one node with FORMAL's, one after the other; yields None where they agree."""
    outputs = formal.executor.apply(node, [tensor_of(known[operand]) for operand in node.inputs])
    for number, (value, output) in enumerate(zip(node.outputs, outputs, strict=True)):
        array = known[value.name]
        for position in _positions(array.size, count, f"{seed}/{number}"):
            index = tuple(int(i) for i in np.unravel_index(position, array.shape))
            expected, found = output[index], int(array[index])
            if expected == found:
                yield None
            else:
                yield Difference(run, node.op, value.name, index, {"formal": expected, name: found})


def tensor_of(array: npt.NDArray[Any]) -> Stored:
    """An array as a tensor of FORMAL. No element is copied."""
    return Stored(array.shape, np.ascontiguousarray(array).reshape(-1).data)


def _positions(size: int, count: int, seed: str) -> list[int]:
    """``count`` numbers of elements in a tensor of ``size``, ascending; all numbers if there are no more."""
    return list(range(size)) if size <= count else sorted(islice(drawn_indices(size, seed), count))


def drawn_indices(size: int, seed: str) -> Iterator[int]:
    """The numbers below ``size`` in the random order of ``seed``, by Fisher and Yates; only moved ones are stored."""
    moved: dict[int, int] = {}
    for first in range(size):
        draw = int.from_bytes(sha256(f"{seed}/{first}".encode()).digest(), "big")
        other = first + draw % (size - first)
        at_first = moved.pop(first, first)
        if other == first:
            yield at_first
        else:
            yield moved.get(other, other)
            moved[other] = at_first
