"""Planning `conv2d` and `dense` with constant weights: formats, runs, blocks and tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native import depthwise
from cvm.executors.native.claims import Computes
from cvm.executors.native.emit.contraction import Contraction, emit_contraction, segments
from cvm.executors.native.emit.epilogue import Output, Pixels, Read, joined
from cvm.executors.native.emit.formats import INT32, Format
from cvm.executors.native.emit.tiles import emit_tiles, tiled
from cvm.executors.native.exact import Exact, exact
from cvm.executors.native.packing import packed_channels, packed_weights, passes
from cvm.executors.native.pointwise import Build, Sums, build
from cvm.executors.native.pointwise import Read as Operand
from cvm.executors.native.steps import Buffer, Home
from cvm.executors.native.view import View
from cvm.executors.native.windows import plan_products
from cvm.program.model import Node

if TYPE_CHECKING:
    from cvm.executors.native.plan import Planner
    from cvm.program.verifier import VerifiedProgram

__all__ = ["PLANS", "borders", "contracts", "plan_contraction"]

Integers = npt.NDArray[np.signedinteger[Any]]
CHANNELS_LAST = (0, 2, 3, 1)
GROUPS = 4096
"""Groups of one convolution that get a call each; more are computed one element at a time."""


def borders(verified: VerifiedProgram) -> dict[str, tuple[int, int]]:
    """The padding that convolutions want around a map: the most that any of them wants."""
    found: dict[str, tuple[int, int]] = {}
    for node, call in zip(verified.program.nodes, verified.calls, strict=True):
        if node.op == "conv2d" and call.attributes.padding != (0, 0):
            name, (rows, columns) = node.inputs[0], call.attributes.padding
            before = found.get(name, (0, 0))
            found[name] = (max(before[0], rows), max(before[1], columns))
    return found


def contracts(planner: Planner, node: Node) -> bool:
    """Whether a node is a contraction: a convolution or product with constant weights and bias."""
    if node.op not in ("conv2d", "dense") or any(name not in planner.arrays_by_name for name in node.inputs[1:]):
        return False
    if node.outputs[0].name in planner.plain:
        return False
    return node.op == "dense" or planner.call_of(node).attributes.groups <= GROUPS


def plan_node(planner: Planner, node: Node) -> None:
    """A convolution or product that nothing joined."""
    if contracts(planner, node):
        plan_contraction(planner, node)
    else:
        plan_products(planner, node)


@dataclass(frozen=True, slots=True)
class Geometry:
    """A contraction in terms of its input's home: what a group reads, and how.

    ``taps`` are loops (count, elements apart) around runs of ``run`` elements; ``weights`` (OC, taps, run) fit them,
    in integers of any width. ``home`` is where the input lies, border included.
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


def plan_contraction(planner: Planner, root: Node) -> None:
    """The kernel of a group with a contraction."""
    node = planner.groups.sums[root.outputs[0].name]
    weights = planner.arrays_by_name[node.inputs[1]].stored()
    bias = exact(np.zeros(weights.shape[0], np.int64))
    if len(node.inputs) == 3:
        given = planner.constant(node.inputs[2])
        assert given is not None
        bias = exact(given)
    target = planner.result(root.outputs[0].name)
    if node.op == "conv2d":
        map_ = _map_home(planner, node)
        if depthwise.suits(weights.shape, planner.call_of(node).attributes.groups, map_.format, weights):
            sums = _sums(planner, node, map_.format, weights.reshape(weights.shape[0], -1), bias)
            built = build(planner, root, sums)
            operands = [_operand(planner, read, target, node.op) for read in built.reads]
            depthwise.plan_depthwise(planner, root, node, map_, weights, built, operands, target)
            return
    home, geometry = _convolution(planner, node, weights) if node.op == "conv2d" else _product(planner, node, weights)
    sums = _sums(planner, node, home.format, weights.reshape(weights.shape[0], -1), bias)
    _calls(planner, root, node, home, geometry, build(planner, root, sums), target)


def _sums(planner: Planner, node: Node, format_: Format, weights: Integers, bias: Exact) -> Sums:
    """Sums over stored integers: with the bytes of a dot product comes the format's bias, in the start it goes. Where
    the machine turns the highest bits of bytes, 128 less come, and go in the start likewise.

    The bounds of what is added are those of the elements that the dot product takes: the input's proven interval with
    0, which borders hold, moved by the same number. The start is what it is modulo 2^32, as the sums are, but where the
    first requantize takes it over.
    """
    per = _per(format_, weights)
    stored = (format_.bias if per > 1 else 0) - (128 if planner.machine.turned and per == 4 else 0)
    lo, hi = planner.hull(node.inputs[0])
    lo, hi = min(lo, 0) + stored, max(hi, 0) + stored
    total = exact(weights).sum(axis=1)
    below = exact(np.minimum(weights, 0)).sum(axis=1)
    above = total - below
    return Sums(node, bias - total * stored, below * hi + above * lo, above * hi + below * lo)


def _wanted(planner: Planner, name: str) -> Format:
    return Format.of(*planner.hull(name))


def _usable(home: Home, wanted: Format) -> bool:
    return home.format.bits <= wanted.bits


def _map_home(planner: Planner, node: Node) -> Home:
    """The input of a convolution: channels side by side, in a narrow format, in a border as wide as the padding."""
    name = node.inputs[0]
    home, wanted = planner.home(name), _wanted(planner, name)
    padding = planner.call_of(node).attributes.padding
    view = home.view
    ordered = all(view.stride(axis) is not None for axis in range(4)) and (view.shape[1] == 1 or view.stride(1) == 1)
    bordered = home.border[0] >= padding[0] and home.border[1] >= padding[1]
    if ordered and bordered and _usable(home, wanted):
        return home
    return planner.laid_out(name, wanted, CHANNELS_LAST, planner.borders.get(name, (0, 0)))


def _convolution(planner: Planner, node: Node, weights: Integers) -> tuple[Home, Geometry]:
    home = _map_home(planner, node)
    a = planner.call_of(node).attributes
    OC, IC, KH, KW = weights.shape
    images, _, rows, columns = node.outputs[0].shape
    strides = home.map_strides()
    taps = [(KH, a.dilation[0] * strides[2]), (KW, a.dilation[1] * strides[3])]
    run = IC
    ordered = weights.transpose(0, 2, 3, 1).reshape(OC, KH * KW, IC)
    if taps[1][1] == run or KW == 1:  # the columns of a window lie side by side
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


def _product(planner: Planner, node: Node, weights: Integers) -> tuple[Home, Geometry]:
    """`dense`: one run, in whatever order its elements lie; the weights follow it."""
    name = node.inputs[0]
    home, wanted = planner.home(name), _wanted(planner, name)
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
    """The order in which the elements of axis 1 lie, where they fill a stretch from the view's offset on."""
    places = View(0, ((), view.axes[1])).positions()
    order = np.argsort(places, kind="stable")
    return order if bool((places[order] == np.arange(places.size)).all()) else None


def _calls(
    planner: Planner,
    root: Node,
    node: Node,
    home: Home,
    geometry: Geometry,
    built: Build,
    target: Home,
) -> None:
    """One call for each group."""
    channels = geometry.weights.shape[0] // geometry.groups
    machine = planner.machine
    per = _per(home.format, geometry.weights)
    pixels = _pixels(target.view, node.op)
    assert pixels is not None
    digits = passes(geometry.weights, machine, per, 255)
    shifts = tuple(shift for _, shift in digits)
    operands = [_operand(planner, read, target, node.op) for read in built.reads]
    kernel = Contraction(
        geometry.images, geometry.rows, geometry.columns, channels, per, geometry.taps, geometry.run, shifts,
        home.format, geometry.source, Output(target.format, pixels, built.clamp),
        tuple(Read(format_, where) for format_, where, _ in operands), built.formula, built.start is not None,
    )  # fmt: skip
    kernel = _flat(replace(kernel, joint=joined(kernel.formula, kernel.reads, machine)))
    packs = machine.packs and target.format.bits == 8 and not target.format.signed and pixels.channel == 1
    on_tiles = tiled(kernel, packs, machine)
    how = f"{_NAMES[per]}, {len(shifts)} pass{'es' if len(shifts) > 1 else ''}"
    if on_tiles is not None:
        kernel, units, how = on_tiles.kernel, on_tiles.units, on_tiles.note
        function = planner.kernel(
            ("tiles", on_tiles), node.op, lambda module, name: emit_tiles(module, name, on_tiles, machine)
        )
    else:
        kernel = replace(kernel, segments=segments(channels, kernel.rows * kernel.columns, packs, machine))
        units = kernel.units
        function = planner.kernel(
            ("contraction", kernel), node.op, lambda module, name: emit_contraction(module, name, kernel, machine)
        )
    blocks = " and ".join(f"{one.tile} x {one.block.vectors} x {one.block.lane}" for one in kernel.segments)
    note = f"{machine.name} {how}, tiles of {blocks}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    products = geometry.images * geometry.rows * geometry.columns * math.prod(geometry.weights.shape) / geometry.groups
    results = products / math.prod(geometry.weights.shape[1:])
    streamed = 0.14 * geometry.weights.size / geometry.groups / per  # at 28 bytes in a nanosecond
    cost = max(products * (0.02 / per if on_tiles is None else 0.001), streamed) + 0.5 * results
    reads = tuple(what if isinstance(what, Home) else None for _, _, what in operands)
    planner.claims.append(Computes(root, kernel, reads, (target,), len(planner.calls), geometry.home))
    for number in range(geometry.groups):
        part = slice(number * channels, (number + 1) * channels)
        weights = planner.constants.add(packed_weights([digit[part] for digit, _ in digits], kernel))
        arguments: list[tuple[Buffer, int]] = [home.at(number * geometry.group), weights]
        if built.start is not None:
            start = built.start.int32()
            arguments.append(planner.constants.add(packed_channels(start[part], kernel.segments, INT32)))
        for format_, where, what in operands:
            if isinstance(what, Home):
                assert where is not None
                arguments.append(what.at(number * channels * where.channel))
            else:
                arguments.append(planner.constants.add(packed_channels(what[part], kernel.segments, format_)))
        arguments.append(target.at(number * channels * pixels.channel))
        planner.call(function, arguments, units, root.outputs[0].name, note, cost)


_NAMES = {4: "8-bit dot products", 2: "16-bit dot products", 1: "32-bit multiply-adds"}


def _per(format_: Format, weights: Integers) -> Literal[1, 2, 4]:
    """Elements of one step of the dot product."""
    if format_.bits == 8 and not format_.signed:
        return 4
    narrow = int(weights.min()) >= -(2**15) and int(weights.max()) < 2**15
    return 2 if format_.bits == 16 and format_.signed and narrow else 1


def _pixels(view: View, op: str) -> Pixels | None:
    """Strides of the output's places in a view of the output's shape."""
    axes = CHANNELS_LAST if op == "conv2d" else (None, None, 0, 1)
    strides = [0 if axis is None else view.stride(axis) for axis in axes]
    return None if None in strides else Pixels(*strides)  # type: ignore[arg-type]


def _operand(
    planner: Planner, read: Operand, target: Home, op: str
) -> tuple[Format, Pixels | None, Home | npt.NDArray[Any]]:
    """What the formula reads: elements per channel, or a home with strides."""
    shape = target.view.shape
    channel = 1
    if read.array is not None:
        spread = read.array.reshape((1,) * (len(shape) - read.array.ndim) + read.array.shape)
        if all(n == 1 or axis == channel for axis, n in enumerate(spread.shape)):
            return (
                read.format,
                None,
                np.broadcast_to(spread, [shape[1] if k == 1 else 1 for k in range(len(shape))]).ravel(),
            )
    home = read.over(planner, target)
    pixels = _pixels(home.view, op)
    if pixels is None:
        home = planner.rearranged(home)
        pixels = _pixels(home.view, op)
    assert pixels is not None
    return home.format, pixels, home


def _flat(kernel: Contraction) -> Contraction:
    """Images, rows and columns as one line of pixels, where every tensor's pixels are evenly apart."""
    every = [kernel.source, kernel.output.pixels, *(read.pixels for read in kernel.reads if read.pixels is not None)]
    if kernel.rows > 1 and all(p.row == kernel.columns * p.column for p in every):
        columns = kernel.rows * kernel.columns
        kernel = replace(kernel, rows=1, columns=columns)
    if kernel.rows == 1 and kernel.images > 1 and all(p.image == kernel.columns * p.column for p in every):
        kernel = replace(kernel, images=1, columns=kernel.images * kernel.columns)
    return kernel


PLANS: dict[str, Callable[[Planner, Node], None]] = {"conv2d": plan_node, "dense": plan_node}
