"""Agreement: do executors give the same integers for every tensor, and does FORMAL agree element by element?

`compare` runs whole programs side by side. `judge` lets FORMAL compute single elements of what another executor
gave, each from the operands that it had: for programs too large for FORMAL to run whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import formal.executor
from cvm.errors import Mismatch
from cvm.executors import Executor, Int32Array, initial_state
from cvm.inputs import Feed
from cvm.program.model import Node, Program
from formal.tensor import Tensor

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Agreement", "Difference", "compare", "judge"]

Index = tuple[int, ...]
Progress = Callable[[int], None]
"""Told the number of each run that has been compared, from 1."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element on which two executors differ, in execution order."""

    run: int
    op: str
    """The op that computes the tensor; "input" or "state" for what the program was given."""
    tensor: str
    index: Index
    values: Mapping[str, int]
    """The element by the name of the executor."""

    def error(self) -> Mismatch:
        """The difference as an error."""
        found = ", ".join(f"{name} has {value}" for name, value in self.values.items())
        where = f"run {self.run}: tensor {self.tensor!r} (op {self.op}) differs at {list(self.index)}"
        return Mismatch("agreement.difference", f"{where}: {found}")


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was compared, and the first difference (None: there is none)."""

    runs: int
    tensors: int
    """Tensors of one run."""
    elements: int
    """Elements compared, over all runs."""
    difference: Difference | None = None


def compare(
    program: Program,
    executors: Sequence[Executor],
    samples: Iterable[Sequence[Feed]],
    progress: Progress = lambda _: None,
) -> Agreement:
    """Run all ``executors`` on every sample, each a sequence of cycles, and compare every tensor and the next state.

    Every sample begins with the initial state. Stops at the first run that differs.
    """
    makers = _makers(program)
    count = elements = 0
    for feeds in samples:
        states = [initial_state(program) for _ in executors]
        for feed in feeds:
            results = [executor.run(feed, state, "all") for executor, state in zip(executors, states, strict=True)]
            states = [result.state for result in results]
            for name, op in makers.items():
                found = {
                    executor.name: result.values[name] for executor, result in zip(executors, results, strict=True)
                }
                difference = _difference(count, op, name, found)
                elements += results[0].values[name].size
                if difference is not None:
                    return Agreement(count + 1, len(makers), elements, difference)
            count += 1
            progress(count)
    return Agreement(count, len(makers), elements)


def _makers(program: Program) -> dict[str, str]:
    """Every tensor but the constants, in execution order, and the op that makes it."""
    makers = {item.value.name: "input" for item in program.inputs}
    makers |= {item.value.name: "state" for item in program.state}
    return makers | {value.name: node.op for node in program.nodes for value in node.outputs}


def _difference(run: int, op: str, tensor: str, found: Mapping[str, Int32Array]) -> Difference | None:
    (first_name, first), *others = found.items()
    for name, array in others:
        if not np.array_equal(first, array):
            index = tuple(np.argwhere(first != array)[0].tolist())
            return Difference(run, op, tensor, index, {first_name: int(first[index]), name: int(array[index])})
    return None


def judge(
    verified: VerifiedProgram,
    executor: Executor,
    samples: Iterable[Sequence[Feed]],
    count: int,
    progress: Progress = lambda _: None,
    state: Mapping[str, Int32Array] | None = None,
) -> Agreement:
    """Let FORMAL compute ``count`` elements of every output of every node from the operands that ``executor`` gave.

    The first sample begins with ``state``, if it is given; every other one with the initial state.
    Which elements is a function of the program's digest, the run and the node alone: SHA-256 says.
    """
    program = verified.program
    constants: dict[str, npt.NDArray[Any]] = {constant.name: constant.array() for constant in program.constants}
    tensors = sum(len(node.outputs) for node in program.nodes)
    run = elements = 0
    for feeds in samples:
        before = initial_state(program) if state is None or run else state
        for feed in feeds:
            result = executor.run(feed, before, "all")
            before = result.state
            known = {**constants, **result.values}
            for number, node in enumerate(program.nodes):
                seed = f"{program.digest}/{run}/{number}"
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
    """FORMAL's verdict on elements of the outputs of one node, one after the other: None is agreement."""
    outputs = formal.executor.apply(node, [_tensor(known[operand]) for operand in node.inputs])
    for place, (value, output) in enumerate(zip(node.outputs, outputs, strict=True)):
        array = known[value.name]
        for position in _positions(array.size, count, f"{seed}/{place}"):
            index = tuple(int(i) for i in np.unravel_index(position, array.shape))
            expected, found = output[index], int(array[index])
            if expected == found:
                yield None
            else:
                yield Difference(run, node.op, value.name, index, {"formal": expected, name: found})


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """An array as a tensor of FORMAL, element by element."""
    return Tensor(array.shape, lambda index: int(array[index]))


def _positions(size: int, count: int, seed: str) -> list[int]:
    """``count`` places in a tensor of ``size`` elements, ascending; all of them if it has no more."""
    if size <= count:
        return list(range(size))
    draws = (sha256(f"{seed}/{draw}".encode()).digest() for draw in range(count))
    return sorted({int.from_bytes(draw, "big") % size for draw in draws})
