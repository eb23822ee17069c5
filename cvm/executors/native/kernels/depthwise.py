"""Planning of depthwise convolutions: blocks of channels, and how the rows of a window are multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import ROWS, TAPS, Block, Depthwise, Output, Pixels, Segment
from cvm.executors.native.emit.epilogue import joined
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.kernels.formulas import Build
from cvm.executors.native.kernels.operands import KernelOperand, arguments
from cvm.executors.native.kernels.packing import packed_taps, parts
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning
from cvm.program.model import Node

__all__ = ["plan_depthwise", "segments", "suits"]

Integers = npt.NDArray[np.signedinteger[Any]]
TALLEST = 64
"""Windows of more rows than this are computed as general contractions."""
WIDEST = 256
"""Weights of a larger magnitude than this are computed as general contractions. Two bytes add up to -256 .. 254, and
codes of eight bits minus their zero point to -255 .. 255.
"""

WIDE = 16
"""On machines with vectors of at least this many lanes, two pixels are worth it wherever they lie: a vector of half as
many lanes takes as long.
"""
LOOPED = 16
"""The most outputs of a strip that is computed by a loop. They lie in 2 KiB of the stack."""


def suits(shape: tuple[int, ...], groups: int, format_: Format, weights: Integers) -> bool:
    """Whether a convolution is depthwise, with inputs of 8 bits, weights up to `WIDEST` and at most `TALLEST` rows."""
    OC, IC, KH, _ = shape
    narrow = int(weights.min()) >= -WIDEST and int(weights.max()) <= WIDEST
    return groups == OC > 1 and IC == 1 and KH <= TALLEST and format_.bits == 8 and not format_.signed and narrow


def segments(channels: int, machine: Machine, columns: int = 1) -> tuple[Segment, ...]:
    """Divide the channels into blocks of four interleaved vectors, the widest vectors first. The last block may have
    lanes without a channel.

    Blocks of narrower vectors compute as many neighbouring pixels together as fill the widest vectors, where the codes
    of as many pixels as ``columns`` can be packed. Two pixels are worth it only if all their channels lie side by side,
    or on machines whose vectors have at least `WIDE` lanes.
    """
    found: list[Segment] = []
    done = 0
    while done < channels:
        left, lane = channels - done, min((machine.width, *machine.narrower))
        fitting = [n for n in (machine.width, *machine.narrower) if 4 * n <= left]
        if machine.one_shift and left <= 2 * lane:
            block, count = Block(lane, 2, left, True), 1
        elif fitting:
            block, count = Block(fitting[0], 4, 4 * fitting[0], True), left // (4 * fitting[0])
        elif left <= 2 * lane < 2 * machine.width <= columns * lane:
            block, count = Block(lane, 2, left, True), 1
        else:
            block, count = Block(lane, 4, left, True), 1
        size = block.lane * block.vectors
        pixels = 4 * machine.width // size
        worth = pixels <= columns and (pixels > 2 or channels == size or machine.width >= WIDE)
        found.append(Segment(done, count, block, pixels if worth else 1))
        done += count * size
    return tuple(found)


def plan_depthwise(
    planner: Planning,
    root: Node,
    node: Node,
    home: Home,
    weights: Integers,
    built: Build,
    operands: Sequence[KernelOperand],
    target: Home,
) -> None:
    """Plan the call of a depthwise convolution. The border of its input ``home`` is at least as wide as its padding."""
    machine = planner.machine
    a = planner.call_of(node).attributes
    images, _, rows, columns = node.outputs[0].shape
    strides = home.map_strides()
    out = [target.view.stride(axis) or 0 for axis in range(4)]
    channels, _, KH, KW = weights.shape
    taps, repeats = weights[:, 0], tuple[int, ...]()
    clips = machine.clips(magnitude(taps))
    pairs = (machine.one_shift or clips) and KH * KW <= TAPS
    if not pairs:
        taps, repeats = _repeated(taps, machine)
    digits = [taps] if pairs else parts(taps, machine)
    reads = tuple(operand.read for operand in operands)
    output = Output(target.format, Pixels(out[0], out[2], out[3], out[1]), built.clamp)
    packs = machine.packs and output.format == Format(8, False, output.format.bias) and output.pixels.channel == 1
    alike = columns if packs and all(read.pixels is None for read in reads) else 1
    kernel = Depthwise(
        images, rows, columns, channels, taps.shape[1:], (a.dilation[0] * strides[2], a.dilation[1] * strides[3]),
        a.stride[1], a.dilation[1], len(digits),
        Pixels(strides[0], a.stride[0] * strides[2], strides[3], 1),
        output, reads, built.formula, built.start is not None,
        segments(channels, machine, alike), None, repeats,
    )  # fmt: skip
    joint = joined(kernel.formula, kernel.reads, machine)
    kernel = replace(kernel, joint=joint, per=2 if pairs else 4, longest=LOOPED if pairs and clips else 8)
    function = planner.kernel(kernel, "depthwise")
    homes = tuple(operand.home for operand in operands)
    planner.claim(Computes(root, kernel, homes, (target,), planner.next_call, home))
    moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]
    packed = planner.constants.add(packed_taps(digits, kernel))
    others = arguments(planner, built.start, operands, kernel.segments, slice(0, channels))
    given = [home.at(moved), packed, *others, target.at()]
    note = f"{machine.name} depthwise, {len(digits)} part{'s' if len(digits) > 1 else ''}, strips of {_strips(kernel)}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    cost = math.prod(node.outputs[0].shape) * (0.5 + 0.01 * KH * KW * len(digits))
    planner.call(function, given, kernel.units, root.outputs[0].name, note, cost)


def _strips(kernel: Depthwise) -> str:
    """The strips of all segments in words."""
    tiles = [segment.tile for segment in kernel.segments]
    return " and ".join(
        f"{kernel.strip(tile)}{f', {tile} pixels in a vector' if tile > 1 else ''}" for tile in dict.fromkeys(tiles)
    )


def _repeated(weights: Integers, machine: Machine) -> tuple[Integers, tuple[int, ...]]:
    """Weights (channels, KH, KW) with rows appended that are multiplied once more, and the numbers of these rows.

    Dot products multiply `ROWS` rows at a time, so there may be room for further rows. They take what exceeds a byte in
    the rows before them, if only as many rows as there is room for have such weights.
    """
    narrow = weights.clip(-128, 127)
    wide = np.flatnonzero((weights != narrow).any(axis=(0, 2)))
    if machine.saturates or len(wide) > -weights.shape[1] % ROWS:
        return weights, ()
    return np.concatenate([narrow, (weights - narrow)[:, wide]], axis=1), tuple(wide.tolist())
