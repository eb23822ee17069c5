"""Random nodes of every kernel and format against the independent model, and all executors against each other."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.frontends.openvx.cases import Case
from tests.frontends.openvx.draws import DRAWS
from tests.frontends.openvx.model import expected

FORMATS = ("U8", "S8", "S16")
FEW, MANY = 10, 200
FEW_NORMALISATIONS = 2
"""Of some hundred nodes each, which take a second to compile."""


def check(kernel: str, fmt: str, count: int, seed: str, executors: int) -> None:
    """``count`` cases, of which every ``executors``-th is run on all executors."""
    random = Random(f"{seed} {kernel} {fmt}")
    for number in range(count):
        draw = DRAWS[kernel](random, fmt)
        wanted = expected(kernel, fmt, dict(draw.params), dict(draw.arrays), draw.shape)
        case = Case(kernel, fmt, draw.params, draw.arrays, draw.shape)
        found = case.result()
        assert np.array_equal(found, wanted), (number, draw, found, wanted)
        if number % executors == 0:
            case.agree()


@pytest.mark.sweep
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kernel", DRAWS)
def test_a_few_nodes_give_what_the_specification_says(kernel: str, fmt: str) -> None:
    check(kernel, fmt, FEW_NORMALISATIONS if kernel == "normalization" else FEW, "few", 10)


@pytest.mark.long
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kernel", DRAWS)
def test_many_nodes_give_what_the_specification_says(kernel: str, fmt: str) -> None:
    check(kernel, fmt, MANY, "many", 25 if kernel == "normalization" else 4)
