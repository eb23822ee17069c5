"""Reading packed constants back: which channel, tap and element each stored number belongs to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cvm.executors.native.checker.addresses import Array, offsets_of, require
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, Segment

__all__ = ["per_channel", "saturates", "segments_of", "weights_of", "with_excess"]


def _lanes(one: Segment) -> Array:
    """The channel in each lane, as an array (blocks, vectors, lanes)."""
    lane, vectors = one.block.lane, one.block.vectors
    block, q, k = np.indices((one.count, vectors, lane))
    within = 4 * vectors * (k // 4) + 4 * q + k % 4 if one.block.interleaved else q * lane + k
    return np.asarray(one.start + block * lane * vectors + within)


def _ordered(lanes: Sequence[Array], channels: int) -> Array:
    """The channels of all lanes in the order in which they are stored.

    Raises `Unproven` unless every channel is in exactly one lane.
    """
    order = np.concatenate([part.reshape(-1) for part in lanes])
    require(np.array_equal(np.sort(order), np.arange(order.size)), "a channel is in no lane, or in several lanes")
    require(order.size >= channels, "the blocks hold too few channels")
    return order


def per_channel(data: memoryview, segments: Sequence[Segment], format_: Format, channels: int) -> Array:
    """The value of each channel, from packed values. Vectors of 64-bit values hold the even lanes first."""
    require(format_.bits < 64 or format_.bias == 0, "64-bit numbers have a bias")
    lanes = [_lanes(one) for one in segments]
    if format_.bits == 64:
        lanes = [np.concatenate([part[..., ::2], part[..., 1::2]], axis=-1) for part in lanes]
    order = _ordered(lanes, channels)
    found = np.empty(order.size, np.int64)
    found[order] = np.frombuffer(data, format_.dtype, order.size)
    return found[:channels] - format_.bias


def weights_of(parts: Sequence[Array], kernel: Contraction | Depthwise) -> Array:
    """The weights as an array (channels, taps, elements), from the digits of all segments (`segments_of`).

    Weights of several digits are reduced modulo 2^32. In a depthwise window, a tap is a column, and its elements are
    the rows. A row that is multiplied once more has the sum of both weights.
    """
    order = _ordered([_lanes(one) for one in kernel.segments], kernel.channels)
    digits = np.empty((order.size, *parts[0].shape[1:]), parts[0].dtype)
    digits[order] = np.concatenate(parts)
    digits = digits[: kernel.channels]
    repeats = kernel.repeats if isinstance(kernel, Depthwise) else ()
    if digits.shape[1] == 1 and not repeats:
        return digits[:, 0]
    shifts = kernel.shifts if isinstance(kernel, Contraction) else (0,) * kernel.parts
    total: Array = np.zeros(digits[:, 0].shape, np.uint32)  # arithmetic modulo 2^32, as these integers have
    for number, shift in enumerate(shifts):
        total = (total << shift) + digits[:, number].astype(np.uint32)
    for again, row in enumerate(repeats, kernel.window[0] - len(repeats) if isinstance(kernel, Depthwise) else 0):
        total[..., row] += total[..., again]
        total[..., again] = 0
    return total


def saturates(parts: Sequence[Array]) -> bool:
    """Whether bytes times two neighbouring digits may add up to a number that 16 bits do not hold."""
    for part in parts:
        digits = part.reshape(-1)
        if not digits.size:
            continue
        wide = np.int16 if digits.dtype == np.int8 else np.int64  # two digits of 8 bits add up to at most 9 bits
        above, below = np.maximum(digits, 0), np.minimum(digits, 0)
        most = int(np.add(above[::2], above[1::2], dtype=wide).max())
        least = int(np.add(below[::2], below[1::2], dtype=wide).min())
        if 255 * most >= 2**15 or 255 * least < -(2**15):
            return True
    return False


def with_excess(data: memoryview, kernel: Contraction, parts: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The digits of all segments with the excess that is listed behind them, and the listed weights.

    Raises `Unproven` for a list that is damaged, that names no step of the kernel, or one step of a block twice, and
    for digits that no byte holds.
    """
    passes, taps, step = len(kernel.shifts), math.prod(n for n, _ in kernel.taps), kernel.per
    listed = data[min(kernel.weight_bytes, len(data)) :]
    first = _numbers(listed, 0, kernel.blocks * passes + 1)
    require(first[0] == 0 and bool((np.diff(first) >= 0).all()), "the entries of the excess are not in order")
    entries = _numbers(listed, 4 * first.size, 2 * int(first[-1])).reshape(-1, 2)
    at = offsets_of(0, (*kernel.taps, (kernel.steps, step)))
    order = np.argsort(at, kind="stable")
    found = order[np.searchsorted(at, entries[:, 0], sorter=order).clip(max=at.size - 1)]
    require(np.array_equal(at[found], entries[:, 0]), "an excess is of no step of the kernel")
    place = np.repeat(np.arange(first.size - 1), np.diff(first)) * at.size + found
    require(np.unique(place).size == place.size, "a step has an excess twice")
    begin, whole, more = 0, [], []
    for one, part in zip(kernel.segments, parts, strict=True):
        end = begin + one.count * passes * at.size
        here = (begin <= place) & (place < end)
        size = step * one.channels
        starts = entries[here, 1].astype(np.int64)
        inside = not starts.size or (starts.min() >= 0 and starts.max() + size <= len(listed))
        require(bool(inside), "an excess lies outside the constants")
        weights = np.frombuffer(listed, np.int8)[starts[:, None] + np.arange(size)].reshape(-1, one.channels, step)
        block, number, tap, index = np.unravel_index(place[here] - begin, (one.count, passes, taps, kernel.steps))
        digits = part.copy().reshape(one.count, one.channels, passes, taps, kernel.steps, step)
        sums = np.add(digits[block, :, number, tap, index], weights, dtype=np.int16)
        digits[block, :, number, tap, index] = sums.astype(np.int8)
        require(np.array_equal(digits[block, :, number, tap, index], sums), "a byte does not hold a digit")
        whole.append(digits.reshape(part.shape))
        more.append(weights)
        begin = end
    return whole, more


def _numbers(data: memoryview, start: int, count: int) -> Array:
    require(start + 4 * count <= len(data), "a list of excess ends behind the constants")
    return np.frombuffer(data, "<i4", count, start)


def segments_of(data: memoryview, kernel: Contraction | Depthwise) -> list[Array]:
    """The digits of all segments, which lie one after the other, each as an array (lanes, digits, taps, elements)."""
    parts: list[Array] = []
    for one in kernel.segments:
        parts.append(_digits(data, kernel, one, sum(part.nbytes for part in parts)))
    return parts


def _digits(data: memoryview, kernel: Contraction | Depthwise, one: Segment, start: int) -> Array:
    """The digits of a segment as an array (lanes, digits, taps, elements). Those of a step stay side by side."""
    lane, vectors = one.block.lane, one.block.vectors
    if isinstance(kernel, Contraction):
        per, together = kernel.per, one.together or vectors
        dtype = np.int8 if kernel.widened else {4: np.int8, 2: np.int16, 1: np.int32}[per]
        taps, count = math.prod(n for n, _ in kernel.taps), len(kernel.shifts)
        shape: tuple[int, ...] = (one.count, vectors // together, count, taps, kernel.steps, together, lane)
        order: tuple[int, ...] = (0, 1, 5, 6, 2, 3, 4)
        form = (-1, count, taps, kernel.steps * per)
    else:
        dtype, columns, per = np.int8 if kernel.per == 4 else np.int16, kernel.window[1], kernel.per
        shape = (one.count, columns, kernel.parts, kernel.groups, vectors, 4 // per, lane)
        order = (0, 4, 6, 2, 1, 3, 5)
        form = (-1, kernel.parts, columns, 4 * kernel.groups)
    step = np.dtype(f"u{per * np.dtype(dtype).itemsize}")
    stored = np.frombuffer(data, step, math.prod(shape), start)
    return np.ascontiguousarray(stored.reshape(shape).transpose(order)).view(dtype).reshape(form)
