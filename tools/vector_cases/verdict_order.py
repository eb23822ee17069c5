"""Programs with two faults or more: which of these a verifier reports, by the order of docs/verifier.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.vector_cases.refusals import Change, Refusal, all_of, changed, drop, put, single
from tools.vector_cases.stream import MAX

__all__ = ["refused_in_order"]

X, K, HELD = ("inputs", 0, "value"), ("constants", 0), ("state", 0, "value")
TOTAL, Y = ("nodes", 0, "outputs", 0), ("nodes", 1, "outputs", 0)
PLAIN = drop("inputs", 0, "quantizer")
WIDE = all_of(put(*X, "hi", MAX), PLAIN)
"""An input whose sum with the state is not proven to be int32."""


def refused_in_order() -> Iterator[Refusal]:
    """Name, code, aim and bytes of each program; the aim names the reported fault, then the other one."""
    yield from _bytes()
    for name, code, aim, *changes in (*_parts(), *_nodes()):
        yield name, code, aim, changed(all_of(*changes))


def _bytes() -> Iterator[Refusal]:
    def longer(data: bytes) -> bytes:
        index = data.index(b"\xa7default")
        return data[:index] + b"\xd9\x07" + data[index + 1 :]

    undefined = put("outputs", 1, "value", 99)
    yield "trailing", "program.trailing", "bytes that follow, before numbers", changed(undefined) + b"\x00"
    yield "numbers", "program.undefined", "a number of no value, before the form of a text", longer(changed(undefined))
    twice = put(*Y, "name", "total")
    yield "names", "program.duplicate", "a name twice, before the form of a text", longer(changed(twice))
    other = put("op_set", 2)
    yield "form", "program.canonical", "the form of a text, before the op-set", longer(changed(other))
    one = changed(drop("inputs", 0, "quantizer"))
    index = one.index(b"\xa2hi\xcc\xff")
    signed = one[: index + 3] + b"\xd1\x00" + one[index + 4 :]
    yield "signed", "program.canonical", "255 as a signed integer", signed
    unknown = changed(put("also", 1))[:-9]
    yield "truncated", "program.key", "a key that does not belong there, before the end of the bytes", unknown
    scales = put("inputs", 0, "quantizer", "offset", ["0/1"] * 24_996)  # the base has five entries before them
    yield (
        "entries",
        "limit.entries",
        "25,001 entries up to the last offset, before the number of scales",
        changed(scales),
    )


def _parts() -> tuple[tuple[Any, ...], ...]:
    """Faults of a program's parts: name, code, aim, changes."""
    scale = put("inputs", 0, "quantizer", "scale", ["0/1"])
    undefined = put("outputs", 1, "value", 99)
    twice, bounds = put(*Y, "name", "total"), put(*X, "lo", MAX)
    least = all_of(put(*K, "width", 4), put(*K, "data", (-(2**31)).to_bytes(4, "little", signed=True) * 6))
    return (
        ("quantiser", "quantization.scale", "a quantiser, before numbers", scale, undefined),
        ("undefined", "program.undefined", "numbers, before names that occur twice", undefined, twice),
        ("duplicate", "program.duplicate", "names, before the op-set", twice, put("op_set", 2)),
        ("op_set", "program.op_set", "the op-set, before the profile", put("op_set", 2), put("limits", "huge")),
        ("profile", "program.limits", "the profile, before constants", put("limits", "huge"), put(*K, "width", 3)),
        ("constants", "program.constant.width", "constants, before inputs", put(*K, "width", 3), put(*X, "shape", [])),
        ("constant_shape", "limit.rank", "its shape, before its width", put(*K, "shape", [1] * 9), put(*K, "width", 3)),
        (
            "constant_width",
            "program.constant.width",
            "its width, before its length",
            put(*K, "width", 3),
            put(*K, "data", b""),
        ),
        ("inputs", "program.bounds", "inputs, before the values of constants", bounds, PLAIN, least),
        ("value_name", "program.name", "a name, before a shape", put(*X, "name", ""), put(*X, "shape", [])),
        ("value_shape", "program.shape", "a shape, before an interval", put(*X, "shape", []), bounds),
        (
            "value_interval",
            "program.bounds",
            "an interval, before a quantiser",
            bounds,
            put("inputs", 0, "quantizer", "axis", 9),
        ),
        (
            "quantiser_axis",
            "program.quantizer",
            "a quantiser, before the values of constants",
            put("inputs", 0, "quantizer", "axis", 9),
            least,
        ),
        ("constant_name", "program.name", "a constant's name, before its values", put(*K, "name", "\u2028"), least),
        (
            "constant_value",
            "program.constant.value",
            "values of constants, before states",
            least,
            put(*HELD, "name", ""),
        ),
        ("states", "program.state", "states, before nodes", put(*HELD, "hi", 599), put("nodes", 0, "op", "add")),
        (
            "state_initial",
            "program.undefined",
            "an initial value that is none, before its shape",
            put("state", 0, "initial", 0),
            put(*HELD, "shape", [3, 2]),
        ),
        (
            "state_shape",
            "program.state",
            "a shape, before an update",
            put(*HELD, "shape", [1, 6]),
            put("state", 0, "update", 2),
        ),
        ("updates", "program.kind", "updates, before outputs", put("state", 0, "update", 2), put("outputs", [])),
        (
            "output_name",
            "program.name",
            "a name, before a value",
            put("outputs", 0, "name", ""),
            put("outputs", 0, "value", 2),
        ),
        (
            "output_twice",
            "program.outputs",
            "a name twice, before a value",
            put("outputs", 1, "name", "y"),
            put("outputs", 1, "value", 2),
        ),
    )


def _nodes() -> tuple[tuple[Any, ...], ...]:
    """Faults of nodes: name, code, aim, changes."""

    def given(node: int, **attributes: Any) -> Change:
        return put("nodes", node, "attributes", attributes)

    def read(node: int, *numbers: int) -> Change:
        return put("nodes", node, "inputs", list(numbers))

    fine = {"hi": 100, "lo": -100, "rounding": "half_up"}
    short = {"op": "sum", "inputs": [6], "outputs": [], "attributes": {"axes": []}}
    shift = all_of(put("constants", 3, "data", b"\x3f"))
    wide_shift = all_of(put("constants", 3, "shape", [5]), put("constants", 3, "data", b"\x29" * 5))
    pool = {"pool_size": [1, 1], "padding": 0, "strides": [1, 1], "ceil_mode": False}
    return (
        ("op", "ops.unknown", "the op, before its attributes", put("nodes", 0, "op", "add"), given(0, axis=0)),
        (
            "attributes",
            "ops.elemwise_add.attribute.axis",
            "attributes, before the number of inputs",
            given(0, axis=0),
            read(0, 0, 5, 5),
        ),
        (
            "attribute_order",
            "ops.requantize.attribute.rounding",
            "attributes in their order",
            given(1, hi=2**40, lo=2**40, rounding="up"),
        ),
        (
            "attribute_unknown",
            "ops.requantize.attribute.lo",
            "known attributes, before unknown ones",
            given(1, **{**fine, "aa": 1, "lo": 2**40}),
        ),
        (
            "attributes_unknown",
            "ops.requantize.attribute.aa",
            "unknown attributes by name",
            given(1, **{**fine, "zz": 1, "aa": 1}),
        ),
        (
            "attribute_boolean",
            "ops.requantize.attribute.lo",
            "a boolean for an integer, before the number of inputs",
            given(1, **{**fine, "lo": False}),
            read(1, 6),
        ),
        ("arity", "ops.elemwise_add.arity", "the number of inputs, before their kinds", read(0, 0, 2, 5)),
        ("kind_first", "program.kind", "inputs in their order: a parameter, then none", read(0, 2, 7)),
        ("undefined_first", "program.undefined", "inputs in their order: none, then a parameter", read(0, 7, 2)),
        ("kinds", "program.kind", "kinds, before constraints", read(1, 6, 1, 3, 4), given(1, **{**fine, "lo": 101})),
        ("constraints", "ops.requantize.C3", "constraints in their order", wide_shift, given(1, **{**fine, "lo": 101})),
        (
            "on_shapes",
            "ops.requantize.C4",
            "constraints on shapes, before those on ranges",
            shift,
            given(1, **{**fine, "lo": 101}),
        ),
        (
            "on_ranges",
            "ops.requantize.C5",
            "constraints on ranges, before the results' names",
            shift,
            put(*Y, "name", ""),
        ),
        (
            "sizes",
            "limit.elements",
            "sizes, before attributes that are not complete",
            single([2**28], "repeat", {"repeats": 2}, [2**29]),
        ),
        (
            "complete",
            "program.attributes",
            "attributes that are not complete, before the number of results",
            put("nodes", 1, short),
            put("state", 0, "update", 1),
            put("outputs", 0, "value", 6),
        ),
        (
            "integer_for_two",
            "program.attributes",
            "an integer for two, before a shape",
            single([1, 1, 2, 2], "max_pool2d", pool, [7]),
        ),
        ("results", "program.output_count", "the number of results, before their names", *_two_results()),
        ("result_names", "program.name", "names of results, before their ranges", put(*TOTAL, "name", ""), WIDE),
        ("ranges", "program.range", "ranges, before shapes", WIDE, put(*TOTAL, "shape", [3, 2])),
        (
            "result_shape",
            "program.output_shape",
            "shapes, before intervals",
            put(*Y, "shape", [3, 2]),
            put(*Y, "lo", 101),
        ),
        ("result_bounds", "program.bounds", "an interval that is none, before what it holds", put(*Y, "lo", 101)),
        (
            "earlier_node",
            "program.interval",
            "nodes in their order",
            put(*TOTAL, "hi", 1),
            put("nodes", 1, "op", "add"),
        ),
    )


def _two_results() -> tuple[Change, ...]:
    """The first node has two results, one without a name; the numbers of all later values are one greater."""
    value = {"shape": [2, 3], "lo": -2000, "hi": 2000}
    return (
        put("nodes", 0, "outputs", [{"name": name, **value} for name in ("", "total")]),
        put("nodes", 1, "inputs", [7, 2, 3, 4]),
        put("outputs", 0, "value", 8),
        put("outputs", 1, "value", 7),
        put("state", 0, "update", 8),
    )
