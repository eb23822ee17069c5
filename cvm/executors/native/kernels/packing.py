"""Packing: constants are stored in the order in which kernels read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude, require_fits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import ROWS, interleaved
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.saturation import excess

if TYPE_CHECKING:
    from cvm.executors.native.descriptions.sums import Contraction, Depthwise, Segment

__all__ = ["packed_channels", "packed_taps", "packed_weights", "parts", "passes"]

Integers = npt.NDArray[np.signedinteger[Any]]


def passes(weights: Integers, per: int) -> list[tuple[Integers, int]]:
    """Split weights into digits that the dot product accepts: w = sum of w_i * 2^(..), one pass per digit.

    Returns each digit with the number of bits by which the sums are shifted left before its pass. A dot product of
    bytes takes digits to the base 256 in [-128, 127]. Weights and digits are integers of any width that holds them.
    """
    if per != 4:
        return [(weights, 0)]
    require_fits(magnitude(weights) + 2**8, 63, "a weight and a digit")
    digits = [weights]
    while int(digits[0].min()) < -128 or int(digits[0].max()) > 127:
        wide = digits[0].astype(np.int64)
        low = ((wide + 128) & 255) - 128
        digits[:1] = [(wide - low) >> 8, low.astype(np.int8)]
    return [(digit, 8 if number else 0) for number, digit in enumerate(digits)]


def parts(weights: Integers, machine: Machine) -> list[Integers]:
    """Split weights into parts that the dot product of bytes accepts: w = sum of all parts.

    The parts lie in [-128, 127]. If the product of the machine saturates pairs at 16 bits, and a byte times a pair of
    weights could exceed these, they lie in [-64, 64].
    """
    lo, hi = (-64, 64) if machine.clips(magnitude(weights)) else (-128, 127)
    left = weights.astype(np.int32)
    result: list[Integers] = []
    while not result or left.any():
        part = left.clip(lo, hi)
        result.append(part.astype(np.int8))
        left = left - part
    return result


def packed_weights(digits: Sequence[Integers], kernel: Contraction) -> bytes:
    """The bytes of all digits, each (channels, taps, run), in the order
    [block][vectors together][pass][tap][step][vector][lane][element].

    If the kernel has an ``excess``, the digits are without it, and a list of the steps that have one follows:

    * the number of the first entry of each [block][pass], and the number of all entries;
    * two numbers for each entry, in bytes: how far the elements of its step lie behind the first element of a window,
      and how far its excess lies behind the beginning of the list;
    * the excess of the step of each entry, in the order [vector][lane][element].

    The numbers and distances are int32. Raises OverflowError if one does not fit.
    """
    dtype = np.int8 if kernel.widened else {4: np.int8, 2: np.int16, 1: np.int32}[kernel.per]
    _, taps, run = digits[0].shape
    bits = 8 * np.dtype(dtype).itemsize - 1
    for digit in digits:
        require_fits(max(-int(digit.min()) - 1, int(digit.max())), bits, "a digit of a weight")
    pieces, listed = [], _Excess(kernel)
    for segment in kernel.segments:
        size, block = segment.channels, segment.block
        part = slice(segment.start, segment.start + segment.count * size)
        whole = np.zeros((segment.count * size, len(digits), taps, kernel.steps * kernel.per), dtype)
        for number, digit in enumerate(digits):
            whole[: digit[part].shape[0], number, :, :run] = digit[part]
        shape = (len(digits), taps, kernel.steps, kernel.per)
        ordered = whole.reshape(segment.count, size, *shape)[:, _order(segment)]
        if kernel.excess:
            ordered = listed.without(ordered)
        together = segment.together or block.vectors
        split = ordered.reshape(segment.count, block.vectors // together, together, block.lane, *shape)
        pieces.append(np.ascontiguousarray(split.transpose(0, 1, 4, 5, 6, 2, 3, 7)).tobytes())
    return b"".join([*pieces, *listed.pieces()])


class _Excess:
    """The list of the steps of a kernel whose weights have an excess (see `packed_weights`)."""

    def __init__(self, kernel: Contraction) -> None:
        self._kernel = kernel
        self._counts: list[Integers] = []
        self._steps: list[Integers] = []
        self._weights: list[Integers] = []

    def without(self, weights: Integers) -> Integers:
        """List the excess of the weights of a segment, and return the weights without it.

        ``weights`` (blocks, lanes, passes, taps, steps, elements) are bytes.
        """
        more = excess(weights.astype(np.int8, copy=False))
        steps = np.bitwise_or.reduce(more.view(np.int32)[..., 0], axis=1) != 0  # the four bytes of a step at once
        block, number, tap, step = np.nonzero(steps)
        self._counts.append(np.count_nonzero(steps, axis=(2, 3)).reshape(-1))
        at = np.zeros((1,), np.int64)
        for count, apart in self._kernel.taps:
            at = (at[:, None] + apart * np.arange(count)).reshape(-1)
        self._steps.append(at[tap] + self._kernel.per * step)
        self._weights += list(more[block, :, number, tap, step])
        return weights - more

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the list; none if the kernel has no excess."""
        if not self._kernel.excess:
            return
        first = np.concatenate([[0], *self._counts]).cumsum()
        sizes = np.array([0, *(part.size for part in self._weights)]).cumsum()
        head = 4 * first.size + 8 * len(self._weights)
        entries = np.stack([np.concatenate(self._steps), head + sizes[:-1]], axis=1)
        for numbers in (first, entries):
            require_fits(max(int(numbers.max(initial=0)), -int(numbers.min(initial=0))), 31, "an excess of weights")
            yield numbers.astype("<i4").tobytes()
        yield b"".join(part.tobytes() for part in self._weights)


def packed_channels(values: npt.NDArray[np.generic], segments: Sequence[Segment], format_: Format) -> bytes:
    """The bytes of one value per channel in the order of the lanes. Of 64-bit values, the even lanes of each vector
    come first.
    """
    pieces = []
    for segment in segments:
        size, lane = segment.channels, segment.block.lane
        whole = np.zeros(segment.count * size, np.int64)
        given = values[segment.start : segment.start + whole.size]
        whole[: given.size] = given
        ordered = whole.reshape(segment.count, size)[:, _order(segment)].reshape(-1, lane)
        if format_.bits == 64 and lane > 1:
            ordered = ordered[:, [*range(0, lane, 2), *range(1, lane, 2)]]
        pieces.append(format_.stored(ordered).tobytes())
    return b"".join(pieces)


def packed_taps(parts: Sequence[Integers], kernel: Depthwise) -> bytes:
    """The bytes of the weights of every part, each (channels, KH, KW), in the order
    [block][column][part][group of rows][vector][rows of a dot product][lane][row].
    """
    dtype, per = np.int8 if kernel.per == 4 else np.int16, kernel.per
    _, KH, KW = parts[0].shape
    groups = -(-KH // ROWS)
    pieces = []
    for segment in kernel.segments:
        size, block = segment.channels, segment.block
        whole = np.zeros((segment.count * size, len(parts), groups * ROWS, KW), dtype)
        for number, part in enumerate(parts):
            given = part[segment.start : segment.start + whole.shape[0]]
            whole[: given.shape[0], number, :KH] = given
        ordered = whole.reshape(segment.count, size, len(parts), groups, ROWS, KW)[:, _order(segment)]
        split = ordered.reshape(segment.count, block.vectors, block.lane, len(parts), groups, ROWS // per, per, KW)
        pieces.append(np.ascontiguousarray(split.transpose(0, 7, 3, 4, 1, 5, 2, 6)).tobytes())
    return b"".join(pieces)


def _order(segment: Segment) -> npt.NDArray[np.intp]:
    """The channels of a block in the order of the lanes of its vectors."""
    block = segment.block
    return interleaved(block.lane, block.vectors) if block.interleaved else np.arange(segment.channels)
