"""The code of `max_pool2d`.

Where channels lie side by side, one vector holds channels of one pixel. Neighbouring windows of a row of results share
columns if the stride is below the extent of the window. So the maximum over the rows of a window is computed once for
each column, and the maxima of shared columns are carried from one result to the next. With 3x3 windows and a stride of
2, a result takes six loads, not nine; with a stride of 1 three.

A tap outside the map is read where the nearest element of its axis lies. Every window has a tap inside the map (pads
are smaller than windows, and no window begins behind the map). So this nearest element belongs to the window, and a
maximum does not change if it has an element twice.
"""

from __future__ import annotations

from collections.abc import Callable

from cvm.executors.native.emit.elements import decoded, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, vector
from cvm.executors.native.kernels.windows import Pool, Window, store_largest, window_at
from cvm.records import dataclass

__all__ = ["emit_pool"]

TOGETHER = 4
"""The most vectors of maxima that are carried, so that machines of few registers hold them. With as many vectors of a
pixel computed together, a cache line is read as a whole.
"""


def emit_pool(module: Module, name: str, pool: Pool, width: int) -> None:
    """Write the function of a pool: (source, target, first row, end of rows)."""
    source, target, lo, hi = V("ptr", "%source"), V("ptr", "%target"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])

    def image(n: Scalar) -> None:
        read = code.at(source, code.mul(n, pool.images.strides[0] * pool.source.bytes))
        write = code.at(target, code.mul(n, pool.images.strides[1] * pool.target.bytes))

        def row(p: Scalar) -> None:
            if pool.shares:
                _row(code, pool, width, p, (read, write))
            else:
                code.each(0, pool.columns.outputs, lambda q: _pooled(code, pool, width, (p, q), read, write))

        code.each(lo, hi, row)

    code.each(0, pool.images.extent, image)
    code.finish()


def _lanes(pool: Pool, width: int) -> int:
    """The channels that one vector holds."""
    if pool.channels.strides != (1, 1):
        return 1
    return width * 4 // pool.source.bytes if pool.source == pool.target else width


def _pooled(code: Code, pool: Pool, width: int, at: tuple[Scalar, Scalar], read: V, write: V) -> None:
    """Write the maxima of all channels at one row and column of the output, tap by tap."""
    corner, out, rows, columns = window_at(code, pool, at, read, write)

    def channels(c: Scalar, count: int) -> None:
        first = code.at(corner, code.mul(c, pool.channels.strides[0] * pool.source.bytes))
        result = code.at(out, code.mul(c, pool.channels.strides[1] * pool.target.bytes))
        store_largest(code, pool, first, result, rows, columns, count)

    code.strips(pool.channels.extent, _lanes(pool, width), channels)


@dataclass(frozen=True, slots=True)
class _Strip:
    """``count`` channels of one row of results, which lies at ``out``; its windows begin their rows at ``rows``."""

    code: Code
    pool: Pool
    rows: tuple[V, ...]
    out: V
    count: int

    def column(self, place: Scalar) -> V:
        """The maxima over the rows of the window, in one column of the map."""
        code, pool = self.code, self.pool
        kind = vector(pool.source.bits, self.count)
        step = code.mul(place, pool.columns.source * pool.source.bytes)
        first, *others = (code.load(kind, code.at(row, step)) for row in self.rows)
        return self.largest([first, *others])

    def largest(self, values: list[V]) -> V:
        """The maxima of vectors of stored integers, which are in the order of the elements."""
        name = "smax" if self.pool.source.signed else "umax"
        found, *others = values
        for value in others:
            found = self.code.intrinsic(name, found, value)
        return found

    def write(self, q: Scalar, value: V) -> None:
        """Store the results of column ``q``."""
        code, pool = self.code, self.pool
        out = code.at(self.out, code.mul(q, pool.columns.target * pool.target.bytes))
        if pool.source == pool.target:
            code.store(value, out)
        else:
            store(code, pool.target, decoded(code, pool.source, value), out)


def _row(code: Code, pool: Pool, width: int, p: Scalar, images: tuple[V, V]) -> None:
    """Write one row of results. ``images`` are the addresses of the source and of the target."""
    read, write = images
    size = pool.source.bytes
    places = [_inside(code, pool.rows, p, tap) for tap in range(pool.rows.taps)]
    rows = [code.at(read, code.mul(place, pool.rows.source * size)) for place in places]
    out = code.at(write, code.mul(p, pool.rows.target * pool.target.bytes))

    def channels(c: Scalar, count: int) -> None:
        here = tuple(code.at(row, code.mul(c, size)) for row in rows)
        _strip(_Strip(code, pool, here, code.at(out, code.mul(c, pool.target.bytes)), count))

    shared = max(pool.columns.taps - pool.columns.stride, 1)
    together = max(TOGETHER // shared, 1) if pool.source == pool.target else 1
    code.strips(pool.channels.extent, together * _lanes(pool, width), channels)


def _inside(code: Code, window: Window, output: Scalar, tap: int) -> Scalar:
    """Where an output reads its tap along an axis: inside the map, at the nearest element if the tap lies outside."""
    place = code.add(code.mul(output, window.stride), tap - window.padding)
    if tap < window.padding:
        place = code.larger(place, 0)
    if (window.outputs - 1) * window.stride + tap - window.padding >= window.extent:
        place = code.smaller(place, window.extent - 1)
    return place


def _strip(strip: _Strip) -> None:
    """Write one row of results of some channels: the columns at the borders of the map, and a loop over the others."""
    window, code = strip.pool.columns, strip.code
    begin = min(-(-window.padding // window.stride), window.outputs)
    end = max(begin, min((window.extent - window.taps + window.padding) // window.stride + 1, window.outputs))
    for q in (*range(begin), *range(end, window.outputs)):
        first = q * window.stride - window.padding
        columns = range(max(first, 0), min(first + window.taps, window.extent))
        strip.write(q, strip.largest([strip.column(place) for place in columns]))
    shared = max(window.taps - window.stride, 0)

    def columns_of(q: Scalar) -> Callable[[int], V]:
        first = code.add(code.mul(q, window.stride), -window.padding)
        return lambda tap: strip.column(code.add(first, tap))

    def result(q: V, carried: list[V]) -> list[V]:
        values = [*carried, *map(columns_of(q), range(shared, window.taps))]
        strip.write(q, strip.largest(values))
        return values[window.taps - shared :]

    if begin < end:
        code.loop(begin, end, 1, result, list(map(columns_of(begin), range(shared))))
