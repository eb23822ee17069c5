"""The node tests of the package onnx, run through the compiler: each is equal, or refused with a reason.

Operands that hold indices, counts or scales are inputs in these models, and constants in real models. Inputs that the
compiler requires to be constant are made constant. Ranges of integer inputs are promised.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from cvm.errors import CvmError
from cvm.frontends import onnx as front
from cvm.graph import QuantizedGraph
from cvm.lowering import lower
from cvm.session import Result, Session

QUANTISED = ("QuantizeLinear", "QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger")
INTEGERS = {
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16,
    TensorProto.UINT32, TensorProto.UINT64, TensorProto.BOOL,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The graph of a test, its inputs, and the codes of its outputs."""

    graph: QuantizedGraph
    feeds: dict[str, Any]
    results: Result


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test ("equal", "different", or the code of the refusal), and which inputs were made constant."""

    name: str
    op: str
    verdict: str
    constant: tuple[str, ...]
    message: str = ""
    run: Run | None = None
    """The run, for a test that compiles."""


def _types(values: Any) -> list[int | None]:
    return [v.type.tensor_type.elem_type if v.type.HasField("tensor_type") else None for v in values]


@lru_cache(maxsize=1)
def every_case() -> tuple[Any, ...]:
    """All node tests of the package, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(sorted(load_model_tests(kind="node"), key=lambda case: str(case.name)))


@lru_cache(maxsize=1)
def cases() -> tuple[list[Any], list[Any]]:
    """Tests whose inputs and outputs are all integers or truth values; and tests of the quantised operators."""
    integers, quantised = [], []
    for case in every_case():
        graph = case.model.graph
        if len(graph.node) == 1 and graph.node[0].op_type in QUANTISED:
            quantised.append(case)
        elif all(kind in INTEGERS for kind in _types([*graph.input, *graph.output])):
            integers.append(case)
    return integers, quantised


def array_of(value: Any) -> Any:
    """A value of a test's data as an array."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def stored_input(value: Any, name: str) -> TensorProto:
    """A value of a test's data as a stored tensor."""
    if not isinstance(value, TensorProto):
        return numpy_helper.from_array(np.asarray(value), name)
    made = TensorProto()
    made.CopyFrom(value)
    made.name = name
    return made


def examine(case: Any) -> Outcome:
    """Compile and run one test."""
    graph = case.model.graph
    op = graph.node[0].op_type
    names = [value.name for value in graph.input]
    ((inputs, outputs),) = case.data_sets
    data = dict(zip(names, inputs, strict=True))
    constant = {name for name in names if op in QUANTISED and ("scale" in name or "zero" in name or name == "w")}
    while True:
        try:
            run = _run(case.model, data, constant)
            break
        except CvmError as error:
            more = {name for name in data if f"({name!r})" in error.message} - constant
            if op in QUANTISED and error.code == "onnx.unsupported" and "several scales" in error.message:
                more = {names[0]} - constant
            if not more:
                return Outcome(case.name, op, error.code, tuple(sorted(constant)), error.message)
            constant |= more
    same = all(
        np.array_equal(run.results[value.name].reshape(array_of(expected).shape), array_of(expected).astype(np.int64))
        for value, expected in zip(graph.output, outputs, strict=True)
    )
    return Outcome(case.name, op, "equal" if same else "different", tuple(sorted(constant)), run=run)


def loaded_case(
    model: onnx.ModelProto, data: Mapping[str, Any], constant: Collection[str], floats: bool = False
) -> tuple[front.Loaded, dict[str, Any]]:
    """The model, read with the inputs ``constant`` stored in it and with ranges for the others; and these as arrays."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer.extend(stored_input(data[name], name) for name in sorted(constant))
    arrays = {name: array_of(value) for name, value in data.items() if name not in constant and value is not None}
    ranges = {
        name: (int(array.min()), int(array.max()))
        for name, array in arrays.items()
        if array.dtype.kind in "iu" and array.size and array.dtype.itemsize > 1
    }
    return front.loads(changed.SerializeToString(), front.Settings(ranges=ranges, floats=floats)), arrays


def _run(model: onnx.ModelProto, data: dict[str, Any], constant: set[str]) -> Run:
    loaded, arrays = loaded_case(model, data, constant)
    try:
        program = lower(loaded.graph)
    except CvmError as error:
        raise loaded.explained(error) from None
    wanted = {item.value.name for item in program.inputs}
    feeds = {
        name: (array.astype(np.int64) if array.dtype.kind in "iub" else array).reshape(array.shape or (1,))
        for name, array in arrays.items()
        if name in wanted
    }
    return Run(loaded.graph, feeds, Session(program, "numpy").run(feeds, codes=True, out_of_range="clamp"))
