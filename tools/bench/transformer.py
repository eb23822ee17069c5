"""The encoder of a transformer as a program, from its published sizes, with weights from a fixed seed.

BERT (Devlin et al., 2018, section 3: BERT-base has L = 12 blocks, H = 768, A = 12 heads, and layers of 4 H) on 128
tokens, from the embeddings on. Activations are 8-bit codes, weights signed bytes with one scale; each sum becomes codes
by one `requantize`. A softmax is the table of an exponential, a sum and a `quotient`, a rectifier of Gauss's error
function is a table, and both norms of a block are `normalize`. It serves timing alone: its weights are not trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cvm.program import Program
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output

__all__ = ["BASE", "Sizes", "encoder"]

SPREAD = 40
"""The standard deviation of codes, about."""
WEIGHT = 30
"""The standard deviation of weights."""
SHIFT = 30
CODES = {"lo": -127, "hi": 127, "rounding": "half_up"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of an encoder: blocks, elements of a token, heads, and tokens that it reads at once."""

    blocks: int
    width: int
    heads: int
    tokens: int

    def products(self, samples: int) -> Iterator[tuple[int, int, int, int]]:
        """(count, rows, depth, columns) of the products of matrices of one block, for so many samples."""
        rows, head = samples * self.tokens, self.width // self.heads
        yield 4, rows, self.width, self.width
        yield 1, rows, self.width, 4 * self.width
        yield 1, rows, 4 * self.width, self.width
        yield samples * self.heads, self.tokens, head, self.tokens
        yield samples * self.heads, self.tokens, self.tokens, head

    @property
    def macs(self) -> int:
        """The multiply-adds of the products of one sample."""
        return self.blocks * sum(math.prod(one) for one in self.products(1))


BASE = Sizes(12, 768, 12, 128)
"""BERT-base on 128 tokens."""


def encoder(sizes: Sizes) -> Program:
    """The program: the input ``x`` and the output ``y`` are codes of shape (tokens, width) in [-127, 127]."""
    made = _Encoder(sizes)
    x = made.build.input("x", (sizes.tokens, sizes.width), -127, 127)
    for _ in range(sizes.blocks):
        x = made.block(x)
    return made.build.build([Output("y", x)])


class _Encoder:
    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.build, self._random = sizes, ProgramBuilder(), np.random.default_rng(12)

    def block(self, x: str) -> str:
        """One block: attention and two layers, each added to what it reads and normalised."""
        x = self._normal(self._sum(x, self._attention(x)))
        wide = self._table(self._dense(x, 4 * self.sizes.width), _rectified())
        return self._normal(self._sum(x, self._dense(wide, self.sizes.width)))

    def _one(self, *numbers: int) -> list[str]:
        return [self.build.parameter(np.array([number], np.int64)) for number in numbers]

    def _codes(self, sums: str, spread: float) -> str:
        """Codes of sums of which the standard deviation is about ``spread``."""
        constants = self._one(round(SPREAD / spread * 2**SHIFT), 0, SHIFT)
        return self.build.add("requantize", [sums, *constants], CODES)[0]

    def _dense(self, x: str, outputs: int) -> str:
        depth = self.build.shape(x)[1]
        drawn = np.clip(np.rint(self._random.normal(0, WEIGHT, (outputs, depth))), -127, 127)
        weights = self.build.constant(drawn.astype(np.int32))
        return self._codes(self.build.add("dense", [x, weights])[0], SPREAD * WEIGHT * math.sqrt(depth))

    def _attention(self, x: str) -> str:
        sizes, build = self.sizes, self.build
        query, key, value = (self._heads(self._dense(x, sizes.width)) for _ in range(3))
        scores = build.add("matmul", [query, key], {"transpose_b": True})[0]
        weights = self._softmax(self._codes(scores, SPREAD**2 * math.sqrt(sizes.width // sizes.heads)))
        mixed = self._codes(build.add("matmul", [weights, value])[0], 255 * SPREAD / math.sqrt(sizes.tokens))
        mixed = build.add("transpose", [mixed], {"axes": (1, 0, 2)})[0]
        flat = build.add("reshape", [mixed], {"target_shape": (sizes.tokens, sizes.width)})[0]
        return self._dense(flat, sizes.width)

    def _heads(self, x: str) -> str:
        """(tokens, width) as (heads, tokens, width of a head)."""
        sizes = self.sizes
        shape = sizes.tokens, sizes.heads, sizes.width // sizes.heads
        x = self.build.add("reshape", [x], {"target_shape": shape})[0]
        return self.build.add("transpose", [x], {"axes": (1, 0, 2)})[0]

    def _softmax(self, scores: str) -> str:
        """Codes from 0 to 255 of the softmax of each row; a unit of a score is an eighth of a power of two."""
        build = self.build
        most = build.add("max", [scores], {"axes": (2,), "keepdims": True})[0]
        below = build.add("broadcast_sub", [most, scores], {})[0]
        table = build.constant(np.array([max(1, round(2 ** (15 - k / 8))) for k in range(256)], np.int32))
        powers = build.add("cvm_lut", [table, below])[0]
        total = build.add("sum", [powers], {"axes": (2,), "keepdims": True})[0]
        attributes = {"terms": 1, "rounding": "half_up", "lo": 0, "hi": 255}
        return build.add("quotient", [powers, total, *self._one(255, 1, 0, 0)], attributes)[0]

    def _table(self, x: str, values: np.ndarray[tuple[int], np.dtype[np.int32]]) -> str:
        index = self.build.add("requantize", [x, *self._one(1, 127, 0)], {"lo": 0, "hi": 254, "rounding": "half_up"})[0]
        return self.build.add("cvm_lut", [self.build.constant(values), index])[0]

    def _sum(self, x: str, y: str) -> str:
        attributes = {"lo": -(2**15), "hi": 2**15 - 1, "rounding": "half_up"}
        return self.build.add("requantize", [x, y, *self._one(2**8, 2**8, 0, 2)], attributes)[0]

    def _normal(self, x: str) -> str:
        """Rows of the standard deviation `SPREAD`: t / sqrt(Q) is n (x - mean) / (n deviation)."""
        attributes = {"axes": (1,), "statistic": "variance", "shift": 0, **CODES}
        return self.build.add("normalize", [x, *self._one(SPREAD * 2**16, 0, 2**16, 1, 1)], attributes)[0]


def _rectified() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The codes of x Phi(x), for codes from -127 to 127 that stand for numbers of the standard deviation 1."""
    numbers = [code / SPREAD for code in range(-127, 128)]
    return np.array([round(x * (1 + math.erf(x / math.sqrt(2))) / 2 * SPREAD) for x in numbers], np.int32)
