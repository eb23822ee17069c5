"""Graphs of floats: quantisers from representative inputs, and the rounding error that they cause at each output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.calibration import Completer, Settings
from cvm.errors import CvmError
from cvm.frontends.webnn.errors import type_error
from cvm.frontends.webnn.operand import MLOperand, MLOperandDescriptor
from cvm.frontends.webnn.translation import Translated, refusal
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = [
    "Arrays",
    "QuantizationError",
    "checked",
    "checked_samples",
    "checked_settings",
    "measured",
    "with_quantizers",
]

Arrays = Mapping[str, npt.NDArray[Any]]

_SETTINGS = ("bits", "weight_bits", "per_channel", "method", "percentile")


@dataclass(frozen=True, slots=True)
class QuantizationError:
    """The difference of an output of a calibrated graph from the float64 result, over all samples of the calibration.

    ``step`` is the distance of neighbouring numbers of the output, 1 for integers; ``decibels`` is 10 log10 of the sum
    of squares of the float64 output over that of the errors: infinite where nothing differs.
    """

    output: str
    samples: int
    step: float
    max_error: float
    rms_error: float
    decibels: float

    def __str__(self) -> str:
        return (
            f"error at most {self.max_error:.3g}, {self.decibels:.1f} dB over {self.samples} samples, "
            f"in steps of {self.step:.3g}"
        )


# Checks of the caller's arguments


def checked(arrays: Mapping[str, npt.ArrayLike], inputs: Mapping[str, MLOperandDescriptor], op: str) -> Arrays:
    """The arrays of all inputs. Raises `MLTypeError` for wrong names, data types or shapes."""
    found = {name: np.asarray(values) for name, values in arrays.items()}
    if found.keys() != inputs.keys():
        raise type_error(op, "names", f"inputs are {sorted(inputs)}, found {sorted(found)}")
    for name, values in found.items():
        wanted = inputs[name]
        if values.dtype != np.dtype(wanted.data_type) or values.shape != wanted.shape:
            message = f"{values.dtype}{list(values.shape)} is not {wanted.data_type}{list(wanted.shape)}"
            raise type_error(op, "descriptor", message, operand=name)
    return found


def checked_samples(samples: Any, inputs: Mapping[str, MLOperand]) -> list[Arrays]:
    """The samples of a calibration, one dictionary of arrays each. Raises `MLTypeError`."""
    items = [samples] if isinstance(samples, Mapping) else samples
    if not isinstance(items, Sequence) or not items or not all(isinstance(item, Mapping) for item in items):
        message = "calibration must be a list of dictionaries of arrays, one for each sample, at least one"
        raise type_error("build", "calibration", message)
    described = {name: operand.descriptor for name, operand in inputs.items()}
    return [checked(item, described, "build") for item in items]


def checked_settings(settings: Mapping[str, Any]) -> Settings:
    """The settings of a calibration. Raises `MLTypeError` for an unknown name, `Invalid` for a wrong value."""
    unknown = sorted(set(settings) - set(_SETTINGS))
    if unknown:
        raise type_error("build", "settings", f"there is no setting {unknown[0]!r}; there are {', '.join(_SETTINGS)}")
    return Settings(**{"per_channel": True, "form": "zero-point", **settings})


# Quantisers


def with_quantizers(translated: Translated, feeds: Sequence[Arrays], settings: Settings) -> Translated:
    """The graph with a quantiser for every tensor that calibration must quantise.

    ``feeds`` holds the samples by the graph's inputs: codes where an input has a quantiser, else floats. Raises
    `NotSupportedError` where a tensor becomes NaN or infinite, as the logarithm of 0 does.
    """
    stacked = {name: np.stack([feed[name] for feed in feeds]) for name in translated.graph.inputs}
    try:
        graph = Completer(translated.graph, stacked, settings, only=translated.open).calibration().graph
    except CvmError as error:
        operand = translated.operands.get(error.location.tensor or "")
        if operand is None:
            raise
        message = "its numbers are NaN or infinite on the samples of the calibration"
        raise refusal(operand, message, "clamp what it is computed from, or give other samples") from error
    return replace(translated, graph=_without_zeros(graph))


def _without_zeros(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph with the quantisers of divisors shifted by half a step where they have a code for zero.

    Tensors that share a quantiser share the new one.
    """
    made_by = {name: operation for operation in graph.operations for name in operation.outputs}
    moved: dict[int, LinearQuantizer] = {}
    for operation in graph.operations:
        name = operation.inputs.get({"div": "y", "rcp": "x"}.get(operation.name, ""))
        while isinstance(name, str) and graph.tensors[name].quantizer is None and name in made_by:
            name = made_by[name].inputs.get("input") if made_by[name].name in ("reshape", "transpose") else None
        quantizer = graph.tensors[name].quantizer if isinstance(name, str) else None
        if isinstance(quantizer, LinearQuantizer) and quantizer.per_tensor and _has_zero(quantizer):
            offset = quantizer.offset[0] + quantizer.scale[0] / 2
            moved[id(quantizer)] = replace(quantizer, offset=(offset,))
    tensors = {
        name: replace(tensor, quantizer=moved[id(tensor.quantizer)]) if id(tensor.quantizer) in moved else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _has_zero(quantizer: LinearQuantizer) -> bool:
    code = -quantizer.offset[0] / quantizer.scale[0]
    return code.denominator == 1 and quantizer.lo <= code <= quantizer.hi


# The error of rounding


def measured(
    name: str, real: Sequence[npt.NDArray[np.float64]], given: Sequence[npt.NDArray[np.float64]], step: float
) -> QuantizationError:
    """The error of an output, from the float64 results and the results of the program, sample by sample."""
    errors = np.concatenate([(a - b).ravel() for a, b in zip(real, given, strict=True)])
    noise = float(np.sum(errors**2))
    signal = sum(float(np.sum(items**2)) for items in real)
    ratio = math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal > 0 else -math.inf
    return QuantizationError(name, len(real), step, float(np.abs(errors).max()), math.sqrt(noise / errors.size), ratio)
