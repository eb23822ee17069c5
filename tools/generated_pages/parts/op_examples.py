"""The worked example of an op: FORMAL gives the result, the verifier the interval and the gas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import formal.executor
from cvm.ops import REGISTRY, Range
from cvm.ops.specification import Example, ExampleTensor
from cvm.program import Output, ProgramBuilder, verify
from formal.tensor import elements

__all__ = ["Worked", "example_lines", "worked"]


@dataclass(frozen=True)
class Worked:
    """What an example gives: per output the elements and the range that is kept; and the gas of the op."""

    outputs: tuple[tuple[str, tuple[int, ...], list[int], Range], ...]
    gas: int


def _names(op: str, count: int) -> list[str]:
    """The names of the operands of an example."""
    specs = REGISTRY[op].inputs
    if op in ("requantize", "quotient"):
        n = (count - 2) // 2
        return [f"{letter}[{k}]" for letter in "xm" for k in range(n)] + ["c", specs[-1].name]
    return [f"{specs[0].name}[{k}]" if specs[0].many else specs[k].name for k in range(count)]


def worked(op: str, example: Example) -> Worked:
    """Compute and verify an example."""
    builder, feeds, names = ProgramBuilder(), {}, []
    for index, tensor in enumerate(example.inputs):
        if tensor.role == "input":
            name = builder.input(f"x{index}", tensor.shape, *tensor.interval)
            feeds[name] = list(tensor.elements)
        else:
            array = np.array(tensor.elements).reshape(tensor.shape)
            name = builder.parameter(array) if tensor.role == "parameter" else builder.constant(array)
        names.append(name)
    results = builder.add(op, names, example.attributes)
    program = builder.build([Output(result, result) for result in results])
    verified = verify(program)
    values = formal.executor.run(program, feeds, {})
    found = [
        (name, values[result].shape, list(elements(values[result])), verified.ranges[result])
        for name, result in zip(REGISTRY[op].outputs, results, strict=True)
    ]
    return Worked(tuple(found), verified.gas)


def _nested(shape: tuple[int, ...], items: list[int]) -> str:
    """The elements as nested lists."""
    return str(np.array(items, object).reshape(shape).tolist())


def _operand(name: str, tensor: ExampleTensor) -> str:
    said = {
        "input": f"input in [{tensor.interval[0]}, {tensor.interval[1]}]",
        "constant": "constant",
        "parameter": "parameter",
    }
    return f"{name} = {_nested(tensor.shape, list(tensor.elements))}, {said[tensor.role]}"


def _bounds(kept: Range) -> str:
    pairs = [f"[{lo}, {hi}]" for lo, hi in zip(kept.lo.ravel().tolist(), kept.hi.ravel().tolist(), strict=True)]
    return pairs[0] if len(pairs) == 1 else f"{', '.join(pairs)} by channel"


def example_lines(op: str, example: Example) -> list[str]:
    """The lines of an example: operands, attributes, results, intervals, gas."""
    found = worked(op, example)
    names = _names(op, len(example.inputs))
    lines = [_operand(name, tensor) for name, tensor in zip(names, example.inputs, strict=True)]
    typed = REGISTRY[op].parse(example.attributes)
    lines += [f"{key} = {value}" for key, value in typed if value is not None]
    for name, shape, items, kept in found.outputs:
        lines += [f"{name} = {_nested(shape, items)}", f"interval of {name}: {_bounds(kept)}"]
    return [*lines, f"gas = {found.gas}"]
