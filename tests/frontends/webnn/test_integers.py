"""Operators on integers: equal to arithmetic in the data type, on all pairs of 8-bit integers and on random tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cvm import Session, webnn

Build = Callable[[webnn.MLGraphBuilder, Any], webnn.MLOperand]


def compute(
    build: Callable[..., webnn.MLOperand],
    *arrays: np.ndarray,
    ranges: Any = None,
    executors: str = "numpy formal",
    **options: Any,
) -> np.ndarray:
    """The only output, on which all executors agree."""
    found = []
    for executor in executors.split():
        context = webnn.ML().create_context(executor=executor, **options)
        builder = webnn.MLGraphBuilder(context)
        operands = [
            builder.input(f"x{i}", (str(array.dtype), array.shape), value_range=ranges)
            for i, array in enumerate(arrays)
        ]
        graph = builder.build({"y": build(builder, *operands)})
        found.append(context.compute(graph, {f"x{i}": array for i, array in enumerate(arrays)})["y"])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    return found[0]


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    quotient = np.abs(wide_a) // np.where(wide_b == 0, 1, np.abs(wide_b)) * np.sign(wide_a) * np.sign(wide_b)
    return np.where(wide_b == 0, 0, quotient).astype(a.dtype)


def powers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(x: int, y: int) -> int:
        if y >= 0:
            return pow(x, y, 256)
        return x ** (y % 2) % 256 if abs(x) == 1 else 0

    flat = [one(int(x), int(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    return np.array(flat, np.uint8).view(a.dtype).reshape(a.shape)


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": truncated, "max": np.maximum, "min": np.minimum,
    "pow": powers, "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_or_equal": np.greater_equal, "lesser": np.less, "lesser_or_equal": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("data_type", ["int8", "uint8"])
@pytest.mark.parametrize("name", BINARY)
def test_all_pairs_of_8_bit_integers(name: str, data_type: str) -> None:
    info = np.iinfo(data_type)
    values = np.arange(info.min, info.max + 1).astype(data_type)
    a, b = (np.ascontiguousarray(item) for item in np.meshgrid(values, values))
    with np.errstate(over="ignore"):
        expected = BINARY[name](a, b)
    found = compute(lambda g, x, y: getattr(g, name)(x, y), a, b, executors="numpy")
    assert found.dtype == (expected.dtype if expected.dtype != bool else np.uint8)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min", "greater", "prelu"])
def test_32_bit_integers_broadcast(name: str) -> None:
    random = np.random.default_rng(3)
    a = random.integers(-30_000, 30_000, (2, 1, 3), dtype=np.int32)
    b = random.integers(-30_000, 30_000, (4, 1), dtype=np.int32)
    reference = {**BINARY, "prelu": lambda x, y: np.where(x < 0, x * y, x)}[name]
    found = compute(lambda g, x, y: getattr(g, name)(x, y), a, b, ranges=(-30_000, 30_000))
    expected = reference(*np.broadcast_arrays(a, b))
    assert found.shape == (2, 4, 3)
    np.testing.assert_array_equal(found, expected)


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("data_type", ["int8", "int32", "int64"])
def test_operators_of_one_operand(name: str, data_type: str) -> None:
    values = np.arange(-128, 128).astype(data_type)
    values = values if data_type == "int8" else np.concatenate([values, [2**31 - 1, -(2**31) + 1]]).astype(data_type)
    with np.errstate(over="ignore"):
        expected = UNARY[name](values)
    found = compute(lambda g, x: getattr(g, name)(x), values)
    assert found.dtype == np.dtype(data_type)
    np.testing.assert_array_equal(found, expected)


X = np.random.default_rng(5).integers(-128, 128, (2, 3, 4), dtype=np.int8)
INDICES = np.array([[2, -1], [0, 1]], np.int32)


def constant(values: Any) -> Callable[[webnn.MLGraphBuilder], webnn.MLOperand]:
    return lambda g: g.constant(np.array(values, np.int32))


MOVES: dict[str, tuple[Build, Callable[[np.ndarray], np.ndarray]]] = {
    "reshape": (lambda g, x: g.reshape(x, [6, 4]), lambda x: x.reshape(6, 4)),
    "to scalar and back": (
        lambda g, x: g.expand(g.reshape(g.slice(x, [1, 1, 1], [1, 1, 1]), []), [2]), lambda x: x[1, 1, 1].repeat(2),
    ),
    "transpose": (lambda g, x: g.transpose(x), lambda x: x.transpose()),
    "permuted": (lambda g, x: g.transpose(x, permutation=[1, 2, 0]), lambda x: x.transpose(1, 2, 0)),
    "expand": (lambda g, x: g.expand(g.reshape(x, [2, 1, 12]), [5, 2, 3, 12]),
               lambda x: np.broadcast_to(x.reshape(2, 1, 12), (5, 2, 3, 12))),
    "tile": (lambda g, x: g.tile(x, [2, 1, 3]), lambda x: np.tile(x, (2, 1, 3))),
    "slice": (lambda g, x: g.slice(x, [0, 1, 1], [2, 2, 3], strides=[1, 1, 2]), lambda x: x[:, 1:3, 1:4:2]),
    "reverse": (lambda g, x: g.reverse(x), lambda x: x[::-1, ::-1, ::-1]),
    "reverse one": (lambda g, x: g.reverse(x, axes=[1]), lambda x: x[:, ::-1]),
    "concat": (lambda g, x: g.concat([x, x], 2), lambda x: np.concatenate([x, x], 2)),
    "split": (lambda g, x: g.split(x, [1, 3], axis=2)[1], lambda x: x[:, :, 1:]),
    "split evenly": (lambda g, x: g.split(x, 3, axis=1)[2], lambda x: x[:, 2:]),
    "pad": (lambda g, x: g.pad(x, [0, 1, 2], [1, 0, 0], value=7),
            lambda x: np.pad(x, ((0, 1), (1, 0), (2, 0)), constant_values=7)),
    "pad edge": (lambda g, x: g.pad(x, [0, 2, 0], [0, 3, 1], mode="edge"),
                 lambda x: np.pad(x, ((0, 0), (2, 3), (0, 1)), mode="edge")),
    "pad reflection": (lambda g, x: g.pad(x, [0, 2, 0], [1, 1, 3], mode="reflection"),
                       lambda x: np.pad(x, ((0, 1), (2, 1), (0, 3)), mode="reflect")),
    "upper triangle": (lambda g, x: g.triangular(x), np.triu),
    "lower triangle": (lambda g, x: g.triangular(x, upper=False, diagonal=1), lambda x: np.tril(x, 1)),
    "gather": (lambda g, x: g.gather(x, constant(INDICES)(g), axis=1), lambda x: np.take(x, INDICES, 1)),
    "gather one": (lambda g, x: g.gather(x, constant(1)(g)), lambda x: x[1]),
    "gatherElements": (
        lambda g, x: g.gather_elements(x, constant(np.full((2, 1, 4), -1))(g), axis=1), lambda x: x[:, -1:],
    ),
    "gatherND": (lambda g, x: g.gather_nd(x, constant([[1, 2], [0, -3]])(g)), lambda x: x[[1, 0], [2, 0]]),
    "scatterND": (
        lambda g, x: g.scatter_nd(x, constant([[1], [1]])(g), g.reverse(x, axes=[0])),
        lambda x: np.stack([x[0], x[0]]),
    ),
    "scatterElements": (
        lambda g, x: g.scatter_elements(
            x, constant(np.full((2, 3, 1), 3))(g), g.slice(x, [0, 0, 0], [2, 3, 1]), axis=2),
        lambda x: np.concatenate([x[:, :, :3], x[:, :, :1]], 2),
    ),
    "where": (
        lambda g, x: g.where(g.greater(x, g.constant("int8", 0)), x, g.constant("int8", -5)),
        lambda x: np.where(x > 0, x, -5),
    ),
    "clamp": (lambda g, x: g.clamp(x, min_value=-3.5, max_value=300), lambda x: np.maximum(x, -4)),
    "clamp above": (lambda g, x: g.clamp(x, max_value=9), lambda x: np.minimum(x, 9)),
    "cast": (lambda g, x: g.cast(x, "uint8"), lambda x: x.view(np.uint8)),
    "cast down": (lambda g, x: g.cast(g.mul(g.cast(x, "int32"), g.constant("int32", 77)), "int8"),
                  lambda x: (x.astype(np.int32) * 77).astype(np.int8)),
    "reduceMax": (lambda g, x: g.reduce_max(x, axes=[0, 2]), lambda x: x.max((0, 2))),
    "reduceMin": (lambda g, x: g.reduce_min(x, keep_dimensions=True), lambda x: x.min(keepdims=True)),
    "reduceSum": (lambda g, x: g.reduce_sum(g.cast(x, "int32"), axes=[1]), lambda x: x.sum(1, dtype=np.int32)),
    "reduceSum of all": (lambda g, x: g.reduce_sum(g.cast(x, "int64")), lambda x: x.sum(dtype=np.int64)),
    "reduceL1": (lambda g, x: g.reduce_l1(g.cast(x, "int32"), axes=[2]), lambda x: np.abs(x.astype(np.int32)).sum(2)),
    "reduceSumSquare": (
        lambda g, x: g.reduce_sum_square(g.cast(x, "int32"), axes=[0]), lambda x: (x.astype(np.int32) ** 2).sum(0),
    ),
    "reduceProduct": (
        lambda g, x: g.reduce_product(g.cast(x, "int32"), axes=[1]), lambda x: x.prod(1, dtype=np.int32),
    ),
    "argMax": (lambda g, x: g.arg_max(x, 2), lambda x: x.argmax(2)),
    "argMin": (lambda g, x: g.arg_min(x, 1, keep_dimensions=True, output_data_type="int64"),
               lambda x: x.argmin(1, keepdims=True)),
    "cumulativeSum": (lambda g, x: g.cumulative_sum(g.cast(x, "int32"), 1), lambda x: x.cumsum(1)),
    "cumulativeSum backwards": (
        lambda g, x: g.cumulative_sum(g.cast(x, "int32"), 2, exclusive=True, reversed=True),
        lambda x: x[..., ::-1].cumsum(2)[..., ::-1] - x,
    ),
    "logic": (
        lambda g, x: g.logical_xor(
            g.logical_not(g.cast(x, "uint8")), g.logical_and(g.cast(x, "uint8"), g.constant("uint8", 2))),
        lambda x: (x == 0) ^ (x != 0),
    ),
    "nearest neighbour": (
        lambda g, x: g.resample2d(g.reshape(x, [1, 1, 6, 4]), sizes=[4, 6]),
        lambda x: x.reshape(1, 1, 6, 4)[:, :, [0, 2, 3, 5]][:, :, :, [0, 0, 1, 2, 2, 3]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_equal_to_numpy(name: str) -> None:
    build, reference = MOVES[name]
    found, expected = compute(build, X), np.asarray(reference(X))
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_equal_items_give_the_first_index() -> None:
    ties = np.array([[3, 3, 1], [0, 2, 2]], np.int8)
    assert compute(lambda g, x: g.arg_max(x, 1), ties).tolist() == [0, 1]
    assert compute(lambda g, x: g.arg_min(x, 0), ties).tolist() == [1, 1, 0]


def test_computed_indices_count_from_the_end_and_are_clamped() -> None:
    indices = np.array([-99, -4, -1, 0, 3, 99], np.int32)
    found = compute(lambda g, x, i: g.gather(x, i, axis=2), X, indices, ranges=None)
    np.testing.assert_array_equal(found, np.take(X, [0, 0, 3, 0, 3, 3], 2))


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_padding_never_wins_a_maximum(rounding: str, layout: str) -> None:
    x = np.random.default_rng(2).integers(-128, 0, (1, 2, 6, 7), dtype=np.int8)
    options = {"window_dimensions": [3, 2], "padding": [1, 1, 1, 0], "strides": [2, 3], "layout": layout}
    given = x if layout == "nchw" else x.transpose(0, 2, 3, 1)
    found = compute(
        lambda g, a: g.max_pool2d(a, **options, output_shape_rounding=rounding), np.ascontiguousarray(given)
    )
    found = found if layout == "nchw" else found.transpose(0, 3, 1, 2)
    rows, columns = (3, 3) if rounding == "floor" else (4, 3)
    assert found.shape == (1, 2, rows, columns)
    for r in range(rows):
        for c in range(columns):
            window = x[:, :, max(2 * r - 1, 0) : 2 * r + 2, max(3 * c - 1, 0) : 3 * c + 1]
            np.testing.assert_array_equal(found[:, :, r, c], window.max((2, 3)))


def test_sums_that_are_not_proven_to_fit_are_refused_by_name() -> None:
    def graph(**options: Any) -> None:
        builder = webnn.MLGraphBuilder(webnn.ML().create_context(**options.pop("context", {})))
        x = builder.input("x", (options.pop("data_type", "int32"), [4]), **options)
        builder.build({"y": builder.add(x, x, label="twice")})

    with pytest.raises(webnn.NotSupportedError, match=r"\[twice\] add: operand 'twice_1' \(int32\).*value_range"):
        graph()
    graph(value_range=(1 - 2**30, 2**30 - 1))
    graph(data_type="int8")
    with pytest.raises(webnn.NotSupportedError, match="not proven to fit"):
        graph(data_type="int8", context={"integer_overflow": "error"})
    with pytest.raises(webnn.NotSupportedError, match="the range of the machine"):
        graph(value_range=(-(2**31), 0))


def test_a_broken_promise_is_an_error_at_the_run() -> None:
    context = webnn.ML().create_context()
    builder = webnn.MLGraphBuilder(context)
    graph = builder.build({"y": builder.neg(builder.input("x", ("int32", [2]), value_range=(0, 5)))})
    assert context.compute(graph, {"x": np.array([0, 5], np.int32)})["y"].tolist() == [0, -5]
    for wrong in (6, -1):
        with pytest.raises(ValueError, match=r"\[0, 5\]"):
            context.compute(graph, {"x": np.array([0, wrong], np.int32)})
    with pytest.raises(webnn.MLTypeError):
        context.compute(graph, {"x": np.array([0, 1], np.int64)})
    with pytest.raises(webnn.MLTypeError):
        context.compute(graph, {"x": np.array([0], np.int32)})
    with pytest.raises(webnn.MLTypeError):
        context.compute(graph, {"z": np.array([0, 1], np.int32)})


def test_the_program_is_an_ordinary_one(tmp_path: Any) -> None:
    import cvm

    context = webnn.ML().create_context()
    builder = webnn.MLGraphBuilder(context)
    x = builder.input("x", ("int8", [2, 3]))
    graph = builder.build({"sum": builder.reduce_sum(builder.cast(x, "int32"), axes=[1]), "x": builder.abs(x)})
    graph.program.save(tmp_path / "p.cvm")
    program = cvm.load(tmp_path / "p.cvm")
    assert program.digest == graph.program.digest
    values = np.array([[1, 2, 3], [-128, 5, 6]], np.int8)
    result = Session(program, executor="formal").run({"x": values})
    names = [output.name for output in program.outputs]
    np.testing.assert_array_equal(result[names[0]], [6, -117])
    assert context.compute(graph, {"x": values})["x"].tolist() == [[1, 2, 3], [-128, 5, 6]]


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.min(x, b.constant(np.full(2, -(2**31), np.int32))),
        lambda b, x: b.clamp(x, max_value=-(2**31)),
    ],
)
def test_the_integer_that_the_machine_has_not_is_no_constant(build: Build) -> None:
    builder = webnn.MLGraphBuilder(webnn.ML().create_context())
    with pytest.raises(webnn.NotSupportedError, match=r"beyond|exclude all integers of the machine"):
        builder.build({"y": build(builder, builder.input("x", ("int32", [2])))})
