"""Sliding-window operations on tensors that carry no quantiser, or one per channel, or are constant.

Whatever comes in - sums with a scale or an offset per channel or per position, several terms, functions by table - the
result has exactly the codes of the document, or is refused: never others.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from cvm.errors import Unsupported
from tests.lowering.documents import Document, assert_exact
from tests.lowering.window_documents import geometry, pooled

SHAPE = (1, 2, 4, 5)
ALL = ["ignore", "constant", "replicate", "reflect", "reflect-even"]


def ranges(document: Document, name: str) -> str:
    """A quantiser whose zero is a code: chains of two convolutions need that to be proven."""
    low = document.random.choice([0.0, -1.0])
    document.quantisers[name] = f"linear_quantize(min = {low!r}, max = {1.0 + low * 0.25!r}, bits = 6)"
    if name in document.inputs:
        document.ranges[name] = (0, 63)
    return name


def source(document: Document, kind: str) -> str:
    """A tensor of SHAPE without a quantiser."""
    x = ranges(document, document.external(SHAPE))
    call = {
        "scaled by channel": lambda: f"mul({x}, {document.variable((1, 2), 0.5, 1.5)})",
        "offset by channel": lambda: f"add({x}, {document.variable((1, 2), -1.5, 1.5)})",
        "offset by position": lambda: f"add({x}, {document.variable(SHAPE, -1.5, 1.5)})",
        "scaled by position": lambda: f"avg_pool({x}, size = [1, 1, 3, 3], border = 'ignore')",
        "bordered": lambda: f"box({x}, size = [1, 1, 3, 3], border = 'constant')",
        "negative": lambda: f"mul({x}, {document.random.choice(['-0.75', '0.25'])})",
        "two ranges": lambda: (
            f"concat([{document.external((1, 1, 4, 5))}, {document.external((1, 1, 4, 5))}], axis = 1)"
        ),
        "two terms": lambda: f"add({x}, {ranges(document, document.external((1, 2)))})",
        "filtered": lambda: f"conv({x}, {ranges(document, document.variable((2, 2, 3, 3)))}, 0.25)",
        "clamped": lambda: f"clamp({x}, -0.3, 0.6)",
        "table": lambda: f"tanh({x})",
        "constant": lambda: document.variable(SHAPE),
    }[kind]()
    return call if kind == "constant" else document.apply(call, quantised=False)


SOURCES = [
    "scaled by channel", "offset by channel", "offset by position", "scaled by position", "bordered", "negative",
    "two ranges", "two terms", "filtered", "clamped", "table", "constant",
]  # fmt: skip


def _pool(name: str) -> Callable[[Document, str], str]:
    def call(document: Document, x: str) -> str:
        window = pooled(document.random, SHAPE, ALL)
        return f"{name}({x}, size = {list(window.size)}, {window.text()})"

    return call


def _conv(groups: int) -> Callable[[Document, str], str]:
    def call(document: Document, x: str) -> str:
        window = geometry(document.random, SHAPE[2:])
        w = ranges(document, document.variable((4, 2 // groups, *window.size)))
        return f"conv({x}, {w}, 0.125, {window.text()}, groups = {groups})"

    return call


def _positions(document: Document, shape: tuple[int, ...], window: str) -> str:
    return document.apply(f"argmax_pool({document.external(shape)}, {window})", quantised=False)


CONSUMERS: dict[str, Callable[[Document, str], str]] = {
    "conv": _conv(1),
    "depth-wise": _conv(2),
    "deconv": lambda d, x: f"deconv({x}, {ranges(d, d.variable((2, 2, 3, 2)))}, stride = [2, 1], padding = [])",
    "box": _pool("box"),
    "avg_pool": _pool("avg_pool"),
    "max_pool": _pool("max_pool"),
    "argmax_pool": _pool("argmax_pool"),
    "rms_pool": _pool("rms_pool"),
    "debox": lambda d, x: f"debox({x}, size = [1, 1, 3, 2], stride = [1, 1, 2, 2], padding = [])",
    "upsample": lambda d, x: f"multilinear_upsample({x}, factor = [2, 3], border = '{d.random.choice(ALL[1:3])}')",
    "nearest": lambda d, x: f"nearest_upsample({x}, factor = [2, 3])",
    "down": lambda d, x: f"area_downsample({x}, factor = [2, 1])",
    "sample": lambda d, x: (
        f"sample({x}, {d.apply(f'argmax_pool({d.external(SHAPE)}, {PLANE})', quantised=False)}, {PLANE})"
    ),
    "desample": lambda d, x: f"desample({x}, {_positions(d, (1, 2, 8, 10), HALVES)}, {HALVES})",
}
PLANE = "size = [1, 1, 3, 2], stride = [1, 1, 1, 1], padding = []"
HALVES = "size = [1, 1, 2, 3], stride = [1, 1, 2, 2], padding = []"


def chain(kind: str, consumer: str, random: Random, least: float = -2.0) -> tuple[Document, str]:
    document = Document(random)
    call = CONSUMERS[consumer](document, source(document, kind))
    return document, document.apply(call, least, 2.0, quantised=consumer != "argmax_pool")


def outcome(document: Document, output: str) -> str:
    """ "exact", or the code of the refusal."""
    with TemporaryDirectory() as folder:
        try:
            assert_exact(document, output, Path(folder), count=1)
        except Unsupported as error:
            return error.code
    return "exact"


MAY_BE_REFUSED: dict[str, set[str]] = {
    # An irrational number is no multiple of any other: sums of such numbers are out of reach.
    **{name: {"table"} for name in ["conv", "depth-wise", "deconv", "box", "avg_pool", "debox", "upsample", "down"]},
    # Squares of sums of several wide integers, or of unrelated scales, do not fit.
    "rms_pool": {"table", "two ranges", "scaled by channel", "offset by position", "filtered"},
    # An index names items of which each has its own offset.
    **{name: {"table", "offset by position", "scaled by position"} for name in ["sample", "desample"]},
}


@pytest.mark.sweep
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_chains_are_exact_or_refused(consumer: str) -> None:
    check_chains(consumer, 1)


@pytest.mark.long
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_chains_are_exact_or_refused_in_many_cases(consumer: str) -> None:
    check_chains(consumer, 30)


def check_chains(consumer: str, count: int) -> None:
    for kind, seed in product(SOURCES, range(count)):
        document, output = chain(kind, consumer, Random(seed))
        found = outcome(document, output)
        assert found == "exact" or kind in MAY_BE_REFUSED.get(consumer, ()), (kind, found, document.text(output))
