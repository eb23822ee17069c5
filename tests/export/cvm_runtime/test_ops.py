"""Single ops, and their extremes, leave for the library: both of its backends compute what they mean here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Unsupported
from cvm.export.cvm_runtime import Files, saved
from cvm.frontends import cvm_runtime
from cvm.program import Output, Program, ProgramBuilder
from cvm.session import Session
from tests.frontends.cvm_runtime.library import opened

INT32 = 2**31 - 1


def program_of(
    op: str, attributes: dict[str, Any], shape: Sequence[int], lo: int, hi: int, *others: Any, first: bool = True
) -> Program:
    """A program of one op on its input, and constants; ``first`` says where the input stands."""
    builder = ProgramBuilder()
    x = builder.input("x", shape, lo, hi)
    constants = [builder.constant(np.asarray(item)) for item in others]
    results = builder.add(op, [x, *constants] if first else [*constants, x], attributes, name="y")
    return builder.build([Output(f"out{index}", name) for index, name in enumerate(results)])


def extremes(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Inputs at the ends of the interval, around zero and around powers of two, and at random."""
    value = program.inputs[0].value
    points = [value.lo, value.lo + 1, -1, 0, 1, value.hi - 1, value.hi]
    points += [sign * 2**k + d for sign in (-1, 1) for k in range(31) for d in (-1, 0, 1)]
    points = [point for point in points if value.lo <= point <= value.hi]
    rng = np.random.default_rng(seed)
    uniform = rng.integers(value.lo, value.hi + 1, size=value.shape)
    return [uniform, rng.choice(points, size=value.shape), *(np.full(value.shape, end) for end in (value.lo, value.hi))]


def require_equal(program: Program, inputs: Sequence[np.ndarray] | None = None) -> Files:
    """Both backends, and the program read back, give what the program gives."""
    files = saved(program)
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    back = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    here, there = Session(program, "numpy"), Session(back.program, "numpy")
    name = program.inputs[0].value.name
    for codes in extremes(program) if inputs is None else inputs:
        result = here.run({name: codes})
        expected = back.model.interface.encode([result[item.name] for item in program.outputs])
        data = np.asarray(codes).astype(f"<i{model.input_size}").tobytes()
        assert model.run(data, "formal") == expected
        assert model.run(data, "cpu") == expected
        again = there.run({"data": codes})
        for item in program.outputs:
            assert np.array_equal(again[item.name], result[item.name])
    return files


def require_shifts(op: str, bits: int, shifts: Sequence[int], precisions: Sequence[int]) -> None:
    bound = 2 ** (bits - 1) - 1
    for shift, precision in product(shifts, precisions):
        attributes = {"precision": precision, "shift_bit": shift}
        program = program_of(op, attributes, (3, 5), -bound, bound)
        if op == "cvm_right_shift" or bits + shift <= 32 or precision < 32:
            require_equal(program)
            continue
        with pytest.raises(Unsupported) as caught:
            saved(program)
        assert caught.value.code == "cvm_runtime.export.unprovable"


@pytest.mark.parametrize("op", ["cvm_right_shift", "cvm_left_shift"])
@pytest.mark.parametrize("bits", [1, 8, 24, 31, 32])
def test_shifts_at_every_edge(op: str, bits: int) -> None:
    require_shifts(op, bits, (1, 8, 30, 31, 32), (1, 8, 31, 32))


@pytest.mark.long
@pytest.mark.parametrize("op", ["cvm_right_shift", "cvm_left_shift"])
@pytest.mark.parametrize("bits", range(1, 33))
def test_shifts_of_all_widths(op: str, bits: int) -> None:
    require_shifts(op, bits, range(1, 33), (1, 2, 8, 16, 30, 31, 32))


BOUNDS = [(-1, -1), (-INT32, -INT32), (INT32, INT32)]
BOUNDS += [(a, b) for a in (-INT32, -INT32 + 1, -128, 0, 5) for b in (0, 5, 127, INT32 - 1, INT32) if a <= b]


@pytest.mark.parametrize(("a_min", "a_max"), BOUNDS)
def test_clips_at_every_kind_of_bound(a_min: int, a_max: int) -> None:
    require_equal(program_of("clip", {"a_min": a_min, "a_max": a_max}, (4, 6), -INT32, INT32))


@pytest.mark.parametrize("op", ["broadcast_add", "broadcast_sub", "elemwise_add", "elemwise_sub"])
@pytest.mark.parametrize(
    ("lo", "hi", "low", "high"),
    [
        (-100, 100, -100, 100),
        (-(2**30) + 1, 2**30 - 1, -(2**30) + 1, 2**30 - 1),
        (-(2**30) + 5, 2**30 - 5, -(2**30), 2**30),
        (0, INT32, -(2**30) + 1, -1),
        (-INT32 + 9, INT32 - 9, -5, 5),
        (2**30, INT32 - 3, -INT32 + 8, -(2**30)),
        (-INT32 + 3, 0, 0, 0),
    ],
)
def test_sums_up_to_the_end_of_int32(op: str, lo: int, hi: int, low: int, high: int) -> None:
    rng = np.random.default_rng(1)
    other = rng.integers(low, high + 1, size=(3, 4))
    other.flat[:2] = low, high
    other = -other if op.endswith("sub") else other
    require_equal(program_of(op, {}, (3, 4), lo, hi, other))


@pytest.mark.parametrize(
    ("bits", "factor"),
    [
        (8, 7),
        (23, 510),
        (24, -255),
        (16, 2**15),
        (20, 2047),
        (10, 2**21 + 1),
        (9, -(2**22)),
        (31, 2),
        (30, -3),
        (32, 1),
    ],
)
def test_products_up_to_the_end_of_int32(bits: int, factor: int) -> None:
    bound = min(2 ** (bits - 1) - 1, INT32 // abs(factor))
    require_equal(program_of("broadcast_mul", {}, (2, 3), -bound, bound, [factor]))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("shape", [(2, 5, 1, 3), (1, 1), (4, 1, 3), (7,), (2, 3, 4)])
def test_reductions_over_all_sets_of_axes(op: str, shape: tuple[int, ...]) -> None:
    for chosen, keepdims, exclude in product(range(2 ** len(shape)), (False, True), (False, True)):
        axes = tuple(axis for axis in range(len(shape)) if chosen >> axis & 1)
        attributes = {"axes": axes, "keepdims": keepdims, "exclude": exclude}
        require_equal(program_of(op, attributes, shape, -(2**20), -3))


@pytest.mark.parametrize("terms", [3, 64, 100, 1000])
def test_sums_of_many_wide_terms(terms: int) -> None:
    bound = INT32 // terms // 2
    require_equal(program_of("sum", {"axes": ()}, (2, terms // 2), -bound, bound))


OPERANDS = [
    (lo, hi, weights)
    for lo, hi in ((0, 255), (-128, 127), (-127, 127), (-200, 3), (0, 65535), (-(2**20), 2**20))
    for weights in (127, 128, 143, 255, 300, 32768)
    if max(-lo, hi) * weights * 18 <= 2**30  # the sum is an int32, with room for the digits
]


@pytest.mark.sweep
@pytest.mark.parametrize(("lo", "hi", "weights"), OPERANDS)
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_and_dense_layers_of_wide_operands(lo: int, hi: int, weights: int, bias: bool) -> None:
    rng = np.random.default_rng(weights)
    w = rng.integers(-weights, weights + 1, size=(4, 2, 3, 3))
    w.flat[0] = -weights
    others = [w, rng.integers(-5000, 5000, size=4)] if bias else [w]
    attributes = {"padding": (1, 0), "stride": (2, 1), "dilation": (1, 1), "groups": 1}
    require_equal(program_of("conv2d", attributes, (1, 2, 5, 4), lo, hi, *others))
    require_equal(program_of("conv2d", {**attributes, "groups": 2}, (1, 4, 5, 4), lo, hi, *others))
    others[0] = w.reshape(4, 18)
    require_equal(program_of("dense", {}, (3, 18), lo, hi, *others))


def test_layers_whose_weights_are_computed() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (3, 4), -500, 500)
    (y,) = builder.add("dense", [x, x], name="y")
    require_equal(builder.build([Output("y", y)]))


@pytest.mark.parametrize(
    ("a", "b", "condition"),
    [((-5, 5), (-INT32, INT32), 32), ((0, 1), (-1, 1), 32), ((0, 0), (0, 0), 8), ((-100, 100), (0, 0), 1)],
)
@pytest.mark.parametrize("rows", [False, True])
def test_selections(a: tuple[int, int], b: tuple[int, int], condition: int, rows: bool) -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.integers(lo, hi + 1, size=(4, 2, 3)) for lo, hi in (a, b))
    bound = 2 ** (condition - 1) - 1
    program = program_of("where", {}, (4,) if rows else (4, 2, 3), -bound, bound, first, second)
    require_equal(program)
    shape = program.inputs[0].value.shape
    require_equal(program, [rng.integers(0, 2, size=shape) * min(1, bound)])


@pytest.mark.parametrize(("lo", "hi"), [(0, 0), (-1, 1), (-INT32, INT32)])
def test_comparisons(lo: int, hi: int) -> None:
    require_equal(program_of("broadcast_greater", {}, (3, 3), lo, hi, [[-1, 0, 1]]))
    require_equal(program_of("broadcast_greater", {}, (3, 3), lo, hi, [[INT32], [-INT32], [2]], first=False))


SIMPLE: list[tuple[str, dict[str, Any], tuple[int, ...], list[Any]]] = [
    ("abs", {}, (2, 3), []),
    ("negative", {}, (2, 3), []),
    ("relu", {}, (2, 3), []),
    ("cvm_precision", {}, (9,), []),
    ("cvm_clip", {"precision": 5}, (4,), []),
    ("cvm_clip", {"precision": 32}, (4,), []),
    ("broadcast_div", {}, (2, 4), [[-7, 0, 1, 2]]),
    ("broadcast_max", {}, (2, 1, 2), [[[3], [-3]]]),
    ("flatten", {}, (2, 3, 2), []),
    ("reshape", {"target_shape": (3, 4)}, (2, 3, 2), []),
    ("expand_dims", {"axis": 1, "num_newaxis": 0}, (2, 3), []),
    ("expand_dims", {"axis": -1}, (2, 3), []),
    ("squeeze", {"axes": ()}, (1, 3, 1), []),
    ("squeeze", {"axes": (0,)}, (1, 3, 1), []),
    ("transpose", {"axes": (2, 0, 1)}, (2, 3, 2), []),
    ("transpose", {}, (2, 3, 2), []),
    ("slice", {"begin": (-1,), "end": (-9,), "strides": (-2,)}, (5, 2), []),
    ("slice", {"begin": (), "end": (), "strides": ()}, (5, 2), []),
    ("slice", {"end": (2, 1)}, (5, 2), []),
    ("slice_like", {}, (4, 5), [np.zeros((2, 3), int)]),
    ("slice_like", {"axes": (-1,)}, (4, 5), [np.zeros((2, 3), int)]),
    ("take", {}, (4, 3), [[0, 11, -4, 99]]),
    ("take", {"axis": -1}, (4, 3), [[[2, 0]]]),
    ("cvm_lut", {}, (4, 3), [[0, 11, -4, 99]]),
    ("repeat", {"axis": 1, "repeats": 3}, (2, 2), []),
    ("tile", {"reps": (2, 1, 3)}, (2, 2), []),
    ("concatenate", {"axis": -1}, (2, 2), [[[1], [2]]]),
    ("upsampling", {"scale": 2}, (1, 2, 2, 3), []),
    ("max_pool2d", {"pool_size": (3, 2), "strides": (2, 2), "padding": (1, 0), "ceil_mode": True}, (1, 2, 5, 5), []),
    ("get_valid_count", {"score_threshold": 3}, (2, 5, 4), []),
]


@pytest.mark.parametrize(("op", "attributes", "shape", "others"), SIMPLE, ids=[case[0] for case in SIMPLE])
@pytest.mark.parametrize("bound", [9, INT32])
def test_ops_that_both_worlds_have(
    op: str, attributes: dict[str, Any], shape: Any, others: list[Any], bound: int
) -> None:
    program = program_of(op, attributes, shape, -bound, bound, *others)
    if op == "get_valid_count":
        outputs = [program.outputs[1]]
        program = Program(program.inputs, tuple(outputs), program.constants, (), program.nodes)
    require_equal(program)


def boxes(rng: np.random.Generator, batches: int, rows: int) -> np.ndarray:
    """Rows of few ids, negative ones among them, equal scores, and boxes that overlap."""
    corner = rng.integers(0, 6, size=(batches, rows, 2))
    extent = rng.integers(-1, 7, size=(batches, rows, 2))
    ids, scores = rng.integers(-2, 3, size=(batches, rows, 1)), rng.integers(0, 9, size=(batches, rows, 1))
    return np.concatenate([ids, scores, corner, corner + extent], axis=2)


@pytest.mark.sweep
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("top_k", [-1, 0, 2, 4, 50])
@pytest.mark.parametrize("size", [-1, 0, 2])
@pytest.mark.parametrize("force", [False, True])
def test_suppression_of_any_rows(batches: int, top_k: int, size: int, force: bool) -> None:
    attributes = {"iou_threshold": 40, "max_output_size": size, "force_suppress": force, "top_k": top_k}
    rng = np.random.default_rng(7)
    for counts in ([5] * batches, [0, 6, 3][:batches], [9, -2, 1][:batches]):
        program = program_of("non_max_suppression", attributes, (batches, 6, 6), -100, 100, counts)
        require_equal(program, [boxes(rng, batches, 6) for _ in range(4)])


def test_the_count_of_a_suppression_may_be_computed() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (2, 5, 6), -50, 50)
    count, rows = builder.add("get_valid_count", [x], {"score_threshold": 2}, name="valid")
    options = {"iou_threshold": 40, "max_output_size": -1, "force_suppress": False, "top_k": 3}
    (kept,) = builder.add("non_max_suppression", [rows, count], options, name="kept")
    rng = np.random.default_rng(3)
    require_equal(builder.build([Output("kept", kept)]), [boxes(rng, 2, 5) for _ in range(5)])


def _two_inputs(builder: ProgramBuilder) -> list[Output]:
    names = [builder.input(name, (2,), 0, 1) for name in "ab"]
    (y,) = builder.add("broadcast_add", names)
    return [Output("y", y)]


def _other_rows(builder: ProgramBuilder) -> list[Output]:
    x = builder.input("x", (2, 3), 0, 1)
    (y,) = builder.add("transpose", [x])
    return [Output("x", x), Output("y", y)]


def _many_dimensions(builder: ProgramBuilder) -> list[Output]:
    x = builder.input("x", (1,) * 6, 0, 1)
    (y,) = builder.add("expand_dims", [x], {"axis": 0})
    return [Output("y", y)]


def _long(builder: ProgramBuilder) -> list[Output]:
    return [Output("x", builder.input("x", (2**24 + 1,), 0, 1))]


def _wide_boxes(builder: ProgramBuilder) -> list[Output]:
    x = builder.input("x", (1, 2, 6), -(2**28), 2**28)
    options = {"iou_threshold": 40, "max_output_size": -1, "force_suppress": False, "top_k": 3}
    (y,) = builder.add("non_max_suppression", [x, builder.constant(np.array([2]))], options)
    return [Output("y", y)]


def _long_rows(builder: ProgramBuilder) -> list[Output]:
    x = builder.input("x", (1, 2, 32), -9, 9)
    _, y = builder.add("get_valid_count", [x], {"score_threshold": 1})
    return [Output("y", y)]


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (_two_inputs, "inputs"),
        (_other_rows, "outputs"),
        (_many_dimensions, "shape"),
        (_long, "shape"),
        (_wide_boxes, "suppression"),
        (_long_rows, "op"),
    ],
)
def test_what_the_library_cannot_say_is_refused_with_the_reason(build: Callable[..., Any], code: str) -> None:
    builder = ProgramBuilder()
    program = builder.build(build(builder))
    with pytest.raises(CvmError) as caught:
        saved(program)
    assert (type(caught.value), caught.value.code) == (Unsupported, f"cvm_runtime.export.{code}")


def test_outputs_that_are_inputs_constants_or_each_other_have_nodes_of_their_own() -> None:
    builder = ProgramBuilder()
    x = builder.input("data", (2, 3), -9, 9)
    constant = builder.constant(np.arange(6).reshape(2, 3), "weight")
    (y,) = builder.add("negative", [x], name="negated")
    outputs = [Output("a", x), Output("b", constant), Output("c", y), Output("d", y), Output("e", x)]
    files = require_equal(builder.build(outputs))
    back = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    assert [item.name for item in back.program.outputs] == list("abcde")


@pytest.mark.parametrize("values", [[[1, 1]], [[2, 2], [2, 2]], [[[7]], [[7]]]])
def test_ops_on_constants_count_elements_that_are_equal(values: Any) -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1,), -9, 9)
    constant = builder.constant(np.array(values))
    (total,) = builder.add("sum", [constant])
    (largest,) = builder.add("max", [constant], {"axes": (0,)})
    (flat,) = builder.add("flatten", [largest])
    (longer,) = builder.add("concatenate", [flat, flat, total], {"axis": 0})
    (counted,) = builder.add("sum", [longer])
    (y,) = builder.add("broadcast_add", [counted, x], name="y")
    require_equal(builder.build([Output("y", y)]))


def test_an_output_keeps_its_name_where_other_values_have_it() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (2,), -9, 9)
    (y,) = builder.add("broadcast_mul", [x, builder.constant(np.array([3, 4]), "weight")], name="out")
    (z,) = builder.add("negative", [y], name="negated")
    files = require_equal(builder.build([Output("out", z), Output("weight", y)]))
    back = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    assert [item.name for item in back.program.outputs] == ["out", "weight"]


def test_names_of_the_greatest_length_stay_readable() -> None:
    builder = ProgramBuilder()
    x = builder.input("é" * 512, (2,), 0, 255)
    constant = builder.constant(np.array([1, 2]), "w" * 1024)
    (y,) = builder.add("broadcast_mul", [x, constant], name="y" * 1024)
    (z,) = builder.add("cvm_left_shift", [y], {"precision": 32, "shift_bit": 3}, "z" * 1024)
    require_equal(builder.build([Output("o" * 1024, z)]))


def test_an_input_of_any_name_is_called_data_and_other_values_make_way() -> None:
    builder = ProgramBuilder()
    x = builder.input("photo", (2,), 0, 255)
    (y,) = builder.add("broadcast_add", [x, builder.constant(np.array([1, 2]), "data")], name="sum")
    back = cvm_runtime.loads(*list(require_equal(builder.build([Output("y", y)])).content.values())[:2])
    assert [item.name for item in back.model.graph.variables] == ["data", "data_1"]
