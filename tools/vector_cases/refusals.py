"""Programs that must be refused: bytes that are no program, programs that break a rule, programs beyond a limit.

Each is a change to one small valid program, made on its msgpack tree or on its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias

import msgpack

from cvm.program import Output, ProgramBuilder
from cvm.quantization.quantizer import LinearQuantizer
from tools.vector_cases.stream import MAX

__all__ = ["BASE", "REFUSALS", "Change", "Refusal", "all_of", "changed", "drop", "put", "single"]

Refusal: TypeAlias = tuple[str, str, str, bytes]
"""Name, code, aim, bytes."""

Tree: TypeAlias = Any
Change: TypeAlias = Callable[[Tree], object]


def _base() -> bytes:
    """A valid program: an input with a quantiser, a state, constants of both kinds, two nodes, two outputs."""
    b = ProgramBuilder()
    quantizer = LinearQuantizer.linear(Fraction(-1), Fraction(3, 2), 8)
    x = b.input("x", (2, 3), quantizer=quantizer)
    k = b.constant([[1, 2, 3], [4, 5, 600]], "k")
    m, c, s = b.parameter([2**40], "m"), b.parameter([5], "c"), b.parameter([41], "s")
    held = b.state("held", k, -1000, 1000)
    (total,) = b.add("elemwise_add", [x, held], {}, "total")
    (y,) = b.add("requantize", [total, m, c, s], {"rounding": "half_up", "lo": -100, "hi": 100}, "y")
    b.update(held, y)
    return b.build([Output("y", y), Output("total", total)]).to_bytes()


BASE = _base()


def changed(change: Change) -> bytes:
    """The bytes of the base with a change to its tree, with keys in order."""
    tree = msgpack.unpackb(BASE)
    change(tree[2])
    return _packed(tree)


def _packed(tree: Tree) -> bytes:
    data: bytes = msgpack.packb(_sorted(tree), use_bin_type=True)
    return data


def _sorted(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {key: _sorted(tree[key]) for key in sorted(tree)}
    return [_sorted(item) for item in tree] if isinstance(tree, list) else tree


def _header(*parts: Tree) -> bytes:
    tree = msgpack.unpackb(BASE)
    return _packed([part if part is not None else tree[index] for index, part in enumerate(parts)])


def put(*path: Tree) -> Change:
    """Set the item at a path; the last entry is the new value."""

    def change(tree: Tree) -> None:
        *steps, key, value = path
        for step in steps:
            tree = tree[step]
        tree[key] = value

    return change


def drop(*path: Tree) -> Change:
    """Remove the item at a path."""

    def change(tree: Tree) -> None:
        *steps, key = path
        for step in steps:
            tree = tree[step]
        del tree[key]

    return change


def all_of(*changes: Change) -> Change:
    def change(tree: Tree) -> None:
        for one in changes:
            one(tree)

    return change


def single(shape: list[int], op: str, attributes: dict[str, Any], out: list[int]) -> Change:
    """The program of one node on an input in [0, 1], instead of the base."""
    value = {"name": "x", "shape": shape, "lo": 0, "hi": 1}
    node = {
        "op": op,
        "inputs": [0],
        "attributes": attributes,
        "outputs": [{"name": "y", "shape": out, "lo": 0, "hi": 1}],
    }
    return all_of(
        put("inputs", [{"value": value}]), put("constants", []), put("state", []), put("nodes", [node]),
        put("outputs", [{"name": "y", "value": 1}]),
    )  # fmt: skip


def malformed() -> Iterator[Refusal]:
    """Bytes that are not the canonical bytes of any program."""
    yield "empty", "program.truncated", "no bytes", b""
    for length in (1, 12, 13, 14, 40, len(BASE) // 2, len(BASE) - 1):
        yield f"truncated_{length}", "program.truncated", f"the first {length} bytes", BASE[:length]
    yield "trailing", "program.trailing", "a byte follows", BASE + b"\x00"
    yield "twice", "program.trailing", "two programs", BASE * 2
    yield "other_format", "program.format", "another format", _header("cvm-receipt", None, None)
    yield "not_an_array", "program.type", "a map", _packed({"cvm-program": 1})
    yield "two_parts", "program.format", "no program", _header(None, None)
    yield "version_2", "program.version", "version 2", _header(None, 2, None)
    yield "version_text", "program.type", "a version that is text", _header(None, "1", None)
    one = BASE.index(b"\x01", 12)
    yield "long_integer", "program.canonical", "1 in two bytes", BASE[:one] + b"\xcc\x01" + BASE[one + 1 :]
    yield "long_array", "program.canonical", "an array of 3 with a length of 16 bits", b"\xdc\x00\x03" + BASE[1:]
    text = BASE.index(b"\xa7default")
    yield (
        "long_text",
        "program.canonical",
        "a text with a length of 8 bits",
        BASE[:text] + b"\xd9\x07" + BASE[text + 1 :],
    )
    yield "not_utf8", "program.text", "a text that is not UTF-8", BASE.replace(b"default", b"defa\xfflt")
    kind = BASE.index(b"\xa7default")
    for label, item in (
        ("nil", b"\xc0"),
        ("float", b"\xcb" + bytes(8)),
        ("extension", b"\xd4\x00\x00"),
        ("boolean", b"\xc3"),
        ("binary", b"\xc4\x01a"),
    ):
        yield f"{label}_for_text", "program.type", f"{label} for a text", BASE[:kind] + item + BASE[kind + 8 :]
    tree = msgpack.unpackb(BASE)
    backwards = {key: tree[2][key] for key in sorted(tree[2], reverse=True)}
    yield "keys_backwards", "program.key", "keys out of order", msgpack.packb([*tree[:2], backwards], use_bin_type=True)
    repeated = BASE.replace(b"\xa6limits", b"\xa6inputs", 1)
    yield "key_repeated", "program.key", "a key twice", repeated
    yield "key_missing", "program.key", "no limits", changed(drop("limits"))
    yield "key_unknown", "program.key", "a further key", changed(put("more", 1))
    yield "node_key_missing", "program.key", "a node without attributes", changed(drop("nodes", 0, "attributes"))
    yield (
        "value_key_unknown",
        "program.key",
        "a value with a dtype",
        changed(put("inputs", 0, "value", "dtype", "int32")),
    )
    yield "shape_is_text", "program.type", "a shape that is text", changed(put("inputs", 0, "value", "shape", "2x3"))
    yield (
        "extent_is_text",
        "program.type",
        "an extent that is text",
        changed(put("inputs", 0, "value", "shape", [2, "3"])),
    )
    yield "data_is_text", "program.type", "data as text", changed(put("constants", 0, "data", "abcdef"))
    yield (
        "attribute_is_map",
        "program.type",
        "an attribute that is a map",
        changed(put("nodes", 1, "attributes", "lo", {})),
    )
    yield "constant_kind", "program.value", "a kind that is none", changed(put("constants", 0, "kind", "weights"))
    yield (
        "quantizer_rounding",
        "program.value",
        "a rounding that is none",
        changed(put("inputs", 0, "quantizer", "rounding", "up")),
    )
    for name, aim, quantizer in (
        ("logarithm_without_top", "a logarithmic quantiser without its top", {"bits": 3}),
        ("logarithm_without_bits", "a logarithmic quantiser without its bits", {"top": 3}),
        ("logarithm_and_scale", "a logarithmic quantiser with a scale", {"bits": 3, "scale": ["1/2"], "top": 1}),
        ("quantizer_without_codes", "a linear quantiser without a scale", {"hi": 3, "lo": 0, "offset": ["0/1"]}),
        ("quantizer_of_nothing", "a quantiser without any key", {}),
    ):
        yield name, "program.key", aim, changed(put("inputs", 0, "quantizer", quantizer))
    logarithmic = put("inputs", 0, "quantizer", {"bits": "3", "top": 1})
    yield "logarithm_bits_are_text", "program.type", "bits that are text", changed(logarithmic)
    for number, rational in enumerate(("1", "2/4", "1/0", "-0/1", "01/2", "1/-2", "+1/2", " 1/2", "0.5", "1/2\n")):
        yield (
            f"rational_{number}",
            "program.rational",
            f"the rational {rational!r}",
            changed(put("inputs", 0, "quantizer", "scale", [rational])),
        )


def invalid() -> Iterator[Refusal]:
    """Programs that break a rule."""

    def one(name: str, code: str, aim: str, change: Change) -> Refusal:
        return name, code, aim, changed(change)

    x, k, total, y = ("inputs", 0, "value"), ("constants", 0), ("nodes", 0, "outputs", 0), ("nodes", 1, "outputs", 0)
    yield one("op_set", "program.op_set", "op-set 2", put("op_set", 2))
    yield one("limits", "program.limits", "a profile that is none", put("limits", "huge"))
    yield one("no_outputs", "program.outputs", "no outputs", put("outputs", []))
    yield one("output_twice", "program.outputs", "two outputs of one name", put("outputs", 1, "name", "y"))
    yield one("output_undefined", "program.undefined", "an output of no value", put("outputs", 1, "value", 99))
    yield one("output_negative", "program.undefined", "value -1", put("outputs", 1, "value", -1))
    yield one("output_parameter", "program.kind", "a parameter as output", put("outputs", 1, "value", 2))
    yield one("name_twice", "program.duplicate", "two values of one name", put(*y, "name", "total"))
    yield one("name_empty", "program.name", "a value without name", put(*total, "name", ""))
    yield one("name_control", "program.name", "a line break in a name", put(*total, "name", "a\nb"))
    yield one("name_direction", "program.name", "a change of writing direction", put(*total, "name", "a\u202eb"))
    yield one("output_name_empty", "program.name", "an output without name", put("outputs", 0, "name", ""))
    yield one(
        "read_before_written", "program.undefined", "a node reads a later value", put("nodes", 0, "inputs", [0, 7])
    )
    yield one("reads_itself", "program.undefined", "a node reads its own result", put("nodes", 0, "inputs", [0, 6]))
    yield one("unknown_op", "ops.unknown", "an op that is none", put("nodes", 0, "op", "add"))
    yield one("arity", "ops.elemwise_add.arity", "an input too many", put("nodes", 0, "inputs", [0, 5, 5]))
    yield one("constraint", "ops.requantize.C4", "lo > hi", put("nodes", 1, "attributes", "lo", 101))
    yield one(
        "attribute_missing",
        "ops.requantize.attribute.rounding",
        "no rounding",
        drop("nodes", 1, "attributes", "rounding"),
    )
    yield one(
        "attribute_unknown",
        "ops.elemwise_add.attribute.axis",
        "an attribute too many",
        put("nodes", 0, "attributes", {"axis": 0}),
    )
    pool = {"op": "sum", "inputs": [6], "outputs": [{"name": "z", "shape": [1], "lo": -(2**20), "hi": 2**20}]}
    short = put("nodes", 1, {**pool, "attributes": {"axes": []}})
    yield one(
        "attributes_incomplete", "program.attributes", "defaults left out", all_of(short, put("state", 0, "update", 0))
    )
    yield one("tensor_for_parameter", "program.kind", "a tensor as multiplier", put("nodes", 1, "inputs", [6, 1, 3, 4]))
    yield one("parameter_for_tensor", "program.kind", "a parameter as operand", put("nodes", 0, "inputs", [0, 2]))
    yield one(
        "no_results",
        "program.output_count",
        "a node without results",
        all_of(put("nodes", 1, "outputs", []), put("outputs", 0, "value", 6), put("state", 0, "update", 1)),
    )
    yield one(
        "two_results",
        "program.output_count",
        "a result too many",
        put("nodes", 1, "outputs", [{"name": n, "shape": [2, 3], "lo": -100, "hi": 100} for n in ("y", "z")]),
    )
    yield one("result_shape", "program.output_shape", "another shape of a result", put(*y, "shape", [3, 2]))
    yield one("interval_not_proven", "program.interval", "an interval that is too small", put(*y, "hi", 99))
    yield one("interval_not_proven_below", "program.interval", "an interval that is too small", put(*y, "lo", -99))
    yield one("interval_empty", "program.bounds", "lo > hi", put(*y, "lo", 101))
    yield one("interval_too_wide", "program.bounds", "-2^31 in an interval", put(*total, "lo", -(2**31)))
    yield one(
        "input_interval",
        "program.bounds",
        "-2^31 as input",
        all_of(put(*x, "lo", -(2**31)), drop("inputs", 0, "quantizer")),
    )
    yield one(
        "sum_beyond_int32",
        "program.range",
        "a sum that is not proven",
        all_of(put(*x, "hi", MAX), drop("inputs", 0, "quantizer")),
    )
    yield one("input_without_extents", "program.shape", "rank 0", put(*x, "shape", []))
    yield one("input_extent_zero", "program.shape", "extent 0", put(*x, "shape", [0, 3]))
    yield one("input_extent_negative", "program.shape", "extent -1", put(*x, "shape", [-1, -6]))
    yield one("constant_width", "program.constant.width", "width 3", put(*k, "width", 3))
    yield one("constant_length", "program.constant.length", "a byte is missing", put(*k, "data", bytes(11)))
    yield one("constant_not_smallest", "program.constant.width", "more bytes than needed", put(*k, "data", bytes(12)))
    yield one(
        "constant_least",
        "program.constant.value",
        "-2^31",
        all_of(put(*k, "width", 4), put(*k, "data", (-(2**31)).to_bytes(4, "little", signed=True) * 6)),
    )
    yield one(
        "parameter_least",
        "program.constant.value",
        "-2^63",
        all_of(
            put("constants", 1, "width", 8),
            put("constants", 1, "data", (-(2**63)).to_bytes(8, "little", signed=True)),
        ),
    )
    yield one(
        "constant_too_wide",
        "program.constant.value",
        "a tensor of 64 bits",
        all_of(put(*k, "width", 8), put(*k, "data", (2**40).to_bytes(8, "little") * 6)),
    )
    yield one(
        "constant_empty", "program.shape", "a constant of extent 0", all_of(put(*k, "shape", [0]), put(*k, "data", b""))
    )
    yield one("state_shape", "program.state", "a state of another shape", put("state", 0, "value", "shape", [3, 2]))
    yield one(
        "state_initial_is_input",
        "program.undefined",
        "an initial value that is no constant",
        put("state", 0, "initial", 0),
    )
    yield one(
        "state_initial_outside",
        "program.state",
        "an initial value outside the interval",
        put("state", 0, "value", "hi", 599),
    )
    yield one(
        "state_update_outside", "program.state", "an update that may leave the interval", put("state", 0, "update", 6)
    )
    yield one("state_update_undefined", "program.undefined", "an update of no value", put("state", 0, "update", 8))
    yield one("quantizer_codes", "program.quantizer", "codes beside the interval", put(*x, "hi", 254))
    yield one(
        "quantizer_axis", "program.quantizer", "an axis beyond the rank", put("inputs", 0, "quantizer", "axis", 2)
    )
    yield one(
        "quantizer_scales", "program.quantizer", "one scale for an axis of 3", put("inputs", 0, "quantizer", "axis", 1)
    )
    yield one(
        "quantizer_lists",
        "quantization.lists",
        "two scales, one offset",
        put("inputs", 0, "quantizer", "scale", ["1/2", "1/3"]),
    )
    yield one("quantizer_scale", "quantization.scale", "scale 0", put("inputs", 0, "quantizer", "scale", ["0/1"]))
    yield one("quantizer_range", "quantization.codes", "lo > hi", put("inputs", 0, "quantizer", "lo", 256))
    for name, aim, bits, top in (
        ("logarithm_codes", "a logarithmic quantiser with codes beside the interval", 8, 0),
        ("logarithm_no_bits", "a logarithmic quantiser of 0 bits", 0, 0),
        ("logarithm_bits", "a logarithmic quantiser of 17 bits", 17, 0),
        ("logarithm_top", "a logarithmic quantiser whose greatest number is 2^16385", 3, 2**14 + 1),
        ("logarithm_bottom", "a logarithmic quantiser whose greatest number is 2^-16385", 3, -(2**14) - 1),
    ):
        code = "quantization.bits" if bits in (0, 17) else "quantization.top" if top else "program.quantizer"
        yield one(name, code, aim, put("inputs", 0, "quantizer", {"bits": bits, "top": top}))


def limits() -> Iterator[Refusal]:
    """Programs beyond a limit of the default profile."""

    def one(name: str, code: str, aim: str, change: Change) -> Refusal:
        return name, code, aim, changed(change)

    shape = ("inputs", 0, "value", "shape")
    yield one("rank", "limit.rank", "rank 9", put(*shape, [1] * 9))
    yield one("extent", "limit.extent", "extent 2^31", put(*shape, [2**31]))
    yield one(
        "extent_of_64_bits", "limit.extent", "extents whose product is 0 modulo 2^64", put(*shape, [2**32, 2**32])
    )
    yield one("elements", "limit.elements", "2^28 + 1 elements", put(*shape, [2**28 + 1]))
    yield one("elements_product", "limit.elements", "a product of 2^62 elements", put(*shape, [2**31 - 1, 2**31 - 1]))
    yield one(
        "constant_elements", "limit.elements", "a constant of 2^29 elements", put("constants", 0, "shape", [2**29])
    )
    yield one(
        "result_elements",
        "limit.elements",
        "a result of 2^29 elements",
        single([2**28], "repeat", {"axis": 0, "repeats": 2}, [2**29]),
    )
    pooling = {"pool_size": [4096, 4096], "padding": [2048, 2048], "strides": [1, 1], "ceil_mode": False}
    yield one(
        "gas",
        "limit.work",
        "more work than 2^40",
        single([1, 1, 8192, 8192], "max_pool2d", pooling, [1, 1, 8193, 8193]),
    )
    yield one("name", "limit.name", "a name of 1,025 bytes", put("nodes", 0, "outputs", 0, "name", "n" * 1025))
    yield one(
        "name_bytes", "limit.name", "bytes count, not letters", put("nodes", 0, "outputs", 0, "name", "\u00e9" * 513)
    )


REFUSALS: dict[str, Callable[[], Iterator[Refusal]]] = {"invalid": invalid, "limits": limits, "malformed": malformed}
"""For each file, its refused programs."""
