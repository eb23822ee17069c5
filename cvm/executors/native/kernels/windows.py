"""Kernels that go over windows: the plan of `max_pool2d`, whose code `pools` writes, and contractions whose weights are
computed during the run.
"""

from __future__ import annotations

import math
from dataclasses import replace

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit.elements import decoded, load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import multiply_add
from cvm.executors.native.emit.nest import moved, walked
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.ops.declaration import REGISTRY, Call
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["PLANS", "Pool", "Products", "Window", "emit_products", "plan_products", "product", "store_largest",
           "window_at"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Window:
    """The windows along one axis: its extent, the number of outputs and of taps, and stride, padding and dilation.

    ``source`` and ``target`` are the strides of the axis in both tensors, in elements.
    """

    extent: int
    outputs: int
    taps: int
    stride: int
    padding: int
    dilation: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A maximum over windows: loops over images and channels, windows of rows and columns, and the formats."""

    images: Loop
    channels: Loop
    rows: Window
    columns: Window
    source: Format
    target: Format

    @property
    def shares(self) -> bool:
        """Whether neighbouring results share the maxima of the columns that are common to their windows."""
        beside = self.channels.strides == (1, 1) and self.columns.outputs > 1
        return beside and max(self.rows.taps, self.columns.taps) <= MOST_TAPS

    @property
    def nanoseconds(self) -> float:
        """The estimated time of one result."""
        taps = self.rows.taps * self.columns.taps
        loads = self.rows.taps * min(self.columns.stride, self.columns.taps)
        return 0.015 * self.source.bytes * loads if self.shares else 0.1 * taps


MOST_TAPS = 5
"""The most rows, and the most columns, of a window whose loads are written one by one."""


def plan_pool(planner: Planning, node: Node) -> None:
    """Plan `max_pool2d`, which takes the maximum over the taps inside the map."""
    name = node.outputs[0].name
    source, target = planner.home(node.inputs[0]), planner.result(name)
    a = planner.call_of(node).attributes
    if any(source.view.stride(axis) is None for axis in range(4)):
        source = planner.rearranged(source)
    strides = [(source.view.stride(axis) or 0, target.view.stride(axis) or 0) for axis in range(4)]
    shape, out = source.view.shape, target.view.shape
    windows = [
        Window(shape[2 + k], out[2 + k], a.pool_size[k], a.strides[k], a.padding[k], 1, *strides[2 + k]) for k in (0, 1)
    ]
    pool = Pool(
        Loop(shape[0], strides[0]), Loop(shape[1], strides[1]), windows[0], windows[1], source.format, target.format
    )
    function = planner.kernel(pool, "pool")
    planner.claim(Computes(node, pool, (source,), (target,), planner.next_call))
    planner.call(
        function,
        [source.at(), target.at()],
        pool.rows.outputs,
        name,
        "maxima of windows",
        pool.nanoseconds * math.prod(out),
    )


def window_at(
    code: Code, pool: Pool, at: tuple[Scalar, Scalar], read: V, write: V
) -> tuple[V, V, tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    """The addresses of the first channel of a window's first tap and of its maximum, and the taps inside the map."""
    p, q = at
    size = pool.source.bytes
    rows, columns = _bounds(code, pool.rows, p), _bounds(code, pool.columns, q)
    corner = code.at(read, code.mul(p, pool.rows.stride * pool.rows.source * size))
    corner = code.at(corner, code.mul(q, pool.columns.stride * pool.columns.source * size))
    corner = code.at(
        corner, -(pool.rows.padding * pool.rows.source + pool.columns.padding * pool.columns.source) * size
    )
    out = code.at(write, code.mul(p, pool.rows.target * pool.target.bytes))
    return corner, code.at(out, code.mul(q, pool.columns.target * pool.target.bytes)), rows, columns


def store_largest(
    code: Code,
    pool: Pool,
    read: V,
    write: V,
    rows: tuple[Scalar, Scalar],
    columns: tuple[Scalar, Scalar],
    count: int,
) -> None:
    """Write the maxima of ``count`` channels over the taps of one window that lie within the map."""
    size, signed = pool.source.bytes, pool.source.signed
    raw = vector(pool.source.bits, count)
    kind, least = ("smax", -(2 ** (pool.source.bits - 1))) if signed else ("umax", 0)

    def row(k: V, values: list[V]) -> list[V]:
        at = code.at(read, code.mul(k, pool.rows.source * size))

        def column(j: V, values: list[V]) -> list[V]:
            value = code.load(raw, code.at(at, code.mul(j, pool.columns.source * size)))
            return [code.intrinsic(kind, values[0], value)]

        return code.loop(*columns, 1, column, values)

    largest = code.loop(*rows, 1, row, [typed(raw, least)])[0]
    if pool.source == pool.target:
        code.store(largest, write)
    else:
        store(code, pool.target, decoded(code, pool.source, largest), write)


def _bounds(code: Code, window: Window, index: Scalar) -> tuple[Scalar, Scalar]:
    """The first tap k of an output and the end of its taps, such that each of these reads within the extent.

    Tap k of output ``index`` reads at index * stride + k * dilation - padding.
    """
    last = (window.outputs - 1) * window.stride + (window.taps - 1) * window.dilation - window.padding
    first: Scalar = 0
    end: Scalar = window.taps
    start = code.mul(index, window.stride)
    d = window.dilation
    if window.padding:
        below = code.binary("sub", typed("i64", window.padding + d - 1), _as_value(start))
        first = code.intrinsic("smax", code.binary("sdiv", below, d) if d > 1 else below, 0)
    if last >= window.extent:
        above = code.binary("sub", typed("i64", window.extent + window.padding + d - 1), _as_value(start))
        end = code.intrinsic("smin", code.binary("sdiv", above, d) if d > 1 else above, window.taps)
        end = code.intrinsic("smax", end, 0)
    return first, end


def _as_value(value: Scalar) -> V:
    return typed("i64", value) if isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class Products:
    """A contraction whose weights are computed during the run: loops and windows, one output element at a time.

    ``loops`` go over images, groups and the channels of a group; their strides are those of input, weights, bias and
    output. ``inner`` goes over the channels that each output sums. With ``lanes`` there are no windows, and this
    further loop is done in vectors; along it, input and weights have stride 0 or 1.
    """

    loops: tuple[Loop, ...]
    inner: Loop
    rows: Window
    columns: Window
    taps: tuple[int, int]
    formats: tuple[Format, ...]
    biased: bool
    lanes: Loop | None = None

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: the extent of the outermost loop."""
        return self.loops[0].extent if self.lanes is not None else 1


def plan_products(planner: Planning, node: Node) -> None:
    """Plan `matmul`, and `conv2d` and `dense` with weights that are not constant: multiply-adds modulo 2^32."""
    name = node.outputs[0].name
    homes = [planner.home(source) for source in node.inputs]
    target = planner.result(name)
    for number, home in enumerate(homes):
        if any(home.view.stride(axis) is None for axis in range(len(home.view.axes))):
            homes[number] = planner.rearranged(home)

    def strides(home: Home) -> list[int]:
        return [home.view.stride(axis) or 0 for axis in range(len(home.view.axes))]

    along = _columns(planner, node)
    if along is not None and strides(homes[1])[along] not in (0, 1):
        others = [axis for axis in range(len(homes[1].view.axes)) if axis != along]
        homes[1] = planner.laid_out(node.inputs[1], homes[1].format, (*others, along), (0, 0))
    x, w, y = strides(homes[0]), strides(homes[1]), strides(target)
    b = strides(homes[2])[0] if len(homes) == 3 else 0
    if node.op == "dense":
        (M, K), (N, _) = homes[0].view.shape, homes[1].view.shape
        one = Window(1, 1, 1, 1, 0, 1, 0, 0)
        loops: tuple[Loop, ...] = (Loop(M, (x[0], 0, 0, y[0])), Loop(N, (0, w[0], b, y[1])))
        products = Products(loops, Loop(K, (x[1], w[1])), one, one, (0, 0), (), len(homes) == 3)
        products = _vectorised(products)
    elif node.op == "matmul":
        products = _vectorised(_matrices(planner.call_of(node), x, w, y))
    else:
        a = planner.call_of(node).attributes
        (batch, _, H, W), (OC, IC, KH, KW) = homes[0].view.shape, homes[1].view.shape
        OPG = OC // a.groups
        loops = (
            Loop(batch, (x[0], 0, 0, y[0])),
            Loop(a.groups, (x[1] * IC, w[0] * OPG, b * OPG, y[1] * OPG)),
            Loop(OPG, (0, w[0], b, y[1])),
        )
        out = target.view.shape
        rows = Window(H, out[2], KH, a.stride[0], a.padding[0], a.dilation[0], x[2], y[2])
        columns = Window(W, out[3], KW, a.stride[1], a.padding[1], a.dilation[1], x[3], y[3])
        products = Products(loops, Loop(IC, (x[1], w[1])), rows, columns, (w[2], w[3]), (), len(homes) == 3)
    products = Products(
        products.loops, products.inner, products.rows, products.columns, products.taps,
        (*(home.format for home in homes), target.format), products.biased, products.lanes,
    )  # fmt: skip
    function = planner.kernel(products, "products")
    arguments = [home.at() for home in (*homes, target)]
    planner.claim(Computes(node, products, tuple(homes), (target,), planner.next_call))
    work = REGISTRY[node.op].work(planner.call_of(node))
    planner.call(function, arguments, products.units, name, _NOTE, 0.0 if products.lanes is None else 0.1 * work)


_NOTE = "32-bit multiply-adds: the weights are computed"


def _columns(planner: Planning, node: Node) -> int | None:
    """The axis of the second operand of `dense` or `matmul` that becomes the columns of the result; else None."""
    if node.op == "dense":
        return 0
    rank = len(planner.shape(node.inputs[1]))
    if node.op == "matmul":
        return rank - 2 if planner.call_of(node).attributes.transpose_b else rank - 1
    return None


def _vectorised(products: Products) -> Products:
    """Compute the columns, which are the last loop, in vectors if weights and results have stride 1 along them."""
    *outer, columns = products.loops
    if columns.strides[1] != 1 or columns.strides[3] != 1 or columns.extent < 2:
        return products
    real = [loop for loop in outer if loop.extent > 1] or [Loop(1, (0, 0, 0, 0))]
    return replace(products, loops=tuple(real), lanes=columns)


def _matrices(call: Call, x: list[int], w: list[int], y: list[int]) -> Products:
    """The loops of a `matmul`. Each batch axis is one loop over the matrices of B and one over the neighbouring
    matrices of A that are multiplied by the same matrix of B.
    """
    (A, B), a = call.shapes, call.attributes
    loops = []
    for axis, (n, m) in enumerate(zip(A[:-2], B[:-2], strict=True)):
        loops.append(Loop(m, (x[axis] * (n // m), w[axis], 0, y[axis] * (n // m))))
        loops.append(Loop(n // m, (x[axis], 0, 0, y[axis])))
    of_a, of_b = (-2, -1) if a.transpose_a else (-1, -2), (-1, -2) if a.transpose_b else (-2, -1)
    loops.append(Loop(A[of_a[1]], (x[of_a[1]], 0, 0, y[-2])))
    loops.append(Loop(B[of_b[1]], (0, w[of_b[1]], 0, y[-1])))
    one = Window(1, 1, 1, 1, 0, 1, 0, 0)
    return Products(tuple(loops), Loop(A[of_a[0]], (x[of_a[0]], w[of_b[0]])), one, one, (0, 0), (), False)


def emit_products(module: Module, name: str, products: Products, width: int) -> None:
    """Write the function (input, weights, [bias,] output, first unit, end of units), in vectors of ``width`` lanes."""
    count = len(products.formats)
    pointers = [V("ptr", f"%a{k}") for k in range(count)]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    rows, columns = products.rows, products.columns
    sizes = [format_.bytes for format_ in products.formats]
    which = (0, 1, 2, 3) if products.biased else (0, 1, 3)
    if products.lanes is not None:
        loops = [Loop(loop.extent, tuple(loop.strides[number] for number in which)) for loop in products.loops]
        lanes = products.lanes
        walked(code, loops, (lo, hi), pointers, sizes, lambda at: _row(code, products, lanes, at, width))
        code.finish()
        return

    def run(depth: int, at: list[V]) -> None:
        if depth < len(products.loops):
            strides = [products.loops[depth].strides[number] for number in which]
            extent = products.loops[depth].extent
            code.each(0, extent, lambda index: run(depth + 1, moved(code, at, strides, sizes, index)))
            return

        def row(p: Scalar) -> None:
            code.each(0, columns.outputs, lambda q: product(code, products, at, p, q))

        code.each(0, rows.outputs, row)

    code.when(code.compare("slt", lo, hi), lambda: run(0, pointers))
    code.finish()


VECTORS = 4
"""How many vectors of sums are computed at the same time, so that an addition need not wait for the previous one."""


def _row(code: Code, products: Products, lanes: Loop, at: list[V], width: int) -> None:
    """Write the output elements along ``lanes``, each with its whole sum."""
    x, w, *bias, y = at
    formats = products.formats
    x_step, w_step = (stride * one.bytes for stride, one in zip(products.inner.strides, formats, strict=False))

    def strip(first: Scalar, count: int) -> None:
        column, target = (code.at(p, code.mul(first, one.bytes)) for p, one in ((w, formats[1]), (y, formats[-1])))
        start = typed(vector(32, count), 0)
        if bias and lanes.strides[2] == 1:
            start = load(code, formats[2], code.at(bias[0], code.mul(first, formats[2].bytes)), count)
        elif bias:
            start = code.splat(load(code, formats[2], bias[0], 1), count)

        def term(k: V, values: list[V]) -> list[V]:
            a = load(code, formats[0], code.at(x, code.mul(k, x_step)), 1)
            b = load(code, formats[1], code.at(column, code.mul(k, w_step)), count)
            return [multiply_add(code, values[0], code.splat(a, count) if count > 1 else a, b)]

        total = code.loop(0, products.inner.extent, 1, term, [start])[0]
        store(code, formats[-1], total, target)

    code.strips(lanes.extent, VECTORS * width, strip)


def product(code: Code, products: Products, at: list[V], p: Scalar, q: Scalar) -> None:
    """Write one output element."""
    x, w, *bias, y = at
    formats, rows, columns = products.formats, products.rows, products.columns
    size, weight_size = formats[0].bytes, formats[1].bytes
    corner = code.at(x, code.mul(p, rows.stride * rows.source * size))
    corner = code.at(corner, code.mul(q, columns.stride * columns.source * size))
    corner = code.at(corner, -(rows.padding * rows.source + columns.padding * columns.source) * size)
    column_bounds = _bounds(code, columns, q)
    start = load(code, formats[2], bias[0], 1) if bias else typed("i32", 0)

    def row(k: V, values: list[V]) -> list[V]:
        x_row = code.at(corner, code.mul(k, rows.dilation * rows.source * size))
        w_row = code.at(w, code.mul(k, products.taps[0] * weight_size))

        def column(j: V, values: list[V]) -> list[V]:
            x_at = code.at(x_row, code.mul(j, columns.dilation * columns.source * size))
            w_at = code.at(w_row, code.mul(j, products.taps[1] * weight_size))

            def channel(c: V, values: list[V]) -> list[V]:
                a = load(code, formats[0], code.at(x_at, code.mul(c, products.inner.strides[0] * size)), 1)
                b = load(code, formats[1], code.at(w_at, code.mul(c, products.inner.strides[1] * weight_size)), 1)
                return [multiply_add(code, values[0], a, b)]

            return code.loop(0, products.inner.extent, 1, channel, values)

        return code.loop(*column_bounds, 1, column, values)

    total = code.loop(*_bounds(code, rows, p), 1, row, [start])[0]
    address = code.at(y, code.mul(p, rows.target * formats[-1].bytes))
    store(code, formats[-1], total, code.at(address, code.mul(q, columns.target * formats[-1].bytes)))


PLANS = {"max_pool2d": OpPlan(plan_pool)}
