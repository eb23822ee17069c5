"""From any model and data to an exact integer program: quantisers are found, and the graph is lowered.

A model of NNEF has the quantisers of the page calibration.md, on every tensor; what one of ONNX or TFLite has
stays, and what is missing is added where lowering refuses to go on without it, and nowhere else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, Unsupported
from cvm.program.model import Program

if TYPE_CHECKING:
    from cvm.calibration import Calibration, Completer, Settings, Widened
    from cvm.graph import QuantizedGraph

__all__ = ["Goal", "Quantized", "decibels", "quantize_completed", "quantize_nnef", "quantized_onnx", "random_inputs"]

_MOST_REMEDIES = 64
"""How often a graph is lowered again, with one more tensor rounded."""

_WIDE = 2**16
"""Codes of an integer input that are more are counts or indices."""

Data = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, eq=False, slots=True)
class Quantized:
    """A program, the quantisers that it was made with, and the graph as the file has it."""

    program: Program
    calibration: Calibration
    source: QuantizedGraph
    remedies: tuple[str, ...] = ()
    """What lowering refused before further tensors were rounded."""
    widened: tuple[Widened, ...] = ()
    """What got more bits to reach a goal, what costs the outputs most first."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What more bits are to reach: an SQNR of every output, in decibels, and a size of the program file, in bytes.

    Activations get 16 bits and filters 12, those first that cost the outputs most. Without ``sqnr``, as many do as
    ``most_bytes`` leaves room for.
    """

    sqnr: float | None = None
    most_bytes: int | None = None
    on_step: Callable[[str], None] | None = None
    """Is told what is being done."""


class Loaded(Protocol):
    """A graph that was read from a file, and the translation of lowering errors into the terms of that format."""

    @property
    def graph(self) -> QuantizedGraph:
        """The graph; some of its real tensors may have no quantiser."""

    def explained(self, error: CvmError) -> CvmError:
        """The same error with a message in the terms of the file's format."""


def quantize_nnef(
    graph: QuantizedGraph,
    data: Data,
    settings: Settings,
    *,
    optimize: bool = True,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
) -> Quantized:
    """The program of a model of NNEF with the quantisers of `cvm.calibration.calibrate`. Raises as that and `lower`."""
    from cvm.calibration import bare, calibrate

    found = calibrate(graph, data, settings, cycles=cycles, on_run=on_run)
    return Quantized(_lowered(found.graph, optimize), found, bare(graph))


def quantize_completed(
    path: str | os.PathLike[str],
    loaded: Loaded,
    data: Data,
    settings: Settings,
    *,
    optimize: bool = True,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
    goal: Goal | None = None,
) -> Quantized:
    """The program of a model of ONNX or TFLite that is quantised in part, or not at all.

    ``data`` holds an array for every input, as for `cvm.reference.Reference.run`. With a ``goal``, tensors that cost
    the outputs most get more bits. Raises as calibration does, `Unsupported` with the file where lowering refuses an
    operation however its operands are quantised, and `Invalid` (``calibration.goal``) where the goal cannot be reached.
    """
    from cvm.calibration import Completer

    completer = Completer(loaded.graph, data, settings, cycles=cycles, on_run=on_run)
    try:
        made = _completed(completer, optimize)
        if goal is None:
            return made
        return _Widening(completer, made, data, goal, optimize=optimize, cycles=cycles).reached()
    except CvmError as error:
        raise loaded.explained(error).at(file=os.fspath(path)) from None


def _completed(completer: Completer, optimize: bool) -> Quantized:
    """The program with the quantisers that the completer chooses, after as many remedies as lowering asks for."""
    remedies: list[str] = []
    while True:
        found = completer.calibration()
        try:
            return Quantized(_lowered(found.graph, optimize), found, completer.graph, tuple(remedies))
        except Unsupported as error:
            if len(remedies) == _MOST_REMEDIES or not completer.remedy(error):
                raise
            remedies.append(error.message)


class _Widening:
    """Finds the fewest tensors that have to get more bits, in the order of what they cost the outputs."""

    def __init__(
        self, completer: Completer, made: Quantized, data: Data, goal: Goal, *, optimize: bool, cycles: bool
    ) -> None:
        from cvm.calibration import Sensitivity

        self._completer, self._made, self._data, self._goal = completer, made, data, goal
        self._optimize, self._cycles = optimize, cycles
        real = {name: _numbers(made.source, name, array) for name, array in data.items()}
        self._sensitivity = Sensitivity(made.source, real, cycles)

    def reached(self) -> Quantized:
        """The program that reaches the goal. Raises `Invalid` where none does."""
        if self._is_good(self._made) and self._goal.sqnr is not None:
            return self._within(self._made)
        groups = self._completer.groups()
        self._say(f"measuring what {len(groups)} quantisers cost")
        order = self._sensitivity.ordered(self._made.calibration.graph, groups)
        return self._with_sqnr(order) if self._goal.sqnr is not None else self._with_room(order)

    def _with_sqnr(self, order: list[Widened]) -> Quantized:
        from cvm.calibration.sensitivity import least_count

        goal = self._goal.sqnr
        assert goal is not None
        if self._estimate(order, len(order)) < goal:
            raise self._out_of_reach(self._estimate(order, len(order)))
        count = least_count(len(order), lambda count: self._estimate(order, count) >= goal)
        while True:
            made = self._with(order, count)
            if self._is_good(made):
                return self._within(made)
            if count == len(order):
                raise self._out_of_reach(min(_finite_ratios(self._ratios(made))))
            count = min(len(order), count + max(1, len(order) // 8))

    def _estimate(self, order: list[Widened], count: int) -> float:
        """The SQNR of the float graph with the quantisers of a count, on the runs that sensitivities are taken from."""
        from cvm.calibration.sensitivity import decibels_of

        self._say(f"trying more bits for {count} of {len(order)}")
        self._widen(order, count)
        return decibels_of(self._sensitivity.noise(self._completer.calibration().graph))

    def _out_of_reach(self, ratio: float) -> Invalid:
        message = f"with more bits everywhere the outputs have {ratio:.1f} dB, and {self._goal.sqnr:g} are wanted"
        return Invalid("calibration.goal", f"{message}: ask for less, or give data whose ranges are those of use")

    def _with_room(self, order: list[Widened]) -> Quantized:
        from cvm.calibration.sensitivity import least_count

        made = self._within(self._made)
        tried = {0: made}

        def too_many(count: int) -> bool:
            self._say(f"trying more bits for {count + 1} of {len(order)}")
            tried[count + 1] = self._with(order, count + 1)
            return not self._fits(tried[count + 1])

        count = least_count(len(order), too_many)
        return tried[count] if count in tried else self._with(order, count)

    def _with(self, order: list[Widened], count: int) -> Quantized:
        self._widen(order, count)
        return replace(_completed(self._completer, self._optimize), widened=tuple(order[:count]))

    def _widen(self, order: list[Widened], count: int) -> None:
        self._completer.widen([item.tensors for item in order[:count]])

    def _ratios(self, made: Quantized) -> dict[str, float | None]:
        return decibels(made, self._data, cycles=self._cycles)

    def _is_good(self, made: Quantized) -> bool:
        goal = self._goal.sqnr
        return goal is None or all(ratio >= goal for ratio in _finite_ratios(self._ratios(made)))

    def _fits(self, made: Quantized) -> bool:
        return self._goal.most_bytes is None or len(made.program.to_bytes()) <= self._goal.most_bytes

    def _within(self, made: Quantized) -> Quantized:
        if self._fits(made):
            return made
        size, most = len(made.program.to_bytes()), self._goal.most_bytes
        raise Invalid("calibration.goal", f"the program has {size} bytes, {most} are wanted: give weights fewer bits")

    def _say(self, words: str) -> None:
        if self._goal.on_step is not None:
            self._goal.on_step(words)


def _finite_ratios(ratios: Mapping[str, float | None]) -> list[float]:
    """The ratios that say something: none where an output is zero in the float graph."""
    return [ratio for ratio in ratios.values() if ratio is not None]


def quantized_onnx(
    path: str | os.PathLike[str],
    made: Quantized,
    *,
    optimize: bool = True,
    input_shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    input_ranges: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    states: Mapping[str, str] = MappingProxyType({}),
) -> tuple[bytes, Quantized]:
    """The model of ONNX at ``path`` with the quantisers of ``made``, and the program that `cvm.compile` makes of it.

    ONNX has scales of its own kind (`cvm.export.onnx`), so that it is another program than that of ``made``. Raises
    `Unsupported` where the file has no place for a quantiser, and as `cvm.compile`.
    """
    from cvm.export.onnx import quantized_model
    from cvm.frontends import onnx

    try:
        data = quantized_model(Path(path).read_bytes(), made.calibration)
        shapes = {name: tuple(shape) for name, shape in input_shapes.items()}
        loaded = onnx.loads(data, onnx.Settings(shapes, input_ranges, states=states))
        try:
            program = _lowered(loaded.graph, optimize)
        except CvmError as error:
            raise loaded.explained(error) from None
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None
    return data, replace(made, program=program)


def _lowered(graph: QuantizedGraph, optimize: bool) -> Program:
    from cvm.lowering import lower
    from cvm.passes.optimize import optimize as optimized

    program = lower(graph)
    return optimized(program) if optimize else program


def random_inputs(
    graph: QuantizedGraph, count: int, seed: int, low: float = -1.0, high: float = 1.0
) -> dict[str, npt.NDArray[Any]]:
    """So many samples for every input of a graph.

    Real numbers are drawn evenly from [``low``, ``high``), codes evenly from those there are; of integers of more than
    16 bits, which are counts or indices, those from 0 to 9.
    """
    generator = np.random.default_rng(seed)
    found: dict[str, npt.NDArray[Any]] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape, quantizer = (count, *tensor.shape), tensor.quantizer
        if quantizer is None:
            found[name] = generator.uniform(low, high, shape)
        else:
            wide = quantizer.hi - quantizer.lo >= _WIDE
            ends = (max(quantizer.lo, 0), min(quantizer.hi, 9)) if wide else (quantizer.lo, quantizer.hi)
            found[name] = generator.integers(*ends, shape, np.int64, endpoint=True)
    return found


def decibels(made: Quantized, data: Data, *, cycles: bool = False) -> dict[str, float | None]:
    """The signal-to-quantisation-noise ratio of every real output: the program beside the graph of the file in float64.

    In decibels, over all elements of all runs: 10 log10(sum x^2 / sum (x - y)^2), x being the number of the graph and y
    that of the program; infinite where all are equal, None where all x are zero and not all y.
    """
    from cvm.reference import Reference
    from cvm.session import Session

    reference = Reference(made.source, pseudo_quantize=True)
    real = {name: _numbers(made.source, name, array) for name, array in data.items()}
    wanted = reference.run_cycles(real) if cycles else reference.run(real)
    given = Session(made.program, threads=1).run(real, cycles=cycles)  # one executor, since each has to be compiled
    names = [name for name in made.source.outputs if given.has_real(name)]
    return {name: _ratio(wanted[name], given.real(name)) for name in names}


def _numbers(graph: QuantizedGraph, name: str, array: npt.ArrayLike) -> npt.NDArray[Any]:
    """An input as both take it: integers given to a float input are the numbers that they are, not codes."""
    found = np.asarray(array)
    tensor = graph.tensors[name]
    return found.astype(np.float64) if tensor.quantizer is None and tensor.dtype == "scalar" else found


def _ratio(wanted: npt.NDArray[np.float64], given: npt.NDArray[np.float64]) -> float | None:
    signal, noise = float(np.square(wanted).sum()), float(np.square(wanted - given).sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else None
