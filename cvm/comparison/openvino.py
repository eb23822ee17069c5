"""OpenVINO as an engine: a model whose quantised tensors are results, and the codes that its operators read.

OpenVINO's reader of TFLite makes two quantisers of a tensor that is shown: one for the result, and one for the
operators behind it. With bfloat16 inference their operands, and so their codes, are not the same. The real numbers of
the second one are results here, too: they say which codes the operators behind it read.

OpenVINO's CPU plugin refuses integers as results of a model of ONNX. `run` asks for their real numbers instead, and
turns these back into codes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.onnx.outputs import with_real_outputs
from cvm.frontends.tflite.outputs import with_outputs
from cvm.records import dataclass

__all__ = ["Twin", "codes_of", "corrected", "run"]

Array = npt.NDArray[Any]
_HALF_STEP = 2.0**-8
"""The greatest relative error of a number that is rounded to bfloat16."""


@dataclass(frozen=True, slots=True)
class Twin:
    """The quantiser of the operators that read a shown tensor."""

    result: str
    """The name of the result with its real numbers."""
    scale: float
    zero: int
    """Its codes: ``real = scale * (code - zero)``."""


def run(
    path: Path, names: Sequence[str], indices: Mapping[str, int], inputs: Mapping[str, Array], settings: dict[str, Any]
) -> dict[str, Array]:
    """The tensors ``names`` and the outputs of a model, for samples along a further first axis of each input.

    ``indices`` are the numbers of the tensors in a file of TFLite; ``settings`` are properties of the CPU device.
    """
    import openvino

    core = openvino.Core()
    model, real = _read(core, path, names, indices)
    twins = _with_twins(model) if names and path.suffix == ".tflite" else {}
    compiled = core.compile_model(model, "CPU", settings)
    results = {name: number for number, output in enumerate(compiled.outputs) for name in output.get_names()}
    samples = len(next(iter(inputs.values())))
    runs: dict[str, list[Array]] = {name: [] for name in results}
    for sample in range(samples):
        found = compiled({name: array[sample] for name, array in inputs.items()})
        for name, number in results.items():
            runs[name].append(np.array(found[number]))
    arrays = {name: np.stack(made) for name, made in runs.items()}
    for name, twin in twins.items():
        arrays[name] = corrected(arrays[name], arrays.pop(twin.result), twin)
    for output, (name, scale, zero) in real.items():
        if output in arrays:
            arrays[name] = codes_of(arrays[output], scale, zero)
    return arrays


def _read(
    core: Any, path: Path, names: Sequence[str], indices: Mapping[str, int]
) -> tuple[Any, Mapping[str, tuple[str, float, int]]]:
    """The model, with results for ``names``; and the results that hold real numbers (see `with_real_outputs`)."""
    if not names:
        return core.read_model(path), {}
    if path.suffix != ".tflite":
        content, real = with_real_outputs(path, names)
        return core.read_model(content), real
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "shown.tflite"
        copy.write_bytes(with_outputs(path.read_bytes(), list(indices.values())))
        model = core.read_model(copy)
    kept = {name for node in model.get_ops() for output in node.outputs() for name in output.get_names()}
    present = {name for output in model.outputs for name in output.get_names()}
    model.add_outputs([name for name in names if name in kept and name not in present])
    return model, {}


def _with_twins(model: Any) -> dict[str, Twin]:
    """Give the model a further result for each shown tensor whose readers have a quantiser of their own."""
    from openvino import opset13

    twins: dict[str, Twin] = {}
    for number, result in enumerate(list(model.get_results())):
        moves, node = [], result
        while node.get_type_name() in ("Result", "Transpose", "Convert"):
            if node.get_type_name() == "Transpose":
                moves.append(node.input_value(1))
            node = node.input_value(0).get_node()
        found = _reading(node)
        if found is None:
            continue
        value, scale, zero = found
        for order in reversed(moves):
            value = opset13.transpose(value, order).output(0)
        name = f"cvm.read.{number}"
        model.add_outputs(value)[0].get_tensor().set_names({name})
        twins |= {shown: Twin(name, scale, zero) for shown in result.get_output_tensor(0).get_names()}
    return twins


def _reading(node: Any) -> tuple[Any, float, int] | None:
    """Find the quantiser that the operators read, beside ``node``, which is the quantiser of a result.

    Returns its output, and the scale and the zero point, which both quantisers have. None if there is no such pair.
    """
    if node.get_type_name() != "FakeQuantize":
        return None
    codes = _ends(node)
    for port in node.input_value(0).get_target_inputs():
        other = port.get_node()
        if other.get_type_name() != "FakeQuantize" or other.get_friendly_name() == node.get_friendly_name():
            continue
        ends = _ends(other)
        if codes is None or ends is None or ends[:2] != codes[:2] or ends[2:] != ends[:2]:
            continue
        (low, high), (first, last) = ends[:2], codes[2:]
        scale = (high - low) / (last - first)
        return other.output(0), scale, round(first - low / scale)
    return None


def _ends(node: Any) -> tuple[float, float, float, float] | None:
    """The ends of a quantiser's inputs and outputs; None where they are not single numbers."""
    arrays = [getattr(node.input_value(number).get_node(), "data", None) for number in range(1, 5)]
    if any(array is None or array.size != 1 for array in arrays):
        return None
    a, b, c, d = (float(array.reshape(-1)[0]) for array in arrays if array is not None)
    return a, b, c, d


def corrected(codes: Array, real: Array, twin: Twin) -> Array:
    """The codes that operators read, from the codes of the result and the real numbers that operators read.

    A bfloat16 may stand for two codes: then the code of the result is taken if it is one of them, else the nearest.
    """
    steps = real.astype(np.float64) / twin.scale
    known = codes.astype(np.float64) - twin.zero
    same = np.abs(steps - known) <= np.abs(known) * _HALF_STEP + 1e-3
    return np.where(same, codes, np.rint(steps).astype(codes.dtype) + codes.dtype.type(twin.zero))


def codes_of(real: Array, scale: float, zero: int) -> Array:
    """The codes that dequantised numbers stand for; the numbers themselves if one is not close to a step of the scale.

    A float32 product of a code of 16 bits and a scale is off by less than 1/128 of a step.
    """
    steps = real.astype(np.float64) / scale
    rounded = np.rint(steps)
    if not np.isfinite(steps).all() or float(np.abs(steps - rounded).max(initial=0.0)) > 1 / 16:
        return real
    return rounded.astype(np.int64) + zero
