"""Packing: constants are stored in the order in which kernels read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude, require_fits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import ROWS, interleaved
from cvm.executors.native.emit.contraction import LINE
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.saturation import Listed, listed

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

    For a kernel that is ``listed``, see `_lists`. Raises OverflowError for a digit that does not fit in its type.
    """
    types: Mapping[int, type[np.signedinteger[Any]]] = {4: np.int8, 2: np.int16, 1: np.int32}
    dtype = np.int8 if kernel.widened else types[kernel.per]
    bits = 8 * np.dtype(dtype).itemsize - 1
    for digit in digits:
        require_fits(max(-int(digit.min()) - 1, int(digit.max())), bits, "a digit of a weight")
    each = [_in_lanes(digits, segment, kernel, dtype) for segment in kernel.segments]
    if kernel.listed:
        return _lists(each, kernel)
    pieces = []
    for segment, ordered in zip(kernel.segments, each, strict=True):
        together = segment.together or segment.block.vectors
        shape = (segment.count, segment.block.vectors // together, together, segment.block.lane, *ordered.shape[2:])
        pieces.append(np.ascontiguousarray(ordered.reshape(shape).transpose(0, 1, 4, 5, 6, 2, 3, 7)).tobytes())
    return b"".join(pieces)


def _in_lanes(
    digits: Sequence[Integers], segment: Segment, kernel: Contraction, dtype: type[np.signedinteger[Any]]
) -> Integers:
    """The digits of a segment, with zeros for channels and elements that do not exist: (blocks, lanes, passes, taps,
    steps, elements).
    """
    _, taps, run = digits[0].shape
    size = segment.channels
    part = slice(segment.start, segment.start + segment.count * size)
    whole = np.zeros((segment.count * size, len(digits), taps, kernel.steps * kernel.per), dtype)
    for number, digit in enumerate(digits):
        whole[: digit[part].shape[0], number, :, :run] = digit[part]
    return whole.reshape(segment.count, size, len(digits), taps, kernel.steps, kernel.per)[:, _order(segment)]


def _lists(each: Sequence[Integers], kernel: Contraction) -> bytes:
    """The weights of all segments as lists of steps, one for each block of channels and pass (`saturation.listed`):

    * for each list, the distance from the beginning of the constant to its steps and to its weights, the number of its
      pairs, and the number of steps behind them;
    * for each step of each list, how far its elements lie behind the first element of a window, in bytes;
    * from a multiple of 64 bytes on, the weights of each step of each list, in the order [vector][lane][element].

    All numbers and distances are int32. Raises OverflowError for a distance that does not fit.
    """
    at = np.zeros((1,), np.int64)
    for count, apart in (*kernel.taps, (kernel.steps, kernel.per)):
        at = (at[:, None] + apart * np.arange(count)).reshape(-1)
    lists: list[Listed] = []
    for weights in each:
        blocks, lanes, passes, _, _, per = weights.shape
        ordered = np.ascontiguousarray(weights.astype(np.int8, copy=False).transpose(0, 2, 3, 4, 1, 5))
        lists += listed(ordered.reshape(blocks * passes, at.size, lanes, per))
    counts = np.array([len(one.steps) for one in lists])
    sizes = np.array([one.weights.size for one in lists])
    pairs = np.array([one.pairs for one in lists])
    head = 16 * len(lists)
    begin = head + 4 * int(counts.sum())
    begin += -begin % LINE
    steps, places = (np.cumsum(one) - one for one in (4 * counts, sizes))
    numbers = np.stack([head + steps, begin + places, pairs, counts - 2 * pairs], axis=1).reshape(-1)
    distances = np.concatenate([at[one.steps] for one in lists])
    require_fits(max(begin + int(sizes.sum()), magnitude(distances)), 31, "a distance in a list of weights")
    found = b"".join(part.astype("<i4").tobytes() for part in (numbers, distances))
    return found.ljust(begin, b"\0") + b"".join(one.weights.tobytes() for one in lists)


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
