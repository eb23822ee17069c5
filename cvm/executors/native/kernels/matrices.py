"""Products of two computed tensors by dot products: each matrix of B is packed when it is known, then contracted.

Packing puts the elements of B into the order of `packing.packed_weights`: words of 4 bytes, or of 2 elements of 16
bits, that follow one another along the sums, for as many columns as a vector has lanes. Where the elements of a column
of B lie side by side, words are transposed; where those of a row do, the elements of rows are interleaved. Both are one
thing: vectors are zipped until each element stands beside those of the same index in the others.
"""

from __future__ import annotations

from typing import Literal

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.matrices import Matrices
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels, Segment
from cvm.executors.native.emit.contraction import emit_contraction, segments
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.nest import along as nested
from cvm.executors.native.emit.nest import walked
from cvm.executors.native.kernels.rows import rows
from cvm.executors.native.kernels.strided import readable, writable
from cvm.executors.native.kernels.windows import plan_products
from cvm.executors.native.kernels.zips import zipped
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.ops.declaration import REGISTRY
from cvm.program.model import Node

__all__ = ["PLANS", "emit_matrices"]

BYTES, SHORTS = Format(8, False), Format(16)
ONES = {4: 0x01010101, 2: 0x00010001}
"""A word whose dot product with another one is the sum of its elements."""


def plan_matmul(planner: Planning, node: Node) -> None:
    """Plan a `matmul`: dot products where both operands are narrow and A has several rows, else multiply-adds."""
    name = node.outputs[0].name
    per = _per(planner, node)
    alone = planner.shape(name)[-2] == 1
    if per is None or (alone and per != 4) or name in planner.plain:
        plan_products(planner, node)
        return
    if alone:
        _plan_row(planner, node)
        return
    a, b = _left(planner, node, per), _right(planner, node, per)
    target = writable(planner, name)
    kernel = _kernel(planner, node, per, a, b, target)
    function = planner.kernel(kernel, "matrices")
    planner.claim(Computes(node, kernel, (a, b), (target,), planner.next_call))
    work = REGISTRY[node.op].work(planner.call_of(node))
    note = f"{planner.machine.name} {32 // per}-bit dot products, packed while they run"
    room = planner.scratch(kernel.units * kernel.room + 64)
    planner.call(function, [a.at(), b.at(), (room, 0), target.at()], kernel.units, name, note, 0.02 / per * work)


def _plan_row(planner: Planning, node: Node) -> None:
    """Plan the product of one row of bytes, for each matrix of B."""
    name = node.outputs[0].name
    home, wanted = readable(planner, node.inputs[1]), Format.of(*planner.hull(node.inputs[1]))
    b = home if home.format == wanted and 1 in map(home.view.stride, (-2, -1)) else None
    target = writable(planner, name)
    a = _left(planner, node, 4) if b else None
    kernel = rows(planner.machine, _batches(a, b, target), a, b, target, _axes(planner, node)[1]) if a and b else None
    if a is None or b is None or kernel is None:
        plan_products(planner, node)
        return
    function = planner.kernel(kernel, "rows")
    planner.claim(Computes(node, kernel, (a, b), (target,), planner.next_call))
    work = REGISTRY[node.op].work(planner.call_of(node))
    note = f"{planner.machine.name} 8-bit dot products of one row"
    planner.call(function, [a.at(), b.at(), target.at()], kernel.units, name, note, 0.01 * work)


def _batches(a: Home, b: Home, target: Home) -> list[Loop]:
    """The loops over the matrices of A, with the strides of A, B and Y. Each batch axis is one loop over the matrices
    of B, and one over the neighbouring matrices of A that share one.
    """
    every = []
    for axis, (n, m) in enumerate(zip(a.view.shape[:-2], b.view.shape[:-2], strict=True)):
        x, w, y = (home.view.stride(axis) or 0 for home in (a, b, target))
        every.append(Loop(m, (x * (n // m), w, y * (n // m))))
        every.append(Loop(n // m, (x, 0, y)))
    return [loop for loop in every if loop.extent > 1]


def _per(planner: Planning, node: Node) -> Literal[2, 4] | None:
    """How many elements one step of the dot product multiplies; None if an operand has more than 16 bits.

    Bytes of A are unsigned, with a bias, those of B signed. A product that saturates at 16 bits takes no such elements.
    """
    a, b = (planner.hull(name) for name in node.inputs)
    if planner.shape(node.inputs[0])[-1] == 1:
        return None
    if Format.of(*a).bits == 8 and _within(b, 8) and not planner.machine.saturates:
        return 4
    return 2 if _within(a, 16) and _within(b, 16) else None


def _within(hull: tuple[int, int], bits: int) -> bool:
    most = 1 << bits - 1
    return -most <= hull[0] and hull[1] < most


def _axes(planner: Planning, node: Node) -> tuple[int, int]:
    """The axes of A and of B that are summed over."""
    rank, attributes = len(planner.shape(node.inputs[0])), planner.call_of(node).attributes
    return rank - 2 if attributes.transpose_a else rank - 1, rank - 1 if attributes.transpose_b else rank - 2


def _left(planner: Planning, node: Node, per: int) -> Home:
    """A home of A in the format of the dot product, whose elements lie side by side along the sums.

    The dot product reads whole words, and no array of the caller has further elements behind its last one.
    """
    name, axis = node.inputs[0], _axes(planner, node)[0]
    home, wanted = readable(planner, name), Format.of(*planner.hull(name)) if per == 4 else SHORTS
    beside = home.view.stride(axis) == 1 and home.format == wanted
    if beside and (home.buffer.kind == "arena" or planner.shape(name)[axis] % per == 0):
        return home
    others = [number for number in range(len(home.view.axes)) if number != axis]
    return planner.laid_out(name, wanted, (*others, axis), (0, 0))


def _right(planner: Planning, node: Node, per: int) -> Home:
    """A home of B in elements of the width of the dot product, with stride 1 along the sums or across them."""
    name, axis = node.inputs[1], _axes(planner, node)[1]
    home = readable(planner, name)
    rank = len(home.view.axes)
    across = 2 * rank - 3 - axis
    wanted = Format.of(*planner.hull(name)) if per == 4 else SHORTS
    by_rows = home.view.stride(across) == 1
    if home.format == wanted and (by_rows or home.view.stride(axis) == 1):
        return home
    last = (axis, across) if by_rows else (across, axis)
    return planner.laid_out(name, wanted, (*range(rank - 2), *last), (0, 0))


def _kernel(planner: Planning, node: Node, per: Literal[2, 4], a: Home, b: Home, target: Home) -> Matrices:
    machine, rank = planner.machine, len(a.view.axes)
    of_a, of_b = _axes(planner, node)
    (M, N), K = target.view.shape[-2:], a.view.shape[of_a]
    x, w, y = ([home.view.stride(axis) or 0 for axis in range(rank)] for home in (a, b, target))
    loops = _batches(a, b, target)
    bias = (a.format.bias if per == 4 else 0) - (128 if machine.signed_bytes and per == 4 else 0)
    product = Contraction(
        1, 1, M, N, per, (), K, (0,), a.format, Pixels(0, 0, x[2 * rank - 3 - of_a], 1),
        Output(target.format, Pixels(0, 0, y[-2], y[-1])), (), Formula(1), bias != 0, segments(N, M, False, machine),
    )  # fmt: skip
    return Matrices(
        tuple(loop for loop in loops if loop.strides[1]), tuple(loop for loop in loops if not loop.strides[1]),
        product, b.format, w[of_b], w[2 * rank - 3 - of_b], bias,
    )  # fmt: skip


def emit_matrices(module: Module, name: str, kernel: Matrices, machine: Machine) -> None:
    """Write the function (A, B, room for packed elements, Y, first unit, end of units)."""
    product, pack = f"{name}_product", f"{name}_pack"
    emit_contraction(module, product, kernel.product, machine)
    _emit_pack(module, pack, kernel, machine)
    a, b, room, y = pointers = [V("ptr", f"%{what}") for what in ("a", "b", "room", "y")]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    sizes = [kernel.product.input.bytes, kernel.weights.bytes, 1, kernel.product.output.format.bytes]
    loops = [_with_room(loop, kernel.room if number == 0 else 0) for number, loop in enumerate(kernel.outer)]

    def matrix(at: list[V]) -> None:
        code.line(f"call void @{pack}({at[1]}, {at[2]})")
        starts = [code.at(at[2], kernel.packed)] if kernel.product.starts else []

        def contracted(here: list[V]) -> None:
            arguments = [here[0], at[2], *starts, here[3]]
            code.line(f"call void @{product}({', '.join(map(str, arguments))}, i64 0, i64 {kernel.product.units})")

        nested(code, [_with_room(loop, 0) for loop in kernel.shared], at, sizes, contracted)

    walked(code, loops, (lo, hi), [a, b, room, y], sizes, matrix)
    code.finish()


def _with_room(loop: Loop, room: int) -> Loop:
    of_a, of_b, of_y = loop.strides
    return Loop(loop.extent, (of_a, of_b, room, of_y))


def _emit_pack(module: Module, name: str, kernel: Matrices, machine: Machine) -> None:
    """Write the function (a matrix of B, room): its elements in the order of the contraction, and the starts."""
    source, room = V("ptr", "%source"), V("ptr", "%room")
    code = Code(module, name, [source, room])
    for segment in kernel.product.segments:
        block = segment.block
        whole, rest = divmod(block.valid, block.lane)

        def each(number: Scalar, segment: Segment = segment, whole: int = whole, rest: int = rest) -> None:
            packer = _Packer(code, kernel, machine, segment, source, room)
            code.each(0, whole, lambda index: packer.vector(number, index, segment.block.lane))
            if rest:
                packer.vector(number, whole, rest)

        code.each(0, segment.count, each)
    code.finish()


class _Packer:
    """Packs the vectors of one segment."""

    def __init__(self, code: Code, kernel: Matrices, machine: Machine, segment: Segment, source: V, room: V) -> None:
        self.code, self.kernel, self.machine, self.segment = code, kernel, machine, segment
        self.source, self.room = source, room
        self.lane, self.per = segment.block.lane, kernel.product.per
        self.size = kernel.weights.bytes

    def vector(self, number: Scalar, index: Scalar, valid: int) -> None:
        """Pack vector ``index`` of block ``number``, of whose lanes the first ``valid`` exist."""
        code, kernel, segment = self.code, self.kernel, self.segment
        block = code.add(code.mul(number, segment.channels), segment.start)
        column = code.add(block, code.mul(index, self.lane))
        source = code.at(self.source, code.mul(column, kernel.across * self.size))
        target = code.at(self.room, code.mul(block, 4 * kernel.product.step_words))
        target = code.at(target, code.mul(index, 4 * self.lane))
        if kernel.along == 1:
            total = self._transposed(source, target, valid)
        else:
            total = self._interleaved(source, target, valid)
        if kernel.product.starts:
            start = code.at(self.room, kernel.packed)
            code.store(code.binary("mul", total, -kernel.moved), code.at(start, code.mul(column, 4)))

    def _put(self, words: V, target: V, step: Scalar, total: V) -> V:
        """Store the words of one step for all lanes, and add their elements to a total."""
        code = self.code
        if self.kernel.weights.bias:
            narrow = code.bitcast(words, vector(8 * self.size, self.per * self.lane))
            words = code.bitcast(code.binary("sub", narrow, self.kernel.weights.bias), words.type)
        code.store(words, code.at(target, code.mul(step, 4 * self.segment.channels)))
        if not self.kernel.product.starts:
            return total
        dot = self.machine.dot4 if self.per == 4 else self.machine.dot2
        return dot(code, total, typed(total.type, ONES[self.per]), words)

    def _transposed(self, source: V, target: V, valid: int) -> V:
        """Columns whose elements lie side by side: words of all lanes, some steps at a time."""
        code, kernel, size = self.code, self.kernel, self.size
        apart = kernel.across * size

        def some(first: Scalar, count: int, total: V) -> V:
            at = code.at(source, code.mul(first, 4))
            kind = vector(32, count)
            rows = [code.load(kind, code.at(at, lane * apart)) for lane in range(valid)]
            rows += [typed(kind, 0)] * (self.lane - valid)
            for number, words in enumerate(zipped(code, [[row] for row in rows], self.lane)):
                total = self._put(words, target, code.add(first, number), total)
            return total

        words, rest = divmod(kernel.product.run, self.per)
        total = typed(vector(32, self.lane), 0)
        done = words // self.lane * self.lane
        (total,) = code.loop(0, done, self.lane, lambda first, now: [some(first, self.lane, now[0])], [total])
        while done < words:
            count = 1 << ((words - done).bit_length() - 1)
            total = some(done, count, total)
            done += count
        if rest:
            total = self._put(self._last(code.at(source, 4 * words), apart, rest, valid), target, words, total)
        return total

    def _last(self, source: V, apart: int, rest: int, valid: int) -> V:
        """The words of the last step, of which only ``rest`` elements exist; the others are 0 without the bias."""
        code, bits = self.code, 8 * self.size
        missing = V(vector(bits, 1), str(self.kernel.weights.bias))
        elements = [
            code.load(vector(bits, 1), code.at(source, lane * apart + e * self.size))
            if lane < valid and e < rest else missing
            for lane in range(self.lane) for e in range(self.per)
        ]  # fmt: skip
        return code.bitcast(code.gathered(elements), vector(32, self.lane))

    def _interleaved(self, source: V, target: V, valid: int) -> V:
        """Rows whose elements lie side by side: ``per`` of them for each step."""
        code, kernel, bits = self.code, self.kernel, 8 * self.size
        kind = vector(bits, self.lane)
        steps, rest = divmod(kernel.product.run, self.per)

        def row(at: V) -> V:
            if valid == self.lane:
                return code.load(kind, at)
            elements = [code.load(vector(bits, 1), code.at(at, lane * self.size)) for lane in range(valid)]
            return code.gathered([*elements, *[V(vector(bits, 1), "0")] * (self.lane - valid)])

        def step(index: Scalar, count: int, total: V) -> V:
            at = code.at(source, code.mul(index, self.per * kernel.along * self.size))
            rows = [row(code.at(at, e * kernel.along * self.size)) for e in range(count)]
            rows += [typed(kind, kernel.weights.bias)] * (self.per - count)
            (words,) = zipped(code, [[one] for one in rows], self.per * self.lane)
            return self._put(code.bitcast(words, vector(32, self.lane)), target, index, total)

        first = typed(vector(32, self.lane), 0)
        (total,) = code.loop(0, steps, 1, lambda index, now: [step(index, self.per, now[0])], [first])
        return step(steps, rest, total) if rest else total


PLANS = {"matmul": OpPlan(plan_matmul)}
