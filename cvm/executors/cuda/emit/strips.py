"""Nests whose threads compute some neighbouring elements each, and load and store them together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace

from cvm.executors.cuda.emit.elements import walked
from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.elements import decoded, encoded, load
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Module, V, vector
from cvm.records import dataclass

__all__ = ["emit_nest"]

TOGETHER = 4
"""The elements of a thread: as bytes they fill a word, as integers of 32 bits a line of 16 bytes."""
MOST = 16
"""The most bytes of one access."""


def emit_nest(module: Module, name: str, nest: Nest, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (every tensor); None where the elements of a thread cannot be stored together."""
    if nest.copies:
        nest = replace(nest, formats=(Format(nest.formats[0].bits, raw=True),) * 2)
    joint = [_joint(nest, number, alignments) for number in range(len(nest.formats))]
    if not joint[-1]:
        return None
    code = Kernel(module, name, len(nest.formats))
    inner = nest.loops[-1]
    strips = Loop(inner.extent // TOGETHER, tuple(stride * TOGETHER for stride in inner.strides))
    loops = (*nest.loops[:-1], strips)
    extents, sizes = [loop.extent for loop in loops], [format_.bytes for format_ in nest.formats]
    target = nest.formats[-1]

    def some(index: V) -> None:
        at = walked(code, loops, digits(code, index, extents), sizes, code.arguments)
        strip = _Strip(code, nest, at, joint)
        raw = [encoded(code, target, evaluate(code, nest.formula, _Lane(strip, lane), 1)) for lane in range(TOGETHER)]
        code.store(code.gathered(raw), at[-1], TOGETHER * target.bytes)

    code.elements(math.prod(extents), some)
    code.finish()
    return (covering(name, math.prod(extents)),)


def _joint(nest: Nest, number: int, alignments: Sequence[int]) -> bool:
    """Whether the elements that a thread has of a tensor lie side by side, at a multiple of their bytes together."""
    bytes_, inner = TOGETHER * nest.formats[number].bytes, nest.loops[-1]
    beside = inner.strides[number] == 1 and inner.extent % TOGETHER == 0
    apart = all(loop.strides[number] % TOGETHER == 0 for loop in nest.loops[:-1])
    return beside and apart and bytes_ <= MOST and alignments[number] % bytes_ == 0


@dataclass(slots=True)
class _Strip:
    """The elements that a thread reads, from the addresses of its first ones on."""

    code: Kernel
    nest: Nest
    at: Sequence[V]
    joint: Sequence[bool]
    loaded: dict[int, V] = field(default_factory=dict)

    def value(self, number: int, lane: int) -> V:
        """One element of a tensor."""
        format_, stride = self.nest.formats[number], self.nest.loops[-1].strides[number]
        if not self.joint[number] and stride:
            return load(self.code, format_, self.address(number, lane), 1)
        if number not in self.loaded:
            count = TOGETHER if self.joint[number] else 1
            kind = vector(format_.bits, count)
            self.loaded[number] = self.code.load(kind, self.at[number], count * format_.bytes)
        return decoded(self.code, format_, self.code.extract(self.loaded[number], lane))

    def address(self, number: int, lane: int) -> V:
        """The address of one element."""
        apart = self.nest.loops[-1].strides[number] * self.nest.formats[number].bytes
        return self.code.at(self.at[number], lane * apart)


@dataclass(frozen=True, slots=True)
class _Lane:
    """One element of a strip, as a `Reader` of one lane."""

    strip: _Strip
    lane: int

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        return self.strip.value(number, self.lane)

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`, which nothing asks for in a single lane."""
        raise AssertionError("a single lane has no halves")

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`."""
        return self.strip.address(number, self.lane), [0]
