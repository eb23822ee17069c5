"""From any model and data to an exact integer program: quantisers are found, and the graph is lowered.

A model of NNEF has the quantisers of the page calibration.md, on every tensor; what one of ONNX or TFLite has
stays, and what is missing is added where lowering refuses to go on without it, and nowhere else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Unsupported
from cvm.program.model import Program

if TYPE_CHECKING:
    from cvm.calibration import Calibration, Settings
    from cvm.graph import QuantizedGraph

__all__ = ["Quantized", "decibels", "quantize_completed", "quantize_nnef", "random_inputs"]

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
) -> Quantized:
    """The program of a model of ONNX or TFLite that is quantised in part, or not at all.

    ``data`` holds an array for every input, as for `cvm.reference.Reference.run`. Raises as calibration does, and
    `Unsupported` with the file where lowering refuses an operation however its operands are quantised.
    """
    from cvm.calibration import Completer

    completer = Completer(loaded.graph, data, settings, cycles=cycles, on_run=on_run)
    remedies: list[str] = []
    try:
        while True:
            found = completer.calibration()
            try:
                return Quantized(_lowered(found.graph, optimize), found, loaded.graph, tuple(remedies))
            except Unsupported as error:
                if len(remedies) == _MOST_REMEDIES or not completer.remedy(error):
                    raise
                remedies.append(error.message)
    except CvmError as error:
        raise loaded.explained(error).at(file=os.fspath(path)) from None


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
    given = Session(made.program).run(real, cycles=cycles)
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
