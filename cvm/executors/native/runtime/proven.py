"""Proven plans: the checker must prove every plan before its code is used.

If the checker cannot prove a group, the group is planned again in the form that is easy to prove: every node gets a
kernel of its own, and `requantize` is computed in 64-bit lanes. If that plan is not proven either, it is not used.
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
Result = TypeVar("Result")


def proven(
    verified: VerifiedProgram,
    machine: Machine,
    returned: frozenset[str],
    written: Callable[[Plan], Callable[[], Code]],
    resident: bool = False,
    meanwhile: Callable[[Plan], None] = lambda plan: None,
    refused: Callable[[Plan], dict[str, str]] = lambda plan: {},
    seen: Callable[[object], None] = lambda kernel: None,
    threads: int = 1,
) -> tuple[Plan, Code]:
    """Return a plan of which every claim is proven, and its code. Raises `Distrusted` if there is no such plan.

    ``written`` writes the text of a plan's code and returns the function that generates the code. The code generator
    does not hold Python's lock, so it works at the same time as the checker. So does ``meanwhile``, which gets the
    plan; what it raises counts only if the plan is proven. ``refused`` names values, each with the reason, whose groups
    a machine has no code for. ``seen`` is called with each kernel as soon as it is planned. ``threads`` is the
    number of threads that a run may have.
    """
    unknown = {node.op for node in verified.program.nodes} - PLANS.keys()
    if unknown:
        raise Distrusted(f"there are no kernels of {', '.join(sorted(unknown))}")
    plain: dict[str, str] = {}
    while True:
        made = plan(verified, machine, returned, plain, resident, seen, threads)
        generated = written(made)
        with ThreadPoolExecutor(2) as pool:
            result = _begun(pool, generated)
            prepared = _begun(pool, partial(meanwhile, made))
            found = refused(made) | unproven(verified, made, machine)
        if not found:
            prepared()
            return made, result()
        known = {value.name for node in verified.program.nodes for value in node.outputs}
        if not found.keys() <= known or found.keys() & plain.keys():
            reasons = "; ".join(f"{name or 'the plan'}: {reason}" for name, reason in found.items())
            raise Distrusted(f"the plan is not proven: {reasons}")
        inside = {name: found[root] for name, root in made.joined.items() if root in found}
        plain = {**plain, **found, **inside}


def _begun(pool: ThreadPoolExecutor, what: Callable[[], Result]) -> Callable[[], Result]:
    """Begin to compute something on another thread. The function that is returned waits for it."""
    try:
        return pool.submit(what).result
    except RuntimeError:  # the system has no more threads
        return what
