"""Every error code of cvm/program has a case here that raises it; a code without a case fails."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgpack
import numpy as np
import pytest

import cvm.program
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.limits import DEFAULT, LARGE
from cvm.program import (
    Constant,
    Input,
    Node,
    Output,
    Program,
    ProgramBuilder,
    State,
    Value,
    decode,
    encode,
    load,
    verify,
    wire,
)
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer
from tests.program.examples import SHAPE, example, with_constant, with_node

EXAMPLE = example()
BYTES = EXAMPLE.to_bytes()
ENTRIES = 15
"""Of the example: 1 input, 2 constants, 1 state, 3 nodes, 1 output, 3 scales, 3 offsets, 1 record."""
CASES = {}


def case(code: str, cls: type[CvmError], *words: str):
    """Register a function that must raise ``cls`` with ``code`` and a text that holds ``words``."""

    def enter(function):
        CASES.setdefault(code, []).append(pytest.param(function, cls, code, words, id=f"{code}: {function.__name__}"))
        return function

    return enter


def value(index: int, **changes) -> Program:
    """The example with the output of one node changed."""
    node = EXAMPLE.nodes[index]
    return with_node(EXAMPLE, index, replace(node, outputs=(replace(node.outputs[0], **changes),)))


def first_input(**changes) -> Program:
    """The example with its input's value changed, and without a quantiser."""
    changed = replace(EXAMPLE.inputs[0].value, **changes)
    return replace(EXAMPLE, inputs=(Input(changed),))


def node(op: str, inputs: list[str], attributes: dict | None = None, shape=SHAPE, lo=-1000, hi=1000) -> Program:
    """The example with one node more, called "extra"."""
    extra = Node(op, tuple(inputs), (Value("extra", shape, lo, hi),), attributes or {})
    return replace(EXAMPLE, nodes=(*EXAMPLE.nodes, extra))


def bias(**changes) -> Program:
    """The example with its first constant changed."""
    return with_constant(EXAMPLE, 0, replace(EXAMPLE.constants[0], **changes))


def quantizer(count: int = 1, axis: int | None = None, lo: int = -128, hi: int = 127, **others) -> LinearQuantizer:
    return LinearQuantizer((Fraction(1),) * count, (Fraction(0),) * count, lo, hi, axis, **others)


def output(quantizer: LinearQuantizer | LogarithmicQuantizer) -> Program:
    return replace(EXAMPLE, outputs=(Output("y", "sum", quantizer),))


def edited(one: bytes, other: bytes) -> Program:
    """The example's file with its first ``one`` replaced, decoded."""
    assert one in BYTES
    return decode(BYTES.replace(one, other, 1))


# The verifier


@case("program.op_set", Invalid, "found 2")
def another_op_set():
    verify(replace(EXAMPLE, op_set=2))


@case("program.limits", Invalid, "huge", "default, large")
def unknown_profile():
    verify(replace(EXAMPLE, limits="huge"))


@case("program.name", Invalid, "empty")
def empty_name():
    verify(value(2, name=""))


@case("program.name", Invalid, "U+000A")
def unprintable_name():
    verify(value(1, name="a\nb"))


@case("program.name", Invalid, "U+202E")
def name_that_turns_the_writing_direction():
    verify(first_input(name="a\u202eb"))


@case("program.name", Invalid, "U+D800", "output")
def half_a_surrogate_pair():
    verify(replace(EXAMPLE, outputs=(Output("\ud800", "sum"),)))


@case("limit.name", LimitExceeded, "1025")
def long_name():
    verify(value(0, name="é" * 512 + "x"))


@case("program.duplicate", Invalid, "'shifted'")
def name_written_twice():
    verify(value(1, name="shifted"))


@case("program.duplicate", Invalid, "'x'")
def constant_named_as_an_input():
    verify(bias(name="x"))


@case("program.duplicate", Invalid, "'sum'")
def two_inputs_of_one_name_in_a_builder():
    builder = cvm.program.ProgramBuilder()
    builder.input("sum", (1,), 0, 1)
    builder.input("sum", (1,), 0, 1)


@case("program.duplicate", Invalid, "'shifted'")
def duplicate_names_have_no_numbers():
    encode(value(1, name="shifted"))


@case("program.undefined", Invalid, "'missing'", "elemwise_add", "'shifted'")
def read_of_nothing():
    verify(with_node(EXAMPLE, 0, replace(EXAMPLE.nodes[0], inputs=("x", "missing"))))


@case("program.undefined", Invalid, "'sum'", "before")
def read_before_it_is_written():
    verify(with_node(EXAMPLE, 0, replace(EXAMPLE.nodes[0], inputs=("x", "sum"))))


@case("program.undefined", Invalid, "'shifted'")
def read_of_itself():
    verify(with_node(EXAMPLE, 0, replace(EXAMPLE.nodes[0], inputs=("x", "shifted"))))


@case("program.undefined", Invalid, "'missing'", "'y'")
def output_of_nothing():
    verify(replace(EXAMPLE, outputs=(Output("y", "missing"),)))


@case("program.undefined", Invalid, "'x'", "'memory'")
def state_that_begins_as_an_input():
    verify(replace(EXAMPLE, state=(replace(EXAMPLE.state[0], initial="x"),)))


@case("program.undefined", Invalid, "'missing'")
def state_updated_with_nothing():
    verify(replace(EXAMPLE, state=(replace(EXAMPLE.state[0], update="missing"),)))


@case("program.undefined", Invalid, "'missing'")
def reference_to_nothing_has_no_number():
    encode(replace(EXAMPLE, outputs=(Output("y", "missing"),)))


@case("program.undefined", Invalid, "value 7")
def number_of_no_value():
    edited(b"inputs\x91\x05", b"inputs\x91\x07")


@case("program.undefined", Invalid, "value -1")
def negative_number():
    edited(b"inputs\x91\x05", b"inputs\x91\xff")


@case("program.shape", Invalid, "[]", "'x'")
def rank_zero():
    verify(first_input(shape=()))


@case("program.shape", Invalid, "[1, 0, 3]")
def extent_zero():
    verify(first_input(shape=(1, 0, 3)))


@case("program.shape", Invalid, "[0, 2]", "'empty'")
def constant_without_elements():
    Constant.of("empty", np.zeros((0, 2), np.int32))


@case("program.shape", Invalid, "'bias'")
def negative_extents_of_a_constant():
    verify(bias(shape=(-2, -3)))


@case("limit.rank", LimitExceeded, "9", "'x'")
def rank_nine():
    verify(first_input(shape=(1,) * 9))


@case("limit.extent", LimitExceeded, "'x'")
def extent_of_two_to_the_31():
    verify(first_input(shape=(2**31,)))


@case("limit.elements", LimitExceeded, "'bias'")
def more_elements_than_any_machine_word():
    verify(bias(shape=(65_536,) * 4))


@case("limit.elements", LimitExceeded, "'extra'", "tile")
def an_op_that_would_make_a_huge_tensor():
    verify(node("tile", ["x"], {"reps": (4096, 4096, 4096)}))


@case("limit.entries", LimitExceeded, "constants")
def too_many_entries():
    verify(EXAMPLE, replace(DEFAULT, entries=ENTRIES - 1))


@case("limit.entries", LimitExceeded, "constants")
def too_many_entries_of_a_file():
    decode(EXAMPLE.to_bytes(), replace(DEFAULT, entries=ENTRIES - 1))


@case("limit.entries", LimitExceeded, "nodes")
def too_many_operands_of_a_file():
    builder = ProgramBuilder()
    (name,) = builder.add("concatenate", [builder.input("x", (1,), 0, 1)] * 64, {"axis": 0})
    data = builder.build([Output("y", name)]).to_bytes()
    assert verify(decode(data, replace(DEFAULT, entries=7)), replace(DEFAULT, entries=7)).gas  # 3 parts, 64 / 16
    decode(data, replace(DEFAULT, entries=6))


def test_as_many_entries_as_the_limit_admits() -> None:
    assert verify(decode(BYTES, replace(DEFAULT, entries=ENTRIES)), replace(DEFAULT, entries=ENTRIES)).gas


@case("limit.nodes", LimitExceeded, "number of inputs")
def too_many_inputs_of_what_is_built():
    builder = ProgramBuilder(replace(DEFAULT, nodes=1))
    for name in ("a", "b"):
        builder.input(name, (1,), 0, 1)


@case("limit.items", LimitExceeded, "items of one array")
def too_many_items_of_a_list():
    decode(EXAMPLE.to_bytes(), replace(DEFAULT, nodes=1))


@case("limit.constants", LimitExceeded, "'nothing'", "48")
def too_many_bytes_of_constants():
    verify(EXAMPLE, replace(DEFAULT, constants=47))


@case("limit.work", LimitExceeded, "gas", "'sum'")
def too_much_gas():
    verify(EXAMPLE, replace(DEFAULT, work=verify(EXAMPLE).gas - 1))


@case("program.bounds", Invalid, "[1, 0]", "'x'")
def empty_interval():
    verify(first_input(lo=1, hi=0))


@case("program.bounds", Invalid, "-2147483648")
def interval_with_the_value_that_is_never_legal():
    verify(first_input(lo=-(2**31), hi=0))


@case("program.bounds", Invalid, "2147483648", "'shifted'", "elemwise_add")
def declared_interval_beyond_int32():
    verify(value(0, hi=2**31))


@case("program.constant.kind", Invalid, "'bias'", "'weight'")
def constant_of_a_third_kind():
    verify(bias(kind="weight"))


@case("program.constant.length", Invalid, "'bias'", "6", "5")
def constant_with_too_little_data():
    verify(bias(data=EXAMPLE.constants[0].data[:-1]))


@case("program.constant.width", Invalid, "found 3")
def constant_of_width_three():
    verify(bias(width=3, data=bytes(18)))


@case("program.constant.width", Invalid, "take 1 bytes", "with 2")
def constant_wider_than_its_values():
    verify(bias(width=2, data=np.arange(6, dtype="<i2").tobytes()))


@case("program.constant.value", Invalid, "2^31 - 1", "-2147483648", "'bias'")
def constant_with_the_value_that_is_never_legal():
    verify(with_constant(EXAMPLE, 0, Constant.of("bias", np.array([-(2**31)] * 6).reshape(SHAPE))))


@case("program.constant.value", Invalid, "2147483648")
def tensor_constant_beyond_int32():
    verify(with_constant(EXAMPLE, 0, Constant.of("bias", np.array([2**31] * 6).reshape(SHAPE))))


@case("program.constant.value", Invalid, "18446744073709551615", "'big'")
def constant_beyond_64_bits():
    Constant.of("big", np.array([2**64 - 1], np.uint64))


@case("program.constant.value", Invalid, "2^63 - 1")
def parameter_with_the_least_int64():
    verify(with_constant(EXAMPLE, 0, Constant.of("bias", np.array([-(2**63)] * 6).reshape(SHAPE), "parameter")))


class Bound(int):
    """An integer that is not plainly one: equal once parsed, but another type than what is hashed and stored."""


@case("program.attributes", Invalid, "clip", "'sum'", "a_min")
def attribute_of_another_type():
    attributes = {"a_min": Bound(-100), "a_max": 100}
    verify(with_node(EXAMPLE, 2, replace(EXAMPLE.nodes[2], attributes=attributes)))


@case("program.attributes", Invalid, "sum", "'extra'", "keepdims")
def default_left_out():
    verify(node("sum", ["x"], {"axes": (0,)}, (2, 3)))


@case("program.attributes", Invalid, "sum", "'extra'", "axes")
def list_in_place_of_a_tuple():
    verify(node("sum", ["x"], {"axes": [0], "keepdims": False, "exclude": False}, (2, 3)))


@case("ops.clip.attribute.a_min", Invalid, "clip")
def attribute_of_a_wrong_type():
    verify(with_node(EXAMPLE, 2, replace(EXAMPLE.nodes[2], attributes={"a_min": True, "a_max": 100})))


@case("ops.clip.attribute.other", Invalid, "'sum'")
def attribute_that_does_not_exist():
    attributes = {"a_min": -100, "a_max": 100, "other": 1}
    verify(with_node(EXAMPLE, 2, replace(EXAMPLE.nodes[2], attributes=attributes)))


@case("ops.unknown", Invalid, "'no_op'", "'extra'")
def unknown_op():
    verify(node("no_op", ["x"]))


@case("ops.abs.arity", Invalid, "abs")
def too_many_inputs():
    verify(node("abs", ["x", "x"]))


@case("ops.elemwise_add.C1", Invalid, "elemwise_add")
def shapes_that_do_not_fit():
    program = with_constant(EXAMPLE, 0, replace(EXAMPLE.constants[0], shape=(3, 2, 1)))
    verify(program)


@case("program.kind", Invalid, "expected a tensor", "parameter 'bias'")
def parameter_where_a_tensor_is_expected():
    verify(bias(kind="parameter"))


@case("program.kind", Invalid, "parameter 'bias'")
def parameter_as_an_output():
    program = replace(bias(kind="parameter"), nodes=(), state=())
    verify(replace(program, outputs=(Output("y", "bias"),)))


@case("program.kind", Invalid, "parameter 'nothing'", "'memory'")
def parameter_as_a_state():
    verify(with_constant(EXAMPLE, 1, replace(EXAMPLE.constants[1], kind="parameter")))


@case("program.output_count", Invalid, "1 outputs", "found 2")
def node_with_an_output_too_many():
    changed = replace(EXAMPLE.nodes[0], outputs=(*EXAMPLE.nodes[0].outputs, Value("more", SHAPE, 0, 0)))
    verify(with_node(EXAMPLE, 0, changed))


@case("program.output_count", Invalid, "found 0")
def node_without_outputs():
    verify(with_node(EXAMPLE, 0, replace(EXAMPLE.nodes[0], outputs=())))


@case("program.output_shape", Invalid, "[1, 2, 3]", "[1, 3, 2]", "'raw'", "elemwise_add")
def declared_shape_that_is_not_the_inferred_one():
    verify(value(1, shape=(1, 3, 2)))


@case("program.range", Invalid, "'extra'", "elemwise_add", "[-2147483650, 2147483649]")
def sum_that_may_leave_int32():
    wide = first_input(lo=-(2**31) + 1, hi=2**31 - 1)
    extra = Node("elemwise_add", ("x", "bias"), (Value("extra", SHAPE, 0, 0),))
    verify(replace(wide, nodes=(extra,), state=(), outputs=(Output("y", "extra"),)))


@case("program.interval", Invalid, "'shifted'", "[-3, 17]", "[-3, 16]")
def declared_interval_that_is_not_proven():
    verify(value(0, hi=16))


@case("program.interval", Invalid, "'sum'", "[-100, 100]", "[-99, 100]", "clip")
def declared_interval_too_high():
    verify(value(2, lo=-99))


@case("program.state", Invalid, "initial", "'memory'", "[1, 2, 3]", "[1, 3, 2]")
def state_of_another_shape_than_its_initial_value():
    verify(replace(EXAMPLE, state=(replace(EXAMPLE.state[0], value=Value("memory", (1, 3, 2), -100, 100)),)))


@case("program.state", Invalid, "'bias'", "[-3, 2]", "[-2, 2]")
def initial_value_outside_the_interval():
    verify(replace(EXAMPLE, state=(State(Value("memory", SHAPE, -2, 2), "bias", "sum"),)))


@case("program.state", Invalid, "'raw'", "[-103, 117]", "[-100, 100]")
def update_outside_the_interval():
    verify(replace(EXAMPLE, state=(replace(EXAMPLE.state[0], update="raw"),)))


@case("program.outputs", Invalid, "at least one")
def no_outputs():
    verify(replace(EXAMPLE, outputs=()))


@case("program.outputs", Invalid, "two outputs", "'y'")
def outputs_of_one_name():
    verify(replace(EXAMPLE, outputs=(Output("y", "sum"), Output("y", "raw"))))


@case("program.quantizer", Invalid, "[0, 15]", "[0, 14]", "'x'")
def codes_that_are_not_the_interval():
    verify(replace(EXAMPLE, inputs=(replace(EXAMPLE.inputs[0], value=Value("x", SHAPE, 0, 14)),)))


@case("program.quantizer", Invalid, "'sum'", "[-100, 100]", "[-99, 127]")
def output_beyond_its_codes():
    verify(output(quantizer(lo=-99)))


@case("program.quantizer", Invalid, "axis 3")
def axis_that_does_not_exist():
    verify(output(quantizer(2, axis=3)))


@case("program.quantizer", Invalid, "axis -1")
def axis_that_counts_from_the_end():
    verify(output(quantizer(3, axis=-1)))


@case("program.quantizer", Invalid, "2 scales for 3 indices of axis 2")
def scales_that_do_not_fit_the_axis():
    verify(output(quantizer(2, axis=2)))


@case("program.quantizer", Invalid, "'sum'", "[-100, 100]", "[-8, 8]")
def output_beyond_the_logarithmic_codes():
    verify(output(LogarithmicQuantizer(0, 3)))


@case("quantization.bits", Invalid, "1..16", "17")
def logarithm_of_17_bits():
    LogarithmicQuantizer(0, 17)


@case("quantization.top", Invalid, "16385")
def logarithm_of_a_power_beyond_all():
    LogarithmicQuantizer(2**14 + 1, 3)


@case("program.quantizer", Invalid, "'stochastic'")
def rounding_that_has_no_digest():
    _ = output(quantizer(rounding="stochastic")).digest


@case("program.quantizer", Invalid, "'stochastic'")
def rounding_that_does_not_exist():
    verify(output(quantizer(rounding="stochastic")))


# The codec


@case("limit.program_bytes", LimitExceeded)
def file_beyond_the_limit():
    decode(BYTES, replace(DEFAULT, program_bytes=10))


@case("limit.items", LimitExceeded, "items of one array")
def list_beyond_the_limit():
    decode(BYTES, replace(DEFAULT, nodes=2))


@case("program.format", Malformed)
def another_format():
    decode(b"\x93\xa4onnx\x01\x80")


@case("program.version", Malformed, "found 2")
def another_version():
    edited(b"program\x01", b"program\x02")


@case("program.truncated", Malformed, "too early")
def half_a_file():
    decode(BYTES[:400])


@case("program.trailing", Malformed, "1 bytes")
def a_byte_more():
    decode(BYTES + b"\0")


@case("program.type", Malformed, "integer", "nil, float, extension")
def nil():
    edited(b"op_set\x01", b"op_set\xc0")


@case("program.type", Malformed, "nil, float, extension")
def a_float():
    edited(b"\xa2hi\x0f", b"\xa2hi\xcb" + bytes(8))


@case("program.type", Malformed, "expected an attribute", "map")
def attribute_that_is_a_map():
    edited(b"a_max\x64", b"a_max\x80")


@case("program.type", Invalid, "1.5")
def float_in_a_program():
    encode(value(0, lo=1.5))


@case("program.key", Malformed, "'nodez'")
def unknown_key():
    edited(b"nodes", b"nodez")


@case("program.key", Malformed, "'state' is missing")
def missing_key():
    at = BYTES.rindex(b"\xa5state")
    decode(BYTES[:14] + b"\x87" + BYTES[15:at])


@case("program.key", Malformed, "repeated")
def repeated_key():
    edited(b"a_min", b"a_max")


@case("program.key", Malformed, "out of order")
def keys_out_of_order():
    edited(b"\xa5a_max\x64\xa5a_min\xd0\x9c", b"\xa5a_min\xd0\x9c\xa5a_max\x64")


@case("program.value", Malformed, "parameter, tensor", "'tensoR'")
def unknown_kind():
    edited(b"tensor", b"tensoR")


@case("program.value", Malformed, "'half_eve_'")
def unknown_rounding():
    edited(b"half_even", b"half_eve_")


@case("program.value", Malformed, "two ends")
def interval_of_three():
    edited(b"accumulator\x92", b"accumulator\x93\x00")


@case("program.text", Malformed, "UTF-8")
def string_that_is_not_utf8():
    edited(b"elemwise_add", b"elemwise_a\xff\xff")


@case("program.text", Malformed, "UTF-8")
def half_a_surrogate_pair_in_a_file():
    edited(b"elemwise_add", b"elemwise_\xed\xa0\x80")


@case("program.text", Invalid)
def half_a_surrogate_pair_in_a_program():
    encode(replace(EXAMPLE, limits="\ud800"))


@case("program.text", Invalid)
def half_a_surrogate_pair_in_a_digest():
    _ = replace(EXAMPLE, limits="\ud800").digest


@case("program.rational", Malformed, "lowest terms")
def rational_that_is_not_reduced():
    edited(b"\xa41/10", b"\xa42/10")


@case("limit.rational", LimitExceeded, "640")
def rational_of_641_digits():
    encode(output(replace(quantizer(), scale=(Fraction(10**640),))))


@case("limit.rational", LimitExceeded, "640")
def rational_of_a_million_digits():
    encode(output(replace(quantizer(), scale=(Fraction(1, 1 << 4_000_000),))))


@case("program.canonical", Malformed)
def integer_in_a_longer_form():
    edited(b"op_set\x01", b"op_set\xcc\x01")


@case("program.integer", Invalid)
def interval_beyond_64_bits():
    encode(value(0, hi=2**64))


@case("program.integer", Invalid)
def interval_beyond_64_bits_in_a_digest():
    _ = value(0, hi=2**63).digest


@case("quantization.scale", Invalid)
def scale_of_zero():
    edited(b"\xa41/10", b"\xa30/1")


# The cases that need a file or a patch have a test of their own; here only their names.

APART = {"program.file", "program.digest", "limit.item"}


def test_what_is_not_a_regular_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises((Malformed, IsADirectoryError)) as caught:
            load(path)
        if isinstance(caught.value, Malformed):
            assert caught.value.code == "program.file"


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.cvm"
    path.write_bytes(BYTES)
    real = os.fstat

    def smaller(descriptor):
        found = list(real(descriptor))
        found[6] -= 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", smaller)
    with pytest.raises(Malformed) as caught:
        load(path)
    assert caught.value.code == "program.file"


def test_an_item_that_msgpack_cannot_hold_is_a_limit(monkeypatch):
    class Refusing(msgpack.Packer):
        def pack(self, item):
            raise ValueError("unicode string is too large")

    monkeypatch.setattr(msgpack, "Packer", Refusing)
    with pytest.raises(LimitExceeded) as caught:
        encode(EXAMPLE)
    assert caught.value.code == "limit.item"


def test_a_binary_whose_length_has_no_form_is_a_limit(monkeypatch):
    assert wire.pack(bytes(2**16 - 1), "program")[:3] == b"\xc5\xff\xff"
    monkeypatch.setattr(wire, "_BINARY", wire._BINARY[:2])
    with pytest.raises(LimitExceeded) as caught:
        wire.pack(bytes(2**16), "program")
    assert caught.value.code == "limit.item"


@pytest.mark.parametrize(
    ("function", "cls", "code", "words"), [entry for entries in CASES.values() for entry in entries]
)
def test_the_code(function, cls, code, words):
    with pytest.raises(cls) as caught:
        function()
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value), str(caught.value)


def codes_in_source() -> set[str]:
    """The error codes that the source of cvm/program mentions."""
    found = set()
    for path in Path(cvm.program.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Constant) and re.fullmatch(r"(program|limit)\.[a-z_.]+", str(call.value)):
                found.add(call.value)
            if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                if name == "malformed":
                    found.add(f"program.{call.args[0].value}")
                if name == "require":
                    found.add(f"limit.{call.args[0].value}")
    return found


def test_every_code_has_a_case():
    found = codes_in_source()
    assert len(found) > 30
    assert found <= CASES.keys() | APART


def test_every_case_is_a_code():
    inherited = ("ops.", "quantization.", "limit.rank", "limit.extent", "limit.elements")
    assert {code for code in CASES if not code.startswith(inherited)} <= codes_in_source()


def test_the_example_is_valid_under_every_profile():
    for limits in (None, DEFAULT, LARGE):
        verify(EXAMPLE, limits)
