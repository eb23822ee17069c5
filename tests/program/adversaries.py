"""Valid programs that try to make the verifier keep or expand more than their files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cvm.limits import DEFAULT
from cvm.program import Output, Program, ProgramBuilder

__all__ = ["ADVERSARIES", "of_op", "on_large_constants"]

WIDE = 2**18
"""Channels of the values of which bounds are kept: the most that are kept of one value."""


def varied(*shape: int, most: int = 100) -> np.ndarray[Any, Any]:
    """Small elements that differ."""
    return (np.arange(int(np.prod(shape))) * 7919 % most).reshape(shape)


def alternating(n: int, first: int) -> np.ndarray[Any, Any]:
    """Largest elements and zeros alternately, so that products are 0 and their bounds need more than 64 bits."""
    return (np.arange(n).reshape(1, n) + first) % 2 * (2**31 - 1)


def ended(builder: ProgramBuilder, name: str) -> Program:
    """The program of which the sum of an input and of one element of the value is the output."""
    rank = len(builder.shape(name))
    first = {"begin": (0,) * rank, "end": (1,) * rank, "strides": ()}
    (element,) = builder.add("slice", [name], first)
    (y,) = builder.add("broadcast_max", [element, builder.input("x", (1,), 0, 1)])
    return builder.build([Output("y", y)])


def chain(op: str, length: int, channels: int) -> Program:
    builder = ProgramBuilder()
    name = builder.constant(varied(1, channels))
    for _ in range(length):
        (name,) = builder.add(op, [name])
    return ended(builder, name)


def alive(values: int, channels: int) -> Program:
    """Values with bounds of their own, all of which are read at the end."""
    builder = ProgramBuilder()
    base = builder.constant(varied(1, channels))
    names = [builder.add("clip", [base], {"a_min": k, "a_max": 100 + k})[0] for k in range(values)]
    return ended(builder, *builder.add("concatenate", names, {"axis": 0}))


def sums(length: int, channels: int) -> Program:
    builder = ProgramBuilder()
    name = start = builder.constant(varied(1, channels))
    for _ in range(length):
        (name,) = builder.add("elemwise_add", [name, start])
    return ended(builder, name)


def many_constants(count: int, elements: int) -> Program:
    builder = ProgramBuilder()
    names = [builder.constant(varied(1, elements) + 101 * k) for k in range(count)]
    return ended(builder, *builder.add("concatenate", names, {"axis": 0}))


def many_nodes(count: int) -> Program:
    builder = ProgramBuilder()
    name = builder.input("a", (1, 1), 0, 1)
    for _ in range(count):
        (name,) = builder.add("abs", [name], name="n")
    return ended(builder, name)


def entries(values: int) -> Program:
    """As many nodes as there may be, all of different shapes and attributes, and values with bounds of their own."""
    builder = ProgramBuilder()
    base = builder.constant(varied(1, WIDE))
    names = [builder.add("clip", [base], {"a_min": k, "a_max": 100 + k})[0] for k in range(values)]
    (name,) = builder.add("concatenate", names, {"axis": 0})
    operands = 100_000
    builder.add("concatenate", [builder.constant(varied(1, 1))] * operands, {"axis": 0})
    count = DEFAULT.entries - values - 20 - operands // 16
    x = builder.input("a", (count, *(1,) * 7), -(2**20), 2**20)
    for k in range(count):
        builder.add("slice", [x], {"begin": (0,) * 8, "end": (k + 1, *(1,) * 7), "strides": (1,) * 8})
    return ended(builder, name)


def many_operands(count: int) -> Program:
    builder = ProgramBuilder()
    name = builder.input("a", (1, 1), 0, 1)
    (name,) = builder.add("concatenate", [name] * count, {"axis": 0})
    return ended(builder, name)


def requantized(terms: int, positions: int, wide: bool) -> Program:
    """Parameters for every position, of 8 bytes or of 1; sums of the wide ones are not formed in 64 bits."""
    builder = ProgramBuilder()
    x = builder.input("a", (1, 1, 1, 1), -(2**20), 2**20)
    (x,) = builder.add("broadcast_add", [x, builder.constant(np.zeros((1, 1, 1, positions), np.int8))])
    step = 48_000_000_000 // terms if wide else 1
    shape = (1, 1, 1, positions)
    m = [builder.parameter(varied(*shape) * step + k) for k in range(terms)]
    c = builder.parameter(varied(*shape) * (5 * 2**52 if wide else 1))
    s = builder.parameter(varied(*shape, most=40))
    attributes = {"rounding": "half_even", "lo": -(2**31) + 1, "hi": 2**31 - 1}
    return ended(builder, *builder.add("requantize", [x] * terms + [*m, c, s], attributes))


def of_op(
    op: str, constants: Sequence[np.ndarray[Any, Any]], attributes: Mapping[str, Any] | None = None, result: int = 0
) -> Program:
    """One op on constants."""
    builder = ProgramBuilder()
    names = [builder.constant(array) for array in constants]
    return ended(builder, builder.add(op, names, attributes)[result])


def with_input(
    op: str, shape: tuple[int, ...], constants: Sequence[np.ndarray[Any, Any]], **attributes: Any
) -> Program:
    """One op on an input and constants."""
    builder = ProgramBuilder()
    x = builder.input("a", shape, -3, 5)
    return ended(builder, *builder.add(op, [x, *map(builder.constant, constants)], attributes))


def of_varied(
    op: str, shape: tuple[int, ...], most: Sequence[int] = (100,), attributes: Mapping[str, Any] | None = None
) -> Callable[[], Program]:
    """What makes one op on constants of a shape; the elements of each are below a number of ``most``."""
    return lambda: of_op(op, [varied(*shape, most=below) for below in most], attributes)


def beside_one(op: str, shape: tuple[int, ...]) -> Callable[[], Program]:
    """What makes one op on an input of one element and a constant of that shape."""
    return lambda: with_input(op, (1,) * len(shape), [varied(*shape)])


def on_large_constants(n: int) -> dict[str, Callable[[], Program]]:
    """Every op that keeps or expands elements, on constants of ``n`` of them; a multiple of 2^12."""
    side = n // 2**10
    row, column, image, vector = (1, n), (n, 1), (1, 4, side, 2**8), (n,)
    made: dict[str, Callable[[], Program]] = {}
    for shape in (row, image, vector):
        backwards = {"begin": (-1,) * len(shape), "end": (-(2**31),) * len(shape), "strides": (-1,) * len(shape)}
        for op in ("abs", "negative", "relu", "cvm_precision"):
            made[f"{op} {shape}"] = of_varied(op, shape)
        for op in ("broadcast_add", "broadcast_mul", "broadcast_div", "broadcast_max", "broadcast_greater"):
            made[f"{op} {shape}"] = beside_one(op, shape)
        for op in ("elemwise_add", "elemwise_sub"):
            made[f"{op} {shape}"] = of_varied(op, shape, (100, 90))
        made[f"where {shape}"] = of_varied("where", shape, (3, 90, 100))
        for axes in ((0,), (len(shape) - 1,), ()):
            for op in ("sum", "max"):
                made[f"{op} {shape} {axes}"] = of_varied(op, shape, attributes={"axes": axes, "keepdims": True})
        made[f"transpose {shape}"] = of_varied("transpose", shape)
        made[f"flatten {shape}"] = of_varied("flatten", shape)
        made[f"reshape {shape}"] = of_varied("reshape", shape, attributes={"target_shape": (2**11, n >> 11)})
        made[f"slice {shape}"] = of_varied("slice", shape, attributes=backwards)
        made[f"tile {shape}"] = of_varied("tile", shape, attributes={"reps": (2, 1)})
        made[f"repeat {shape}"] = of_varied("repeat", shape, attributes={"axis": 0, "repeats": 3})
        made[f"concatenate {shape}"] = of_varied("concatenate", shape, (100,) * 3, {"axis": 0})
    made |= {
        "take of rows": lambda: of_op("take", [varied(2**6, n >> 6), varied(1, 40)], {"axis": 0}),
        "take of columns": lambda: of_op("take", [varied(*row), varied(*column)], {"axis": 1}),
        "take by an input": lambda: with_input("take", (1, 4), [varied(4, 4)], axis=0),
        "cvm_lut": lambda: of_op("cvm_lut", [varied(*vector), varied(*vector)]),
        "cvm_lut of few": lambda: of_op("cvm_lut", [varied(9) << 20, varied(*vector)]),
        "dense, one column": lambda: with_input("dense", (1, n), [varied(*row)]),
        "dense, one term": lambda: with_input("dense", (1, 1), [varied(*column)]),
        "dense": lambda: with_input("dense", (1, 2**10), [varied(n >> 10, 2**10), varied(n >> 10)]),
        "dense of wide elements": lambda: of_op("dense", [alternating(n >> 3, 0), alternating(n >> 3, 1)]),
        "conv2d of many outputs": lambda: with_input("conv2d", (1, 1, 1, 1), [varied(n, 1, 1, 1)]),
        "conv2d of many inputs": lambda: with_input("conv2d", (1, n, 1, 1), [varied(1, n, 1, 1)]),
        "conv2d by channels": lambda: with_input("conv2d", (1, n, 1, 1), [varied(n, 1, 1, 1)], groups=n),
        "conv2d of many taps": lambda: with_input("conv2d", (1, 1, n >> 10, 2**10), [varied(1, 1, n >> 10, 2**10)]),
        "conv2d": lambda: with_input(
            "conv2d", (1, 2**6, 9, 9), [varied(n // 576 // 64 * 64, 2**6, 3, 3)], padding=(1, 1)
        ),
        "max_pool2d": lambda: of_op("max_pool2d", [varied(1, n, 1, 1)], {"pool_size": (1, 1)}),
        "upsampling": lambda: of_op("upsampling", [varied(n >> 4, 4, 2, 2)], {"scale": 2}),
        "slice_like": lambda: of_op("slice_like", [varied(*row), varied(1, n - 1)]),
        "get_valid_count": lambda: of_op("get_valid_count", [varied(n >> 1, 1, 2)], {"score_threshold": 50}),
        "rows": lambda: of_op("get_valid_count", [varied(1, n >> 1, 2)], {"score_threshold": 50}, 1),
    }
    return made


ADVERSARIES: dict[str, Callable[[], Program]] = {
    "a chain": lambda: chain("relu", 400, WIDE),
    "a chain that changes bounds": lambda: chain("negative", 200, WIDE),
    "sums": lambda: sums(100, WIDE),
    "values that are all read at the end": lambda: alive(100, WIDE),
    "values of few channels": lambda: alive(5_000, 16),
    "many constants": lambda: many_constants(5_000, 16),
    "many nodes": lambda: many_nodes(10_000),
    "as many nodes as there may be": lambda: entries(10),
    "many operands": lambda: many_operands(300_000),
    "parameters": lambda: requantized(1, 2**21, False),
    "wide parameters": lambda: requantized(1, 2**17, True),
    "terms": lambda: requantized(8, 2**15, True),
}
"""By what they are made of."""
