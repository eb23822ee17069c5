"""The rules of the C++ library on single ops, as its notes describe them, for the tests alone: it shares nothing with
`cvm.frontends`. `judged` says what the library makes of one use of an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.vectors_cvm_runtime import mapping

Shape = tuple[int, ...]
Array = npt.NDArray[np.int64]
Attributes = dict[str, Any]


class Refused(Exception):
    """The library refuses it."""


class Hazard(Exception):
    """The library accepts it, and its backends differ or leave the result to chance."""


def need(condition: bool, why: str) -> None:
    if not condition:
        raise Refused(why)


def bl(n: int) -> int:
    return n.bit_length()


# --- attributes -------------------------------------------------------------------------------------------------------


def number(text: str) -> int:
    value = mapping.integer(text)
    need(-(2**31) <= value < 2**31, "32 bits")
    return value


def one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        need(text in names, text)
        return text

    return parse


REQUIRED = None
TYPES = one_of("float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint8")
REDUCE = {
    "axis": (mapping.integers, "()"),
    "keepdims": (mapping.boolean, "0"),
    "exclude": (mapping.boolean, "0"),
    "dtype": (TYPES, "int32"),
}
SHIFT = {"precision": (number, REQUIRED), "shift_bit": (number, REQUIRED), "is_sign": (mapping.boolean, "1")}

ATTRIBUTES: Mapping[str, Mapping[str, tuple[Callable[[str], Any], str | None]]] = {
    "clip": {"a_min": (number, REQUIRED), "a_max": (number, REQUIRED)},
    "cvm_clip": {"precision": (number, REQUIRED), "is_sign": (mapping.boolean, "1")},
    "cvm_right_shift": SHIFT,
    "cvm_left_shift": SHIFT,
    "reshape": {"shape": (mapping.integers, REQUIRED)},
    "sum": REDUCE,
    "max": REDUCE,
    "concatenate": {"axis": (number, "1")},
    "repeat": {"repeats": (number, REQUIRED), "axis": (number, "0")},
    "tile": {"reps": (mapping.integers, "(0)")},
    "expand_dims": {"axis": (number, REQUIRED), "num_newaxis": (number, "1")},
    "squeeze": {"axis": (mapping.integers, "()")},
    "transpose": {"axes": (mapping.integers, "()")},
    "strided_slice": {
        "begin": (mapping.integers, "(0)"),
        "end": (mapping.integers, "(1)"),
        "stride": (mapping.integers, "()"),
    },
    "slice_like": {"axis": (mapping.integers, "()")},
    "take": {"axis": (mapping.optional, "None")},
    "cvm_lut": {"in_dim": (number, REQUIRED)},
    "conv2d": {
        "channels": (number, REQUIRED),
        "kernel_size": (mapping.integers, REQUIRED),
        "strides": (mapping.integers, "(1,1)"),
        "padding": (mapping.integers, "(0,0)"),
        "dilation": (mapping.integers, "(1,1)"),
        "groups": (number, "1"),
        "use_bias": (mapping.boolean, "1"),
        "layout": (one_of("NCHW"), "NCHW"),
        "kernel_layout": (one_of("OIHW"), "OIHW"),
        "out_layout": (one_of("__undef__", "NCHW"), "__undef__"),
        "out_dtype": (one_of("same", "int32", "int8"), "same"),
    },
    "dense": {"units": (number, REQUIRED), "use_bias": (mapping.boolean, "1")},
    "max_pool2d": {
        "pool_size": (mapping.integers, REQUIRED),
        "strides": (mapping.integers, "(1,1)"),
        "padding": (mapping.integers, "(0,0)"),
        "ceil_mode": (mapping.boolean, "0"),
        "layout": (one_of("NCHW"), "NCHW"),
    },
    "upsampling": {
        "scale": (number, REQUIRED),
        "method": (one_of("NEAREST_NEIGHBOR"), "NEAREST_NEIGHBOR"),
        "layout": (one_of("NCHW"), "NCHW"),
    },
    "get_valid_counts": {"score_threshold": (number, "0")},
    "non_max_suppression": {
        "iou_threshold": (number, "50"),
        "force_suppress": (mapping.boolean, "0"),
        "top_k": (number, "-1"),
        "max_output_size": (number, "-1"),
        "coord_start": (number, "2"),
        "score_index": (number, "1"),
        "id_index": (number, "0"),
        "return_indices": (mapping.boolean, "0"),
        "invalid_to_bottom": (mapping.boolean, "1"),
    },
}
ARITY = {
    **dict.fromkeys(("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_max"), 2),
    **dict.fromkeys(("broadcast_greater", "elemwise_add", "elemwise_sub", "slice_like", "take", "cvm_lut"), 2),
    "where": 3,
    "non_max_suppression": 2,
}
PLAIN = {"abs", "negative", "relu", "cvm_precision", "flatten", *ARITY} - set(ATTRIBUTES)


def attributes_of(op: str, texts: Mapping[str, str]) -> Attributes:
    need(op in ATTRIBUTES or op in PLAIN, f"unknown op {op}")
    declared = ATTRIBUTES.get(op, {})
    need(set(texts) <= set(declared), "unknown attribute")
    found: Attributes = {}
    for name, (parse, default) in declared.items():
        text = texts.get(name, default)
        if text is None:
            raise Refused(f"{name} is missing")
        try:
            found[name] = parse(text)
        except (ValueError, KeyError) as error:
            raise Refused(f"{name}: {error}") from None
    return found


# --- shapes -----------------------------------------------------------------------------------------------------------


def inside(value: int, low: int, high: int) -> None:
    need(low <= value <= high, f"{value} is not in [{low}, {high}]")


def each(values: Sequence[int], low: int, high: int, length: int | None = None) -> None:
    need(length is None or len(values) == length, "length")
    for value in values:
        inside(value, low, high)


def axis_of(axis: int, rank: int) -> int:
    inside(axis, -rank, rank - 1)
    return axis % rank


def reduced(a: Attributes, rank: int) -> list[int]:
    axes = [axis_of(axis, rank) for axis in a["axis"]]
    need(len(set(axes)) == len(axes), "axis twice")
    if not axes:
        return list(range(rank))
    return [axis for axis in range(rank) if (axis in axes) != a["exclude"]]


def ranges(a: Attributes, x: Shape) -> list[range]:
    found = []
    for i, n in enumerate(x):
        step = a["stride"][i] if i < len(a["stride"]) else 1
        need(step != 0, "stride 0")
        low, high = (0, n) if step > 0 else (-1, n - 1)
        begin = a["begin"][i] if i < len(a["begin"]) else 0
        end = a["end"][i] if i < len(a["end"]) else n
        begin, end = (min(max(v + n if v < 0 else v, low), high) for v in (begin, end))
        need(len(range(begin, end, step)) > 0, "nothing left")
        found.append(range(begin, end, step))
    return found


def windows(n: int, k: int, p: int, s: int, ceil: bool) -> int:
    steps = n + 2 * p - k
    return (-(-steps // s) if ceil else steps // s) + 1


def shapes_of(op: str, a: Attributes, s: Sequence[Shape]) -> list[Shape]:
    """The shapes of the results."""
    x = s[0]
    rank = len(x)
    need(len(s) == ARITY.get(op, 1) or op in ("concatenate", "conv2d", "dense"), "arity")
    match op:
        case "elemwise_add" | "elemwise_sub":
            need(s[0] == s[1], "shapes differ")
        case _ if op.startswith("broadcast_"):
            columns = list(zip_longest(reversed(s[0]), reversed(s[1]), fillvalue=1))
            need(all(m == n or 1 in (m, n) for m, n in columns), "no broadcast")
            return [tuple(max(column) for column in columns)[::-1]]
        case "flatten":
            return [(x[0], math.prod(x[1:]))]
        case "reshape":
            need(len(a["shape"]) > 0 and a["shape"].count(-1) <= 1, "codes")
            need(not (-4 in a["shape"] and a["shape"][a["shape"].index(-4) + 1 :][:2] == (-1, -1)), "two unknown")
            try:
                place = a["shape"].index(-1) if -1 in a["shape"] else None
                target = mapping.reshape_codes({"target_shape": a["shape"]}, x)["target_shape"]
            except (IndexError, ZeroDivisionError, ValueError) as error:
                raise Refused(str(error)) from None
            assert isinstance(target, tuple)
            need(place is None or place == 0 or not {-2, -3, -4} & set(a["shape"][:place]), "place of -1")
            need(math.prod(target) == math.prod(x) and min(target) > 0, "size")
            return [target]
        case "sum" | "max":
            over = reduced(a, rank)
            if a["keepdims"]:
                return [tuple(1 if i in over else n for i, n in enumerate(x))]
            return [tuple(n for i, n in enumerate(x) if i not in over) or (1,)]
        case "concatenate":
            need(len({len(shape) for shape in s}) == 1, "ranks")
            axis = axis_of(a["axis"], rank)
            need(len({shape[:axis] + shape[axis + 1 :] for shape in s}) == 1, "extents")
            return [(*x[:axis], sum(shape[axis] for shape in s), *x[axis + 1 :])]
        case "repeat":
            need(a["repeats"] > 0, "repeats")
            axis = axis_of(a["axis"], rank)
            return [tuple(n * a["repeats"] if i == axis else n for i, n in enumerate(x))]
        case "tile":
            need(len(a["reps"]) > 0, "reps")
            each(a["reps"], 1, 4096)
            repeated = zip_longest(reversed(x), reversed(a["reps"]), fillvalue=1)
            return [tuple(m * n for m, n in repeated)[::-1]]
        case "expand_dims":
            inside(a["axis"], -rank - 1, rank)
            inside(a["num_newaxis"], 1, 4096)
            axis = a["axis"] % (rank + 1)
            return [(*x[:axis], *(1,) * a["num_newaxis"], *x[axis:])]
        case "squeeze":
            axes = {axis_of(axis, rank) for axis in a["axis"]} or {i for i, n in enumerate(x) if n == 1}
            need(all(x[axis] == 1 for axis in axes), "extent is not 1")
            return [tuple(n for i, n in enumerate(x) if i not in axes) or (1,)]
        case "transpose":
            need(len(a["axes"]) in (0, rank), "axes")
            order = [axis_of(axis, rank) for axis in a["axes"]] or list(reversed(range(rank)))
            need(len(set(order)) == rank, "no permutation")
            return [tuple(x[axis] for axis in order)]
        case "strided_slice":
            return [tuple(map(len, ranges(a, x)))]
        case "slice_like":
            axes = {axis_of(axis, rank) for axis in a["axis"]}
            need(bool(axes) or len(s[1]) == rank, "ranks")
            cut = axes or set(range(rank))
            need(max(cut) < len(s[1]) and all(s[1][axis] <= x[axis] for axis in cut), "extents")
            return [tuple(s[1][i] if i in cut else n for i, n in enumerate(x))]
        case "take":
            if a["axis"] is None:
                return [s[1]]
            axis = axis_of(a["axis"], rank)
            return [(*x[:axis], *s[1], *x[axis + 1 :])]
        case "cvm_lut":
            need(math.prod(s[1]) == a["in_dim"], "in_dim")
        case "where":
            need(s[1] == s[2], "operands")
            need(x == s[1] or x == s[1][:1], "condition")
            return [s[1]]
        case "conv2d":
            return [_conv_shape(a, s)]
        case "dense":
            need(len(s) == 2 + a["use_bias"] and len(x) == len(s[1]) == 2, "operands")
            need(a["units"] >= 1 and s[1] == (a["units"], x[1]), "weight")
            need(len(s) == 2 or s[2] == (a["units"],), "bias")
            return [(x[0], a["units"])]
        case "max_pool2d":
            need(rank == 4 and len(a["pool_size"]) == 2 and len(a["padding"]) in (1, 2), "pool")
            each(a["strides"], 1, 4096, 2)
            each(a["padding"], 0, 4096)
            pads = a["padding"] * (3 - len(a["padding"]))
            outs = []
            for n, k, p, step in zip(x[2:], a["pool_size"], pads, a["strides"], strict=False):
                need(p < k <= n + 2 * p, "window")
                outs.append(windows(n, k, p, step, a["ceil_mode"]))
                need((outs[-1] - 1) * step - p < n, "last window")
            return [(*x[:2], *outs)]
        case "upsampling":
            need(rank == 4, "rank")
            inside(a["scale"], 1, 4096)
            return [(*x[:2], x[2] * a["scale"], x[3] * a["scale"])]
        case "get_valid_counts":
            need(rank == 3 and 2 <= x[2] < 32, "rows")
            return [x[:1], x]
        case "non_max_suppression":
            need(rank == 3 and x[2] == 6 and s[1] == x[:1], "rows")
            need(a["iou_threshold"] > 0, "threshold")
            fixed = [a[name] for name in ("coord_start", "score_index", "id_index", "return_indices")]
            need(fixed == [2, 1, 0, False] and a["invalid_to_bottom"], "fixed")
    return [x]


def _conv_shape(a: Attributes, s: Sequence[Shape]) -> Shape:
    x, w, *bias = s
    need(len(s) == 2 + a["use_bias"] and len(x) == len(w) == 4, "operands")
    need(a["groups"] > 0 and x[1] % a["groups"] == 0 and a["channels"] % a["groups"] == 0, "groups")
    each(a["strides"], 1, 4096, 2)
    each(a["padding"], 0, 4096, 2)
    each(a["dilation"], 1, 4096, 2)
    need(len(a["kernel_size"]) == 2 and (not bias or bias[0] == (a["channels"],)), "kernel")
    outs = []
    for n, k, p, step, d in zip(x[2:], a["kernel_size"], a["padding"], a["strides"], a["dilation"], strict=True):
        effective = d * (k - 1) + 1
        need(effective <= n + 2 * p, "window")
        outs.append((n + 2 * p - effective) // step + 1)
    return (x[0], a["channels"], outs[0], outs[1])


# --- precisions -------------------------------------------------------------------------------------------------------

SAME = {
    "abs",
    "negative",
    "relu",
    "flatten",
    "reshape",
    "max",
    "repeat",
    "tile",
    "expand_dims",
    "squeeze",
    "transpose",
    "strided_slice",
    "slice_like",
    "take",
    "where",
    "broadcast_div",
    "broadcast_greater",
    "max_pool2d",
    "upsampling",
    "non_max_suppression",
}


def precisions_of(op: str, a: Attributes, s: Sequence[Shape], out: Sequence[Shape], p: Sequence[int]) -> list[int]:
    """The precisions of the results."""
    if op in SAME:
        return [p[0]]
    match op:
        case "elemwise_add" | "elemwise_sub" | "broadcast_add" | "broadcast_sub":
            return [max(p) + 1]
        case "broadcast_mul":
            return [p[0] + p[1]]
        case "broadcast_max" | "concatenate":
            return [max(p)]
        case "cvm_lut":
            return [p[1]]
        case "cvm_precision":
            return [6]
        case "sum":
            return [p[0] + bl(math.prod(s[0]) // math.prod(out[0]))]
        case "clip":
            each((a["a_min"], a["a_max"]), -(2**31) + 1, 2**31 - 1)
            need(a["a_min"] < a["a_max"], "bounds")
            return [bl(max(abs(a["a_min"]), abs(a["a_max"])) + 1) + 1]
        case "cvm_clip" | "cvm_right_shift" | "cvm_left_shift":
            inside(a["precision"], 1, 32)
            inside(a.get("shift_bit", 1), 1, 32)
            need(op != "cvm_left_shift" or p[0] + a["shift_bit"] <= 32, "bits shifted out")
            return [a["precision"]]
        case "conv2d" | "dense":
            need(p[0] <= 8 and p[1] <= 8, "operands of 8 bits")
            products = p[0] + p[1] + bl(math.prod(s[1][1:]))
            return [max(products, p[2]) + 1 if len(p) > 2 else products]
        case "get_valid_counts":
            return [bl(math.prod(s[0][1:]) + 1) + 1, p[0]]
    raise AssertionError(op)


def judged(
    op: str, texts: Mapping[str, str], shapes: Sequence[Shape], precisions: Sequence[int]
) -> tuple[Attributes, list[Shape], list[int]]:
    """Attributes, shapes and precisions of one use of an op. Raises `Refused`."""
    attributes = attributes_of(op, texts)
    out = shapes_of(op, attributes, shapes)
    found = precisions_of(op, attributes, shapes, out, precisions)
    for p in found:
        inside(p, 1, 32)
    return attributes, out, found
