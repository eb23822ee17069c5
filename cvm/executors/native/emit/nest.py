"""Nests: loops that compute one formula at every index.

All elementwise ops and all copies are nests. The loops run over the elements written, and every tensor has one stride
per loop. The innermost loop is done in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.elements import decoded, encoded, load, store
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, lanes, vector
from cvm.executors.native.emit.tables import permutes

__all__ = ["along", "emit_nest", "loops_in_order", "moved", "walked"]


CHUNK = 8192
"""A single loop longer than this is split in two, so that several threads can share it."""


def loops_in_order(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """The loops in an order in which neighbouring elements are read and written one after the other.

    Two loops that visit the same elements as one longer loop are merged.
    """
    real = [loop for loop in loops if loop.extent > 1]
    if not real:
        width = len(loops[0].strides) if loops else 1
        return (Loop(1, (0,) * width),)

    def contiguous(loop: Loop) -> tuple[int, int]:
        return (sum(abs(stride) <= 1 for stride in loop.strides), loop.extent)

    written = [loop for loop in real if abs(loop.strides[-1]) == 1 and loop.extent >= 4]
    innermost = written[0] if written else max(real, key=contiguous)
    rest = sorted((loop for loop in real if loop is not innermost), key=lambda loop: -abs(loop.strides[-1]))
    joined: list[Loop] = []
    for loop in [*rest, innermost]:
        if joined and all(a == b * loop.extent for a, b in zip(joined[-1].strides, loop.strides, strict=True)):
            joined[-1] = Loop(joined[-1].extent * loop.extent, loop.strides)
        else:
            joined.append(loop)
    if len(joined) == 1 and joined[0].extent > CHUNK:
        extent, strides = joined[0].extent, joined[0].strides
        chunk = next((n for n in range(CHUNK, CHUNK // 8, -1) if extent % n == 0), None)
        if chunk is not None:
            outer = Loop(extent // chunk, tuple(stride * chunk for stride in strides))
            return (outer, Loop(chunk, strides))
    return _reused(tuple(joined))


REUSED = 4608
"""The most elements of a loop that another loop reads again and again: of six tensors of 16 bits, half of a first-level
cache.
"""


def _reused(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops, with a part of the innermost one moved outwards if that keeps elements in a cache.

    So it is where the loop around a long innermost one reads a tensor again: for each channel, parameters per position.
    """
    if len(loops) != 2 or loops[1].extent <= REUSED:
        return loops
    around, inner = loops
    if not any(a == 0 and b != 0 for a, b in zip(around.strides, inner.strides, strict=True)):
        return loops
    chunk = next((n for n in range(REUSED, REUSED // 8, -1) if inner.extent % n == 0), None)
    if chunk is None:
        return loops
    outer = Loop(inner.extent // chunk, tuple(stride * chunk for stride in inner.strides))
    return (outer, around, Loop(chunk, inner.strides))


@dataclass(slots=True)
class _Reading:
    """The addresses of all tensors at one index of the innermost loop, as a `Reader` of ``count`` lanes."""

    code: Code
    nest: Nest
    pointers: list[V]
    count: int
    loaded: dict[int, V] = field(default_factory=dict)

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        if number not in self.loaded:
            self.loaded[number] = self._load(number)
        return self.loaded[number]

    def _load(self, number: int) -> V:
        format_, stride, pointer = self._tensor(number)
        if self.count == 1 or stride == 0:
            return load(self.code, format_, pointer, 1)
        if stride == 1:
            return load(self.code, format_, pointer, self.count)
        lane_type = vector(format_.bits, 1)
        apart = stride * format_.bytes
        raw = [self.code.load(lane_type, self.code.at(pointer, lane * apart)) for lane in range(self.count)]
        return decoded(self.code, format_, self.code.gathered(raw))

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`."""
        value = self.value(number)
        if lanes(value.type) == 1:
            half = self.code.splat(value, self.count // 2)
            return half, half
        even = self.code.shuffle(value, value, range(0, self.count, 2))
        return even, self.code.shuffle(value, value, range(1, self.count, 2))

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`."""
        format_, stride, pointer = self._tensor(number)
        return pointer, [lane * stride * format_.bytes for lane in range(self.count)]

    def write(self, value: V) -> None:
        """Store the result at the current index."""
        format_, stride, pointer = self._tensor(len(self.pointers) - 1)
        if self.count == 1 or stride == 1:
            store(self.code, format_, value, pointer)
            return
        raw = encoded(self.code, format_, value)
        for lane in range(self.count):
            target = self.code.at(pointer, lane * stride * format_.bytes)
            self.code.store(self.code.extract(raw, lane), target)

    def _tensor(self, number: int) -> tuple[Format, int, V]:
        return self.nest.formats[number], self.nest.loops[-1].strides[number], self.pointers[number]


def emit_nest(module: Module, name: str, nest: Nest, width: int) -> None:
    """Write the function (pointer of every tensor, first unit, end of units), in vectors of ``width`` lanes."""
    if nest.copies:
        nest = replace(nest, formats=(Format(nest.formats[0].bits, raw=True),) * 2)
        width = width * 32 // nest.formats[0].bits
    if permutes(nest.formula):
        width *= 4
    names = [V("ptr", f"%a{number}") for number in range(len(nest.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*names, lo, hi])
    *outer, inner = nest.loops

    sizes = [format_.bytes for format_ in nest.formats]

    def innermost(pointers: list[V]) -> None:
        def at(index: Scalar, count: int) -> None:
            here = _Reading(code, nest, moved(code, pointers, inner.strides, sizes, index), count)
            here.write(evaluate(code, nest.formula, here, count))

        code.strips(inner.extent, width, at)

    walked(code, outer, (lo, hi), names, sizes, innermost)
    code.finish()


def walked(
    code: Code,
    loops: Sequence[Loop],
    units: tuple[V, V],
    pointers: list[V],
    sizes: Sequence[int],
    body: Callable[[list[V]], None],
) -> None:
    """Write the loops, and inside them ``body``, which gets the addresses of all tensors.

    ``units`` (first, end) bounds the first loop. Without loops, ``body`` runs once, if the first unit is 0.
    """

    def run(depth: int, pointers: list[V]) -> None:
        if depth == len(loops):
            body(pointers)
            return
        bounds: tuple[Scalar, Scalar] = units if depth == 0 else (0, loops[depth].extent)
        code.each(*bounds, lambda index: run(depth + 1, moved(code, pointers, loops[depth].strides, sizes, index)))

    if loops:
        run(0, pointers)
    else:
        code.when(code.compare("slt", *units), lambda: run(0, pointers))


def moved(code: Code, pointers: Sequence[V], strides: Sequence[int], sizes: Sequence[int], index: Scalar) -> list[V]:
    """Each pointer moved by ``index`` times its stride in elements; ``sizes`` are the bytes of an element."""
    return [
        code.at(pointer, code.mul(index, stride * size))
        for pointer, stride, size in zip(pointers, strides, sizes, strict=True)
    ]


def along(
    code: Code, loops: Sequence[Loop], at: list[V], sizes: Sequence[int], body: Callable[[list[V]], None]
) -> None:
    """Call ``body`` with the addresses at every index of the loops."""
    if not loops:
        body(at)
        return
    loop, *rest = loops
    code.each(0, loop.extent, lambda index: along(code, rest, moved(code, at, loop.strides, sizes, index), sizes, body))
