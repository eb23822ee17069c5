"""Every property of an operation holds with quantisers of every style: logarithmic, per channel, narrow, wide, ..

A document may be refused, by name, where a style leaves no exact form; what is lowered is exact. So that refusals do
not hollow the property out, each operation must be lowered with each style at least once among a few documents, but for
those listed with the reason. The default run takes logarithmic quantisers, and one other style in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from _pytest.mark import ParameterSet

from cvm.errors import Unsupported
from tests.lowering import (
    test_activations,
    test_linear,
    test_normalization,
    test_quantize,
    test_reduce,
    test_regions,
    test_shape,
)
from tests.lowering.properties import Cases, check
from tests.lowering.styles import STYLES, drawn_in
from tests.lowering.window_documents import OPERATIONS

REFUSALS = {
    "lowering.operation",
    "lowering.unquantized",
    "lowering.logarithmic",
    "lowering.range",
    "lowering.unprovable",
    "lowering.undefined",
    "lowering.undecided",
}


def _window(draw: Callable[[Random], tuple]) -> Callable[[Random], None]:
    def run(random: Random) -> None:
        check(*draw(random))

    return run


CASES: Cases = {
    f"{module.__name__.rsplit('_')[-1]}: {name}": case
    for module in (test_activations, test_linear, test_normalization, test_quantize, test_reduce, test_regions,
                   test_shape)
    for name, case in module.CASES.items()
} | {f"window: {name}": _window(draw) for name, draw in OPERATIONS.items()}  # fmt: skip

NEVER = {
    # Regions are computed from integers of one scale, and pooled by one integer per item.
    ("per channel", "regions:"),
    ("wide logarithmic", "regions:"),
    # A quotient by a sum of both signs may be one by zero.
    ("logarithmic", "quantize: quotient"),
    ("wide logarithmic", "quantize: quotient"),
    # Norms have one quantiser for the result, softmax one for its operand.
    ("per channel", "normalization: l"),
    ("per channel", "activations: softmax"),
    ("wide logarithmic", "activations: softmax"),
}


def lowered(style: str, name: str, seeds: range) -> int:
    """How many documents of a case are lowered, and exact; the others are refused by name."""
    count = 0
    for seed in seeds:
        try:
            with drawn_in(style):
                CASES[name](Random(f"{style}/{name}/{seed}"))
            count += 1
        except Unsupported as error:
            if error.code not in REFUSALS or not (error.location.tensor or error.location.op):
                raise
    return count


def _matrix() -> Iterator[ParameterSet]:
    styles = list(STYLES)
    for index, name in enumerate(CASES):
        for style in styles:
            always = style == styles[index % len(styles)]
            yield pytest.param(name, style, marks=() if always else pytest.mark.long)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "style"), list(_matrix()))
def test_a_document_in_each_style_is_exact(name: str, style: str) -> None:
    if any(style == other and name.startswith(prefix) for other, prefix in NEVER):
        lowered(style, name, range(2))
        return
    # One is enough, if the first is; a refused one calls for more.
    assert any(lowered(style, name, range(seed, seed + 1)) for seed in range(12))


@pytest.mark.long
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", CASES)
def test_many_documents_in_each_style_are_exact(name: str, style: str) -> None:
    lowered(style, name, range(100, 140))
