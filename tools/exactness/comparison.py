"""The codes of a program compared with the exact meaning of its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors import create, initial_state
from cvm.graph import QuantizedGraph
from cvm.inputs import Feed
from cvm.program import Program, verify
from cvm.program.model import Exactness
from cvm.quantization import LinearQuantizer, Quantizer
from tests.oracle.real import Number, Undecided, floor_of
from tools.exactness.elements import Budget, Elements, Index, TooCostly
from tools.exactness.evaluation import Evaluation, code_of

__all__ = ["Outcome", "Sampling", "compared", "drawn_feeds"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many elements are checked, and how much one may cost."""

    elements: int = 25
    """Elements of each tensor, drawn; all of them if there are no more."""
    output_elements: int = 2000
    """The same for each output of the graph."""
    reads: int = 400_000
    """The most elements that one element may depend on."""
    seed: int = 1


@dataclass
class Outcome:
    """What was compared. ``wrong`` lists what lies outside of the claim, each as a sentence."""

    runs: int = 0
    tensors: int = 0
    outputs: int = 0
    elements: int = 0
    within: int = 0
    """Elements of tensors with a bound that are not the exact code, but lie within the bound."""
    bounded: dict[str, float] = field(default_factory=dict)
    """The tensors with a bound, in codes."""
    wrong: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Elements that were not compared, by reason; a tensor that cannot be evaluated counts once."""
    absent: int = 0
    """Tensors with a quantiser of which the program keeps no codes, because no output needs them apart."""


def drawn_feeds(program: Program, cycles: int, seed: int) -> list[Feed]:
    """Drawn codes for every input; counts and indices, which have a wide range, from 0 to 9."""
    random = np.random.default_rng(seed)

    def drawn(lo: int, hi: int, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
        ends = (max(lo, 0), min(hi, 9)) if hi - lo >= 2**16 else (lo, hi)
        return random.integers(*ends, shape, np.int64, endpoint=True).astype(np.int32)

    return [
        {item.value.name: drawn(item.value.lo, item.value.hi, item.value.shape) for item in program.inputs}
        for _ in range(cycles)
    ]


def compared(graph: QuantizedGraph, program: Program, sampling: Sampling, cycles: int | None = None) -> Outcome:
    """Run the program on drawn inputs and compare its codes with the exact ones, tensor by tensor.

    Every operation is judged on the codes that the program has for its operands. A program with state runs two cycles.
    """
    outcome = Outcome()
    executor = create("numpy", verify(program))
    state = initial_state(program)
    for feed in drawn_feeds(program, cycles or (2 if program.state else 1), sampling.seed):
        result = executor.run(feed, state, "all")
        values = {**result.values, **feed, **state}
        _compare_run(graph, program, values, result.state, sampling, outcome)
        state = result.state
        outcome.runs += 1
    return outcome


def _claims(graph: QuantizedGraph, program: Program, values: Mapping[str, Any]) -> dict[str, Exactness]:
    """The report on each tensor of the graph whose codes the program has."""
    found = {}
    for item in program.provenance.exactness:
        tensor = graph.tensors.get(item.tensor)
        coded = tensor is not None and (tensor.quantizer is not None or tensor.dtype != "scalar")
        if coded and item.value in values and values[item.value].size == prod(tensor.shape):  # type: ignore[union-attr]
            found[item.tensor] = item
    return found


def _compare_run(
    graph: QuantizedGraph,
    program: Program,
    values: Mapping[str, npt.NDArray[Any]],
    after: Mapping[str, npt.NDArray[Any]],
    sampling: Sampling,
    outcome: Outcome,
) -> None:
    claims = _claims(graph, program, values)
    codes = {name: values[item.value] for name, item in claims.items()}
    given = [one.value.name for one in program.inputs] + [one.value.name for one in program.state]
    codes |= {name: values[name] for name in given}
    outputs = {item.name: values[item.value] for item in program.outputs if item.value in values}
    budget = Budget(sampling.reads)
    evaluation = Evaluation(graph, {**outputs, **codes}, budget)
    judge = _Judge(sampling, budget, outcome)
    for name, tensor in graph.tensors.items():
        if tensor.kind != "computed":
            continue
        array = codes.get(name, outputs.get(name))
        if array is None:
            outcome.absent += tensor.quantizer is not None
            continue
        if name not in evaluation.exact:
            outcome.skipped[f"{evaluation.missing[name]}"] += 1
            continue
        bound = claims[name].bound if name in claims else Fraction(0)
        if bound:
            outcome.bounded[name] = float(bound)
        outcome.tensors += 1
        outcome.outputs += name in graph.outputs
        count = sampling.output_elements if name in graph.outputs else sampling.elements
        judge.tensor(name, evaluation.exact[name], array.reshape(tensor.shape), tensor.quantizer, bound, count)
    for name, exact in evaluation.updates.items():
        tensor = graph.tensors[name]
        outcome.tensors += 1
        array = after[name].reshape(tensor.shape)
        judge.tensor(f"{name} after the run", exact, array, tensor.quantizer, Fraction(0), sampling.elements)


@dataclass
class _Judge:
    """Compares elements and counts what it finds."""

    sampling: Sampling
    budget: Budget
    outcome: Outcome

    def tensor(
        self,
        name: str,
        exact: Elements,
        array: npt.NDArray[Any],
        quantizer: Quantizer | None,
        bound: Fraction,
        count: int,
    ) -> None:
        """Compare drawn elements of one tensor."""
        for index in _drawn(array.shape, count, f"{self.sampling.seed}/{name}"):
            self.budget.renew()
            try:
                exact_code, least, most = _codes(exact[index], quantizer, bound, index)
            except (TooCostly, Undecided, ValueError, RecursionError) as error:
                self.outcome.skipped[f"{type(error).__name__}: {str(error)[:80]}"] += 1
                continue
            found = int(array[index])
            self.outcome.elements += 1
            if not least <= found <= most:
                self.outcome.wrong.append(f"{name}{list(index)}: {found}, exactly {exact_code}, bound {float(bound)}")
            elif found != exact_code:
                self.outcome.within += 1


def _codes(x: Number, quantizer: Quantizer | None, bound: Fraction, index: Index) -> tuple[int, int, int]:
    """The exact code, and the least and the greatest code that the claim allows."""
    if quantizer is None:
        whole, is_integer = floor_of(x)
        if not is_integer:
            raise ValueError("an integer tensor has a number that is no integer")
        return whole, whole, whole
    axis = getattr(quantizer, "axis", None)
    channel = 0 if axis is None else index[axis]
    code = code_of(x, quantizer, channel)
    if not bound:
        return code, code, code
    if not isinstance(quantizer, LinearQuantizer):
        return code, code - int(bound), code + int(bound)
    reach = bound * quantizer.scale[channel]
    return code, code_of(x - reach, quantizer, channel), code_of(x + reach, quantizer, channel)


def _drawn(shape: tuple[int, ...], count: int, seed: str) -> Iterator[Index]:
    """The first and the last index and drawn ones; all of them if there are no more."""
    size = prod(shape)
    places = range(size) if size <= count else {0, size - 1, *Random(seed).sample(range(size), count - 2)}
    unravel: Callable[[int], tuple[Any, ...]] = lambda place: np.unravel_index(place, shape) if shape else ()  # noqa: E731
    return (tuple(map(int, unravel(place))) for place in sorted(places))
