"""The checker refuses plans that overwrite a state before its last reader, or write something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cvm.executors.native.checker import unproven
from cvm.executors.native.descriptions.computed import Update
from cvm.executors.native.kernels import registry
from cvm.executors.native.plan.claims import Computes, Copies
from cvm.executors.native.plan.residence import Residence
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.select import available
from cvm.program import Program
from cvm.program.verifier import VerifiedProgram, verify
from tests.executors import stateful

MACHINE = available()[0]


def planned(program: Program) -> tuple[VerifiedProgram, Plan]:
    """A resident plan."""
    verified = verify(program)
    outputs = frozenset(item.value for item in program.outputs)
    return verified, registry.plan(verified, MACHINE, outputs, None, True)


@pytest.mark.parametrize("name", stateful.PROGRAMS)
def test_plans_are_proven(name: str) -> None:
    verified, plan = planned(stateful.PROGRAMS[name]())
    assert plan.kept
    assert not unproven(verified, plan, MACHINE)


@pytest.mark.parametrize("name", ["read_after", "view_after", "from_itself"])
def test_a_planner_that_always_writes_in_place_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Any, node: Any) -> Any:
        self._placed.add(node.inputs[0])
        home = self._planner.arrays[node.inputs[0]]
        self._planner.homes[node.outputs[0].name] = home
        return home

    monkeypatch.setattr(Residence, "in_place", careless)
    verified, plan = planned(stateful.PROGRAMS[name]())
    assert unproven(verified, plan, MACHINE)


def test_states_that_exchange_their_values_without_a_third_place_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Any) -> None:
        for name, item in self._state.items():
            self._planner.copy(self._planner.home(item.update), self._planner.arrays[name], name)

    monkeypatch.setattr(Residence, "update", careless)
    verified, plan = planned(stateful.PROGRAMS["shifted"]())
    assert unproven(verified, plan, MACHINE)


def test_a_state_that_is_not_updated_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Residence, "update", lambda self: None)
    verified, plan = planned(stateful.PROGRAMS["shifted"]())
    assert "does not hold the next state" in unproven(verified, plan, MACHINE)[""]


def other_kernel(**changes: Any) -> Callable[[Plan], Plan]:
    """A change of the kernel that writes in place."""

    def change(plan: Plan) -> Plan:
        claims = list(plan.claims)
        for number, claim in enumerate(claims):
            if isinstance(claim, Computes) and isinstance(claim.kernel, Update):
                kernel = claim.kernel
                made = {name: value(kernel) if callable(value) else value for name, value in changes.items()}
                claims[number] = replace(claim, kernel=replace(kernel, **made))
        return replace(plan, claims=tuple(claims))

    return change


def other_arguments(plan: Plan) -> Plan:
    """The updating call writes one element further."""
    (claim,) = [one for one in plan.claims if isinstance(one, Computes) and isinstance(one.kernel, Update)]
    calls = list(plan.calls)
    buffer, offset = calls[claim.call].arguments[-1]
    arguments = (*calls[claim.call].arguments[:-1], (buffer, offset + 1))
    calls[claim.call] = replace(calls[claim.call], arguments=arguments)
    return replace(plan, calls=tuple(calls))


def a_silent_call(plan: Plan) -> Plan:
    """Another call gets the array of the state, and no claim says so."""
    (claim,) = [one for one in plan.claims if isinstance(one, Computes) and isinstance(one.kernel, Update)]
    state = plan.calls[claim.call].arguments[0]
    other = next(number for number, call in enumerate(plan.calls) if state not in call.arguments)
    calls = list(plan.calls)
    calls[other] = replace(calls[other], arguments=(state, *calls[other].arguments[1:]))
    return replace(plan, calls=tuple(calls))


def claims_out_of_order(plan: Plan) -> Plan:
    """The claims say that the new state is read first."""
    with_calls = [number for number, claim in enumerate(plan.claims) if isinstance(claim, Computes | Copies)]
    claims = list(plan.claims)
    for one, other in zip(with_calls, reversed(with_calls), strict=True):
        claims[one] = plan.claims[other]
    return replace(plan, claims=tuple(claims))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_kernel(kept=lambda kernel: kernel.replaced), "the rest of the state is not kept"),
        (other_kernel(last=lambda kernel: kernel.last + 1), "another greatest index"),
        (other_kernel(stride=lambda kernel: kernel.stride + 1), "another stride"),
        (other_kernel(replaced=lambda kernel: kernel.replaced[:1]), "visits other elements"),
        (other_kernel(formats=lambda kernel: kernel.formats[::-1]), "other formats"),
        (other_arguments, "other arguments"),
        (a_silent_call, ""),
        (claims_out_of_order, ""),
    ],
)
def test_wrong_plans_are_found_out(change: Callable[[Plan], Plan], reason: str) -> None:
    verified, plan = planned(stateful.cache())
    assert not unproven(verified, plan, MACHINE)
    found = unproven(verified, change(plan), MACHINE)
    assert found
    assert reason in " ".join(found.values())
