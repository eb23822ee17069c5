"""From a model and data to an exact integer program: quantisers are chosen, and the graph is lowered.

In a model of NNEF every rounded tensor gets a quantiser (docs/calibration.md). A model of ONNX or TFLite keeps its
quantisers; others are added only where lowering refuses without them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.compiling import program_of
from cvm.errors import CvmError, Invalid, Unsupported
from cvm.program import Program
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.calibration import Calibration, Chooser, Run, Settings, Trial, Widened
    from cvm.graph import QuantizedGraph

__all__ = [
    "Goal",
    "Measured",
    "Quantized",
    "calibrated_nnef",
    "decibels",
    "graph_onnx",
    "quantize_completed",
    "quantize_nnef",
    "quantized_onnx",
    "random_inputs",
]

_MOST_REMEDIES = 64
"""How often a graph is lowered again, each time with one more rounded tensor."""

_WORTH_COMPILING = 32
"""NumPy runs a program on fewer runs than this. Machine code for a node takes as long as 20 runs of a large one, or
many more of a small one; and it holds the weights once more, arranged for its kernels.
"""
_MOST_NODES = 100
"""NumPy runs a program that has more nodes than this for each run of the data."""

_WIDE = 2**16
"""An integer input with more codes than this holds counts or indices."""

Data = Mapping[str, npt.ArrayLike]
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """The outputs of a float graph on data, which calibration evaluated; no runs where they are large."""

    data: Data
    runs: Sequence[Run]

    def of(self, data: Data, name: str) -> Array | None:
        """An output on ``data``, one item for each run; None where these are not the data of the measurement."""
        same = data.keys() == self.data.keys() and all(data[key] is self.data[key] for key in data)
        return np.stack([run[name] for run in self.runs]) if same and self.runs else None


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Quantized:
    """A program, the quantisers that it was made with, and the graph of the file."""

    program: Program
    calibration: Calibration
    source: QuantizedGraph
    remedies: tuple[str, ...] = ()
    """The refusals of lowering that led to further rounded tensors."""
    widened: tuple[Widened, ...] = ()
    """The tensors that got more bits to reach a goal, the most expensive for the outputs first."""
    settings: Settings = field(kw_only=True)
    """The settings, with everything chosen that they left open."""
    trials: tuple[Trial, ...] = ()
    """The trials behind these choices."""
    measured: Measured | None = None
    """The outputs of the graph of the file, which `decibels` compares with those of the program."""
    halves: tuple[str, ...] = ()
    """Averages whose halves the written ONNX file (`graph_onnx`) rounds to even, and the model rounds otherwise."""

    def __repr__(self) -> str:
        return f"Quantized({self.program!r}, {self.calibration!r})"


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of more bits: an SQNR of every output, in decibels, and a size of the program file, in bytes.

    Activations get 16 bits and filters 12, those first whose rounding costs the outputs most. Without ``sqnr``, as many
    tensors get them as ``most_bytes`` allows.
    """

    sqnr: float | None = None
    most_bytes: int | None = None
    on_step: Callable[[str], None] | None = None
    """Receives a description of the current step."""


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
    op_set: int = 1,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
    goal: Goal | None = None,
) -> Quantized:
    """The program of a model of NNEF with the quantisers of `cvm.calibration.calibrate`.

    With a ``goal``, the tensors whose rounding costs the outputs most get more bits. Raises as `calibrate` and `lower`,
    and `Invalid` (``calibration.goal``) if the goal cannot be reached.
    """
    from cvm.calibration import Recalibrator

    first = Recalibrator(graph, data, settings, cycles=cycles, on_run=on_run)
    return _quantised(first, data, goal, _Compiling(optimize, op_set), cycles)


def calibrated_nnef(
    graph: QuantizedGraph,
    data: Data,
    settings: Settings,
    *,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
) -> tuple[Calibration, Settings, tuple[Trial, ...]]:
    """The quantisers of `quantize_nnef` alone, for a model that need not become a program.

    Also returns the settings with everything chosen that they leave open, and the trials behind these choices.
    """
    from cvm.calibration import Recalibrator

    chooser, trials = _chosen(Recalibrator(graph, data, settings, cycles=cycles, on_run=on_run), data, cycles)
    return chooser.calibration(), chooser.settings, trials


def quantize_completed(
    path: str | os.PathLike[str],
    loaded: Loaded,
    data: Data,
    settings: Settings,
    *,
    optimize: bool = True,
    op_set: int = 1,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
    goal: Goal | None = None,
) -> Quantized:
    """The program of a model of ONNX or TFLite that is quantised in part, or not at all.

    ``data`` holds an array for every input, as for `cvm.reference.Reference.run`. With a ``goal``, the tensors whose
    rounding costs the outputs most get more bits. Raises as calibration does, `Unsupported` with the file if lowering
    refuses an operation with all its operands quantised, and `Invalid` (``calibration.goal``) for an unreachable goal.
    """
    from cvm.calibration import Completer

    try:
        first = Completer(loaded.graph, data, settings, cycles=cycles, on_run=on_run)
        return _quantised(first, data, goal, _Compiling(optimize, op_set), cycles)
    except CvmError as error:
        raise loaded.explained(error).at(file=os.fspath(path)) from None


def _chosen(first: Chooser, data: Data, cycles: bool) -> tuple[Chooser, tuple[Trial, ...]]:
    """The chooser with everything chosen that its settings leave open, and the trials behind these choices."""
    from cvm.calibration import chosen_settings

    tried: dict[Settings, Chooser] = {}

    def make(chosen: Settings) -> Calibration:
        alike = (item for item in tried.values() if item.settings.equalize == chosen.equalize)
        tried[chosen] = next(alike, first).alike(chosen)
        return tried[chosen].calibration()

    source, settings = first.source, first.settings
    chosen, trials = chosen_settings(make, source, data, settings, cycles, outputs=lambda: first.outputs)
    return tried.get(chosen, first), trials


@dataclass(frozen=True, slots=True)
class _Compiling:
    """How a graph becomes a program: whether passes optimise it, and the latest op-set version of its ops."""

    optimize: bool
    op_set: int

    def program(self, graph: QuantizedGraph) -> Program:
        """The program of a graph. Raises the errors of `cvm.lowering.lower`."""
        return program_of(graph, self.optimize, self.op_set)


def _quantised(first: Chooser, data: Data, goal: Goal | None, compiling: _Compiling, cycles: bool) -> Quantized:
    from cvm.reference import sharing

    with sharing():
        chooser, trials = _chosen(first, data, cycles)
    made = replace(_completed(chooser, compiling), trials=trials, measured=Measured(data, chooser.outputs))
    if goal is None:
        return made
    with sharing():
        return _Widening(chooser, made, data, goal, compiling, cycles).reached()


def _completed(chooser: Chooser, compiling: _Compiling) -> Quantized:
    """The program with the chosen quantisers, after as many remedies as lowering needs."""
    remedies: list[str] = []
    while True:
        found = chooser.calibration()
        try:
            program = compiling.program(found.graph)
            return Quantized(program, found, chooser.source, tuple(remedies), settings=chooser.settings)
        except Unsupported as error:
            if len(remedies) == _MOST_REMEDIES or not chooser.remedy(error):
                raise
            remedies.append(error.message)


class _Widening:
    """Finds the fewest tensors that need more bits, in the order of what their rounding costs the outputs."""

    def __init__(
        self, chooser: Chooser, made: Quantized, data: Data, goal: Goal, compiling: _Compiling, cycles: bool
    ) -> None:
        from cvm.calibration import Sensitivity

        self._chooser, self._made, self._data, self._goal = chooser, made, data, goal
        self._compiling, self._cycles = compiling, cycles
        real = {name: _numbers(made.source, name, array) for name, array in data.items()}
        self._sensitivity = Sensitivity(chooser.graph, real, cycles)

    def reached(self) -> Quantized:
        """The program that reaches the goal. Raises `Invalid` if none does."""
        if self._is_good(self._made) and self._goal.sqnr is not None:
            return self._within(self._made)
        groups = self._chooser.groups()
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
        """The SQNR of the float graph when ``count`` tensors have more bits, on the runs that measure sensitivities."""
        from cvm.calibration.sensitivity import decibels_of

        self._say(f"trying more bits for {count} of {len(order)}")
        self._widen(order, count)
        return decibels_of(self._sensitivity.noise(self._chooser.calibration().graph))

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
        made = _completed(self._chooser, self._compiling)
        return replace(made, widened=tuple(order[:count]), trials=self._made.trials, measured=self._made.measured)

    def _widen(self, order: list[Widened], count: int) -> None:
        self._chooser.widen([item.tensors for item in order[:count]])

    def _ratios(self, made: Quantized) -> dict[str, float | None]:
        return decibels(made, self._data, cycles=self._cycles)

    def _is_good(self, made: Quantized) -> bool:
        goal = self._goal.sqnr
        return goal is None or all(ratio >= goal for ratio in _finite_ratios(self._ratios(made)))

    def _fits(self, made: Quantized) -> bool:
        return self._goal.most_bytes is None or _size(made) <= self._goal.most_bytes

    def _within(self, made: Quantized) -> Quantized:
        if self._fits(made):
            return made
        size, most = _size(made), self._goal.most_bytes
        raise Invalid("calibration.goal", f"the program has {size} bytes, {most} are wanted: give weights fewer bits")

    def _say(self, words: str) -> None:
        if self._goal.on_step is not None:
            self._goal.on_step(words)


def _size(made: Quantized) -> int:
    """The bytes of the program file."""
    return sum(map(len, made.program.pieces()))


def _finite_ratios(ratios: Mapping[str, float | None]) -> list[float]:
    """The ratios that are finite numbers or infinite; an output that is zero in the float graph has none."""
    return [ratio for ratio in ratios.values() if ratio is not None]


def quantized_onnx(
    path: str | os.PathLike[str],
    made: Quantized,
    *,
    optimize: bool = True,
    op_set: int = 1,
    input_shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    input_ranges: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    states: Mapping[str, str] = MappingProxyType({}),
    outputs: Sequence[str] = (),
) -> tuple[bytes, Quantized]:
    """The model of ONNX at ``path`` with the quantisers of ``made``, and the program that `cvm.compile` makes of it.

    ONNX has scales of its own kind (`cvm.export.onnx`), so this is another program than that of ``made``. Raises
    `Unsupported` if the file cannot hold a quantiser or changed weights, and as `cvm.compile`.
    """
    from cvm.export.onnx import quantized_model
    from cvm.frontends import onnx

    if made.calibration.rescaled or made.calibration.corrected:
        message = "the model as the file has it does not hold the changed weights: equalise and correct for a program"
        raise Unsupported("export.onnx.weights", message).at(file=os.fspath(path))
    try:
        whole = onnx.embedded(Path(path).read_bytes(), os.path.dirname(path) or ".")
        data = quantized_model(whole, made.calibration)
        shapes = {name: tuple(shape) for name, shape in input_shapes.items()}
        loaded = onnx.loads(data, onnx.Settings(shapes, input_ranges, states=states, outputs=tuple(outputs)))
        try:
            program = program_of(loaded.graph, optimize, op_set)
        except CvmError as error:
            raise loaded.explained(error) from None
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None
    return data, replace(made, program=program)


def graph_onnx(made: Quantized, *, optimize: bool = True, op_set: int = 1) -> tuple[bytes, Quantized]:
    """The quantised graph of ``made``, from NNEF or TFLite, as a model of ONNX, and the program of that model.

    Raises `Unsupported` if an operation has no mapping, and as `cvm.compile`.
    """
    from cvm.export.onnx import graph_model, halves_rounded_otherwise
    from cvm.frontends import onnx

    data = graph_model(made.calibration.graph)
    halves = tuple(halves_rounded_otherwise(made.calibration.graph))
    loaded = onnx.loads(data, onnx.Settings())
    try:
        return data, replace(made, program=program_of(loaded.graph, optimize, op_set), halves=halves)
    except CvmError as error:
        raise loaded.explained(error) from None


def random_inputs(
    graph: QuantizedGraph, count: int, seed: int, low: float = -1.0, high: float = 1.0
) -> dict[str, npt.NDArray[Any]]:
    """``count`` random samples for every input of a graph.

    Real numbers are drawn uniformly from [``low``, ``high``), codes uniformly from all codes. Integers of more than
    16 bits are counts or indices, and are drawn from 0 to 9.
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
    """The SQNR of every real output: the program against the graph of the file in float64.

    In decibels, over all elements of all runs: 10 log10(sum x^2 / sum (x - y)^2), where x is the number of the graph
    and y that of the program. Infinite if all are equal, None if all x are zero and not all y.
    """
    from cvm.reference import run_count
    from cvm.session import Session

    real = {name: _numbers(made.source, name, array) for name, array in data.items()}
    runs = run_count(made.source, real, cycles)
    few = runs < _WORTH_COMPILING or len(made.program.nodes) > _MOST_NODES * runs
    executor = "numpy" if few else None
    session = Session(made.program, executor=executor, threads=1)  # one executor, since each must be compiled
    given = session.run(_as_real(made, real), cycles=cycles, codes=True, out_of_range="clamp")
    names = [name for name in made.source.outputs if given.has_real(name)]
    wanted = _wanted(made, data, real, names, cycles)
    return {name: _ratio(wanted[name], given.real(name)) for name in names}


def _wanted(
    made: Quantized, data: Data, real: Mapping[str, Array], names: Sequence[str], cycles: bool
) -> Mapping[str, Array]:
    """The outputs of the graph of the file: those of the calibration, or computed now."""
    from cvm.reference import Reference

    known = {name: None if made.measured is None else made.measured.of(data, name) for name in names}
    found = {name: array for name, array in known.items() if array is not None}
    if len(found) == len(names):
        return found
    reference = Reference(made.source, pseudo_quantize=True)
    return reference.run_cycles(real) if cycles else reference.run(real)


def _numbers(graph: QuantizedGraph, name: str, array: npt.ArrayLike) -> npt.NDArray[Any]:
    """An input as both take it: integers given to a float input are numbers, not codes."""
    found = np.asarray(array)
    tensor = graph.tensors[name]
    return found.astype(np.float64) if tensor.quantizer is None and tensor.dtype == "scalar" else found


def _as_real(made: Quantized, data: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
    """Inputs as numbers instead of codes, if the program has other codes for them than the model (`graph_onnx`)."""
    from cvm.reference.values import decoded

    found = dict(data)
    for item in made.program.inputs:
        name, quantizer = item.value.name, made.source.tensors[item.value.name].quantizer
        if quantizer is not None and item.quantizer != quantizer and data[name].dtype.kind in "iu":
            found[name] = decoded(data[name], quantizer)
    return found


def _ratio(wanted: npt.NDArray[np.float64], given: npt.NDArray[np.float64]) -> float | None:
    wanted = wanted.reshape(given.shape)
    signal, noise = float(np.square(wanted).sum()), float(np.square(wanted - given).sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else None
