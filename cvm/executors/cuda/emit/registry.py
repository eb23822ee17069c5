"""The kernels of a plan: one table says which function writes each kind of description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from cvm.executors.cuda.emit import (
    computed,
    depthwise,
    detections,
    elements,
    matrices,
    pools,
    products,
    row_products,
    rows,
    strips,
    sums,
    tensor_cores,
    windows,
)
from cvm.executors.cuda.emit.fills import emit_fills, together
from cvm.executors.cuda.emit.samples import with_samples
from cvm.executors.cuda.emit.threads import Emitter, Shape, Shapes
from cvm.executors.cuda.launch import TRIPLE, Kernels, Launch
from cvm.executors.native.descriptions.computed import Normalization, Quotient, Update
from cvm.executors.native.descriptions.loops import Exchange, Nest, Reduction
from cvm.executors.native.descriptions.matrices import Matrices, RowProducts
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, WindowSums
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.kernels.vision import Suppression, ValidCount
from cvm.executors.native.kernels.windows import Pool, Products
from cvm.executors.native.plan.homes import Buffer
from cvm.executors.native.plan.steps import KernelCall, Plan

__all__ = ["FAST", "PLAIN", "kernels_of"]

PLAIN: Mapping[type, Emitter] = {
    Contraction: sums.emit_contraction,
    Depthwise: sums.emit_depthwise,
    WindowSums: sums.emit_windows,
    Exchange: elements.emit_exchange,
    Nest: elements.emit_nest,
    Reduction: elements.emit_reduction,
    Matrices: matrices.emit_matrices,
    RowProducts: matrices.emit_rows,
    Products: matrices.emit_products,
    Pool: pools.emit_pool,
    Quotient: computed.emit_quotient,
    Normalization: computed.emit_normalization,
    Update: computed.emit_update,
    Suppression: detections.emit_suppression,
    ValidCount: detections.emit_valid_count,
}
"""The plain form of every kind of kernel: one thread for each element, or for each row."""

FAST: Mapping[type, Sequence[Emitter]] = {
    Nest: (strips.emit_nest,),
    Reduction: (rows.emit_reduction,),
    Normalization: (rows.emit_normalization,),
    Contraction: (tensor_cores.emit_contraction,),
    Depthwise: (depthwise.emit_depthwise,),
    WindowSums: (windows.emit_windows,),
    Matrices: (products.emit_matrices,),
    RowProducts: (row_products.emit_rows,),
    Pool: (pools.emit_words,),
}
"""Faster forms. The first one that takes a description writes its kernels."""

ALIGNMENT = 256
"""Every buffer that is an allocation of its own starts at a multiple of this many bytes."""


def kernels_of(plan: Plan, plain: frozenset[type] = frozenset()) -> Kernels:
    """The kernels of a plan and their launches. Kinds in ``plain`` are written in their plain form."""
    module = Module()
    runs = together(plan, Nest in plain)
    calls: dict[str, list[KernelCall]] = {}
    for call in (run[0] for run in runs if len(run) == 1):
        calls.setdefault(call.function, []).append(call)
    shapes = {
        name: _written(module, name, plan.functions[name], _alignments(plan, calls[name]), plain) for name in calls
    }
    fills: dict[tuple[str, ...], Shape] = {}
    launches: list[Launch] = []
    numbers: list[int] = []
    first = 0
    for run in runs:
        names = tuple(call.function for call in run)
        if len(run) == 1:
            made = [_launch(shape, run[0].arguments) for shape in shapes[names[0]]]
        else:
            if names not in fills:
                fills[names] = emit_fills(module, f"fills_{len(fills)}", [_nest(plan, name) for name in names])
            made = [_launch(fills[names], [one for call in run for one in call.arguments])]
        launches += made
        numbers += [first] * len(made)
        first += len(run)
    with_samples(module)
    return Kernels(f'target triple = "{TRIPLE}"\n{module}\n', tuple(launches), tuple(numbers))


def _nest(plan: Plan, name: str) -> Nest:
    kernel = plan.functions[name]
    assert isinstance(kernel, Nest), "only nests are fills"
    return kernel


def _launch(shape: Shape, arguments: Sequence[tuple[Buffer, int]]) -> Launch:
    crowded = None if shape.crowded is None else _launch(shape.crowded, arguments)
    return Launch(shape.function, shape.grid, shape.block, shape.shared, tuple(arguments), crowded)


def _written(module: Module, name: str, kernel: object, alignments: Sequence[int], plain: frozenset[type]) -> Shapes:
    fast = () if type(kernel) in plain else FAST.get(type(kernel), ())
    for emitter in (*fast, PLAIN[type(kernel)]):
        shapes = emitter(module, name, kernel, alignments)
        if shapes is not None:
            return shapes
    raise AssertionError("the plain form takes every description")


def _alignments(plan: Plan, calls: Iterable[KernelCall]) -> tuple[int, ...]:
    """For each argument, the largest power of two up to `ALIGNMENT` that divides its address in every call."""
    columns = zip(*(call.arguments for call in calls), strict=True)
    return tuple(gcd(ALIGNMENT, *(plan.offsets.get(buffer, 0) + offset for buffer, offset in one)) for one in columns)
