"""Programs at the corners of planning: what lies where, who reads it last, and what it is when nobody computes it."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors.native import NativeExecutor
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES, compare
from tools.feeds import feeds
from tools.fuzz.native_agreement import prepared

pytestmark = pytest.mark.usefixtures("ways")


def program(builder: ProgramBuilder, *values: str) -> Program:
    return builder.build([Output(f"y{index}", name) for index, name in enumerate(values)])


def add(builder: ProgramBuilder, op: str, *inputs: str, **attributes: object) -> str:
    return builder.add(op, inputs, attributes)[0]


def weights(builder: ProgramBuilder, *shape: int) -> str:
    return builder.constant(np.arange(int(np.prod(shape))).reshape(shape) * 7 % 23 - 11)


def test_elements_behind_a_negative_stride_are_laid_out_by_a_table() -> None:
    b = ProgramBuilder()
    x = b.input("x", (3, 4), -100, 100)
    flipped = add(b, "slice", x, begin=(2, 3), end=(-4, -5), strides=(-1, -1))
    flat = add(b, "reshape", add(b, "transpose", flipped, axes=(1, 0)), target_shape=(12,))
    compare(program(b, add(b, "slice", flat, begin=(1,), end=(11,), strides=(1,)), flat))


def test_three_tensors_cut_in_three_ways_meet() -> None:
    b = ProgramBuilder()
    x, y = b.input("x", (3, 4), -100, 100), b.input("y", (4, 3), -100, 100)
    z, u = b.input("z", (2, 6), -100, 100), b.input("u", (12,), -100, 100)
    flat = [add(b, "reshape", add(b, "transpose", name, axes=(1, 0)), target_shape=(12,)) for name in (x, y, z)]
    total = add(b, "elemwise_add", add(b, "elemwise_sub", add(b, "elemwise_add", flat[0], flat[1]), flat[2]), u)
    compare(program(b, total))


def test_outputs_that_are_inputs_constants_and_states_and_several_names_of_one_value() -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 3), -9, 9)
    zero = b.constant(np.zeros((2, 3), np.int64))
    names = [b.state(f"s{k}", zero, -100, 100) for k in range(4)]
    total = add(b, "clip", add(b, "elemwise_add", x, names[0]), a_min=-100, a_max=100)
    for name, update in zip(names, (total, names[0], x, zero), strict=True):
        b.update(name, update)
    constant = b.constant(np.arange(5))
    made = program(b, x, x, names[0], names[1], constant, constant, total, zero, names[3])
    compare(made, feeds(made, 4) * 2)


def test_arrays_are_taken_from_the_mapping_that_they_belong_to() -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 3), -9, 9)
    state = b.state("s", b.constant(np.zeros((2, 3), np.int64)), -9, 9)
    b.update(state, x)
    verified = verify(program(b, state))
    native = NativeExecutor(verified, 1, MACHINES[-1])
    array = np.ones((2, 3), np.int32)
    assert native.run({"x": array}, {"s": array}).state["s"].tolist() == array.tolist()
    wrong = [
        ({"x": array, "s": array}, {}), ({}, {"x": array, "s": array}), ({"s": array}, {"x": array}),
        ({"x": array}, {}), ({"x": array, "y": array}, {"s": array}), ({"x": array[:1]}, {"s": array}),
        ({"x": array.astype(np.int64)}, {"s": array}), ({"x": array * 10}, {"s": array}),
        ({"x": array}, {"s": -10 * array}),
    ]  # fmt: skip
    for inputs, states in wrong:
        with pytest.raises(Invalid) as caught:
            native.run(inputs, states)
        with pytest.raises(Invalid) as known:
            NumpyExecutor(verified).run(inputs, states)
        assert (caught.value.code, str(caught.value)) == (known.value.code, str(known.value))
    strided = np.ones((3, 4), np.int32).T[::2, :]
    assert native.run({"x": strided}, {"s": strided}).state["s"].tolist() == array.tolist()
    fortran = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    fortran.flags.writeable = False
    assert native.run({"x": fortran}, {"s": array}).state["s"].tolist() == fortran.tolist()
    unaligned = np.frombuffer(b"." + array.tobytes(), np.int32, 6, 1).reshape(2, 3)
    assert native.run({"x": unaligned}, {"s": array}).state["s"].tolist() == array.tolist()


def test_a_program_of_no_nodes() -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 3), -9, 9)
    compare(program(b, x, b.constant([4])))


def test_concatenations_of_results_views_constants_and_each_other() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 6, 4, 4), -9, 9)
    sums = add(b, "conv2d", x, weights(b, 10, 6, 1, 1))
    pooled = add(b, "max_pool2d", x, pool_size=(1, 1), strides=(1, 1))
    view = add(b, "transpose", x, axes=(0, 1, 3, 2))
    ramp, flat = b.constant(np.arange(16).reshape(1, 1, 4, 4)), b.constant(np.full((1, 2, 4, 4), -300))
    inner = add(b, "concatenate", sums, pooled, sums, view, ramp, x, flat, axis=1)
    outer = add(b, "concatenate", inner, pooled, axis=1)
    channels = b.shape(outer)[1]
    after = add(b, "conv2d", outer, weights(b, 4, channels, 3, 3), padding=(1, 1))
    for outputs in ((after,), (inner, outer, after, sums, pooled, x)):
        compare(program(b, *outputs), threads=[2])


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_parts_of_a_concatenation_are_read_where_they_lie(axis: int) -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 8, 4, 4), -100, 100)
    one = add(b, "relu", add(b, "conv2d", x, weights(b, 8, 8, 1, 1)))
    two = add(b, "conv2d", one, weights(b, 8, 8, 3, 3), padding=(1, 1))
    both = add(b, "concatenate", one, two, axis=axis)
    three = add(b, "conv2d", two, weights(b, 5, 8, 1, 1))
    compare(program(b, both, three), threads=[2], captures=[frozenset()])


def test_padding_beyond_the_map_dilation_and_strides() -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 5, 1, 2), -9, 9)
    window = {"padding": (4, 9), "dilation": (2, 3), "stride": (2, 3)}
    whole = add(b, "conv2d", x, weights(b, 7, 5, 3, 3), **window)
    each = add(b, "conv2d", x, weights(b, 5, 1, 3, 3), **window, groups=5)
    wider = add(b, "conv2d", x, weights(b, 7, 5, 1, 1), padding=(1, 0))
    compare(program(b, whole, each, wider), threads=[2])


def test_convolutions_of_constants_and_of_all_kinds_of_views() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 6, 4, 4), -9, 9)
    row = add(b, "slice", x, begin=(0, 0, 0, 0), end=(1, 6, 1, 4))
    sources = [
        b.constant(np.arange(96).reshape(1, 6, 4, 4) - 40),
        add(b, "upsampling", x, scale=2),
        add(b, "slice", x, begin=(0, 5, 3, 3), end=(1, -7, -5, -5), strides=(1, -1, -1, -1)),
        add(b, "slice", x, begin=(0, 0, 3, 3), end=(1, 6, -5, -5), strides=(1, 1, -1, -1)),
        add(b, "tile", x, reps=(2, 1, 2, 1)),
        add(b, "tile", row, reps=(1, 1, 5, 1)),
        add(b, "repeat", row, axis=2, repeats=3),
        add(b, "transpose", x, axes=(0, 1, 3, 2)),
    ]
    kernel = weights(b, 5, 6, 3, 3)
    padded = ((0, 0), (1, 1), (0, 2))
    made = [
        add(b, "conv2d", source, kernel, padding=padding)
        for source in sources
        for padding in padded
        if b.shape(source)[2] + 2 * padding[0] >= 3
    ]
    compare(program(b, *made), machines=[MACHINES[0], MACHINES[-1]], threads=[2], captures=[frozenset()])


def test_groups_whose_weights_need_other_digits_share_a_kernel() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 8, 5, 5), 0, 255)
    values = np.zeros((8, 4, 1, 1), np.int64)
    values[:4], values[4:] = 100 * 256 + 10, 127
    for weights_ in (values, values[::-1]):
        b_ = add(b, "conv2d", x, b.constant(weights_), groups=2)
        compare(program(b, b_), threads=[1], captures=[frozenset()])


def test_lanes_behind_the_last_channel_divide_without_a_trap() -> None:
    b = ProgramBuilder()
    x, y = b.input("x", (1, 2, 3, 3), 50, 60), b.input("y", (1, 3, 3, 3), -1, 1)
    sums = add(b, "conv2d", x, b.constant(np.ones((3, 2, 1, 1), np.int64)))
    low = add(b, "broadcast_sub", add(b, "broadcast_sub", sums, b.constant([2**31 - 1])), b.constant([1]))
    compare(program(b, add(b, "broadcast_div", low, y)), captures=[frozenset()])


def test_products_of_views_and_of_computed_weights() -> None:
    b = ProgramBuilder()
    x = b.input("x", (4, 6, 5), -128, 127)
    transposed = add(b, "transpose", x, axes=(1, 2, 0))
    rows = add(b, "reshape", transposed, target_shape=(6, 20))
    back = add(b, "slice", rows, begin=(5, 19), end=(-7, -21), strides=(-1, -1))
    bias = b.constant(np.arange(7) * 100_000)
    made = [
        add(b, "dense", rows, weights(b, 7, 20), bias),
        add(b, "dense", add(b, "reshape", transposed, target_shape=(1, 120)), weights(b, 7, 120)),
        add(b, "dense", back, weights(b, 7, 20)),
        add(b, "dense", back, rows),
    ]
    compare(program(b, *made), threads=[2])


@pytest.mark.sweep
@pytest.mark.parametrize("interval", [(-5, 5), (0, 255), (-200, 55), (-30000, 30000), (0, 65535), (-(2**31) + 1, 9)])
def test_pools_of_every_format_and_order(interval: tuple[int, int]) -> None:
    b = ProgramBuilder()
    x = b.input("x", (2, 35, 7, 5), *interval)
    rounds = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 1), "ceil_mode": True}
    y = add(b, "max_pool2d", x, **rounds)
    z = add(b, "transpose", y, axes=(3, 2, 1, 0))
    compare(program(b, y, z, add(b, "max_pool2d", z, pool_size=(1, 1), strides=(1, 1))), threads=[2])


def test_rank_8_and_the_ends_of_shifts() -> None:
    b = ProgramBuilder()
    most = 2**31 - 1
    x = b.input("x", (1, 2, 1, 3, 1, 2, 2, 3), -most, most)
    made = [
        add(b, op, x, precision=precision, shift_bit=bits)
        for op in ("cvm_right_shift", "cvm_left_shift")
        for precision in (1, 32)
        for bits in (1, 31, 32)
    ]
    transposed = add(b, "transpose", x, axes=(7, 6, 5, 4, 3, 2, 1, 0))
    made += [transposed, add(b, "cvm_precision", transposed), add(b, "abs", transposed), add(b, "max", x, axes=(1, 3))]
    compare(program(b, *made), threads=[2])


def test_conditions_of_whole_rows() -> None:
    b = ProgramBuilder()
    c, x, y = b.input("c", (4,), -1, 1), b.input("x", (4, 1, 3), -9, 9), b.input("y", (4, 1, 3), -(2**30), 2**30)
    rows = add(b, "where", add(b, "negative", c), x, y)
    one, few = b.input("one", (1,), 0, 1), b.input("few", (1, 5), -9, 9)
    compare(program(b, rows, add(b, "where", one, few, few)))


def test_tables_and_slices_at_indices_beyond_both_ends() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 3, 4, 5), -4, 9)
    sums = add(b, "conv2d", x, weights(b, 6, 3, 1, 1))
    table = b.constant(np.arange(7) * 1000 - 3000)
    back = add(b, "slice", table, begin=(6,), end=(-8,), strides=(-1,))
    flat = add(b, "reshape", x, target_shape=(60,))
    made = [
        add(b, "cvm_lut", table, add(b, "conv2d", x, weights(b, 5, 3, 1, 1))),
        add(b, "cvm_lut", back, sums),
        add(b, "take", x, flat),
        add(b, "take", x, b.constant([[-1, 0], [2, 9]]), axis=2),
        add(b, "take", flat, sums, axis=0),
        add(b, "take", x, flat, axis=3),
        add(b, "take", x, b.constant([2, -5]), axis=1),
    ]
    compare(program(b, *made), threads=[2])


@pytest.mark.sweep
@pytest.mark.parametrize("corner", [100, 2**15, 2**31 - 1])
def test_boxes_of_any_size(corner: int) -> None:
    b = ProgramBuilder()
    x, count = b.input("x", (2, 19, 6), -corner, corner), b.input("count", (2,), -3, 25)
    made = [
        add(b, "non_max_suppression", x, count, iou_threshold=threshold, max_output_size=most, top_k=top,
            force_suppress=force)
        for force in (False, True)
        for most, top in ((-1, -1), (0, 5), (3, 0), (25, 25))
        for threshold in (1, 100, 2**31 - 1)
    ]  # fmt: skip
    made += b.add("get_valid_count", [x], {"score_threshold": 0})
    few = [MACHINES[0], MACHINES[-1]]
    compare(program(b, *made), feeds(program(b, *made), 6), few, threads=[1], captures=[frozenset()])


@pytest.mark.sweep
@pytest.mark.parametrize("channels", [3, 64, 70])
def test_bounds_of_codes_may_lie_far_outside_their_interval(channels: int) -> None:
    for bits, shift in ((26, 32), (7, 13)):
        b = ProgramBuilder()
        x = b.input("x", (1, 4, 3, 3), -9, 9)
        sums = add(b, "conv2d", x, weights(b, channels, 4, 1, 1))
        m, c, s = b.parameter(np.full((1, channels, 1, 1), 2**bits)), b.parameter([0]), b.parameter([shift])
        codes = add(b, "requantize", sums, m, c, s, lo=-(2**31) + 1, hi=2**31 - 1, rounding="half_up")
        compare(program(b, codes), threads=[1], captures=[frozenset()])


@pytest.mark.parametrize("level", [0, pytest.param(2, marks=pytest.mark.long)])
def test_more_values_than_a_foreign_function_has_arguments(level: int) -> None:
    b = ProgramBuilder()
    x = b.input("x", (3,), -9, 9)
    made = program(b, *(add(b, "broadcast_add", x, b.constant([k])) for k in range(1100)))
    with prepared(level):
        compare(made, feeds(made, 2), machines=MACHINES[-1:], threads=[2], captures=["all"])


def test_every_node_is_explained_in_one_line() -> None:
    b = ProgramBuilder()
    x = b.input("x", (1, 8, 9, 9), 0, 255)
    sums = add(b, "conv2d", x, b.constant(np.ones((8, 8, 3, 3), np.int64)))
    m, c, s = b.parameter(np.full((1, 8, 1, 1), 2**30)), b.parameter([0]), b.parameter([40])
    codes = add(b, "requantize", sums, m, c, s, lo=0, hi=255, rounding="half_up")
    shape = add(b, "reshape", add(b, "max_pool2d", codes, pool_size=(7, 7), strides=(1, 1)), target_shape=(1, 8))
    made = program(b, add(b, "sum", shape, axes=(1,)))
    for machine in MACHINES:
        lines = NativeExecutor(verify(made), 1, machine).explain()
        assert len(lines) == len(made.nodes) == 5
        convolution, requantize, pool, reshape, total = lines
        assert convolution == f"conv2d = conv2d: computed inside the kernel of {codes}"
        assert f"{machine.name} 8-bit {'tiles' if machine.tiles else 'dot products'}" in requantize
        assert "sums + requantize" in requantize
        assert "maxima of windows" in pool
        assert "another view of its input" in reshape
        assert "sum, modulo 2^32" in total
