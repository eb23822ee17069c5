"""Run one op by the NumPy kernels and by FORMAL, under everything that a kernel promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from cvm import ops
from cvm.executors.numpy import KERNELS, PlannedNode
from cvm.ops import Call, Range
from formal.registry import OPS
from formal.tensor import elements, stored

Array = npt.NDArray[Any]

LARGEST = 2**31 - 1

extents = st.integers(1, 3)
shapes = st.lists(extents, min_size=1, max_size=4).map(tuple)
integers = st.one_of(
    st.integers(-4, 4), st.integers(-LARGEST, LARGEST), st.sampled_from([-LARGEST, -LARGEST + 1, LARGEST - 1, LARGEST])
)


def int32(values: Any, shape: Sequence[int] | None = None) -> Array:
    array = np.array(values, np.int32)
    return array if shape is None else array.reshape(shape)


@st.composite
def tensors(draw: st.DrawFn, shape: Any = shapes, elements: st.SearchStrategy[int] = integers) -> Array:
    extent = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    count = int(np.prod(extent))
    return int32(draw(st.lists(elements, min_size=count, max_size=count)), extent)


def parameter(values: Any) -> Array:
    return np.array(values, np.int64)


def hull(array: Array) -> Range:
    return Range.uniform(array.ndim, int(array.min()), int(array.max()))


def call_of(
    op: str,
    arrays: Sequence[Array],
    attributes: Mapping[str, Any] | None = None,
    constants: Sequence[int] = (),
    ranges: Mapping[int, Range] | None = None,
) -> Call:
    """A call with these operands. Of those at the positions ``constants``, and of parameters, the verifier knows the
    elements; of those in ``ranges`` that; of the others the hull of what they hold here, so that every limit is met.
    """  # fmt: skip
    declaration = ops.get(op)
    bounds = [
        (ranges or {}).get(place)
        or (Range.exactly(array) if place in constants or array.dtype == np.int64 else hull(array))
        for place, array in enumerate(arrays)
    ]
    call = Call(tuple(array.shape for array in arrays), declaration.parse(attributes or {}), tuple(bounds))
    declaration.infer(call)
    return call


def run_step(step: PlannedNode, call: Call, arrays: Sequence[Array]) -> list[Array]:
    """The results of a step, whose inputs are read-only and which must raise no floating-point flag."""
    frozen = []
    for array in arrays:
        copy = np.ascontiguousarray(array).copy()
        copy.setflags(write=False)
        frozen.append(copy)
    reads = range(len(arrays)) if step.reads is None else step.reads
    with np.errstate(all="raise"):
        results = list(step.run([frozen[place] for place in reads]))
    assert [result.dtype for result in results] == [np.int32] * len(results)
    return results


def formal_results(op: str, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    result = OPS[op](*(stored(array.shape, array.ravel().tolist()) for array in arrays), **attributes)
    outputs = result if isinstance(result, tuple) else (result,)
    return [int32(elements(output), output.shape) for output in outputs]


def agree(
    op: str,
    arrays: Sequence[Array],
    attributes: Mapping[str, Any] | None = None,
    constants: Sequence[int] = (),
    ranges: Mapping[int, Range] | None = None,
) -> str:
    """Assert that the kernel and FORMAL give the same tensors; returns the kernel's note."""
    call = call_of(op, arrays, attributes, constants, ranges)
    step = KERNELS[op](call)
    found = run_step(step, call, arrays)
    expected = formal_results(op, arrays, dict(call.attributes))
    assert [array.shape for array in found] == [array.shape for array in expected] == list(ops.get(op).shape(call))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return step.note
