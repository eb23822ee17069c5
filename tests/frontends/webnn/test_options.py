"""Layouts, sizes, scales and names in all their forms, by models in fractions; and the life of a program."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvm
from cvm import webnn
from cvm.agreement import compare
from cvm.audit import Host, Recorder
from cvm.audit import verify as verify_receipt
from cvm.executors import EXECUTORS
from cvm.frontends.webnn.builder import snake_case
from cvm.frontends.webnn.declarations import OPERATORS
from cvm.program import verify
from cvm.session import Session
from tests.frontends.webnn.test_quantised import exact, laid_out, rounded

Array = np.ndarray
SEEDS = st.integers(0, 2**32)
FEW = settings(max_examples=15, deadline=None)


def quantised(
    build: Any, codes: list[Array], grids: list[tuple[float, int]], result: tuple[float, int], constants: int = 0
) -> Array:
    """An operator on int8 codes of some grids, quantised to int8; the last ``constants`` operands are constants."""
    context = webnn.ML().create_context(strict_scale_rank=False, executor="numpy")
    b = webnn.MLGraphBuilder(context)
    operands, feeds = [], {}
    for i, (array, (scale, zero)) in enumerate(zip(codes, grids, strict=True)):
        if i < len(codes) - constants:
            feeds[f"x{i}"] = array
        source = b.input(f"x{i}", ("int8", array.shape)) if f"x{i}" in feeds else b.constant(array)
        operands.append(b.dequantize_linear(source, b.constant(np.float32(scale)), b.constant(np.int8(zero))))
    q = b.quantize_linear(build(b, *operands), b.constant(np.float32(result[0])), b.constant(np.int8(result[1])))
    return context.compute(b.build({"q": q}), feeds)["q"]


def reals(codes: Array, grid: tuple[float, int]) -> Array:
    return (exact(codes) - grid[1]) * Fraction(float(np.float32(grid[0])))


# Windows


@FEW
@given(
    st.sampled_from(["average_pool2d", "max_pool2d"]), st.sampled_from(["nchw", "nhwc"]),
    st.sampled_from(["floor", "ceil", "given"]), st.tuples(*[st.integers(1, 3)] * 6), SEEDS,
)  # fmt: skip
def test_pooling_over_what_is_no_padding(op: str, layout: str, rounding: str, sizes: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    window, strides, gaps = sizes[:2], sizes[2:4], sizes[4:]
    pads = [int(random.integers(0, window[i // 2])) for i in range(4)]  # never a window of padding alone
    plane = [int(random.integers((window[i] - 1) * gaps[i] + 1, 9)) for i in range(2)]
    x = random.integers(-128, 128, (2, 3, *plane)).astype(np.int8)
    grid, result = (0.25, int(random.integers(-128, 128))), (0.4, int(random.integers(-128, 128)))
    extents = []
    for i in range(2):
        free = plane[i] + pads[2 * i] + pads[2 * i + 1] - (window[i] - 1) * gaps[i] - 1
        extents.append((free // strides[i] if rounding == "floor" else -(-free // strides[i])) + 1)
    values, y = reals(x, grid), np.empty((2, 3, *extents), dtype=object)
    for r, c in product(*map(range, extents)):
        rows = [r * strides[0] + k * gaps[0] - pads[0] for k in range(window[0])]
        columns = [c * strides[1] + k * gaps[1] - pads[2] for k in range(window[1])]
        rows, columns = ([i for i in places if 0 <= i < n] for places, n in zip((rows, columns), plane, strict=True))
        if not rows or not columns:  # a ceiling leaves a window without any item, which has no mean
            return
        cells = values[:, :, rows][:, :, :, columns]
        y[:, :, r, c] = cells.max((2, 3)) if op == "max_pool2d" else cells.sum((2, 3)) / (len(rows) * len(columns))
    options: dict[str, Any] = {"output_sizes": extents} if rounding == "given" else {"output_shape_rounding": rounding}
    options |= {"window_dimensions": window, "strides": strides, "dilations": gaps, "padding": pads, "layout": layout}
    found = quantised(
        lambda b, a: getattr(b, op)(a, **options), [np.ascontiguousarray(laid_out(x, "nchw", layout))], [grid], result
    )
    np.testing.assert_array_equal(laid_out(found, layout, "nchw"), rounded(y, *result, "int8"))


@FEW
@given(
    st.sampled_from(["nchw", "nhwc"]), st.sampled_from(["iohw", "hwoi", "ohwi"]), st.sampled_from([1, 2]),
    st.booleans(), SEEDS,
)  # fmt: skip
def test_transposed_convolutions_of_every_size(
    layout: str, order: str, groups: int, given_sizes: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    strides, gaps, kernel = ([int(n) for n in random.integers(1, 4, 2)] for _ in range(3))
    plane = [int(n) for n in random.integers(1, 4, 2)]
    extra = [int(random.integers(0, n)) for n in strides]
    least = [(plane[i] - 1) * strides[i] + (kernel[i] - 1) * gaps[i] + 1 for i in range(2)]
    pads = [int(random.integers(0, min(2, least[i // 2]))) for i in range(4)]
    sizes = [least[i] - pads[2 * i] - pads[2 * i + 1] + extra[i] for i in range(2)]
    if min(sizes) < 1:
        return
    x = random.integers(-128, 128, (1, 2 * groups, *plane)).astype(np.int8)
    w = random.integers(-128, 128, (2 * groups, 3, *kernel)).astype(np.int8)
    grids, result = [(0.125, -3), (0.03, 5)], (0.9, -7)
    a, f = (reals(codes, grid) for codes, grid in zip((x, w), grids, strict=True))
    y = np.full((1, 3 * groups, *sizes), Fraction(0), dtype=object)
    for i, o, r, c, p, q in product(range(2 * groups), range(3), *map(range, (*plane, *kernel))):
        row, column = r * strides[0] + p * gaps[0] - pads[0], c * strides[1] + q * gaps[1] - pads[2]
        if 0 <= row < sizes[0] and 0 <= column < sizes[1]:
            y[0, i // 2 * 3 + o, row, column] += a[0, i, r, c] * f[i, o, p, q]
    options: dict[str, Any] = {"output_sizes": sizes} if given_sizes else {"output_padding": extra}
    options |= {"padding": pads, "strides": strides, "dilations": gaps, "groups": groups}
    found = quantised(
        lambda b, *operands: b.conv_transpose2d(*operands, input_layout=layout, filter_layout=order, **options),
        [np.ascontiguousarray(laid_out(x, "nchw", layout)), np.ascontiguousarray(laid_out(w, "iohw", order))],
        grids, result, constants=1,
    )  # fmt: skip
    np.testing.assert_array_equal(laid_out(found, layout, "nchw"), rounded(y, *result, "int8"))


# Products


@FEW
@given(st.booleans(), st.booleans(), st.sampled_from([None, (), (1,), (4,), (3, 1), (1, 4), (3, 4)]),
       st.floats(-4, 4, width=32), st.floats(-4, 4, width=32), SEEDS)  # fmt: skip
def test_gemm(left: bool, right: bool, added: Any, alpha: float, beta: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = [(5, 3) if left else (3, 5), (4, 5) if right else (5, 4), *([] if added is None else [added])]
    codes = [np.asarray(random.integers(-128, 128, shape)).astype(np.int8) for shape in shapes]
    grids, result = [(0.02, 7), (0.05, -7), (0.5, 100)][: len(codes)], (0.3, 9)
    values = [reals(array, grid) for array, grid in zip(codes, grids, strict=True)]
    a, w = values[0].T if left else values[0], values[1].T if right else values[1]
    y = Fraction(alpha) * (a @ w) + (Fraction(beta) * values[2] if added is not None else 0)
    options = {"alpha": alpha, "beta": beta, "a_transpose": left, "b_transpose": right}
    found = quantised(lambda b, x, f, *c: b.gemm(x, f, c=c[0] if c else None, **options), codes, grids, result)
    np.testing.assert_array_equal(found, rounded(y, *result, "int8"))


@FEW
@given(st.sampled_from([((3, 5), (5, 2)), ((4, 3, 5), (5, 2)), ((2, 1, 3, 5), (4, 5, 2)), ((5,) * 2, (2, 3, 5, 1))]),
       st.booleans(), SEEDS)  # fmt: skip
def test_matmul_in_batches(shapes: Any, constant: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = [random.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    grids, result = [(0.02, int(random.integers(-128, 128))), (0.05, -7)], (0.3, 9)
    a, w = (reals(array, grid) for array, grid in zip(codes, grids, strict=True))
    found = quantised(lambda b, x, f: b.matmul(x, f), codes, grids, result, constants=int(constant))
    np.testing.assert_array_equal(found, rounded(np.matmul(a, w), *result, "int8"))


# Scales


@FEW
@given(st.sampled_from([(1, 1), (4, 1), (1, 6), (2, 3), (4, 6), (2, 1)]), st.booleans(), SEEDS)
def test_scales_per_axis_and_per_block_of_both_signs(blocks: tuple[int, int], quantise: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    scale = (random.choice([-1, 1], blocks) * random.uniform(0.1, 1, blocks)).astype(np.float32)
    zero = random.integers(-128, 128, blocks).astype(np.int8)
    context = webnn.ML().create_context(allow_negative_scale=True, executor="numpy")
    b = webnn.MLGraphBuilder(context)
    s, z = b.constant(scale), b.constant(zero)
    wide_scale, wide_zero = (
        np.repeat(np.repeat(items, 4 // blocks[0], 0), 6 // blocks[1], 1) for items in (scale, zero)
    )
    codes = random.integers(-128, 128, (4, 6)).astype(np.int8)
    one, none = b.constant(np.full((1, 1), 0.5, np.float32)), b.constant(np.zeros((1, 1), np.int8))
    x = b.input("x", ("int8", (4, 6)))
    if quantise:
        q = b.quantize_linear(b.relu(b.dequantize_linear(x, one, none)), s, z)
        values = np.maximum(exact(codes) * Fraction(1, 2), 0)
        steps = values / exact(wide_scale)
        wanted = [min(max(round(n) + int(o), -128), 127) for n, o in zip(steps.ravel(), wide_zero.ravel(), strict=True)]
    else:
        q = b.quantize_linear(b.relu(b.dequantize_linear(x, s, z)), one, none)
        values = np.maximum((exact(codes) - wide_zero.astype(int)) * exact(wide_scale), 0)
        wanted = [min(max(round(2 * n), -128), 127) for n in values.ravel()]
    found = context.compute(b.build({"q": q}), {"x": codes})["q"]
    assert found.ravel().tolist() == wanted


def test_scales_of_shape_1_count_from_the_last_axis() -> None:
    codes = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    context = webnn.ML().create_context(strict_scale_rank=False)
    b = webnn.MLGraphBuilder(context)
    scale, zero = b.constant(np.array([0.5], np.float32)), b.constant(np.array([3], np.int8))
    q = b.quantize_linear(b.neg(b.dequantize_linear(b.input("x", ("int8", codes.shape)), scale, zero)), scale, zero)
    found = context.compute(b.build({"q": q}), {"x": codes})["q"]
    np.testing.assert_array_equal(found, 6 - codes)


# Names


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_its_name_of_the_specification(name: str) -> None:
    b = webnn.MLGraphBuilder(webnn.ML().create_context())
    method = getattr(b, name)
    assert callable(method)
    if name != snake_case(name):
        assert getattr(type(b), snake_case(name)).__doc__
        with pytest.raises(TypeError):
            method(notAnOption=1)


# The program


def test_the_program_is_saved_run_checked_and_receipted(tmp_path: Path) -> None:
    context = webnn.ML().create_context()
    b = webnn.MLGraphBuilder(context)
    scale, zero = b.constant(np.full((1, 1), 0.05, np.float32)), b.constant(np.full((1, 1), -7, np.int8))
    x = b.dequantize_linear(b.input("x", ("int8", [2, 8])), scale, zero)
    y = b.dequantizeLinear(b.quantizeLinear(b.gelu(x), scale, zero), scale, zero)
    graph = b.build({"q": b.quantizeLinear(b.layerNormalization(y, axes=[1], label="norm"), scale, zero)})
    assert "layerNormalization [norm]" in graph.explain()
    graph.program.save(tmp_path / "g.cvm")
    program = cvm.load(tmp_path / "g.cvm")
    assert program.digest == graph.program.digest
    codes = np.random.default_rng(0).integers(-128, 128, (2, 8)).astype(np.int8)
    wanted = context.compute(graph, {"x": codes})["q"]
    (name,) = (item.value.name for item in program.inputs)
    feeds = {name: codes.astype(np.int32)}
    verified = verify(program)
    agreement = compare(verified.program, [EXECUTORS[e](verified, None) for e in ("numpy", "formal")], [[feeds]])
    assert agreement.difference is None
    assert agreement.tensors > 10
    recorder = Recorder(verified, True)
    result = Session(verified, "numpy").run(feeds, witness=recorder)
    (output,) = (item.name for item in program.outputs)
    np.testing.assert_array_equal(result[output], wanted)
    receipt = recorder.receipt(Host("numpy", "cvm test", "this machine"))
    assert verify_receipt(receipt, verified, feeds).answer == "REPRODUCED"
