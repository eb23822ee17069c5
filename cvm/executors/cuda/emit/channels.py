"""Channels of contractions: where their packed constants lie, and what becomes of their finished sums."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.native.descriptions.sums import Block, Contraction, Depthwise, Pixels, Segment
from cvm.executors.native.emit.elements import encoded, load
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Code, Scalar, V, typed
from cvm.records import dataclass

__all__ = ["Place", "place_of", "placed", "stored", "whole"]

Sums = Contraction | Depthwise


@dataclass(frozen=True, slots=True)
class Place:
    """Where the packed constants of a channel lie, in i64.

    The channel is in lane ``lane`` of its block, which has ``lanes`` lanes; the blocks before this block have
    ``block`` lanes together.
    """

    block: V
    lanes: V
    lane: V

    def index(self, code: Code) -> V:
        """The number of the lane among those of all blocks."""
        return code.binary("add", self.block, self.lane)


def whole(number: Scalar) -> V:
    """A number as an i64 value."""
    return typed("i64", number) if isinstance(number, int) else number


def place_of(code: Code, segments: Sequence[Segment], channel: Scalar) -> Place:
    """The place of a channel, an i64 >= 0."""
    found: Place | None = None
    for segment in segments:
        here = _place_in(code, segment, whole(channel))
        if found is None:
            found = here
            continue
        inside = code.compare("uge", whole(channel), segment.start)
        found = Place(*(code.select(inside, new, old) for new, old in zip(
            (here.block, here.lanes, here.lane), (found.block, found.lanes, found.lane), strict=True)))  # fmt: skip
    assert found is not None, "a contraction has channels"
    return found


def _place_in(code: Code, segment: Segment, channel: V) -> Place:
    """The place of a channel of this segment."""
    assert not segment.together, "all vectors of a block lie side by side"
    size = segment.channels
    within = code.binary("sub", channel, segment.start) if segment.start else channel
    if segment.count == 1:
        block, inside = typed("i64", segment.start), within
    else:
        inside = code.binary("urem", within, size)
        block = code.binary("sub", channel, inside)
    return Place(block, typed("i64", size), _lane(code, segment.block, inside))


def _lane(code: Code, block: Block, channel: V) -> V:
    """The lane, counted through all vectors of a block, in which one of its channels lies: see `Block.channels`."""
    if not block.interleaved:
        return channel
    each = 4 * block.vectors
    quad, rest = code.binary("udiv", channel, each), code.binary("urem", channel, each)
    vector, element = code.binary("udiv", rest, 4), code.binary("and", rest, 3)
    first = code.binary("add", code.binary("mul", vector, block.lane), code.binary("mul", quad, 4))
    return code.binary("add", first, element)


def placed(code: Code, segments: Sequence[Segment], place: Place, bytes_: int) -> V:
    """The distance in bytes of a packed parameter of ``bytes_`` bytes: see `packing.packed_channels`.

    Of parameters of eight bytes, those of the even lanes of a vector come first.
    """
    lane = place.lane
    if bytes_ == 8:
        widths = [segment.block.lane for segment in segments]
        assert all(width & (width - 1) == 0 for width in widths), "lanes are powers of two"
        lane = _even_first(code, lane, widths[0])
        for segment, width in zip(segments[1:], widths[1:], strict=True):
            if width != widths[0]:
                inside = code.compare("uge", place.block, segment.start)
                lane = code.select(inside, _even_first(code, place.lane, width), lane)
    return code.binary("mul", code.binary("add", place.block, lane), bytes_)


def _even_first(code: Code, lane: V, width: int) -> V:
    if width == 1:
        return lane
    before, inside = code.binary("and", lane, -width), code.binary("and", lane, width - 1)
    half = code.binary("mul", code.binary("and", inside, 1), width // 2)
    return code.binary("add", before, code.binary("add", half, code.binary("lshr", inside, 1)))


@dataclass(slots=True)
class _Reader:
    """What a formula reads at one pixel and channel: value 0 is the finished sum."""

    code: Code
    kernel: Sums
    pointers: Sequence[V]
    index: tuple[Scalar, ...]
    place: Place
    total: V

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        if number == 0:
            return self.total
        read = self.kernel.reads[number - 1]
        if read.pixels is None:
            distance = placed(self.code, self.kernel.segments, self.place, read.format.bytes)
            return load(self.code, read.format, self.code.at(self.pointers[number - 1], distance), 1)
        return load(self.code, read.format, self.addresses(number)[0], 1)

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`, which nothing asks for in a single lane."""
        raise AssertionError("a single lane has no halves")

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`."""
        read = self.kernel.reads[number - 1]
        assert read.pixels is not None
        return pixel(self.code, self.pointers[number - 1], read.pixels, self.index, read.format.bytes), [0]


def pixel(code: Code, pointer: V, pixels: Pixels, index: Sequence[Scalar], bytes_: int) -> V:
    """The address of an element at (image, row, column, channel)."""
    strides = (pixels.image, pixels.row, pixels.column, pixels.channel)
    for number, stride in zip(index, strides, strict=True):
        pointer = code.at(pointer, code.mul(number, stride * bytes_))
    return pointer


def stored(
    code: Code, kernel: Sums, reads: Sequence[V], target: V, index: tuple[Scalar, ...], place: Place, total: V
) -> None:
    """Write the formula of a finished sum, and store its result at (image, row, column, channel)."""
    value = evaluate(code, kernel.formula, _Reader(code, kernel, reads, index, place, total), 1)
    output = kernel.output
    if output.clamp is None:
        raw = encoded(code, output.format, value)
    else:
        lo, hi = output.clamp
        clipped = code.intrinsic("smin", code.intrinsic("smax", value, lo), hi)
        raw = code.cast("trunc", clipped, output.format.bits)
    code.store(raw, pixel(code, target, output.pixels, index, output.format.bytes))
