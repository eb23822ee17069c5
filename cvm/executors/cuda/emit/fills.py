"""Fills: neighbouring calls that write one constant to parts of a tensor, such as its four borders, as one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.elements import walked
from cvm.executors.cuda.emit.threads import Kernel, Shape, covering, digits
from cvm.executors.cuda.launch import MOST_ARGUMENTS
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Module, V
from cvm.executors.native.emit.nest import Reading
from cvm.executors.native.plan.steps import KernelCall, Plan

__all__ = ["emit_fills", "together"]


def together(plan: Plan, apart: bool) -> list[tuple[KernelCall, ...]]:
    """The calls of a plan in their order, those that one launch can serve together. With ``apart``, each is alone.

    Neighbouring calls that write the same number to parts of the same buffer, and read nothing, may run in any order.
    """
    found: list[tuple[KernelCall, ...]] = []
    for call in plan.calls:
        if found and not apart and len(found[-1]) < MOST_ARGUMENTS and _alike(plan, found[-1][-1], call):
            found[-1] = (*found[-1], call)
        else:
            found.append((call,))
    return found


def _alike(plan: Plan, call: KernelCall, other: KernelCall) -> bool:
    kernels = [plan.functions[one.function] for one in (call, other)]
    what = [(one.formula, one.formats) for one in kernels if isinstance(one, Nest) and len(one.formats) == 1]
    return len(what) == 2 and what[0] == what[1] and call.arguments[0][0] == other.arguments[0][0]


def emit_fills(module: Module, name: str, nests: Sequence[Nest]) -> Shape:
    """Write the kernel (every part): its threads write some elements of each part."""
    code = Kernel(module, name, len(nests))
    for nest, start in zip(nests, code.arguments, strict=True):
        extents, size = [loop.extent for loop in nest.loops], nest.formats[0].bytes

        def element(
            index: V, nest: Nest = nest, start: V = start, extents: list[int] = extents, size: int = size
        ) -> None:
            at = walked(code, nest.loops, digits(code, index, extents), [size], [start])
            here = Reading(code, nest, at, 1)
            here.write(evaluate(code, nest.formula, here, 1))

        code.elements(math.prod(extents), element)
    code.finish()
    return covering(name, max(math.prod(loop.extent for loop in nest.loops) for nest in nests))
