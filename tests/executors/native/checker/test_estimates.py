"""The checker proves the estimates of quotients, of normalised rows and the bytes of tables, and refuses wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cvm.executors.native.checker import unproven
from cvm.executors.native.descriptions.computed import Normalization, Quotient
from cvm.executors.native.descriptions.expressions import TABLE, FormulaStep
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.steps import Plan
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram

IFMA = next(machine for machine in MACHINES if machine.permutes)


def attention() -> VerifiedProgram:
    """A table, rows divided by their sums, and rows divided by their standard deviations."""
    builder = ProgramBuilder()
    x = builder.input("x", (3, 48), -300, 300)
    entries = np.arange(TABLE + 1) ** 3
    (looked,) = builder.add("cvm_lut", [builder.constant(entries), x])
    (total,) = builder.add("sum", [looked], {"axes": (1,), "keepdims": True})
    (total,) = builder.add("clip", [total], {"a_min": 2**29, "a_max": 2**30})
    one, wide = (builder.parameter(np.array([number], np.int64)) for number in (1, 2**40))
    attributes = {"terms": 1, "rounding": "half_up", "lo": 0, "hi": 255}
    (y,) = builder.add("quotient", [looked, total, wide, one, one, one], attributes)
    numbers = [np.arange(48) * 2**30 + 7, np.arange(48) * 2**28, [2**24 + 3], [77], [5]]
    attributes = {"axes": (1,), "statistic": "variance", "shift": 3, "rounding": "half_even", "lo": -128, "hi": 127}
    (z,) = builder.add("normalize", [x, *(builder.parameter(np.array(one, np.int64)) for one in numbers)], attributes)
    return verify(builder.build([Output("y", y), Output("z", z)]))


@pytest.fixture(scope="module")
def made() -> tuple[VerifiedProgram, Plan]:
    verified = attention()
    return verified, plan(verified, IFMA, frozenset(output.value for output in verified.program.outputs))


def changed(made: Plan, kind: type, change: Callable[[Any], Any]) -> Plan:
    """The plan with each kernel of one kind changed in its claim."""
    claims = tuple(
        replace(claim, kernel=change(claim.kernel))
        if isinstance(claim, Computes) and isinstance(claim.kernel, kind) else claim
        for claim in made.claims
    )  # fmt: skip
    return replace(made, claims=claims)


def reasons(verified: VerifiedProgram, made: Plan) -> str:
    return "; ".join(unproven(verified, made, IFMA).values())


def test_the_estimates_of_the_planner_are_proven(made: tuple[VerifiedProgram, Plan]) -> None:
    verified, planned = made
    kernels = [claim.kernel for claim in planned.claims if isinstance(claim, Computes)]
    doubts = [kernel.doubt for kernel in kernels if isinstance(kernel, Quotient | Normalization)]
    assert len(doubts) == 2
    assert all(doubt is not None and doubt > 8 for doubt in doubts)
    assert any(step.op == "permute" for kernel in kernels if isinstance(kernel, Nest) for step in kernel.formula.steps)
    assert unproven(verified, planned, IFMA) == {}


def _other_table(change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Callable[[Nest], Nest]:
    def found(nest: Nest) -> Nest:
        steps = tuple(
            FormulaStep(step.op, step.arguments, change(step.static)) if step.op == "permute" else step
            for step in nest.formula.steps
        )
        return replace(nest, formula=replace(nest.formula, steps=steps))

    return found


WRONG: tuple[tuple[type, Callable[[Any], Any], str], ...] = (
    (Quotient, lambda kernel: replace(kernel, doubt=kernel.doubt + 12), "wrong by more"),
    (Quotient, lambda kernel: replace(kernel, doubt=1), "without a bound"),
    (Quotient, lambda kernel: replace(kernel, doubt=None, bits=64), "too few bits"),
    (Quotient, lambda kernel: replace(kernel, bits=64), "too few bits"),
    (Quotient, lambda kernel: replace(kernel, hi=254), "other attributes"),
    (Quotient, lambda kernel: replace(kernel, rounding="half_even"), "other attributes"),
    (Quotient, lambda kernel: replace(kernel, terms=(2, 0)), "other terms"),
    (Quotient, lambda kernel: replace(kernel, loops=kernel.loops[1:]), "visit other elements"),
    (Normalization, lambda kernel: replace(kernel, doubt=kernel.doubt + 12), "wrong by more"),
    (Normalization, lambda kernel: replace(kernel, doubt=60), "without a bound"),
    (Normalization, lambda kernel: replace(kernel, doubt=None), "without a bound"),
    (Normalization, lambda kernel: replace(kernel, half_even=False), "other attributes"),
    (Normalization, lambda kernel: replace(kernel, statistic="mean_square"), "other attributes"),
    (Normalization, lambda kernel: replace(kernel, count=47), "another length"),
    (Normalization, lambda kernel: replace(kernel, formats=kernel.formats[::-1]), "other formats"),
    (Nest, _other_table(lambda static: (static[0] - 1, *static[1:])), "a longer table"),
    (Nest, _other_table(lambda static: (*static[:2], static[2] + 1)), "entries differ"),
    (Nest, _other_table(lambda static: static[:2]), "a longer table"),
)


@pytest.mark.parametrize(("kind", "change", "reason"), WRONG)
def test_a_wrong_kernel_is_refused(
    made: tuple[VerifiedProgram, Plan], kind: type, change: Callable[[Any], Any], reason: str
) -> None:
    verified, planned = made
    assert reason in reasons(verified, changed(planned, kind, change))


def test_a_factor_that_is_a_little_wrong_is_refused(made: tuple[VerifiedProgram, Plan]) -> None:
    """The last factor of the rows, 2^-20 of itself larger, and one that is not a number."""
    verified, planned = made
    claim = next(one for one in planned.claims
                 if isinstance(one, Computes) and isinstance(one.kernel, Normalization))  # fmt: skip
    home = claim.reads[6]
    assert home is not None
    place = 8 * (home.view.offset + 47)
    right = np.frombuffer(planned.constants, np.float64, 1, place)[0]
    assert abs(Fraction(right) - Fraction(47 * 2**30 + 7, 2**24 + 3)) < Fraction(1, 2**40)
    for value, reason in ((right * (1 + 2.0**-20), "wrong by more"), (math.inf, "is not a number")):
        data = bytearray(planned.constants)
        data[place : place + 8] = np.float64(value).tobytes()
        assert reason in reasons(verified, replace(planned, constants=data))


def test_a_wrong_byte_of_a_table_is_refused(made: tuple[VerifiedProgram, Plan]) -> None:
    verified, planned = made
    kernels = [one for one in planned.claims if isinstance(one, Computes) and isinstance(one.kernel, Nest)]
    claim = next(one for one in kernels if any(step.op == "permute" for step in one.kernel.formula.steps))  # type: ignore[attr-defined]
    table = next(home for home in claim.reads if home is not None and home.buffer.kind == "constants")
    for place in (0, TABLE - 1, 2 * TABLE + 5):
        data = bytearray(planned.constants)
        data[table.view.offset + place] ^= 1
        assert "the entries differ" in reasons(verified, replace(planned, constants=data))


def test_a_divisor_that_might_lose_all_digits_has_no_estimate() -> None:
    """A product of two negative numbers is positive; what is proven is that the sum with 1 is 1 or more."""
    builder = ProgramBuilder()
    x, y = builder.input("x", (3,), -9, 9), builder.input("y", (1,), 1 - 2**31, 0)
    numbers = (1, -(2**31), 0, 1)
    parameters = [builder.parameter(np.array([number], np.int64)) for number in numbers]
    attributes = {"terms": 1, "rounding": "half_up", "lo": -9, "hi": 9}
    (result,) = builder.add("quotient", [x, y, *parameters], attributes)
    verified = verify(builder.build([Output("y", result)]))
    kernels = plan(verified, IFMA, frozenset({result})).functions.values()
    assert [kernel.doubt for kernel in kernels if isinstance(kernel, Quotient)] == [None]
