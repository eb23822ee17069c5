"""Planning of convolutions in squares of results: `descriptions.winograd`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import SHORT
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels
from cvm.executors.native.descriptions.winograd import POSITIONS, WEIGHTS, Squares, Winograd, WinogradInput
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.epilogue import joined, narrow
from cvm.executors.native.kernels.formulas import Build
from cvm.executors.native.kernels.operands import KernelOperand, arguments, pixels_of
from cvm.executors.native.kernels.packing import packed_weights
from cvm.executors.native.plan.claims import Computes, Prepares
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning
from cvm.executors.native.plan.view import View
from cvm.program.model import Node

__all__ = ["plan_winograd", "suits"]

Integers = npt.NDArray[np.signedinteger[Any]]

TOGETHER = 340_000
"""The most bytes of transformed elements that are multiplied by all weights before the next ones: so many stay in the
second-level cache while weights pass through it.
"""
GAP = 32
"""The elements between two positions, half a cache line and more: so the elements of one square at all positions, which
are written together, lie in different sets of the cache.
"""
START = 1.5
"""The fixed time of a few squares that are multiplied together, counted in squares."""


def suits(planner: Planning, node: Node, home: Home) -> bool:
    """Whether a convolution of the map in ``home`` is computed in squares."""
    format_ = home.format
    return planner.in_squares(node) and (format_.bits, format_.signed) == (8, False) and home.map_strides()[1] == 1


def transformed(weights: Integers) -> npt.NDArray[np.int16]:
    """The weights at all positions, (OC, 36, IC), from bytes (OC, IC, 3, 3).

    Their magnitudes are at most 49 * 128, as are those of all numbers on the way.
    """
    both = np.kron(WEIGHTS, WEIGHTS).astype(np.int16)
    flat = weights.astype(np.int16).reshape(-1, both.shape[1])
    return (flat @ both.T).reshape(*weights.shape[:2], POSITIONS).transpose(0, 2, 1)


def plan_winograd(
    planner: Planning,
    root: Node,
    node: Node,
    home: Home,
    weights: Integers,
    built: Build,
    operands: Sequence[KernelOperand],
    target: Home,
) -> None:
    """Plan the two calls of a convolution in squares. The border of its input ``home`` is as wide as its padding."""
    machine = planner.machine
    images, _, rows, columns = node.outputs[0].shape
    OC, IC = weights.shape[:2]
    pixels = pixels_of(target.view, node.op)
    assert pixels is not None
    output = Output(target.format, pixels, built.clamp)
    reads = tuple(operand.read for operand in operands)
    packs = machine.narrows and narrow(output, machine)
    count = Squares(images, rows, columns, IC, 0, 0).count
    blocks = segments(OC, count, packs, machine)
    tile = min(range(1, min(one.tile for one in blocks) + 1), key=lambda size: -(-count // size) * (size + START))
    blocks = tuple(replace(one, tile=tile) for one in blocks)
    room = -(-count // tile) * tile
    squares = Squares(images, rows, columns, IC, room * IC + GAP, room)
    products = Contraction(
        1, 1, room, OC, 2, ((POSITIONS, squares.apart),), IC, (0,), SHORT, Pixels(0, 0, IC), output, reads,
        built.formula, built.start is not None, blocks, joined(built.formula, reads, machine),
    )  # fmt: skip
    parts = -(-room * 2 * POSITIONS * IC // TOGETHER)
    kernel = Winograd(squares, products, -(-room // (parts * tile)) * tile)
    strides = home.map_strides()
    a = planner.call_of(node).attributes
    made = WinogradInput(squares, Pixels(strides[0], strides[2], strides[3], 1))
    view = View.ordered((POSITIONS, room, IC), range(3))
    between = Home(planner.scratch(squares.bytes), view, SHORT)
    moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]
    planner.claim(Prepares(home, between, made, planner.next_call))
    what, name = root.outputs[0].name, machine.name
    arguments_ = [home.at(moved), between.at()]
    cost = 0.02 * POSITIONS * count * IC
    planner.call(planner.kernel(made, "squares"), arguments_, made.units, what, f"{name} squares of 6x6 elements", cost)
    function = planner.kernel(kernel, node.op)
    homes = tuple(operand.home for operand in operands)
    planner.claim(Computes(root, kernel, homes, (target,), planner.next_call, home))
    packed = planner.constants.add(packed_weights([transformed(weights)], products))
    others = arguments(planner, built.start, operands, blocks, slice(0, OC))
    note = f"{name} 16-bit dot products at {POSITIONS} positions of squares of 4x4 results, tiles of {tile}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    cost = 0.013 * POSITIONS * room * IC * OC + 1.2 * math.prod(node.outputs[0].shape)
    planner.call(function, [between.at(), packed, *others, target.at()], kernel.units, what, note, cost)
