"""Plans that are proven: the checker sees every plan before its code is used.

A group that the checker cannot prove is planned again without what is hard to prove: the nodes of that group are
kernels of their own, and `requantize` is computed in 64-bit lanes. A plan that is not proven then is not used at all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cvm.executors.native.checker import unproven
from cvm.executors.native.kernels.registry import PLANS, plan
from cvm.executors.native.runtime.distrust import Distrusted

if TYPE_CHECKING:
    from cvm.executors.native.emit.machine import Machine
    from cvm.executors.native.plan.steps import Plan
    from cvm.program.verifier import VerifiedProgram

__all__ = ["proven"]

Code = TypeVar("Code")


def proven(
    verified: VerifiedProgram, machine: Machine, returned: frozenset[str], compiled: Callable[[Plan], Code]
) -> tuple[Plan, Code]:
    """A plan whose every claim is proven, and what it was compiled to. Raises `Distrusted` where there is none.

    The code generator, which does not hold Python's lock, works while the checker does.
    """
    unknown = {node.op for node in verified.program.nodes} - PLANS.keys()
    if unknown:
        raise Distrusted(f"there are no kernels of {', '.join(sorted(unknown))}")
    plain: dict[str, str] = {}
    while True:
        made = plan(verified, machine, returned, plain)
        with ThreadPoolExecutor(1) as generator:
            try:
                result = generator.submit(compiled, made).result
            except RuntimeError:  # there is no thread to be had
                result = partial(compiled, made)
            found = unproven(verified, made, machine)
        if not found:
            return made, result()
        known = {value.name for node in verified.program.nodes for value in node.outputs}
        if not found.keys() <= known or found.keys() & plain.keys():
            reasons = "; ".join(f"{name or 'the plan'}: {reason}" for name, reason in found.items())
            raise Distrusted(f"the plan is not proven: {reasons}")
        inside = {name: found[root] for name, root in made.joined.items() if root in found}
        plain = {**plain, **found, **inside}
