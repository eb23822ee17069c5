"""Planning of `conv2d` and `dense` with constant weights: formats, runs, blocks and tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.executors.native.descriptions.formats import INT32, SHORT, Format
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels, Read, WindowSums
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.epilogue import joined, narrow
from cvm.executors.native.emit.tiles import tiled
from cvm.executors.native.exact import Exact, exact
from cvm.executors.native.kernels import depthwise, squares
from cvm.executors.native.kernels.formulas import Build, Sums, build
from cvm.executors.native.kernels.operands import CHANNELS_LAST, arguments, operand_of, pixels_of
from cvm.executors.native.kernels.packing import packed_weights, passes
from cvm.executors.native.kernels.windows import plan_products
from cvm.executors.native.plan.claims import Computes, Prepares
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.executors.native.plan.view import View
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["PLANS", "plan_contraction"]

Integers = npt.NDArray[np.signedinteger[Any]]


def plan_node(planner: Planning, node: Node) -> None:
    """Plan a `conv2d` or `dense` whose kernel no later node has joined."""
    if planner.contracts(node):
        plan_contraction(planner, node)
    else:
        plan_products(planner, node)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Which elements of its input's home a contraction reads, in which order.

    ``taps`` are loops (count, distance in elements) around runs of ``run`` elements that lie side by side. ``weights``
    (OC, taps, run) are in the same order, in integers of any width. ``home`` is the home of the input with its border.
    ``group`` is the distance from one group's input to the next, in elements.
    """

    home: Home
    images: int
    rows: int
    columns: int
    groups: int
    source: Pixels
    group: int
    taps: tuple[tuple[int, int], ...]
    run: int
    weights: Integers


def plan_contraction(planner: Planning, root: Node) -> None:
    """Plan the kernel of a group of nodes that contains a contraction."""
    node = planner.groups.sums[root.outputs[0].name]
    weights = planner.weights(node.inputs[1])
    bias = exact(np.zeros(weights.shape[0], np.int64))
    if len(node.inputs) == 3:
        given = planner.constant(node.inputs[2])
        assert given is not None
        bias = exact(given)
    target = planner.result(root.outputs[0].name)
    if node.op == "conv2d":
        map_ = _map_home(planner, node)
        plan_map = _of_map(planner, node, map_, weights)
        if plan_map is not None:
            sums = _sums(planner, node, map_.format, weights.reshape(weights.shape[0], -1), bias)
            built = build(planner, root, sums)
            operands = [operand_of(planner, read, target, node.op) for read in built.reads]
            plan_map(planner, root, node, map_, weights, built, operands, target)
            return
        home, geometry = _convolution(planner, node, weights, map_)
    else:
        home, geometry = _product(planner, node, weights)
    sums = _sums(planner, node, home.format, weights.reshape(weights.shape[0], -1), bias)
    less = _less(home.format, geometry)
    if less:
        sums = replace(sums, windows=_windows(planner, node, home, geometry, less))
        geometry = replace(geometry, weights=(geometry.weights.astype(np.int32) - less).astype(np.int8))
    _calls(planner, root, node, home, geometry, build(planner, root, sums), target)


def _of_map(planner: Planning, node: Node, map_: Home, weights: Integers) -> Callable[..., None] | None:
    """The function that plans a convolution as a kernel of another kind than `Contraction`, if one does."""
    if depthwise.suits(weights.shape, planner.call_of(node).attributes.groups, map_.format, weights):
        return depthwise.plan_depthwise
    return squares.plan_squares if squares.suits(planner, node, map_) else None


def _less(format_: Format, geometry: Geometry) -> int:
    """The number c by which all weights are made less so that they fit in a byte, or 0 where they stay as they are.

    With w = v + c, sum w x = sum v x + c * sum x. The second sum has one number for each pixel. It costs less than a
    second digit of the weights.
    """
    lo, hi = int(geometry.weights.min()), int(geometry.weights.max())
    if _per(format_, geometry.weights) != 4 or geometry.groups > 1 or hi - lo > 255:
        return 0
    return max(0, hi - 127) + min(0, lo + 128)


def _windows(planner: Planning, node: Node, home: Home, geometry: Geometry, factor: int) -> Home:
    """Plan the call that adds up every window of a contraction, times ``factor``. Returns the home of these numbers."""
    extents = geometry.images, geometry.rows, geometry.columns
    kernel = WindowSums(*extents, geometry.taps, geometry.run, geometry.source)
    for _ in range(2):  # the rows of a map, or the maps of all images, may lie at equal distances
        if kernel.rows == 1 and kernel.source.image == kernel.columns * kernel.source.column:
            kernel = replace(kernel, images=1, columns=kernel.images * kernel.columns)
        if kernel.source.row == kernel.columns * kernel.source.column:
            kernel = replace(kernel, rows=1, columns=kernel.rows * kernel.columns)
    result = node.outputs[0]
    shape = tuple(1 if axis == 1 else n for axis, n in enumerate(result.shape))
    target = Home(planner.scratch(4 * math.prod(shape)), View.ordered(shape, range(len(shape))), INT32)
    function = planner.kernel(kernel, "windows")
    planner.claim(Prepares(geometry.home, target, kernel, planner.next_call))
    given = [home.at(), planner.constants.add(factor.to_bytes(4, "little", signed=True)), target.at()]
    cost = math.prod(shape) * (2 + 0.3 * math.prod(n for n, _ in kernel.taps) * -(-kernel.run // 64))
    note = f"{planner.machine.name} sums of windows times {factor}"
    planner.call(function, given, kernel.units, result.name, note, cost)
    return target


def _sums(planner: Planning, node: Node, format_: Format, weights: Integers, bias: Exact) -> Sums:
    """The sums of a contraction over stored integers.

    A stored byte is x plus the bias of its format, so a dot product of bytes multiplies x + bias. The value that the
    sums start with subtracts the bias times the weights again. Where the machine flips the highest bits of bytes, the
    dot product multiplies x + bias - 128, and the start corrects that too.

    The bounds of the added products come from the input's proven interval, extended to 0, which borders hold, and
    shifted by the same number. Only the start modulo 2^32 matters, unless the first requantize adds the start itself.
    """
    per = _per(format_, weights)
    stored = (format_.bias if per > 1 else 0) - (128 if planner.machine.signed_bytes and per == 4 else 0)
    lo, hi = planner.hull(node.inputs[0])
    lo, hi = min(lo, 0) + stored, max(hi, 0) + stored
    total = exact(weights).sum(axis=1)
    below = exact(np.minimum(weights, 0)).sum(axis=1)
    above = total - below
    return Sums(node, bias - total * stored, below * hi + above * lo, above * hi + below * lo)


def _wanted(planner: Planning, node: Node) -> Format:
    """The format in which a contraction multiplies its input."""
    format_ = Format.of(*planner.hull(node.inputs[0]))
    return SHORT if format_.bits == 8 and planner.by_words(node) else format_


def _usable(home: Home, wanted: Format) -> bool:
    return home.format == SHORT or (wanted != SHORT and home.format.bits <= wanted.bits)


def _map_home(planner: Planning, node: Node) -> Home:
    """The home of a convolution's input: channels last, in a narrow format, with a border as wide as the padding."""
    name = node.inputs[0]
    home, wanted = planner.home(name), _wanted(planner, node)
    padding = planner.call_of(node).attributes.padding
    view = home.view
    ordered = all(view.stride(axis) is not None for axis in range(4)) and (view.shape[1] == 1 or view.stride(1) == 1)
    bordered = home.border[0] >= padding[0] and home.border[1] >= padding[1]
    if ordered and bordered and _usable(home, wanted):
        return home
    return planner.laid_out(name, wanted, CHANNELS_LAST, planner.border(name))


def _convolution(planner: Planning, node: Node, weights: Integers, home: Home) -> tuple[Home, Geometry]:
    """A convolution of the map in ``home``. The home that is returned begins at the first tap of the first window."""
    a = planner.call_of(node).attributes
    OC, IC, KH, KW = weights.shape
    images, _, rows, columns = node.outputs[0].shape
    strides = home.map_strides()
    taps = [(KH, a.dilation[0] * strides[2]), (KW, a.dilation[1] * strides[3])]
    run = IC
    ordered = weights.transpose(0, 2, 3, 1).reshape(OC, KH * KW, IC)
    if taps[1][1] == run or KW == 1:  # the columns of a window lie side by side, so they form one run
        run *= KW
        taps.pop()
        ordered = ordered.reshape(OC, KH, run)
        if taps[0][1] == run or KH == 1:
            run *= KH
            taps.pop()
            ordered = ordered.reshape(OC, 1, run)
    moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]
    shifted = replace(home, view=View(home.view.offset + moved, home.view.axes))
    source = Pixels(strides[0], a.stride[0] * strides[2], a.stride[1] * strides[3], strides[1])
    return shifted, Geometry(
        home,
        images,
        rows,
        columns,
        a.groups,
        source,
        IC * (strides[1] or 1),
        tuple(t for t in taps if t[0] > 1),
        run,
        ordered,
    )


def _product(planner: Planning, node: Node, weights: Integers) -> tuple[Home, Geometry]:
    """`dense` as one run over the input elements in the order of memory; the weights get the same order."""
    name = node.inputs[0]
    home, wanted = planner.home(name), _wanted(planner, node)
    row = home.view.stride(0)
    order = _compact(home.view)
    if row is None or order is None or not _usable(home, wanted):
        home = planner.laid_out(name, wanted, (0, 1), (0, 0))
        row, order = home.view.stride(0), _compact(home.view)
    assert row is not None
    assert order is not None
    M, K = home.view.shape
    ordered = weights[:, order].reshape(weights.shape[0], 1, K)
    return home, Geometry(home, 1, 1, M, 1, Pixels(0, 0, row, 1), 0, (), K, ordered)


def _compact(view: View) -> Integers | None:
    """The order in which the elements of axis 1 lie in memory, or None where there are gaps between them."""
    offsets = View(0, ((), view.axes[1])).positions()
    order = np.argsort(offsets, kind="stable")
    return order if bool((offsets[order] == np.arange(offsets.size)).all()) else None


def _calls(
    planner: Planning,
    root: Node,
    node: Node,
    home: Home,
    geometry: Geometry,
    built: Build,
    target: Home,
) -> None:
    """Plan one call for each group of a convolution."""
    channels = geometry.weights.shape[0] // geometry.groups
    pixels = pixels_of(target.view, node.op)
    assert pixels is not None
    digits = passes(geometry.weights, _per(home.format, geometry.weights))
    operands = [operand_of(planner, read, target, node.op) for read in built.reads]
    output = Output(target.format, pixels, built.clamp)
    reads = tuple(operand.read for operand in operands)
    shifts = tuple(shift for _, shift in digits)
    kernel = _contraction(home, geometry, built, output, reads, shifts, planner.machine.words)
    clips = kernel.per == 4 and any(planner.machine.clips(magnitude(digit)) for digit, _ in digits)
    kernel = replace(kernel, listed=clips)
    made = _function(planner, node.op, kernel)
    note = f"{made.note}; sums + {built.note}" if built.note != "sums" else made.note
    cost = _cost(geometry, made)
    claimed = tuple(operand.home for operand in operands)
    planner.claim(Computes(root, made.kernel, claimed, (target,), planner.next_call, geometry.home))
    for first in range(0, geometry.weights.shape[0], channels):
        part = slice(first, first + channels)
        weights = planner.constants.add(packed_weights([digit[part] for digit, _ in digits], made.kernel))
        others = arguments(planner, built.start, operands, made.kernel.segments, part)
        given = [home.at(first // channels * geometry.group), weights, *others, target.at(first * pixels.channel)]
        planner.call(made.name, given, made.units, root.outputs[0].name, note, cost)


def _contraction(
    home: Home,
    geometry: Geometry,
    built: Build,
    output: Output,
    reads: tuple[Read, ...],
    shifts: tuple[int, ...],
    words: bool,
) -> Contraction:
    """The kernel of one group, without the blocks of its channels. ``words``: weights that fit in bytes are stored so,
    whatever the dot product multiplies.
    """
    channels, per = geometry.weights.shape[0] // geometry.groups, _per(home.format, geometry.weights)
    bytes_ = int(geometry.weights.min()) >= -128 and int(geometry.weights.max()) <= 127
    widened = words and per == 2 and bytes_
    return _flat(
        Contraction(
            geometry.images, geometry.rows, geometry.columns, channels, per, geometry.taps, geometry.run, shifts,
            home.format, geometry.source, output, reads, built.formula, built.start is not None, widened=widened,
        )
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Function:
    """A kernel with its blocks of channels, the name of its function, its units, and a note that describes it.

    ``product`` is the estimated time of one product, in nanoseconds.
    """

    kernel: Contraction
    name: str
    units: int
    note: str
    product: float


def _function(planner: Planning, op: str, kernel: Contraction) -> _Function:
    """The function of a contraction: on tile registers where these are faster, else by dot products of vectors."""
    machine, output = planner.machine, kernel.output
    kernel = replace(kernel, joint=joined(kernel.formula, kernel.reads, machine))
    packs = machine.narrows and narrow(output, machine)
    on_tiles = tiled(kernel, packs, machine)
    if on_tiles is not None:
        note = f"{machine.name} {on_tiles.note}, tiles of {_blocks(on_tiles.kernel)}"
        return _Function(on_tiles.kernel, planner.kernel(on_tiles, op), on_tiles.units, note, 0.001)
    pixels = kernel.rows * kernel.columns
    kernel = replace(
        kernel, segments=segments(kernel.channels, pixels, packs, machine, kernel.listed, kernel.rows == 1)
    )
    how = f"{_NAMES[kernel.per]}{' of pairs of steps' if kernel.listed else ''}"
    passes = f"{len(kernel.shifts)} pass{'es' if len(kernel.shifts) > 1 else ''}"
    note = f"{machine.name} {how}, {passes}, tiles of {_blocks(kernel)}"
    return _Function(kernel, planner.kernel(kernel, op), kernel.units, note, 0.02 / kernel.per)


def _blocks(kernel: Contraction) -> str:
    return " and ".join(f"{one.tile} x {one.block.vectors} x {one.block.lane}" for one in kernel.segments)


def _cost(geometry: Geometry, made: _Function) -> float:
    """The estimated time of one call in nanoseconds: the products or the loads of the weights, whichever takes longer,
    and the epilogues.
    """
    products = geometry.images * geometry.rows * geometry.columns * math.prod(geometry.weights.shape) / geometry.groups
    results = products / math.prod(geometry.weights.shape[1:])
    streamed = 0.14 * geometry.weights.size / geometry.groups / made.kernel.per  # 28 bytes per nanosecond
    return max(products * made.product, streamed) + 0.5 * results


_NAMES = {4: "8-bit dot products", 2: "16-bit dot products", 1: "32-bit multiply-adds"}


def _per(format_: Format, weights: Integers) -> Literal[1, 2, 4]:
    """How many elements one step of the dot product multiplies."""
    if format_.bits == 8 and not format_.signed:
        return 4
    narrow = int(weights.min()) >= -(2**15) and int(weights.max()) < 2**15
    return 2 if format_.bits == 16 and format_.signed and narrow else 1


def _flat(kernel: Contraction) -> Contraction:
    """Merge images, rows and columns into one row of pixels if every tensor has its pixels at equal distances."""
    every = [kernel.source, kernel.output.pixels, *(read.pixels for read in kernel.reads if read.pixels is not None)]
    if kernel.rows > 1 and all(p.row == kernel.columns * p.column for p in every):
        columns = kernel.rows * kernel.columns
        kernel = replace(kernel, rows=1, columns=columns)
    if kernel.rows == 1 and kernel.images > 1 and all(p.image == kernel.columns * p.column for p in every):
        kernel = replace(kernel, images=1, columns=kernel.images * kernel.columns)
    return kernel


PLANS = {"conv2d": OpPlan(plan_node), "dense": OpPlan(plan_node)}
