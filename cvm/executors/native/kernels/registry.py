"""Two tables: the function that plans each op, and the function that writes the code of each kind of kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cvm.executors.native.descriptions.computed import Normalization, Quotient, Update
from cvm.executors.native.descriptions.loops import Exchange, Nest, Reduction
from cvm.executors.native.descriptions.matrices import Matrices, RowProducts
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, WindowSums
from cvm.executors.native.descriptions.winograd import Winograd, WinogradInput
from cvm.executors.native.emit.contraction import emit_contraction
from cvm.executors.native.emit.depthwise_sums import emit_depthwise
from cvm.executors.native.emit.exchange import emit_exchange
from cvm.executors.native.emit.folds import emit_reduction
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.nest import emit_nest
from cvm.executors.native.emit.square_sums import emit_winograd, emit_winograd_input
from cvm.executors.native.emit.tiles import Tiled, emit_tiles
from cvm.executors.native.emit.window_sums import emit_window_sums
from cvm.executors.native.kernels import (
    contractions,
    matrices,
    movement,
    normalization,
    pointwise,
    pools,
    quotients,
    reductions,
    rows,
    updates,
    vision,
    windows,
)
from cvm.executors.native.plan.planner import Planner
from cvm.executors.native.plan.protocol import OpPlan
from cvm.executors.native.plan.steps import Plan
from cvm.program.verifier import VerifiedProgram

__all__ = ["EMITTERS", "PLANS", "emit", "merged", "plan"]

Emitter = Callable[[Module, str, Any, Machine], None]


def merged(*tables: Mapping[str, OpPlan]) -> dict[str, OpPlan]:
    """The entries of all tables in one. Raises ValueError for an op that stands in two of them."""
    found: dict[str, OpPlan] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        if twice:
            raise ValueError(f"two modules plan the same ops: {', '.join(sorted(twice))}")
        found.update(table)
    return found


PLANS: Mapping[str, OpPlan] = merged(
    contractions.PLANS, matrices.PLANS, movement.PLANS, normalization.PLANS, pointwise.PLANS, quotients.PLANS,
    reductions.PLANS, updates.PLANS, vision.PLANS, windows.PLANS,
)  # fmt: skip
"""How each op of `cvm.ops` is planned."""


def _by_width(emitter: Callable[[Module, str, Any, int], None]) -> Emitter:
    """The emitter of a kernel that depends on the machine only through the number of lanes of its vectors."""
    return lambda module, name, kernel, machine: emitter(module, name, kernel, machine.width)


def _anywhere(emitter: Callable[[Module, str, Any], None]) -> Emitter:
    """The emitter of a kernel that is the same on all machines."""
    return lambda module, name, kernel, machine: emitter(module, name, kernel)


EMITTERS: Mapping[type, Emitter] = {
    Contraction: emit_contraction,
    Depthwise: emit_depthwise,
    Exchange: _by_width(emit_exchange),
    Matrices: matrices.emit_matrices,
    RowProducts: rows.emit_rows,
    Nest: _by_width(emit_nest),
    Tiled: emit_tiles,
    WindowSums: emit_window_sums,
    Winograd: emit_winograd,
    WinogradInput: emit_winograd_input,
    Normalization: _by_width(normalization.emit_normalization),
    Quotient: _by_width(quotients.emit_quotient),
    Update: _by_width(updates.emit_update),
    Reduction: emit_reduction,
    vision.Suppression: _anywhere(vision.emit_suppression),
    vision.ValidCount: _anywhere(vision.emit_valid_count),
    windows.Pool: _by_width(pools.emit_pool),
    windows.Products: _by_width(windows.emit_products),
}
"""The function that writes the code of each kind of kernel."""


def emit(module: Module, name: str, kernel: object, machine: Machine) -> None:
    """Write the function of a kernel into the module."""
    EMITTERS[type(kernel)](module, name, kernel, machine)


def plan(
    verified: VerifiedProgram,
    machine: Machine,
    returned: frozenset[str],
    plain: Mapping[str, str] | None = None,
    resident: bool = False,
    seen: Callable[[object], None] = lambda kernel: None,
    threads: int = 1,
) -> Plan:
    """Plan a program for a machine. ``returned`` names the values that the caller gets; for the rest see `Planner`."""
    return Planner(verified, machine, returned, PLANS, plain, resident, seen, threads).plan()
