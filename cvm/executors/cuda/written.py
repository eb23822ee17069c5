"""Written networks: proven plans with the text of their kernels, which is what a device runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cvm.executors.cuda.launch import MOST_ARGUMENTS, Kernels
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Written", "written"]


@dataclass(frozen=True, slots=True)
class Written:
    """A plan of which every claim is proven, and its kernels. A restored plan has no descriptions of kernels."""

    plan: Plan
    kernels: Kernels


def written(verified: VerifiedProgram, returned: frozenset[str], plain: frozenset[type]) -> Written:
    """Plan a network that returns some values, prove the plan, and write its kernels. Raises `Distrusted`.

    Kernels of the kinds in ``plain`` are written in their plain form.
    """
    from cvm.executors.cuda.emit.registry import kernels_of  # a network that is restored needs no planner
    from cvm.executors.native.runtime.proven import proven

    try:
        made = proven(verified, CUDA, returned, lambda plan: partial(kernels_of, plan, plain), refused=_crowded)
    except (ArithmeticError, AssertionError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Distrusted(f"the planner failed: {type(error).__name__}: {error}") from error
    return Written(*made)


def _crowded(made: Plan) -> dict[str, str]:
    """The values whose kernels would take more than `MOST_ARGUMENTS` addresses."""
    reason = f"a kernel takes at most {MOST_ARGUMENTS} addresses"
    return {call.what: reason for call in made.calls if len(call.arguments) > MOST_ARGUMENTS}
