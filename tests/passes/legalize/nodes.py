"""Random requantize nodes that the verifier admits, and inputs that are aimed at where rounding and clipping happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors import create
from cvm.program import Output, Program, ProgramBuilder, verify

Array = npt.NDArray[Any]

LARGEST = 2**31 - 1
ROUNDINGS = ("half_up", "half_even", "toward_zero")


@dataclass(frozen=True)
class Requantize:
    """A requantize of inputs with the given bounds, all of one shape; parameters m_1 .. m_n, c, s."""

    shape: tuple[int, ...]
    bounds: Sequence[tuple[int, int]]
    parameters: Sequence[Array]
    rounding: str
    lo: int = -LARGEST
    hi: int = LARGEST

    @cached_property
    def program(self) -> Program:
        """The node as a program: x0, x1, .. -> y."""
        builder = ProgramBuilder()
        inputs = [builder.input(f"x{i}", self.shape, *bounds) for i, bounds in enumerate(self.bounds)]
        inputs += [builder.parameter(items) for items in self.parameters]
        attributes = {"rounding": self.rounding, "lo": self.lo, "hi": self.hi}
        (y,) = builder.add("requantize", inputs, attributes, name="y")
        return builder.build([Output("y", y)])

    def aimed(self, random: Random) -> dict[str, Array]:
        """Inputs at bounds and zero, anywhere, at powers of two; or such that the sum comes next to a tie or a code."""
        whole = [np.broadcast_to(items, self.shape).ravel().tolist() for items in self.parameters]
        rows = [self._row(random, row) for row in zip(*whole, strict=True)]
        columns = zip(*rows, strict=True)
        return {f"x{i}": np.array(column, np.int32).reshape(self.shape) for i, column in enumerate(columns)}

    def _row(self, random: Random, row: Sequence[int]) -> list[int]:
        *multipliers, offset, shift = row
        found = [_anywhere(random, lo, hi) for lo, hi in self.bounds]
        index = random.randrange(len(found))
        if random.random() < 0.5 and multipliers[index]:
            others = sum(m * x for m, x in zip(multipliers, found, strict=True)) - multipliers[index] * found[index]
            k = random.choice([random.randint(-300, 300), self.lo, self.hi, -1, 0, 1, random.randint(self.lo, self.hi)])
            aim = ((2 * k + random.randint(0, 1)) << shift) >> 1
            found[index] = (aim - others - offset) // multipliers[index] + random.randint(0, 1)
        return [max(lo, min(x, hi)) for x, (lo, hi) in zip(found, self.bounds, strict=True)]


def _anywhere(random: Random, lo: int, hi: int) -> int:
    choices = (lo, hi, lo + 1, hi - 1, 0, random.randint(lo, hi), random.choice([-1, 1]) << random.randint(0, 30))
    return random.choice(choices) + random.choice([0, 0, 0, 1, -1])


def run(program: Program, inputs: dict[str, Array], executor: str = "numpy") -> dict[str, Array]:
    """All values of a program without state."""
    return dict(create(executor, verify(program)).run(inputs, {}, "all").values)


def node(random: Random, shape: tuple[int, ...]) -> Requantize:
    """A node whose sum is proven to fit 64 bits, and is often as wide."""
    terms = random.choice([1, 1, 1, 2, 2, 3, 4, 8])
    varied = random.choice([(), (1,), tuple(range(len(shape)))])
    own = tuple(n if axis in varied else 1 for axis, n in enumerate(shape))
    bounds = [_bounds(random) for _ in range(terms)]
    room = 62 - terms.bit_length()
    multipliers = [_multiplier(random, room - max(map(abs, pair)).bit_length(), own) for pair in bounds]
    total = sum(max(map(abs, pair)) * int(abs(m).max()) for pair, m in zip(bounds, multipliers, strict=True))
    usual = max(0, min(62, total.bit_length() - random.choice([0, 4, 8, 16, 24, 31])))
    usual = random.choice([0, 62, usual, usual, usual, usual])
    spread = random.choice([0, 0, 0, 0, 2, 62])
    size = int(np.prod(own))
    shifts = [max(0, min(62, usual + random.randint(-spread, spread))) for _ in range(size)]
    left = 2**63 - 1 - total - (2 ** max(shifts) >> 1)
    wide = random.randint(0, 62)
    offsets = [max(-left, min(left, random.randint(-(2**wide), 2**wide))) for _ in range(size)]
    fixed = [(-LARGEST, LARGEST), (-LARGEST, LARGEST), (-128, 127), (0, 255), (0, 1), (-(2**30), 2**30)]
    lo, hi = random.choice([*fixed, _interval(random, 9), _interval(random, LARGEST)])
    parameters = [*multipliers, *(np.array(items, np.int64).reshape(own) for items in (offsets, shifts))]
    return Requantize(shape, bounds, parameters, random.choice(ROUNDINGS), lo, hi)


def _bounds(random: Random) -> tuple[int, int]:
    width = 2 ** random.choice([31, 31, 8, 20, 24, random.randint(1, 31)]) - 1
    return random.choice(
        [(-width, width), (-width, 0), (0, width), (-random.randint(0, width), random.randint(0, width))]
    )


def _multiplier(random: Random, bits: int, shape: tuple[int, ...]) -> Array:
    bits = max(1, min(61, bits))
    bits = random.choice([bits, random.randint(1, bits)])
    zeros = random.choice([0, 0, 0, random.randint(0, bits)])
    items = [random.randint(-(2**bits) + 1, 2**bits - 1) >> zeros << zeros for _ in range(int(np.prod(shape)))]
    if random.random() < 0.1:
        items = [random.choice([-1, 0, 1]) for _ in items]
    return np.array(items, np.int64).reshape(shape)


def _interval(random: Random, largest: int) -> tuple[int, int]:
    one, other = random.randint(-largest, largest), random.randint(-largest, largest)
    return min(one, other), max(one, other)
