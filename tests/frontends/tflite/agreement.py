"""Models of one operator, compiled as reference kernels compute, against integer models of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import cvm
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.program import Program
from tests.frontends.tflite.exact import given, run

__all__ = ["agree", "agree_over_runs", "constant", "elements", "q", "random", "reference_program"]


def q(shape: Any, scale: float = 0.11, zero: int = 4, data_type: str = "int8") -> Tensor:
    return Tensor(shape, data_type, (scale,), (zero,))


def constant(values: Any, data_type: str, *scales: float, zeros: Any = (), axis: int = 0) -> Tensor:
    array = np.asarray(values)
    return Tensor(array.shape, data_type, scales, zeros or [0] * len(scales), axis, array)


def random(shape: Any, lo: int, hi: int, seed: int = 0) -> Array:
    found: Array = np.random.default_rng(seed).integers(lo, hi + 1, shape)
    return found


def reference_program(graph: Graph) -> Program:
    """The program of a model as reference kernels compute it, which must be exact."""
    program = optimize(lower(tflite.loads(written(graph), compat="tflite-reference").graph))
    assert all(item.bound == 0 for item in program.provenance.exactness)
    return program


def agree_over_runs(graph: Graph, kernel: Callable[[Array], Array], runs: Sequence[Array]) -> None:
    """Compile a model with state and one input, and compare the codes of runs one after the other with a kernel's."""
    session = cvm.Session(reference_program(graph), executor="numpy")
    (name,) = (item.value.name for item in session.program.inputs)
    for codes in runs:
        (found,) = session.run({name: codes.astype(np.int32)}, codes=True).values()
        np.testing.assert_array_equal(np.asarray(found).ravel(), np.asarray(kernel(codes)).ravel())


def agree(
    op: str, tensors: Sequence[Tensor], result: Tensor, kernel: Callable[..., Any], kind: str = "",
    options: Mapping[str, Any] | None = None, codes: Sequence[Array] | None = None,
) -> None:  # fmt: skip
    """Compile one operator and compare its codes with a model of its kernel, which is told all codes."""
    everything = [replace(tensor, name=f"in{i}") for i, tensor in enumerate(tensors)] + [result]
    computed = [i for i, tensor in enumerate(tensors) if tensor.values is None]
    operator = Operator(op, list(range(len(tensors))), [len(tensors)], kind, options or {})
    program = reference_program(Graph(everything, [operator], computed, [len(tensors)]))
    for seed in range(3):
        arrays = [
            tensor.values if tensor.values is not None else codes[i] if codes else given(tensor, seed + 10 * i)
            for i, tensor in enumerate(tensors)
        ]
        expected = np.asarray(kernel(*arrays))
        (found,) = run(program, [arrays[i] for i in computed])
        np.testing.assert_array_equal(found.ravel(), expected.ravel())


def elements(function: Callable[..., int], *arrays: Array) -> Array:
    found: Array = np.vectorize(lambda *items: function(*map(int, items)), otypes=[np.int64])(*arrays)
    return found
