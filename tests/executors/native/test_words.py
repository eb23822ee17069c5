"""Bytes that are requantized in 16-bit lanes have the codes of the definition, each of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cvm.executors.native.checker import Unproven
from cvm.executors.native.checker.groups import _require_same
from cvm.executors.native.descriptions.expressions import Requantization
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.emit.words import Words, word_parameters
from cvm.executors.native.kernels.registry import plan
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import compare
from tests.selection import examples, mostly_long

pytestmark = pytest.mark.usefixtures("ways")

Case = tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]]
LANE = 2**16 - 1


def uint16(value: int) -> int:
    assert 0 <= value <= LANE
    return value


def in_lanes(numbers: tuple[int, int, int, int], shift: int, x: int, bounds: tuple[int, int]) -> int:
    """What the instructions give for a stored byte: no number has more than 16 bits."""
    k, m, a, b = map(uint16, numbers)
    product = uint16(uint16(x * k) * m >> 16)
    total = uint16(max(min(product + a, LANE) - b, 0))
    return bounds[0] + min(total >> shift, bounds[1] - bounds[0])


def defined(m: int, c: int, s: int, x: int, bounds: tuple[int, int]) -> int:
    return min(max(m * x + c + ((1 << s) >> 1) >> s, bounds[0]), bounds[1])


def found_of(found: Words, channel: int = 0) -> tuple[int, int, int, int]:
    k, m, a, b = (int(array[channel]) for array in found.parameters)
    return k, m, a, b


def searched(case: Case) -> Words | None:
    (m, c, s), (least, most), bounds = case
    arrays = (np.array([number]) for number in (m, c + ((1 << s) >> 1), s))
    return word_parameters(*arrays, (least, most - least), bounds)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """m, c and s, the interval of the operand, and bounds: slopes from nothing to some hundred codes for each byte."""
    least = draw(st.integers(-300, 300))
    most = least + draw(st.integers(0, 255))
    lo, hi = draw(st.sampled_from([(0, 255), (-128, 127), (0, 1), (3, 200), (-7, -7), (-128, -100)]))
    s = draw(st.integers(0, 45))
    bits = draw(st.integers(-12, 10))
    m = draw(st.integers(0, 2 ** max(s + bits, 0)))
    x = draw(st.integers(least, most))  # one element, at least, has a code of the interval
    c = (draw(st.integers(lo, hi)) << s) - m * x + draw(st.integers(0, 2**s - 1))
    assume(abs(c) < 2**62)
    return (m, c, s), (least, most), (lo, hi)


@settings(max_examples=examples(400))
@given(cases())
def test_every_byte_has_its_code(case: Case) -> None:
    (m, c, s), (least, most), bounds = case
    found = searched(case)
    if found is not None:
        for x in range(least, most + 1):
            assert in_lanes(found_of(found), found.shift, x - least, bounds) == defined(m, c, s, x, bounds)


def test_nearly_all_multipliers_have_a_form() -> None:
    random = np.random.default_rng(3)
    count, s = 400, 30
    m, c = (random.integers(lo, hi, count) for lo, hi in ((2**26, 2**30), (-30 * 2**30, 30 * 2**30)))
    forms = [searched(((int(one), int(more), s), (-128, 127), (-128, 127))) for one, more in zip(m, c, strict=True)]
    assert sum(form is None for form in forms) <= 4


@pytest.mark.parametrize("case", [
    ((-5, 0, 3), (0, 255), (0, 255)),  # falls
    ((5, 0, 3), (0, 256), (0, 255)),  # no byte
    ((5, 0, 3), (0, 255), (0, 256)),  # results of more than a byte
    ((2**20, 0, 3), (0, 255), (0, 255)),  # a slope of more than 16 bits
])  # fmt: skip
def test_what_has_no_form(case: Case) -> None:
    assert searched(case) is None


@settings(max_examples=examples(300))
@given(cases(), st.integers(0, 4), st.sampled_from([-300, -2, -1, 1, 2, 300]))
def test_other_numbers_are_proven_only_if_all_codes_are_the_same(case: Case, which: int, by: int) -> None:
    found = searched(case)
    assume(found is not None)
    assert found is not None
    (m, c, s), (least, most), bounds = case

    def proven(numbers: tuple[int, ...], shift: int) -> bool:
        rule = Requantization("words", 1, "half_up", *bounds, bits=shift, least=least)
        try:
            _require_same(rule, (m, c, s), numbers, (least, most, 0), 0, 0, bounds)
        except Unproven:
            return False
        return True

    numbers, shift = list(found_of(found)), found.shift
    assert proven(tuple(numbers), shift)
    if which == 4:
        shift += by
    else:
        numbers[which] += by
    k, multiplier, a, b = numbers
    fits = 0 <= shift < 16 and all(0 <= number <= LANE for number in numbers) and (most - least) * k <= LANE
    same = fits and all(
        in_lanes((k, multiplier, a, b), shift, x - least, bounds) == defined(m, c, s, x, bounds)
        for x in range(least, most + 1)
    )
    assert proven(tuple(numbers), shift) == same


def requantized(span: tuple[int, int], bounds: tuple[int, int], rows: int, columns: int) -> Program:
    """One multiplier for all elements, one for each row, and one for each column, with small and with large slopes."""
    random = np.random.default_rng(columns)
    builder, outputs = ProgramBuilder(), []
    (x,) = builder.add("clip", [builder.input("x", (rows, columns), -400, 400)], {"a_min": span[0], "a_max": span[1]})
    for shape in ((1, 1), (rows, 1), (1, columns)):
        for least, most in ((2**20, 2**28), (2**29, 2**30), (2**30, 2**31)):
            m, c = random.integers(least, most, shape), random.integers(-30 * 2**30, 30 * 2**30, shape)
            numbers = [builder.parameter(array) for array in (m, c, np.full((1, 1), 30))]
            attributes = {"rounding": "half_up", "lo": bounds[0], "hi": bounds[1]}
            outputs.append(Output(f"y{len(outputs)}", *builder.add("requantize", [x, *numbers], attributes)))
    return builder.build(outputs)


@pytest.mark.parametrize("span", mostly_long([(-128, 127), (0, 255), (-90, 165), (3, 100)], [(-90, 165), (0, 255)]))
@pytest.mark.parametrize("bounds", mostly_long([(-128, 127), (0, 255), (0, 100), (-3, 5)], [(-128, 127), (0, 100)]))
@pytest.mark.parametrize("columns", mostly_long([1, 7, 16, 31, 64, 150], [7, 150]))
def test_codes_of_bytes(span: tuple[int, int], bounds: tuple[int, int], columns: int) -> None:
    every = np.resize(np.arange(-300, 300), (5, columns)).astype(np.int32)
    random = np.random.default_rng(0)
    feeds = [{"x": every}, {"x": random.integers(*span, every.shape, np.int32, endpoint=True)}]
    compare(requantized(span, bounds, 5, columns), feeds)


def test_bytes_take_words_where_machines_have_them() -> None:
    verified = verify(requantized((-128, 127), (-128, 127), 3, 40))
    for machine in MACHINES:
        made = plan(verified, machine, frozenset(output.value for output in verified.program.outputs))
        steps = [step for nest in made.functions.values() if isinstance(nest, Nest) for step in nest.formula.steps]
        rules = [part for step in steps for part in step.static if isinstance(part, Requantization)]
        taken = [rule.arithmetic for rule in rules].count("words")
        assert taken >= 6 if machine.packs else taken == 0
