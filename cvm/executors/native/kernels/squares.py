"""Planning of convolutions in squares of results: `descriptions.winograd`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import SHORT
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels, Read
from cvm.executors.native.descriptions.winograd import POSITIONS, WEIGHTS, Squares, Winograd, WinogradInput, squares_of
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.epilogue import joined, narrow
from cvm.executors.native.kernels.formulas import Build
from cvm.executors.native.kernels.operands import KernelOperand, arguments, pixels_of
from cvm.executors.native.kernels.packing import packed_weights
from cvm.executors.native.plan import gains
from cvm.executors.native.plan.claims import Computes, Prepares
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning
from cvm.executors.native.plan.view import View
from cvm.program.model import Node

__all__ = ["plan_squares", "suits"]

Integers = npt.NDArray[np.signedinteger[Any]]

TOGETHER = 340_000
"""The most bytes of transformed elements that are multiplied by all weights before the next ones: so many stay in the
second-level cache while weights pass through it.
"""
GAP = 32
"""The elements between two positions. Those of one square at all positions are written together; without the gap, they
would often lie in the same few sets of the cache.
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


def plan_squares(
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
    reads = tuple(operand.read for operand in operands)
    first, second = _kernels(planner, node, home, built, reads, target)
    squares, products = second.squares, second.products
    what, machine = root.outputs[0].name, planner.machine.name
    axes = ((POSITIONS, squares.apart), (squares.room, squares.channels), (squares.channels, 1))
    between = Home(planner.scratch(squares.bytes), View(0, tuple((axis,) for axis in axes)), SHORT)
    planner.claim(Prepares(home, between, first, planner.next_call))
    padding, (_, _, row, column) = planner.call_of(node).attributes.padding, home.map_strides()
    given = [home.at(-padding[0] * row - padding[1] * column), between.at()]
    elements = POSITIONS * squares.count * squares.channels
    function, note = planner.kernel(first, "squares"), f"{machine} squares of 6x6 elements"
    planner.call(function, given, first.units, what, note, 0.02 * elements)

    function = planner.kernel(second, node.op)
    homes = tuple(operand.home for operand in operands)
    planner.claim(Computes(root, second, homes, (target,), planner.next_call, home))
    packed = planner.constants.add(packed_weights([transformed(weights)], products))
    others = arguments(planner, built.start, operands, products.segments, slice(0, products.channels))
    note = f"{machine} 16-bit dot products at {POSITIONS} positions of squares, tiles of {products.segments[0].tile}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    cost = 0.015 * elements * products.channels + math.prod(node.outputs[0].shape)
    planner.call(
        function, [between.at(), packed, *others, target.at()], second.units, what, note, cost, gains.PER_THREAD
    )


def _kernels(
    planner: Planning, node: Node, home: Home, built: Build, reads: tuple[Read, ...], target: Home
) -> tuple[WinogradInput, Winograd]:
    """The two kernels of a convolution of the map in ``home``."""
    machine, channels = planner.machine, planner.shape(node.inputs[1])[1]
    speeds = machine.squares
    assert speeds is not None
    images, outputs, rows, columns = node.outputs[0].shape
    pixels = pixels_of(target.view, node.op)
    assert pixels is not None
    output = Output(target.format, pixels, built.clamp)
    count = squares_of(images, rows, columns)
    blocks = segments(outputs, count, machine.narrows and narrow(output, machine), machine)
    largest = min(one.tile for one in blocks)
    tile = min(range(1, largest + 1), key=lambda size: -(-count // size) * (size + START))
    blocks = tuple(replace(one, tile=tile) for one in blocks)
    room = -(-count // tile) * tile
    squares = Squares(images, rows, columns, channels, room * channels + GAP, room)
    products = Contraction(
        1, 1, room, outputs, 2, ((POSITIONS, squares.apart),), channels, (0,), SHORT, Pixels(0, 0, channels), output,
        reads, built.formula, built.start is not None, blocks, joined(built.formula, reads, machine),
    )  # fmt: skip
    groups = -(-room // max(tile, min(speeds.together, TOGETHER // (2 * POSITIONS * channels))))
    image, _, row, column = home.map_strides()
    together = -(-room // (groups * tile)) * tile
    return WinogradInput(squares, Pixels(image, row, column, 1)), Winograd(squares, products, together)
