"""Products of matrices that are both computed: rows of results in vectors, with all lengths of tails."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.program import Output, ProgramBuilder
from tests.executors.native.comparison import compare

pytestmark = pytest.mark.usefixtures("ways")


@pytest.mark.sweep
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("columns", [1, 2, 7, 33, 131])
def test_products_of_computed_matrices(columns: int, transposed: tuple[bool, bool]) -> None:
    """Batches of which B has all, some or one; codes of 8 and of 16 bits, and a product that a maximum follows."""
    random = np.random.default_rng(columns)
    for of_a, of_b, bound in (((), (), 127), ((4,), (2,), 127), ((2, 3), (1, 3), 3000)):
        a = (*of_a, 5, 3) if transposed[0] else (*of_a, 3, 5)
        b = (*of_b, columns, 5) if transposed[1] else (*of_b, 5, columns)
        builder = ProgramBuilder()
        x, w = builder.input("x", a, -bound, bound), builder.input("w", b, -bound - 1, bound)
        (y,) = builder.add("matmul", [x, w], {"transpose_a": transposed[0], "transpose_b": transposed[1]})
        (largest,) = builder.add("max", [y], {"axes": (-1,)})
        program = builder.build([Output("y", y), Output("largest", largest)])
        feeds = [
            {"x": random.integers(-bound, bound, a, np.int32, True), "w": random.integers(-bound, bound, b, np.int32)}
            for _ in range(2)
        ]
        compare(program, feeds)


LAYOUTS = ("rows", "columns", "moved", "shared")
ENDS = (((0, 255), (-128, 127)), ((-128, 127), (0, 127)), ((-99, 156), (-5, 9)), ((0, 255), (0, 255)),
        ((-(2**15), 2**15 - 1), (-1, 1)))  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 16, 70])
def test_packed_products_of_all_lengths(depth: int) -> None:
    """Bytes with and without signs and 16 bits, at the ends of their intervals, in every layout that is packed."""
    random = np.random.default_rng(depth)
    builder, outputs = ProgramBuilder(), []
    least, most, drawn = {}, {}, {}
    for rows, columns, (of_a, of_b) in zip((2, 3, 9, 40, 2), (131, 17, 50, 5, 16), ENDS, strict=True):
        for layout in LAYOUTS:
            batches = (4, 2) if layout == "shared" else (3, 3)
            a = (batches[0], rows, depth)
            ordered = {"columns": (batches[1], columns, depth), "moved": (columns, batches[1], depth)}
            b = ordered.get(layout, (batches[1], depth, columns))
            names = [builder.input(f"{one}{len(outputs)}", shape, *ends)
                     for one, shape, ends in (("x", a, of_a), ("w", b, of_b))]  # fmt: skip
            for name, shape, (lo, hi) in zip(names, (a, b), (of_a, of_b), strict=True):
                least[name], most[name] = np.full(shape, lo, np.int32), np.full(shape, hi, np.int32)
                drawn[name] = random.integers(lo, hi, shape, np.int32, True)
            if layout == "moved":
                (names[1],) = builder.add("transpose", [names[1]], {"axes": (1, 0, 2)})
            (y,) = builder.add("matmul", names, {"transpose_b": layout in ("columns", "moved")})
            outputs.append(Output(f"y{len(outputs)}", y))
    compare(builder.build(outputs), [least, most, drawn])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_one_row_of_all_lengths(layout: str) -> None:
    """What decode steps compute: depths and columns that fill vectors of 16, 8 and 4 lanes, and that fill none."""
    random = np.random.default_rng(7)
    builder, outputs, feed = ProgramBuilder(), [], {}
    for depth, columns in ((64, 48), (32, 24), (16, 100), (67, 64), (64, 9), (1, 16)):
        for of_a, of_b in (((-121, 134), (-127, 127)), ((0, 255), (0, 100)), ((-5, 250), (-100, 27))):
            batches = (4, 2) if layout == "shared" else (3, 3)
            b = (batches[1], depth, columns) if layout in ("rows", "shared") else (batches[1], columns, depth)
            names = [f"x{len(outputs)}", f"w{len(outputs)}"]
            for name, shape, (lo, hi) in zip(names, ((batches[0], 1, depth), b), (of_a, of_b), strict=True):
                builder.input(name, shape, lo, hi)
                feed[name] = random.choice([lo, hi, *random.integers(lo, hi, 5)], shape).astype(np.int32)
            (w,) = builder.add("negative", builder.add("negative", [names[1]]))
            if layout == "moved":
                (w,) = builder.add("transpose", [w], {"axes": (0, 2, 1)})
            (y,) = builder.add("matmul", [names[0], w], {"transpose_b": layout == "columns"})
            outputs.append(Output(f"y{len(outputs)}", y))
    compare(builder.build(outputs), [feed])


def test_both_operands_may_be_one_tensor() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (2, 6, 6), -99, 99)
    (y,) = builder.add("matmul", [x, x], {"transpose_b": True})
    feed = {"x": np.random.default_rng(0).integers(-99, 100, (2, 6, 6)).astype(np.int32)}
    compare(builder.build([Output("y", y)]), [feed])


@pytest.mark.parametrize("biased", [False, True])
def test_dense_layers_with_computed_weights(biased: bool) -> None:
    builder = ProgramBuilder()
    shapes = {"x": (3, 17), "w": (37, 17), "b": (37,)}
    names = [builder.input(name, shape, -100, 100) for name, shape in shapes.items()][: 3 if biased else 2]
    (y,) = builder.add("dense", names)
    random = np.random.default_rng(1)
    feed = {name: random.integers(-100, 101, shape).astype(np.int32) for name, shape in shapes.items()}
    unused = {} if biased else {"b": feed["b"]}
    compare(builder.build([Output("y", y)]), [feed | unused])
