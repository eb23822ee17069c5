"""Programs of ops between computed tensors, and of tables, in lengths that fill the vectors of kernels and in others.

Parameters are drawn so that ties are frequent, where an estimate in float64 cannot tell the code.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from random import Random

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.program import Output, Program, ProgramBuilder

__all__ = ["MAKERS", "drawn"]

Shape = tuple[int, ...]
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 70, 80)
CODES = ((0, 255), (-128, 127), (-127, 127), (0, 127), (-9, 9), (-121, 134), (-(2**15), 2**15 - 1), (-300, 9))
BOUNDS = ((0, 255), (-128, 127), (0, 65535), (-(2**15), 2**15 - 1), (-3, 3), (1 - 2**31, 2**31 - 1))


def drawn(random: Random) -> Program:
    """A program whose output is one of these ops, now and then with an op by element before or behind it."""
    builder = ProgramBuilder()
    result = random.choice(list(MAKERS.values()))(builder, random)
    if random.random() < 0.3:
        result = builder.add("abs", [result])[0]
    return builder.build([Output("y", result)])


def _given(builder: ProgramBuilder, random: Random, shape: Shape, ends: tuple[int, int]) -> str:
    """An input, or what a transpose or a clip makes of one: a view, and a tensor in a narrow format."""
    name = f"x{random.getrandbits(60)}"
    kind = random.choice(("given", "transposed", "clipped", "clipped"))
    if kind == "transposed":
        axes = list(range(len(shape)))
        random.shuffle(axes)
        name = builder.input(name, tuple(shape[axis] for axis in axes), *ends)
        return builder.add("transpose", [name], {"axes": tuple(axes.index(axis) for axis in range(len(shape)))})[0]
    name = builder.input(name, shape, *ends)
    return name if kind == "given" else builder.add("clip", [name], {"a_min": ends[0], "a_max": ends[1]})[0]


def _numbers(random: Random, shape: Shape, lo: int, hi: int) -> npt.NDArray[np.int64]:
    drawn_ = (random.randint(lo, hi) if random.random() < 0.5 else random.choice((lo, hi)) for _ in range(prod(shape)))
    return np.array(list(drawn_), np.int64).reshape(shape)


def _smaller(random: Random, shape: Shape) -> Shape:
    return random.choice((shape, (*(1,) * (len(shape) - 1), shape[-1]), (1,), shape[-1:]))


def matmul(builder: ProgramBuilder, random: Random) -> str:
    """Batches of A that share matrices of B, one row and several."""
    rows, depth, columns = random.choice((1, 1, 2, 3, 9, 17)), random.choice(LENGTHS), random.choice(LENGTHS)
    batch = [(extent * random.randint(1, 2), extent) for extent in random.choices((1, 2), k=random.randint(0, 2))]
    moved = random.random() < 0.3, random.random() < 0.5
    of_a = (*(n for n, _ in batch), *((depth, rows) if moved[0] else (rows, depth)))
    of_b = (*(n for _, n in batch), *((columns, depth) if moved[1] else (depth, columns)))
    a, b = _given(builder, random, of_a, random.choice(CODES)), _given(builder, random, of_b, random.choice(CODES[:6]))
    return builder.add("matmul", [a, b], {"transpose_a": moved[0], "transpose_b": moved[1]})[0]


def quotient(builder: ProgramBuilder, random: Random) -> str:
    """Divisors of rows and of elements; products of small numbers, which are often half-way between two codes."""
    shape = (*random.choices((1, 2, 3), k=random.randint(0, 2)), random.choice(LENGTHS))
    n, k = random.choice((1, 1, 2, 3, 6)), random.choice((1, 1, 2, 3))
    most = random.choice((3, 127, 65535, INT32_MAX))
    row = (*shape[:-1], 1)
    tensors = [_given(builder, random, shape, (-most, most))]
    tensors += [_given(builder, random, random.choice((shape, row)), (0, most)) for _ in range(n - 1 + k)]
    wide, unit = random.choice((1, 6, 31, 62)), random.choice((0, 0, 1, 20))
    factors = [_numbers(random, _smaller(random, shape), -(2**wide), 2**wide) for _ in range(n)]
    factors += [_numbers(random, (1,), 0, 2 ** random.choice((1, unit, wide))) for _ in range(k)]
    factors += [_numbers(random, _smaller(random, shape), -(2**wide), 2**wide), _numbers(random, (1,), 1, 2**unit)]
    lo, hi = random.choice(BOUNDS)
    rounding = random.choice(("half_up", "half_even", "toward_zero"))
    attributes = {"terms": n, "rounding": rounding, "lo": lo, "hi": hi}
    return builder.add("quotient", [*tensors, *map(builder.parameter, factors)], attributes)[0]


def normalize(builder: ProgramBuilder, random: Random) -> str:
    """Rows along any axes. Weights that the root of the statistic often divides give ties."""
    shape = (*random.choices((1, 2, 3), k=random.randint(0, 2)), random.choice(LENGTHS))
    axes = tuple(random.sample(range(len(shape)), random.randint(1, len(shape))))
    x = _given(builder, random, shape, random.choice(((-1, 1), (0, 3), (-128, 127), (-(2**15), 2**15))))
    small = random.random() < 0.5
    m, c, k = (4, 9, 2) if small else (2 ** random.choice((30, 50)), 2 ** random.choice((20, 50)), 2**20)
    parameters = [_numbers(random, _smaller(random, shape), lo, hi) for lo, hi in ((-m, m), (-c, c), (1, k))]
    parameters += [_numbers(random, (1,), 1, most) for most in ((1, 1) if small else (2**30, 2**40))]
    lo, hi = random.choice(BOUNDS[:5])
    attributes = {
        "axes": axes, "statistic": random.choice(("variance", "mean_square", "square_sum")), "lo": lo, "hi": hi,
        "shift": 0 if small else random.choice((0, 20, 62)), "rounding": random.choice(("half_up", "half_even")),
    }  # fmt: skip
    return builder.add("normalize", [x, *map(builder.parameter, parameters)], attributes)[0]


def update_slice(builder: ProgramBuilder, random: Random) -> str:
    """Slices that begin before, within and behind a tensor."""
    shape = (*random.choices((1, 2, 3), k=random.randint(0, 2)), random.choice(LENGTHS))
    axis = random.randrange(len(shape))
    part = tuple(random.randint(1, n) if index == axis else n for index, n in enumerate(shape))
    inputs = [_given(builder, random, own, random.choice(CODES)) for own in (shape, part)]
    return builder.add("update_slice", [*inputs, _given(builder, random, (1,), (-5, 90))], {"axis": axis})[0]


def table(builder: ProgramBuilder, random: Random) -> str:
    """Tables of entries of 8 to 32 bits, shorter and longer than a byte numbers, behind codes or a layer's sums."""
    count = random.choice((1, 2, 127, 128, 129, 255, 256, 257, 258, 300))
    lo, hi = random.choice((*CODES, (-INT32_MAX, INT32_MAX), (0, 65535)))
    entries = builder.constant(_numbers(random, (count,), lo, hi))
    shape = (random.choice((1, 2, 5)), random.choice(LENGTHS))
    if random.random() < 0.5:
        index = _given(builder, random, shape, random.choice(((0, 255), (0, 256), (-511, 511), (-9, 3000))))
    else:
        weights = builder.constant(_numbers(random, (shape[1], 20), -128, 127))
        (sums,) = builder.add("dense", [_given(builder, random, (shape[0], 20), random.choice(CODES[:5])), weights])
        parameters = [builder.parameter(np.array([number], np.int64)) for number in (2**20 + 77, 2**27, 31)]
        attributes = {"rounding": "half_up", "lo": 0, "hi": random.choice((255, 300))}
        (index,) = builder.add("requantize", [sums, *parameters], attributes)
    return builder.add("cvm_lut", [entries, index])[0]


MAKERS: dict[str, Callable[[ProgramBuilder, Random], str]] = {
    "matmul": matmul, "quotient": quotient, "normalize": normalize, "update_slice": update_slice, "table": table,
}  # fmt: skip
"""The function that draws each kind of program."""
