"""Quotients, normalised rows and updated slices natively: drawn calls of every width, rounding and layout."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cvm.executors.native.descriptions.computed import Quotient
from cvm.executors.native.descriptions.matrices import Matrices, RowProducts
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime.select import available
from cvm.program import Output, ProgramBuilder, verify
from cvm.session import Session
from tests.executors.native.comparison import compare

pytestmark = pytest.mark.usefixtures("ways")

BOUNDS = [(-128, 127), (0, 255), (-(2**15), 2**15 - 1), (3, 3), (-5, -2)]


def drawn(random: Random, shape: tuple[int, ...], lo: int, hi: int) -> np.ndarray:
    """Integers of [lo, hi], one in eight an end of it."""
    count = int(np.prod(shape))
    items = [random.choice((lo, hi)) if random.random() < 0.125 else random.randint(lo, hi) for _ in range(count)]
    return np.array(items, dtype=object).reshape(shape)


class Drawn:
    """A program of one op, its feeds, and the random numbers that both are drawn from."""

    def __init__(self, random: Random) -> None:
        self.random, self.builder = random, ProgramBuilder()
        self.feed: dict[str, np.ndarray] = {}
        self.shape = tuple(random.randint(1, 6) for _ in range(random.randint(1, 4)))

    def smaller(self) -> tuple[int, ...]:
        """A shape that broadcasts to the shape of the result."""
        kept = [extent if self.random.random() < 0.5 else 1 for extent in self.shape]
        return tuple(kept[self.random.randrange(len(kept)) :])

    def given(self, shape: tuple[int, ...], lo: int, hi: int) -> str:
        name = f"x{len(self.feed)}"
        self.feed[name] = drawn(self.random, shape, lo, hi).astype(np.int32)
        return self.builder.input(name, shape, lo, hi)

    def moved(self, shape: tuple[int, ...], lo: int, hi: int) -> str:
        """An input of this shape by way of a transpose, whose view the kernel reads."""
        name = self.given(shape[::-1], lo, hi)
        return self.builder.add("transpose", [name], {"axes": tuple(reversed(range(len(shape))))})[0]

    def parameter(self, shape: tuple[int, ...], lo: int, hi: int) -> str:
        return self.builder.parameter(drawn(self.random, shape, lo, hi).astype(np.int64))

    def end(self, result: str) -> None:
        program = self.builder.build([Output("y", result)])
        compare(program, [self.feed])
        formal = Session(program, executor="formal").run(self.feed, codes=True)["y"]
        np.testing.assert_array_equal(Session(program, executor="numpy").run(self.feed, codes=True)["y"], formal)


def quotient(random: Random) -> None:
    case = Drawn(random)
    n, k, wide = random.randint(1, 6), random.randint(1, 3), random.choice([4, 20, 40, 62])
    most = random.choice([3, 127, 2**15, 2**31 - 1])
    lo, hi = random.choice([*BOUNDS, (1 - 2**31, 2**31 - 1)])
    tensors = [case.moved(case.shape, -most, most)]
    tensors += [case.given(case.smaller(), -most, most) for _ in range(n - 1)]
    tensors += [case.given(case.smaller(), 0, most) for _ in range(k)]
    factors = [case.parameter(case.smaller(), -(2**wide), 2**wide) for _ in range(n)]
    factors += [case.parameter((1,), 0, 2 ** random.choice([1, 8, wide])) for _ in range(k)]
    factors += [
        case.parameter(case.smaller(), -(2**wide), 2**wide),
        case.parameter((1,), 1, 2 ** random.choice([1, wide])),
    ]
    rounding = random.choice(["half_up", "half_even", "toward_zero"])
    attributes = {"terms": n, "rounding": rounding, "lo": lo, "hi": hi}
    case.end(case.builder.add("quotient", [*tensors, *factors], attributes)[0])


def normalize(random: Random) -> None:
    case = Drawn(random)
    most, wide = random.choice([1, 7, 127, 2**15]), random.choice([1, 8, 24, 40])
    lo, hi = random.choice(BOUNDS)
    axes = tuple(random.sample(range(len(case.shape)), random.randint(1, len(case.shape))))
    parameters = [
        case.parameter(case.smaller(), -(2 ** (wide + 8)), 2 ** (wide + 8)),
        case.parameter(case.smaller(), -(2 ** (wide + 6)), 2 ** (wide + 6)),
        case.parameter(case.smaller(), 1, 2**wide),
        case.parameter((1,), 1, 2 ** random.choice([1, 24, 30])),
        case.parameter((1,), 1, 2 ** random.choice([1, 24, 61])),
    ]
    attributes = {
        "axes": axes, "statistic": random.choice(["variance", "mean_square", "square_sum"]),
        "shift": random.choice([0, 3, 62]), "rounding": random.choice(["half_up", "half_even"]), "lo": lo, "hi": hi,
    }  # fmt: skip
    case.end(case.builder.add("normalize", [case.moved(case.shape, -most, most), *parameters], attributes)[0])


def update_slice(random: Random) -> None:
    case = Drawn(random)
    axis = random.randrange(len(case.shape))
    part = tuple(random.randint(1, n) if index == axis else n for index, n in enumerate(case.shape))
    x, u = (case.moved(shape, -most, most) for shape, most in ((case.shape, 200), (part, random.choice([9, 2**20]))))
    at = case.given((1,), -8, 8)
    case.end(case.builder.add("update_slice", [x, u, at], {"axis": axis - len(case.shape)})[0])


@pytest.mark.parametrize("op", [quotient, normalize, update_slice])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 200))])
def test_a_drawn_call_is_computed_alike(op: object, seed: int) -> None:
    op(Random(seed))  # type: ignore[operator]


@pytest.mark.parametrize(("wide", "most", "bits"), [(4, 127, 64), (40, 2**15, 128), (62, 2**31 - 1, 256)])
def test_a_quotient_takes_the_bits_that_its_intervals_ask_for(wide: int, most: int, bits: int) -> None:
    builder = ProgramBuilder()
    x, y = builder.input("x", (3,), -most, most), builder.input("y", (1,), 0, most)
    factors = [builder.parameter(np.array([2**wide - 1], np.int64)) for _ in range(6)]
    attributes = {"terms": 1, "rounding": "half_up", "lo": 1 - 2**31, "hi": 2**31 - 1}
    (result,) = builder.add("quotient", [x, y, y, y, *factors], attributes)
    verified = verify(builder.build([Output("y", result)]))
    kernels = plan(verified, available()[0], frozenset({result})).functions.values()
    assert [kernel.bits for kernel in kernels if isinstance(kernel, Quotient)] == [bits]


def test_ties_and_signs_of_quotients() -> None:
    """N / D for all N in [-9, 9] and D in [1, 4], every rounding."""
    values = np.array(np.meshgrid(np.arange(-9, 10), np.arange(1, 5))).reshape(2, -1).astype(np.int32)
    for rounding in ("half_up", "half_even", "toward_zero"):
        builder = ProgramBuilder()
        x, y = (builder.input(name, (76,), lo, 9) for name, lo in (("x", -9), ("y", 1)))
        one, none = (builder.parameter(np.array([number], np.int64)) for number in (1, 0))
        attributes = {"terms": 1, "rounding": rounding, "lo": -7, "hi": 5}
        (result,) = builder.add("quotient", [x, y, one, one, none, none], attributes)
        compare(builder.build([Output("y", result)]), [dict(zip(("x", "y"), values, strict=True))])


def test_codes_that_are_all_ties_are_decided_exactly() -> None:
    """Halves of odd numbers, and rows whose codes are c / k alone: no estimate tells one code from the next."""
    values = (2 * np.arange(-40, 40) + 1).reshape(2, 40).astype(np.int32)
    constant = np.full((2, 40), 7, np.int32)
    for rounding in ("half_up", "half_even"):
        builder = ProgramBuilder()
        x, y = (builder.input(name, (2, 40), -99, 99) for name in ("x", "y"))
        two, one, none = (builder.parameter(np.array([number], np.int64)) for number in (2, 1, 0))
        (zero,) = builder.add("broadcast_sub", [x, x])
        bounds = {"rounding": rounding, "lo": -30, "hi": 30}
        (halves,) = builder.add("quotient", [x, zero, one, none, none, two], {"terms": 1, **bounds})
        odd = builder.parameter((2 * np.arange(-20, 20) + 1).astype(np.int64))
        attributes = {"axes": (1,), "statistic": "variance", "shift": 0, **bounds}
        (rows,) = builder.add("normalize", [y, one, odd, two, one, one], attributes)
        program = builder.build([Output("halves", halves), Output("rows", rows)])
        feed = {"x": values, "y": constant}
        compare(program, [feed])
        found = Session(program, executor="native").run(feed, codes=True)
        up = {"half_up": np.arange(-20, 20) + 1, "half_even": (np.arange(-20, 20) + 1) // 2 * 2}[rounding]
        assert found["rows"].tolist() == [up.tolist()] * 2
        assert found["halves"].ravel()[20:60].tolist() == up.tolist()


@pytest.mark.parametrize(("rows", "kind"), [(1, RowProducts), (2, Matrices)])
def test_products_of_bytes_use_dot_products(rows: int, kind: type) -> None:
    builder = ProgramBuilder()
    x, w = builder.input("x", (2, rows, 64), -121, 134), builder.input("w", (2, 48, 64), -127, 127)
    (narrow,) = builder.add("negative", [w])
    (y,) = builder.add("matmul", [x, narrow], {"transpose_b": True})
    # A machine whose dot products do not saturate: they take any bytes, signed ones in both operands too.
    machine = next(machine for machine in MACHINES if machine.name == "vnni512")
    kernels = plan(verify(builder.build([Output("y", y)])), machine, frozenset({y})).functions.values()
    assert any(isinstance(kernel, kind) for kernel in kernels)
