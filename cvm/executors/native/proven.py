"""Plans that are proven: the checker sees every plan before it is compiled.

What the checker cannot prove is planned again without what is hard to prove: the nodes of that group are kernels of
their own, and `requantize` is computed in 64-bit lanes. What is not proven then is not compiled at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cvm.executors.native.checker import unproven
from cvm.executors.native.distrust import Distrusted
from cvm.executors.native.plan import plan

if TYPE_CHECKING:
    from cvm.executors.native.machine import Machine
    from cvm.executors.native.steps import Plan
    from cvm.program.verifier import VerifiedProgram

__all__ = ["proven"]


def proven(verified: VerifiedProgram, machine: Machine, returned: frozenset[str]) -> Plan:
    """A plan whose every claim is proven. Raises `Distrusted` where there is none."""
    plain: dict[str, str] = {}
    while True:
        made = plan(verified, machine, returned, plain)
        found = unproven(verified, made, machine)
        if not found:
            return made
        known = {value.name for node in verified.program.nodes for value in node.outputs}
        if not found.keys() <= known or found.keys() & plain.keys():
            reasons = "; ".join(f"{name or 'the plan'}: {reason}" for name, reason in found.items())
            raise Distrusted(f"the plan is not proven: {reasons}")
        inside = {name: found[root] for name, root in made.joined.items() if root in found}
        plain = {**plain, **found, **inside}
