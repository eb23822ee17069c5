"""Nests: loops that compute one formula at every index.

All elementwise ops and all copies are nests. The loops run over the elements written, and every tensor has one stride
per loop. The innermost loop is done in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.elements import decoded, encoded, load, store
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, lanes, vector
from cvm.executors.native.emit.narrow import evaluated, lane_bits, loaded, stored
from cvm.executors.native.emit.tables import permutes
from cvm.executors.native.emit.transposition import Blocks, transposed
from cvm.records import dataclass

__all__ = ["Reading", "along", "emit_nest", "loops_in_order", "moved", "walked"]


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
    repeated = [loop for loop in real if any(_copies([other, other, loop]) > 1 for other in real)]
    innermost = written[0] if written else repeated[0] if repeated else max(real, key=contiguous)
    rest = sorted((loop for loop in real if loop is not innermost), key=lambda loop: -abs(loop.strides[-1]))
    joined: list[Loop] = []
    for loop in [*rest, innermost]:
        if joined and all(a == b * loop.extent for a, b in zip(joined[-1].strides, loop.strides, strict=True)):
            joined[-1] = Loop(joined[-1].extent * loop.extent, loop.strides)
        else:
            joined.append(loop)
    alone = len(joined) == 1 or (len(joined) == 2 and _copies([joined[1], *joined]) > 1)
    if alone and joined[-1].extent > CHUNK:
        extent, strides = joined[-1].extent, joined[-1].strides
        chunk = next((n for n in range(CHUNK, CHUNK // 8, -1) if extent % n == 0), None)
        if chunk is not None:
            outer = Loop(extent // chunk, tuple(stride * chunk for stride in strides))
            return (outer, *joined[:-1], Loop(chunk, strides))
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


_NEAR = (-1, 2, 3, 4)
"""Strides at which elements are picked from whole vectors."""
FEW = 6
"""The most tensors of a nest whose bytes are stored a whole vector at a time: more would not fit the registers."""
MOST_COPIES = 4
"""The most copies of an element that are stored together."""


def _near(code: Code, format_: Format, pointer: V, stride: int, count: int) -> V:
    """``count`` stored integers at a stride of `_NEAR`, from whole vectors that begin or end with one of them."""
    kind, last = vector(format_.bits, count), count - 1
    if stride < 0:
        back = code.load(kind, code.at(pointer, -last * format_.bytes))
        return code.shuffle(back, back, range(last, -1, -1))
    starts = [*(number * count for number in range(stride - 1)), last * (stride - 1)]
    found = V(kind, "poison")
    for number, start in enumerate(starts):
        row = code.load(kind, code.at(pointer, start * format_.bytes))
        here = [min(lane * stride // count, stride - 1) == number for lane in range(count)]
        places = [count + lane * stride - start if mine else lane for lane, mine in enumerate(here)]
        found = code.shuffle(found, row, places)
    return found


def _copies(loops: Sequence[Loop]) -> int:
    """How many copies of each element the loop before the innermost one stores side by side; 1 if it is another loop.

    It is never the first loop, whose indices threads share.
    """
    if len(loops) < 3:
        return 1
    around, inner = loops[-2:]
    few = around.extent <= MOST_COPIES and inner.strides[-1] == around.extent and around.strides[-1] == 1
    return around.extent if few and not any(around.strides[:-1]) else 1


@dataclass(slots=True)
class Reading:
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
        if stride in _NEAR:
            return decoded(self.code, format_, _near(self.code, format_, pointer, stride, self.count))
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

    def write(self, value: V, copies: int = 1) -> None:
        """Store the result at the current index, or copies of each element side by side."""
        format_, stride, pointer = self._tensor(len(self.pointers) - 1)
        if copies > 1:
            raw = encoded(self.code, format_, value)
            self.code.store(self.code.gathered([raw] * copies) if self.count == 1 else self.code.shuffle(
                raw, raw, [lane for lane in range(self.count) for _ in range(copies)]), pointer)  # fmt: skip
            return
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
    blocks = Blocks.of(nest)
    if blocks is not None:
        _emit_blocks(module, name, nest, blocks, width)
        return
    if nest.copies:
        nest = replace(nest, formats=(Format(nest.formats[0].bits, raw=True),) * 2)
        width = width * 32 // nest.formats[0].bits
    gathered = _raw_gather(nest)
    if gathered is not None:
        nest, width = gathered, width * (32 // gathered.formats[-1].bits if gathered.loops[-1].strides[1] == 0 else 1)
    bits = lane_bits(nest)
    if permutes(nest.formula):
        width *= 4
    elif bits is not None:
        width *= 32 // min(bits, *(format_.bits for format_ in nest.formats))
    elif nest.formats[-1].bits == 8 and len(nest.formats) <= FEW and nest.loops[-1].strides[-1] == 1:
        width *= 4
    names = [V("ptr", f"%a{number}") for number in range(len(nest.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*names, lo, hi])
    *outer, inner = nest.loops
    copies = _copies(nest.loops)
    outer = outer[:-1] if copies > 1 else outer

    sizes = [format_.bytes for format_ in nest.formats]

    def innermost(pointers: list[V]) -> None:
        same = {number: load(code, nest.formats[number], pointers[number], 1) for number in _repeated(nest)}

        def at(index: Scalar, count: int) -> None:
            if bits is not None:
                _narrow(code, nest, bits, moved(code, pointers, inner.strides, sizes, index), count)
                return
            here = Reading(code, nest, moved(code, pointers, inner.strides, sizes, index), count, dict(same))
            here.write(evaluate(code, nest.formula, here, count), copies)

        code.strips(inner.extent, width, at)

    walked(code, outer, (lo, hi), names, sizes, innermost)
    code.finish()


def _repeated(nest: Nest) -> list[int]:
    """The tensors of which the innermost loop reads one element only. It is loaded before the loop: the code generator
    cannot know that no store of the loop changes it.
    """
    *reads, _ = nest.loops[-1].strides
    steps = nest.formula.steps
    if not steps:
        return []
    addressed = {step.arguments[0] for step in steps if step.op in ("gather", "pick", "permute", "shuffle")}
    used = {argument for step in steps for argument in step.arguments} - addressed
    return [number for number, stride in enumerate(reads) if stride == 0 and number in used]


def _raw_gather(nest: Nest) -> Nest | None:
    """The same nest on undecoded integers, if all that it does is to gather elements of the format that it stores."""
    steps, target = nest.formula.steps, nest.formats[-1]
    if len(steps) != 1 or steps[0].op != "gather" or nest.formats[steps[0].arguments[0]] != target or target.bits > 32:
        return None
    raw, (extent, stride, _) = Format(target.bits, raw=True), steps[0].static
    formats = [raw if number == steps[0].arguments[0] else format_ for number, format_ in enumerate(nest.formats)]
    formula = Formula(nest.formula.reads, (replace(steps[0], static=(extent, stride, raw)),))
    return Nest(nest.loops, (*formats[:-1], raw), formula)


def _narrow(code: Code, nest: Nest, bits: int, pointers: Sequence[V], count: int) -> None:
    """Compute ``count`` elements in lanes of 8 or 16 bits."""
    strides = nest.loops[-1].strides

    def read(number: int) -> V:
        return loaded(code, nest.formats[number], pointers[number], count if strides[number] else 1, bits)

    stored(code, nest.formats[-1], evaluated(code, nest.formula, read, count, bits), pointers[-1])


def _emit_blocks(module: Module, name: str, nest: Nest, blocks: Blocks, width: int) -> None:
    """Write the function of a copy by blocks: (source, target, first unit, end of units)."""
    source, target, lo, hi = V("ptr", "%source"), V("ptr", "%target"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])
    size = nest.formats[0].bytes
    others = [loop for place, loop in enumerate(nest.loops[:-1]) if place != blocks.position]
    if blocks.position == 0:
        along(code, others, [source, target], (size, size),
              lambda at: transposed(code, blocks, size, width, at, (lo, hi)))  # fmt: skip
    else:
        bounds = (0, blocks.columns.extent)
        walked(code, others, (lo, hi), [source, target], (size, size),
               lambda at: transposed(code, blocks, size, width, at, bounds))  # fmt: skip
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
