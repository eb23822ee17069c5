"""`get_valid_count` and `non_max_suppression`: loops over the rows of each batch, without branches that depend on data.

Every row is written behind the last valid row. Then the number of valid rows is increased by one if the row is valid.
"""

from __future__ import annotations

import math

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector, whole
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["PAST", "PLANS", "Suppression", "ValidCount", "count_valid", "emit_suppression", "emit_valid_count",
           "fill_rows", "survivors"]  # fmt: skip

LANES = 8
"""The number of lanes of the vectors that compare scores."""
PAST = -(2**31)
"""A score below all scores, since no element is -2^31."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor (B, N, K): its format, its strides in elements, and its extents."""

    format: Format
    strides: tuple[int, int, int]
    shape: tuple[int, int, int]

    @staticmethod
    def of(planner: Planning, home: Home) -> tuple[Home, Rows]:
        """The home and its rows. A home with several factors on an axis is copied row-major first."""
        if any(home.view.stride(axis) is None for axis in range(3)):
            home = planner.rearranged(home)
        strides = tuple(home.view.stride(axis) or 0 for axis in range(3))
        return home, Rows(home.format, strides, home.view.shape)  # type: ignore[arg-type]

    def at(self, code: Code, pointer: V, batch: Scalar, row: Scalar, column: int) -> V:
        """The address of an element."""
        pointer = code.at(pointer, code.mul(batch, self.strides[0] * self.format.bytes))
        pointer = code.at(pointer, code.mul(row, self.strides[1] * self.format.bytes))
        return code.at(pointer, column * self.strides[2] * self.format.bytes)

    def load(self, code: Code, pointer: V, batch: Scalar, row: Scalar, column: int) -> V:
        """Load an element."""
        return load(code, self.format, self.at(code, pointer, batch, row, column), 1)

    def store(self, code: Code, pointer: V, batch: Scalar, row: Scalar, column: int, value: V) -> None:
        """Store an element."""
        store(code, self.format, value, self.at(code, pointer, batch, row, column))


@dataclass(frozen=True, slots=True)
class ValidCount:
    """One kernel of `get_valid_count`."""

    source: Rows
    target: Rows
    count: Format
    threshold: int


def plan_valid_count(planner: Planning, node: Node) -> None:
    """Plan `get_valid_count`, which keeps the rows whose score exceeds a threshold, in their order."""
    count_value, rows_value = node.outputs
    source, read = Rows.of(planner, planner.home(node.inputs[0]))
    count, (target, written) = planner.result(count_value.name), Rows.of(planner, planner.result(rows_value.name))
    kernel = ValidCount(read, written, count.format, planner.call_of(node).attributes.score_threshold)
    function = planner.kernel(kernel, "valid_count")
    arguments = [source.at(), count.at(), target.at()]
    planner.claim(Computes(node, kernel, (source,), (count, target), planner.next_call))
    planner.call(
        function, arguments, read.shape[0], rows_value.name, "rows one after the other", 5.0 * math.prod(read.shape)
    )


def emit_valid_count(module: Module, name: str, kernel: ValidCount) -> None:
    """Write the function (rows, counts, target, first batch, end of batches)."""
    source, counts, target = (V("ptr", f"%{what}") for what in ("source", "counts", "target"))
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, counts, target, lo, hi])
    code.each(lo, hi, lambda b: count_valid(code, kernel, source, counts, target, b))
    code.finish()


def count_valid(code: Code, kernel: ValidCount, source: V, counts: V, target: V, b: Scalar) -> None:
    """Write the rows and the count of one batch."""
    _, rows, columns = kernel.source.shape

    def row(n: V, taken: list[V]) -> list[V]:
        for k in range(columns):
            kernel.target.store(code, target, b, taken[0], k, kernel.source.load(code, source, b, n, k))
        score = kernel.source.load(code, source, b, n, 1)
        valid = code.cast("zext", code.compare("sgt", score, kernel.threshold), 64)
        return [code.binary("add", taken[0], valid)]

    count = code.loop(0, rows, 1, row, [typed("i64", 0)])[0]
    fill_rows(code, kernel.target, target, b, count)
    address = code.at(counts, code.mul(b, kernel.count.bytes))
    store(code, kernel.count, code.cast("trunc", count, 32), address)


def fill_rows(code: Code, rows: Rows, target: V, batch: Scalar, first: V) -> None:
    """Fill the rows from ``first`` on with -1."""

    def row(n: Scalar) -> None:
        for k in range(rows.shape[2]):
            rows.store(code, target, batch, n, k, typed("i32", -1))

    code.each(first, rows.shape[1], row)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One kernel of `non_max_suppression`. Areas are computed in ``bits`` bits."""

    source: Rows
    target: Rows
    count: Format
    threshold: int
    limit: int
    force: bool
    top: int
    bits: int


def plan_suppression(planner: Planning, node: Node) -> None:
    """Plan `non_max_suppression`: greedy selection in the order of falling scores."""
    name = node.outputs[0].name
    source, read = Rows.of(planner, planner.home(node.inputs[0]))
    target, written = Rows.of(planner, planner.result(name))
    count = planner.home(node.inputs[1])
    if count.view.shape[0] > 1 and count.view.stride(0) != 1:  # the kernel reads the counts of all batches side by side
        count = planner.rearranged(count)
    a = planner.call_of(node).attributes
    lo, hi = planner.hull(node.inputs[0])
    # The largest numbers are 100 * overlap and threshold * union: an area is at most (hi - lo)^2, a union at most three
    # areas, and the threshold at most 101.
    bits = 64 if 303 * (hi - lo) ** 2 < 2**63 else 128
    rows = read.shape[1]
    kernel = Suppression(
        read, written, count.format, min(a.iou_threshold, 101), _limit(a.max_output_size, rows), a.force_suppress,
        _limit(a.top_k, rows), bits,
    )  # fmt: skip
    function = planner.kernel(kernel, "suppression")
    padded = -(-rows // LANES) * LANES
    scores, order, kept = (planner.scratch(4 * size) for size in (padded, rows, 5 * (rows + 1)))
    arguments: list[tuple[Buffer, int]] = [source.at(), count.at(), target.at(), (scores, 0), (order, 0), (kept, 0)]
    planner.claim(Computes(node, kernel, (source, count), (target,), planner.next_call))
    planner.call(function, arguments, 1, name, f"exact in {bits}-bit integers, sorted by counting", 2.0 * rows * rows)


def _limit(wish: int, rows: int) -> int:
    return rows if wish < 0 else min(wish, rows)


def emit_suppression(module: Module, name: str, kernel: Suppression) -> None:
    """Write the function (rows, counts, target, scores, order, kept boxes, first unit, end of units)."""
    names = ("source", "counts", "target", "scores", "order", "kept")
    source, counts, target, scores, order, kept = (V("ptr", f"%{what}") for what in names)
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, counts, target, scores, order, kept, lo, hi])
    batches, rows, _ = kernel.source.shape

    def batch(b: Scalar) -> None:
        given = load(code, kernel.count, code.at(counts, code.mul(b, kernel.count.bytes)), 1)
        total = code.cast("sext", code.intrinsic("smin", code.intrinsic("smax", given, 0), rows), 64)
        _sort(code, kernel, source, scores, order, b, total)
        considered = code.intrinsic("smin", total, kernel.top)
        count = survivors(code, kernel, source, order, kept, target, b, considered)
        fill_rows(code, kernel.target, target, b, count)

    code.when(code.compare("slt", lo, hi), lambda: code.each(0, batches, batch))
    code.finish()


def _sort(code: Code, kernel: Suppression, source: V, scores: V, order: V, b: Scalar, total: V) -> None:
    """Set order[rank of i] = i. The rank of row i is the number of rows with a greater score, or with the same score
    and a smaller index.
    """
    rows = kernel.source.shape[1]
    padded = -(-rows // LANES) * LANES
    kind, flags = vector(32, LANES), vector(1, LANES)
    numbers = V(kind, "<" + ", ".join(f"i32 {lane}" for lane in range(LANES)) + ">")

    def past(k: Scalar) -> None:
        code.store(typed(kind, PAST), code.at(scores, code.mul(k, 4)))

    def score(n: Scalar) -> None:
        code.store(kernel.source.load(code, source, b, n, 1), code.at(scores, code.mul(n, 4)))

    def rank(index: Scalar) -> None:
        i = whole(index)
        mine = code.splat(code.load("i32", code.at(scores, code.mul(i, 4))), LANES)
        me = code.splat(code.cast("trunc", i, 32), LANES)

        def others(k: V, before: list[V]) -> list[V]:
            theirs = code.load(kind, code.at(scores, code.mul(k, 4)))
            they = code.binary("add", code.splat(code.cast("trunc", k, 32), LANES), numbers)
            same = code.binary("and", code.compare("eq", theirs, mine), code.compare("slt", they, me))
            ahead = code.binary("or", code.compare("sgt", theirs, mine), V(flags, same.text))
            return [code.binary("add", before[0], code.cast("zext", ahead, 32))]

        counted = code.loop(0, padded, LANES, others, [typed(kind, 0)])[0]
        position = code.cast("sext", code.call("i32", f"llvm.vector.reduce.add.v{LANES}i32", counted), 64)
        code.store(code.cast("trunc", i, 32), code.at(order, code.binary("mul", position, 4)))

    code.each(0, padded, past, step=LANES)
    code.each(0, total, score)
    code.each(0, total, rank)


def survivors(code: Code, kernel: Suppression, source: V, order: V, kept: V, target: V, b: Scalar, considered: V) -> V:
    """Write the rows that no earlier surviving row suppresses, and return their number."""
    columns = (0, 2, 3, 4, 5)

    def row(p: V, values: list[V]) -> list[V]:
        count = values[0]
        n = code.cast("sext", code.load("i32", code.at(order, code.mul(p, 4))), 64)
        mine = [kernel.source.load(code, source, b, n, column) for column in columns]

        def rival(q: V, dropped: list[V]) -> list[V]:
            at = code.at(kept, code.mul(q, 4 * len(columns)))
            theirs = [code.load("i32", code.at(at, 4 * k)) for k in range(len(columns))]
            over = _overlaps(code, kernel, mine, theirs)
            if not kernel.force:
                over = code.binary("and", over, code.compare("eq", mine[0], theirs[0]))
            return [code.binary("or", dropped[0], over)]

        dropped = code.loop(0, count, 1, rival, [typed("i1", 0)])[0]
        # If the target is full already, the row overwrites the last one, and the count does not rise.
        free = code.intrinsic("smin", count, kernel.target.shape[1] - 1)
        for k in range(kernel.target.shape[2]):
            kernel.target.store(code, target, b, free, k, kernel.source.load(code, source, b, n, k))
        at = code.at(kept, code.mul(count, 4 * len(columns)))
        for k, value in enumerate(mine):
            code.store(value, code.at(at, 4 * k))
        stays = code.binary("and", code.compare("sge", mine[0], 0), code.compare("slt", count, kernel.limit))
        stays = code.binary("and", stays, code.binary("xor", dropped, 1))
        return [code.binary("add", count, code.cast("zext", stays, 64))]

    return code.loop(0, considered, 1, row, [typed("i64", 0)])[0]


def _overlaps(code: Code, kernel: Suppression, a: list[V], b: list[V]) -> V:
    """Whether two boxes (id, x1, y1, x2, y2) overlap by the threshold.

    They do if 100 * overlap >= threshold * union, and height and width of the overlap are positive.
    """
    wide_a, wide_b = ([code.cast("sext", value, kernel.bits) for value in box[1:]] for box in (a, b))

    def area(box: list[V]) -> V:
        return code.binary("mul", code.binary("sub", box[2], box[0]), code.binary("sub", box[3], box[1]))

    def extent(axis: int) -> V:
        low = code.intrinsic("smax", wide_a[axis], wide_b[axis])
        high = code.intrinsic("smin", wide_a[axis + 2], wide_b[axis + 2])
        return code.intrinsic("smax", code.binary("sub", high, low), 0)

    overlap = code.binary("mul", extent(0), extent(1))
    areas = code.binary("add", area(wide_a), area(wide_b))
    union = code.binary("sub", areas, overlap)
    enough = code.compare("sge", code.binary("mul", overlap, 100), code.binary("mul", union, kernel.threshold))
    positive = code.binary("and", code.compare("sgt", areas, 0), code.compare("sgt", union, 0))
    return code.binary("and", positive, enough)


PLANS = {
    "get_valid_count": OpPlan(plan_valid_count, placeable=False),
    "non_max_suppression": OpPlan(plan_suppression, placeable=False),
}
