"""Codes of a model of one operator, by rational arithmetic on what the file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

import cvm
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.program import Program

__all__ = ["compiled", "fractions", "given", "reals", "run", "same_codes"]

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2**31) + 1, 2**31 - 1)}


def fractions(values: Any) -> Array:
    """An array of rationals."""
    found: Array = np.vectorize(Fraction, otypes=[object])(np.asarray(values, object))
    return found


def reals(tensor: Tensor, codes: Array) -> Array:
    """The numbers that codes of a tensor stand for; integers stand for themselves."""
    exact = fractions(codes.astype(object))
    if not tensor.scales:
        return exact
    scales = fractions([float(np.float32(scale)) for scale in tensor.scales])
    zeros = fractions(list(tensor.zeros or [0] * len(tensor.scales)))
    if len(tensor.scales) > 1:
        shape = [1] * codes.ndim
        shape[tensor.axis] = -1
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    return np.asarray((exact - zeros) * scales)


def rounded(tensor: Tensor, values: Array) -> Array:
    """The codes of numbers: the nearest one, of two the greater; integers are what they are."""
    if not tensor.scales:
        return values.astype(np.int64)
    scale, zero = Fraction(float(np.float32(tensor.scales[0]))), (tensor.zeros or [0])[0]
    lo, hi = RANGES[tensor.data_type]
    code = lambda x: min(max(floor(Fraction(x) / scale + Fraction(1, 2)) + zero, lo), hi)  # noqa: E731
    found: Array = np.vectorize(code, otypes=[np.int64])(values)
    return found


def given(tensor: Tensor, seed: int) -> Array:
    """Codes for an input: the ends of the range among random ones."""
    random = np.random.default_rng(seed)
    lo, hi = RANGES.get(tensor.data_type, (0, 1))
    if not tensor.scales:
        lo, hi = max(lo, -100), min(hi, 100)
    codes = random.integers(lo, hi + 1, tuple(tensor.shape))
    if codes.size > 2:
        codes.ravel()[:2] = lo, hi
    return codes


def compiled(*graphs: Graph) -> Program:
    """The program of a model, optimised."""
    return optimize(lower(tflite.loads(written(*graphs)).graph))


def run(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The outputs for codes, by the NumPy executor."""
    names = [item.value.name for item in program.inputs]
    session = cvm.Session(program, executor="numpy")
    feeds = {
        name: array.reshape(item.value.shape).astype(np.int32)
        for name, item, array in zip(names, program.inputs, inputs, strict=True)
    }
    return [np.asarray(array) for array in session.run(feeds, codes=True).values()]


def same_codes(
    op: str,
    tensors: Sequence[Tensor],
    result: Tensor | Sequence[Tensor],
    meaning: Callable[..., Any],
    kind: str = "",
    options: Mapping[str, Any] | None = None,
) -> None:
    """Compile an operator on tensors, run it on codes, and compare with its meaning on rationals.

    ``meaning`` is told the numbers of every operand and gives those of the result, or of each result.
    """
    results = [result] if isinstance(result, Tensor) else list(result)
    everything = [replace(tensor, name=f"in{i}") for i, tensor in enumerate(tensors)] + results
    computed = [i for i, tensor in enumerate(tensors) if tensor.values is None]
    numbers = list(range(len(tensors), len(everything)))
    operator = Operator(op, list(range(len(tensors))), numbers, kind, options or {})
    program = compiled(Graph(everything, [operator], computed, numbers))
    for seed in range(3):
        codes = [
            tensor.values if tensor.values is not None else given(tensor, seed + 10 * i)
            for i, tensor in enumerate(tensors)
        ]
        expected = meaning(*(reals(tensor, array) for tensor, array in zip(tensors, codes, strict=True)))
        expected = [expected] if isinstance(result, Tensor) else expected
        found = run(program, [codes[i] for i in computed])
        for tensor, numbers_, array in zip(results, expected, found, strict=True):
            np.testing.assert_array_equal(array, rounded(tensor, np.asarray(numbers_, object)).reshape(array.shape))
