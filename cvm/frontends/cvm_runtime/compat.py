"""The FORMAL backend of cvm-runtime, where it does not compute what an op means: ``compat="cvm-1"``.

Each function emits ops that give the results of that backend; all other ops mean the same in the library and in cvm.
Where the backend's result is undefined - it reads memory that was never written, or overwrites a value that it still
needs - the model is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from cvm.errors import CvmError, Unsupported
from cvm.frontends.cvm_runtime.graph import Graph
from cvm.frontends.cvm_runtime.inference import Inferred
from cvm.frontends.cvm_runtime.operators import Use
from cvm.frontends.cvm_runtime.precisions import magnitude
from cvm.frontends.cvm_runtime.storage import overwritten
from cvm.limits import INT32_MAX
from cvm.program import ProgramBuilder

__all__ = ["EMITTERS", "narrowed_to_bytes", "require_defined"]

_COARSE = (2**63 - 1) // 100
"""The largest intersection of boxes for which the quotient of areas is exact."""


def _undefined(message: str) -> CvmError:
    return Unsupported("cvm_runtime.undefined", f"the result of cvm-1 is not defined: {message}")


def require_defined(inferred: Inferred) -> None:
    """Require that the whole model computes what its ops compute. Raises `Unsupported` (``cvm_runtime.undefined``)."""
    graph = inferred.graph
    destroyed = overwritten(graph)
    if destroyed is not None:
        raise _undefined(f"the storage plan destroys a value, {destroyed}")
    _require_length(graph)
    _require_outputs(graph)


def _require_length(graph: Graph) -> None:
    """Require that the input has the length that the library uses: it looks it up in the wrong table, by variable
    index.
    """
    data = graph.data
    index = graph.variables.index(data)
    if math.prod(graph.shapes[index]) != math.prod(graph.shapes[data.first]):
        raise _undefined("the input's length is read from another entry, since an op stands before the input")


def _require_outputs(graph: Graph) -> None:
    """Require that the library writes every element of the output, and none beyond the length that it states."""
    shapes = [graph.shapes[graph.number(entry)] for entry in graph.heads]
    for shape in shapes:
        rows, last = math.prod(shape[:-1]), shape[-1]
        if graph.postprocess == "argmax" and -(-rows // last) < rows:
            raise _undefined(f"argmax visits only {-(-rows // last)} of {rows} rows")
    first = shapes[0]
    if graph.postprocess == "detection" and (len(first) < 2 or math.prod(first[:-1]) != first[-2]):
        raise _undefined("the output of a detection has more rows than the length that the library states")


def _shift_right(builder: ProgramBuilder, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
    """A right shift by one bit maps 2^31 - 1 to 2^31, which wraps: the result is -2^30, clipped to the precision."""
    (x,) = inputs
    attributes = use.translation.attributes
    if attributes["shift_bit"] > 1 or builder.range(x).hull()[1] < INT32_MAX:
        return builder.add("cvm_right_shift", inputs, attributes, name)
    wrapped = max(-(2**30), -magnitude(attributes["precision"]))
    (shifted,) = builder.add("cvm_right_shift", inputs, attributes, f"{name}.shifted")
    (wraps,) = builder.add("broadcast_greater", [x, builder.constant(np.array([INT32_MAX - 1]))], name=f"{name}.wraps")
    (instead,) = builder.add("clip", [x], {"a_min": wrapped, "a_max": wrapped}, f"{name}.wrapped")
    return builder.add("where", [wraps, instead, shifted], name=name)


def _shift_left(builder: ProgramBuilder, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
    """A left shift whose product exceeds int32, which only an unsound precision allows, wraps before it is clipped."""
    attributes = use.translation.attributes
    if builder.range(inputs[0]).magnitude() << attributes["shift_bit"] > INT32_MAX:
        raise _undefined(f"a left shift by {attributes['shift_bit']} may exceed int32 before it is clipped")
    return builder.add("cvm_left_shift", inputs, attributes, name)


def _largest(builder: ProgramBuilder, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
    """The maximum over all axes, when none is listed, starts the search at 0; with ``exclude`` the
    library is correct.
    """
    attributes = use.translation.attributes
    if attributes["axes"] or attributes["exclude"]:
        return builder.add("max", inputs, attributes, name)
    (largest,) = builder.add("max", inputs, attributes, f"{name}.largest")
    return builder.add("relu", [largest], name=name)


def _select(builder: ProgramBuilder, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
    """Emit ``where``. Refuse a condition per row, for which the library copies only a quarter of each row."""
    if len(use.shapes[0]) < len(use.shapes[1]):
        raise _undefined("where copies a quarter of each selected row and leaves the rest as it was")
    return builder.add("where", inputs, {}, name)


def _suppress(builder: ProgramBuilder, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
    """A suppression: the library rounds the overlap of large boxes coarsely, and wraps that of very large ones."""
    lo, hi = builder.range(inputs[0]).hull()
    if hi - lo > INT32_MAX or (hi - lo) ** 2 > _COARSE:
        message = f"coordinates in [{lo}, {hi}] may make boxes whose overlap cvm-1 rounds or wraps"
        raise Unsupported("cvm_runtime.coarse", message)
    return builder.add("non_max_suppression", inputs, use.translation.attributes, name)


Emitter = Callable[[ProgramBuilder, Use, list[str], str], tuple[str, ...]]

EMITTERS: Mapping[str, Emitter] = {
    "cvm_right_shift": _shift_right,
    "cvm_left_shift": _shift_left,
    "max": _largest,
    "where": _select,
    "non_max_suppression": _suppress,
}
"""For each op of the library, the function that emits what its FORMAL backend computes."""


def narrowed_to_bytes(builder: ProgramBuilder, x: str, name: str) -> str:
    """Each element as the 8-bit integer in its lowest byte, computed with arithmetic that holds for any int32.

    |x| - 256 * (|x| div 256) lies in [0, 255]; together with the sign of x it is the index of the byte in a table.
    """

    def step(op: str, *inputs: str, label: str, **attributes: int) -> str:
        return builder.add(op, inputs, attributes, f"{name}.{label}")[0]

    base = builder.constant(np.array([256]))
    size = step("abs", x, label="magnitude")
    whole = step("broadcast_mul", step("broadcast_div", size, base, label="quotient"), base, label="whole")
    rest = step("clip", step("broadcast_sub", size, whole, label="difference"), label="rest", a_min=0, a_max=255)
    sign = step("clip", x, label="sign", a_min=-1, a_max=1)
    address = step(
        "broadcast_add",
        step("broadcast_mul", rest, sign, label="signed"),
        builder.constant(np.array([255])),
        label="place",
    )
    table = builder.constant(np.arange(-255, 256).astype(np.int8).astype(np.int32))
    return step("cvm_lut", table, address, label="byte")
