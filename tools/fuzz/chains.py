"""Random programs of op-set 2: its ops one after the other, with what attention, normalisation and caches have between.

`chained` makes one program. Half of its steps are the ops of op-set 2 on any operands, as `growers` draws them; the
others are the chains that a language model has (attention over a cache, a normalised row before a product), over drawn
shapes, ranges and parameters, and the ops that the native executor joins with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from cvm.limits import INT32_MAX
from cvm.program import Output, Program
from tools.fuzz.growers import GROWERS, Sample, sample
from tools.fuzz.growth import Draw, Growth

__all__ = ["CHAINS", "OPS", "chained"]

OPS = ("matmul", "quotient", "normalize", "update_slice")
"""The ops of op-set 2."""
_COMPANIONS = (
    "requantize", "clip", "cvm_lut", "relu", "broadcast_add", "broadcast_max", "elemwise_add", "where", "sum", "max",
    "reshape", "transpose", "concatenate", "slice", "take", "dense", "negative", "cvm_precision",
)  # fmt: skip
_RESULTS = ((-128, 127), (0, 255), (-32768, 32767), (-7, 8), (-INT32_MAX, INT32_MAX))


def _bytes(g: Growth, x: str) -> str:
    """A value as codes of a few bits: rescaled and rounded, as lowering does after each sum."""
    lo, hi = g.choice(_RESULTS[:3])
    shift = max(0, g.magnitude(x).bit_length() - g.choice((6, 7, 8, 12)))
    shape = g.shape_of(x)
    own = (shape[-1],) if g.chance() else (1,)
    m = g.builder.parameter(g.elements(own, -(2**30), 2**30))
    c, s = (g.builder.parameter(np.array([item])) for item in (g.number(-(2**20), 2**20), min(60, 29 + shift)))
    return g.one("requantize", x, m, c, s, rounding=g.choice(("half_up", "half_even")), lo=lo, hi=hi)


def _residual(g: Growth, x: str, y: str) -> str:
    """The sum of two values of one shape, in one requantize or as an addition."""
    if g.chance():
        return g.one("elemwise_add", g.limited(x, 30), g.limited(y, 30))
    parameters = [g.builder.parameter(g.elements((1,), -(2**24), 2**24)) for _ in range(2)]
    c, s = (g.builder.parameter(np.array([item])) for item in (g.number(-9, 9), g.number(20, 30)))
    lo, hi = g.choice(_RESULTS)
    return g.one("requantize", x, y, *parameters, c, s, rounding=g.choice(("half_up", "half_even")), lo=lo, hi=hi)


def _table(g: Growth, x: str, lo: int, hi: int) -> str:
    """A table over the codes of a value, with numbers in [lo, hi]."""
    least, largest = g.builder.range(x).hull()
    if largest - least > 2000:
        least, largest = -g.choice((7, 128, 1000)), g.choice((8, 127))
        x = g.one("clip", x, a_min=least, a_max=largest)
    numbers = (
        np.sort(g.elements((largest - least + 1,), lo, hi))
        if g.chance()
        else g.elements((largest - least + 1,), lo, hi)
    )
    index = g.one("broadcast_sub", x, g.constant(np.full((1,) * len(g.shape_of(x)), least)))
    return g.one("cvm_lut", g.constant(numbers), index)


def _cache(g: Growth, shape: tuple[int, ...], axis: int) -> str:
    """A cache with new rows written at a computed index: a state of the program, or any value."""
    same = [name for name in g.values if g.shape_of(name) == shape]
    kept = g.choice(same) if same and g.chance() else g.source(shape)
    rows = (*shape[:axis], g.number(1, shape[axis]), *shape[axis + 1 :])
    part = g.limited(g.adapted(g.small(g.choice(g.values)), rows), 30) if g.chance() else g.source(rows)
    index = g.adapted(g.small(g.choice(g.values)), (1,)) if g.chance() else g.source((1,), 5)
    return g.one("update_slice", kept, part, index, axis=axis)


def _softmax(g: Growth, scores: str, shape: tuple[int, ...]) -> str:
    """Shares of a row: powers from a table, masked in half of the cases, over their sum."""
    last = len(shape) - 1
    largest = g.one("max", scores, axes=(last,), keepdims=True)
    below = g.one("broadcast_sub", g.limited(scores, 30), g.limited(largest, 30))
    powers = _table(g, below, 0, 2 ** g.choice((8, 15, 24)))
    if g.chance():
        mask = g.one("clip", g.adapted(g.small(g.choice(g.values)), shape), a_min=0, a_max=1)
        powers = g.one("where", mask, powers, g.constant(np.zeros(shape, np.int64)))
    powers = g.limited(powers, 30 - shape[-1].bit_length())
    powers = g.one("clip", powers, a_min=0, a_max=INT32_MAX)
    sums = g.one("sum", powers, axes=(last,), keepdims=True)
    m, w, c = (
        g.builder.parameter(np.array([item])) for item in (g.choice((1, 255, 2**20, 2**40 + 1)), 1, g.number(0, 9))
    )
    least = g.builder.parameter(np.array([g.choice((1, 2, 1000))]))
    lo, hi = g.choice(((0, 255), (0, 127), (0, 65535), (-128, 127)))
    rounding = g.choice(("half_up", "half_even", "toward_zero"))
    return g.one("quotient", powers, sums, m, w, c, least, terms=1, rounding=rounding, lo=lo, hi=hi)


def attention(g: Growth, op: str) -> None:
    """Queries times keys of a cache, shares of each row, times values of a cache, with fewer heads of keys."""
    batch, shared = g.number(1, 2), g.number(1, 2)
    rows, items, width = g.number(1, 3), g.number(1, 9), g.number(1, 8)
    queries = g.adapted(g.operand(), (batch * shared, rows, width))
    keys, values = (_cache(g, (batch, items, width), 1) for _ in range(2))
    queries, keys, values = (g.limited(x, g.choice((7, 8, 12))) for x in (queries, keys, values))
    scores = g.one("matmul", queries, keys, transpose_a=False, transpose_b=True)
    shares = _softmax(g, _bytes(g, scores) if g.chance() else scores, (batch * shared, rows, items))
    mixed = g.one("matmul", g.limited(shares, 14), values, transpose_a=False, transpose_b=False)
    if g.chance():
        _bytes(g, mixed)


def block(g: Growth, op: str) -> None:
    """A normalised row, a product with constants or with a computed matrix, and the row added to the result."""
    rows, width = g.number(1, 4), g.number(1, 12)
    x = g.limited(g.adapted(g.operand(), (rows, width)), 14)
    m, k = 2 ** g.choice((8, 20, 30)), 2 ** g.choice((4, 10, 20))
    own = (width,) if g.chance() else (1,)
    parameters = [g.builder.parameter(g.elements(own, -m, m)), g.builder.parameter(g.elements(own, -m, m)),
                  g.builder.parameter(g.elements(own, 1, k))]  # fmt: skip
    parameters += [g.builder.parameter(g.elements((1,), 1, 2 ** g.choice((0, 5, 12)))) for _ in range(2)]
    lo, hi = g.choice(_RESULTS[:4])
    row = g.one("normalize", x, *parameters, axes=(1,), statistic=g.choice(("variance", "mean_square", "square_sum")),
                shift=g.choice((0, 4)), rounding=g.choice(("half_up", "half_even")), lo=lo, hi=hi)  # fmt: skip
    row = g.limited(row, 12)
    if g.chance():
        wide = g.one("dense", row, g.constant(g.elements((width, width), -127, 127)))
    else:
        matrix = g.limited(g.adapted(g.small(g.choice(g.values)), (width, width)), 8)
        wide = g.one("matmul", row, matrix, transpose_a=False, transpose_b=g.chance())
    narrow = _bytes(g, wide)
    _residual(g, _table(g, narrow, -128, 127) if g.chance() else narrow, x)


CHAINS: Mapping[str, Callable[[Growth, str], None]] = {"attention": attention, "block": block}
"""Chain -> the function that adds it to a growing program."""


def chained(draw: Draw) -> Sample:
    """A program with at least one op of op-set 2 and mostly several, and inputs for its runs."""

    def chosen() -> list[str]:
        steps = [draw.choice((*CHAINS, *OPS, draw.choice(_COMPANIONS))) for _ in range(draw.integer(2, 5))]
        return [*steps, draw.choice((*CHAINS, *OPS))]

    found = sample(draw, chosen, {**GROWERS, **CHAINS}, states=(0, 1, 2, 3))
    return replace(found, program=_with_unread(found.program))


def _with_unread(program: Program) -> Program:
    """The program with an output for each result that nothing reads, so that no node is without effect."""
    read = {name for node in program.nodes for name in node.inputs} | {output.value for output in program.outputs}
    read |= {one.update for one in program.state}
    made = [value.name for node in program.nodes for value in node.outputs if value.name not in read]
    more = tuple(Output(f"unread{number}", name) for number, name in enumerate(made))
    return replace(program, outputs=(*program.outputs, *more))
