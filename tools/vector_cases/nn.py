"""Cases of the NN ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.vector_cases.case import Cases, Tensor, arange, filled, tensor
from tools.vector_cases.elemwise import unary
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

CONVOLUTIONS = (
    # X, W, bias, padding, stride, dilation, groups
    ((1, 1, 1, 1), (1, 1, 1, 1), False, (0, 0), (1, 1), (1, 1), 1),
    ((1, 1, 3, 3), (1, 1, 3, 3), True, (0, 0), (1, 1), (1, 1), 1),
    ((1, 1, 3, 3), (1, 1, 3, 3), False, (1, 1), (1, 1), (1, 1), 1),
    ((1, 2, 4, 5), (3, 2, 1, 1), True, (0, 0), (1, 1), (1, 1), 1),
    ((2, 1, 4, 3), (2, 1, 2, 3), True, (0, 0), (1, 1), (1, 1), 1),
    ((1, 1, 5, 5), (1, 1, 3, 3), False, (0, 0), (2, 2), (1, 1), 1),
    ((1, 1, 6, 5), (1, 1, 3, 2), False, (0, 0), (3, 2), (1, 1), 1),
    ((1, 1, 6, 5), (1, 1, 3, 2), True, (1, 0), (2, 3), (1, 1), 1),
    ((1, 1, 4, 6), (1, 1, 2, 2), False, (0, 1), (1, 2), (1, 1), 1),
    ((1, 1, 5, 5), (1, 1, 3, 3), False, (0, 0), (1, 1), (2, 2), 1),
    ((1, 1, 6, 7), (1, 1, 2, 3), False, (0, 0), (1, 1), (3, 2), 1),
    ((1, 1, 4, 4), (1, 1, 3, 3), False, (2, 2), (1, 1), (2, 2), 1),
    ((1, 1, 5, 4), (1, 1, 3, 2), True, (3, 1), (2, 1), (2, 3), 1),
    ((1, 1, 2, 2), (1, 1, 2, 2), False, (3, 3), (1, 1), (1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 3, 3), False, (2, 2), (1, 1), (1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 2, 2), False, (4, 4), (3, 3), (1, 1), 1),
    ((1, 2, 3, 3), (2, 1, 2, 2), False, (0, 0), (1, 1), (1, 1), 2),
    ((1, 2, 3, 3), (4, 1, 2, 2), True, (1, 1), (1, 1), (1, 1), 2),
    ((1, 4, 3, 3), (4, 1, 3, 3), True, (1, 1), (1, 1), (1, 1), 4),
    ((1, 3, 4, 4), (6, 1, 3, 3), False, (1, 1), (2, 2), (1, 1), 3),
    ((2, 4, 3, 3), (6, 2, 2, 2), True, (0, 0), (1, 1), (1, 1), 2),
    ((1, 6, 2, 2), (3, 2, 1, 1), True, (0, 0), (1, 1), (1, 1), 3),
    ((1, 4, 3, 2), (2, 2, 2, 1), False, (0, 0), (1, 1), (1, 1), 2),
    ((2, 3, 1, 7), (2, 3, 1, 3), True, (0, 1), (1, 2), (1, 1), 1),
    ((2, 3, 7, 1), (2, 3, 3, 1), True, (1, 0), (2, 1), (1, 1), 1),
    ((1, 1, 3, 8), (2, 1, 2, 3), False, (0, 0), (1, 4), (1, 1), 1),
    ((1, 1, 8, 3), (2, 1, 3, 2), False, (0, 0), (5, 1), (1, 1), 1),
    ((1, 2, 5, 5), (1, 2, 5, 5), True, (0, 0), (1, 1), (1, 1), 1),
    ((1, 1, 4, 4), (1, 1, 2, 2), False, (0, 0), (4096, 4096), (1, 1), 1),
    ((1, 1, 2, 2), (1, 1, 1, 1), True, (0, 0), (1, 1), (4096, 4096), 1),
    ((1, 1, 4, 3), (1, 1, 4, 3), True, (0, 0), (2, 2), (1, 1), 1),
    ((3, 1, 2, 2), (1, 1, 1, 2), False, (0, 0), (1, 1), (1, 1), 1),
)  # fmt: skip
"""Convolutions by geometry: borders, strides that do not divide, dilation, groups, planes of one row or column."""

PLAIN: dict[str, Any] = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}


def conv2d(op: str) -> Cases:
    """Convolutions: the table with int8 data, drawn geometries, wide operands, the extremes."""
    c = Cases(op)
    for index, (x, w, bias, padding, stride, dilation, groups) in enumerate(CONVOLUTIONS):
        name = f"table_{index:02}"
        s = Stream(f"{op}/{name}")
        inputs = [s.spread(x, -127, 127), s.spread(w, -127, 127)]
        if bias:
            inputs.append(s.tensor(w[:1], -(2**20), 2**20))
        aim = f"{list(x)} by {list(w)}, {groups} groups"
        c.value(name, aim, *inputs, padding=padding, stride=stride, dilation=dilation, groups=groups)
    for index in range(20):
        name = f"drawn_{index:02}"
        s = Stream(f"{op}/{name}")
        groups, ic, opg = s.between(1, 3), s.between(1, 3), s.between(1, 2)
        kernel = (s.between(1, 3), s.between(1, 3))
        dilation = (s.between(1, 2), s.between(1, 2))
        padding = (s.between(0, 2), s.between(0, 2))
        plane: tuple[int, ...] = tuple(
            max(1, d * (k - 1) + 1 - 2 * p) + s.between(0, 3) for k, d, p in zip(kernel, dilation, padding, strict=True)
        )
        shape, weights = (s.between(1, 2), groups * ic, *plane), (groups * opg, ic, *kernel)
        inputs = [s.tensor(shape, -128, 255), s.tensor(weights, -127, 127)]
        if index % 2:
            inputs.append(s.tensor(weights[:1], -(2**24), 2**24))
        stride = (s.between(1, 3), s.between(1, 3))
        aim = f"{list(shape)} by {list(weights)}, {groups} groups"
        c.value(name, aim, *inputs, padding=padding, stride=stride, dilation=dilation, groups=groups)
    s = Stream(f"{op}/wide")
    c.value(
        "wide_data",
        "16-bit data and weights",
        s.tensor((1, 2, 3, 3), -32767, 32767),
        s.tensor((1, 2, 1, 1), -16384, 16384),
        **PLAIN,
    )
    c.value("largest_result", "2^31 - 1", filled((1, 1, 1, 1), MAX), filled((1, 1, 1, 1), 1), **PLAIN)
    c.value("least_result", "-(2^31 - 1)", filled((1, 1, 1, 1), -1), filled((1, 1, 1, 1), MAX), **PLAIN)
    c.value(
        "bias_to_the_end",
        "2^31 - 1 by the bias",
        tensor((1, 1, 1, 2), [1, 0]),
        filled((1, 1, 1, 1), 1),
        tensor((1,), [MAX - 1]),
        **PLAIN,
    )
    c.value(
        "zero_weights",
        "the bias alone",
        s.tensor((1, 1, 2, 2), -127, 127),
        filled((2, 1, 2, 2), 0),
        tensor((2,), [MAX, -MAX]),
        **PLAIN,
    )
    c.value(
        "many_taps",
        "147 products of int8 extremes",
        filled((1, 3, 7, 7), -128),
        filled((1, 3, 7, 7), -127),
        **{**PLAIN, "padding": (1, 1)},
    )
    X, W, B = arange((1, 2, 4, 4)), arange((2, 2, 3, 3)), arange((2,))
    c.refused("C1", "X of 3 dimensions", arange((2, 4, 4)), W, **PLAIN)
    c.refused("C2", "W of 2 dimensions", X, arange((2, 2)), **PLAIN)
    c.refused("C3", "C is not IC * groups", X, arange((2, 1, 3, 3)), **PLAIN)
    c.refused("C3", "groups without channels", X, W, **{**PLAIN, "groups": 2})
    c.refused("C4", "OC is no multiple of groups", X, arange((3, 1, 3, 3)), **{**PLAIN, "groups": 2})
    c.refused("C5", "a bias of OC + 1 elements", X, W, arange((3,)), **PLAIN)
    c.refused("C5", "a bias of two dimensions", X, W, arange((2, 1)), **PLAIN)
    c.refused("C6", "a kernel larger than the data", arange((1, 2, 2, 4)), W, B, **PLAIN)
    c.refused(
        "C6", "a dilated kernel larger than the padded data", X, W, **{**PLAIN, "dilation": (1, 2), "padding": (1, 0)}
    )
    for name, bad in (
        ("padding", (-1, 0)), ("padding", (0, 4097)), ("padding", (1,)), ("stride", (0, 1)), ("stride", (1, 1, 1)),
        ("stride", (1, 4097)), ("dilation", (1, 0)), ("dilation", (4097, 1)), ("groups", 0), ("groups", -1),
        ("groups", True),
    ):  # fmt: skip
        c.refused(f"attribute.{name}", f"{name} = {bad}", X, W, **{**PLAIN, name: bad})
    c.refused("attribute.strides", "an attribute that the op has not", X, W, **PLAIN, strides=(1, 1))
    c.refused("arity", "no weights", X, **PLAIN)
    c.refused("arity", "four inputs", X, W, B, B, **PLAIN)
    c.refused(
        "program.range",
        "2^31 by the bias",
        filled((1, 1, 1, 1), 1),
        filled((1, 1, 1, 1), 1),
        tensor((1,), [MAX]),
        **PLAIN,
    )
    c.refused(
        "program.range", "a product beyond int32", filled((1, 1, 1, 1), 65536), filled((1, 1, 1, 1), 32768), **PLAIN
    )
    return c


def dense(op: str) -> Cases:
    """Fully connected layers: all small shapes, the extremes."""
    c = Cases(op)
    sizes = [(m, k, n) for m in (1, 2, 3) for k in (1, 2, 5) for n in (1, 2, 4)]
    for m, k, n in (*sizes, (1, 40, 2), (2, 1, 30), (30, 1, 1), (5, 7, 6), (4, 4, 4), (3, 3, 3)):
        for bias in (False, True) if k > 1 else (True,):
            name = f"{m}_by_{k}_by_{n}{'_bias' if bias else ''}"
            s = Stream(f"{op}/{name}")
            inputs = [s.spread((m, k), -127, 127), s.spread((n, k), -127, 127)]
            if bias:
                inputs.append(s.tensor((n,), -(2**24), 2**24))
            c.value(name, "Y = X W^T + B" if bias else "Y = X W^T", *inputs)
    one = filled((1, 1), 1)
    c.value("largest_result", "2^31 - 1", filled((1, 1), MAX), one)
    c.value("least_result", "-(2^31 - 1)", filled((1, 1), MAX), filled((1, 1), -1))
    c.value("bias_to_the_end", "2^31 - 1 by the bias", one, one, tensor((1,), [MAX - 1]))
    c.value("cancel", "large products that cancel", tensor((1, 2), [32767, 32767]), tensor((1, 2), [32767, -32767]))
    c.value("wide", "16-bit operands", Stream(f"{op}/wide").tensor((2, 1), -32767, 32767), filled((2, 1), 32767))
    x, w, b = arange((2, 3)), arange((4, 3)), arange((4,))
    c.refused("C1", "X of 3 dimensions", arange((1, 2, 3)), w, b)
    c.refused("C1", "X of 1 dimension", arange((3,)), w)
    c.refused("C2", "W of 1 dimension", x, arange((3,)))
    c.refused("C3", "another K", x, arange((4, 2)))
    c.refused("C3", "W transposed", x, arange((3, 4)))
    c.refused("C4", "a bias of M elements", x, w, arange((2,)))
    c.refused("C4", "a bias of two dimensions", x, w, arange((1, 4)))
    c.refused("attribute.units", "an attribute that the op has not", x, w, units=4)
    c.refused("arity", "no weights", x)
    c.refused("arity", "four inputs", x, w, b, b)
    c.refused("program.range", "2^31 by the bias", one, one, tensor((1,), [MAX]))
    c.refused("program.range", "a product beyond int32", filled((1, 1), 65536), filled((1, 1), -32768))
    return c


POOLS = (
    # X, pool_size, padding, strides, ceil_mode
    ((1, 1, 1, 1), (1, 1), (0, 0), (1, 1), False),
    ((1, 1, 4, 4), (2, 2), (0, 0), (2, 2), False),
    ((2, 3, 4, 4), (2, 2), (0, 0), (2, 2), False),
    ((1, 1, 5, 5), (2, 2), (0, 0), (2, 2), False),
    ((1, 1, 5, 5), (2, 2), (0, 0), (2, 2), True),
    ((1, 1, 5, 5), (3, 3), (1, 1), (2, 2), False),
    ((1, 1, 5, 5), (3, 3), (1, 1), (2, 2), True),
    ((1, 1, 6, 6), (3, 3), (1, 1), (2, 2), True),
    ((1, 1, 6, 7), (3, 2), (1, 0), (2, 2), False),
    ((1, 1, 6, 7), (3, 2), (1, 0), (2, 2), True),
    ((1, 2, 3, 5), (2, 3), (0, 2), (1, 2), False),
    ((1, 2, 3, 5), (2, 3), (0, 2), (1, 2), True),
    ((1, 1, 4, 3), (4, 3), (0, 0), (1, 1), False),
    ((1, 1, 3, 3), (5, 5), (2, 2), (1, 1), False),
    ((1, 1, 3, 3), (7, 7), (2, 2), (1, 1), False),
    ((1, 1, 7, 7), (2, 2), (0, 0), (3, 3), False),
    ((1, 1, 7, 7), (2, 2), (0, 0), (3, 3), True),
    ((1, 1, 8, 8), (2, 2), (0, 0), (3, 3), True),
    ((1, 1, 4, 9), (1, 2), (0, 1), (1, 4), False),
    ((1, 1, 4, 9), (1, 4), (0, 1), (1, 3), True),
    ((1, 1, 9, 4), (4, 1), (1, 0), (3, 1), True),
    ((1, 1, 2, 2), (1, 1), (0, 0), (4096, 4096), False),
    ((1, 1, 5, 6), (3, 4), (2, 3), (1, 1), False),
    ((1, 1, 5, 6), (3, 4), (2, 3), (3, 2), True),
    ((2, 1, 1, 6), (1, 3), (0, 1), (1, 2), True),
    ((2, 1, 6, 1), (3, 1), (1, 0), (2, 1), True),
    ((1, 1, 10, 3), (4, 2), (0, 0), (3, 1), True),
)  # fmt: skip
"""Poolings by geometry: paddings on one axis, windows that hang over, rests, windows larger than the image."""


def max_pool2d(op: str) -> Cases:
    """Poolings: the table on data of both signs and on negative data, where a padding of 0 would win."""
    c = Cases(op)
    for index, (shape, pool_size, padding, strides, ceil_mode) in enumerate(POOLS):
        attributes = {"pool_size": pool_size, "padding": padding, "strides": strides, "ceil_mode": ceil_mode}
        s = Stream(f"{op}/table_{index}")
        aim = f"{list(shape)} by {list(pool_size)}"
        c.value(f"table_{index:02}", aim, s.spread(shape), **attributes)
        c.value(f"negative_{index:02}", f"{aim}, no element above -1", s.spread(shape, -1000, -1), **attributes)
    plain: dict[str, Any] = {"pool_size": (2, 2), "padding": (0, 0), "strides": (1, 1), "ceil_mode": False}
    c.value("least", "the least elements", filled((1, 1, 2, 2), -MAX), **{**plain, "padding": (1, 1)})
    c.value("padding_as_integer", "an integer stands for both", arange((1, 1, 3, 3), -9), **{**plain, "padding": 1})
    x = arange((1, 1, 4, 4))
    c.refused("C1", "X of 3 dimensions", arange((1, 4, 4)), **plain)
    c.refused("C2", "a window higher than the padded image", x, **{**plain, "pool_size": (5, 2)})
    c.refused("C2", "a window wider than the padded image", x, **{**plain, "pool_size": (2, 7), "padding": (1, 1)})
    c.refused("C3", "a window no larger than the padding", x, **{**plain, "padding": (2, 1)})
    c.refused("C3", "a window smaller than the padding", x, **{**plain, "padding": (0, 3)})
    last = {"pool_size": (1, 2), "padding": (0, 1), "strides": (1, 3), "ceil_mode": True}
    c.refused("C4", "a last window in the padding", arange((1, 1, 1, 5)), **last)
    c.refused(
        "C4",
        "rows: a last window beyond the image",
        arange((1, 1, 3, 3)),
        **{**plain, "pool_size": (1, 1), "strides": (4, 1), "ceil_mode": True},
    )
    for name, bad in (
        ("pool_size", (0, 1)), ("pool_size", (2,)), ("padding", (-1, 0)), ("padding", -1), ("padding", (0, 4097)),
        ("padding", True), ("strides", (0, 1)), ("strides", (1, 4097)), ("ceil_mode", 1),
    ):  # fmt: skip
        c.refused(f"attribute.{name}", f"{name} = {bad}", x, **{**plain, name: bad})
    c.refused("attribute.pool_size", "pool_size is missing", x, padding=(0, 0), strides=(1, 1), ceil_mode=False)
    c.refused("attribute.stride", "an attribute that the op has not", x, **plain, stride=(1, 1))
    c.refused("arity", "two inputs", x, x, **plain)
    return c


def upsampling(op: str) -> Cases:
    """Upsamplings: shapes by scales."""
    c = Cases(op)
    shapes = (
        (1, 1, 1, 1),
        (1, 1, 2, 3),
        (2, 3, 1, 2),
        (1, 2, 3, 1),
        (2, 1, 2, 2),
        (3, 1, 1, 1),
        (1, 4, 2, 2),
        (2, 2, 3, 2),
    )
    for shape in shapes:
        for scale in (1, 2, 3, 4, 5):
            name = f"{'_'.join(map(str, shape))}_by_{scale}"
            x: Tensor = Stream(f"{op}/{name}").spread(shape)
            c.value(name, f"{list(shape)}, scale {scale}", x, scale=scale)
    c.value("large", "scale 17", tensor((1, 1, 1, 2), [MAX, -MAX]), scale=17)
    x = arange((1, 1, 2, 2))
    c.refused("C1", "X of 3 dimensions", arange((1, 2, 2)), scale=2)
    c.refused("C1", "X of 5 dimensions", arange((1, 1, 1, 2, 2)), scale=2)
    for bad in (0, -1, 4097, True, (2, 2)):
        c.refused("attribute.scale", f"scale = {bad}", x, scale=bad)
    c.refused("attribute.scale", "scale is missing", x)
    c.refused("attribute.method", "an attribute that the op has not", x, scale=2, method=0)
    c.refused("arity", "no input", scale=2)
    c.refused("limit.elements", "2^30 elements", arange((1, 1, 8, 8)), scale=4096)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "conv2d": conv2d,
    "dense": dense,
    "relu": unary,
    "max_pool2d": max_pool2d,
    "upsampling": upsampling,
}
"""For each op, the function that makes its cases."""
