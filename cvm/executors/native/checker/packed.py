"""Reading packed constants back: which channel, tap and element each stored number belongs to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cvm.executors.native.checker.addresses import Array, offsets_of, require
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, Segment

__all__ = ["listed_of", "per_channel", "saturates", "segments_of", "weights_of"]


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


def saturates(*weights: Array) -> bool:
    """Whether bytes times one element of each array, at the same place, may add up to a number that 16 bits do not
    hold. The elements are bytes, too.
    """
    if not weights[0].size:
        return False
    above, below = np.zeros((2, *weights[0].shape), np.int16)
    for part in weights:
        above += np.maximum(part, 0)
        below += np.minimum(part, 0)
    return 255 * int(above.max()) >= 2**15 or 255 * int(below.min()) < -(2**15)


def listed_of(data: memoryview, kernel: Contraction) -> list[Array]:
    """The digits of all segments, each as an array (lanes, digits, taps, elements), from lists of steps.

    What a list has for a step several times is added up, as the kernel does. Raises `Unproven` for a list that is
    damaged or names no step of the kernel, for products that saturate, and for digits that no byte holds.
    """
    passes, step = len(kernel.shifts), kernel.per
    at = offsets_of(0, (*kernel.taps, (kernel.steps, step)))
    order = np.argsort(at, kind="stable")
    heads = iter(_numbers(data, 0, 4 * kernel.blocks * passes).reshape(-1, 4).tolist())
    found = []
    for one in kernel.segments:
        digits = np.zeros((one.count * passes, at.size, one.channels, step), np.int16)
        for block in digits:
            distances, weights = _list(data, next(heads), (one.channels, step))
            places = order[np.searchsorted(at, distances, sorter=order).clip(max=at.size - 1)]
            require(np.array_equal(at[places], distances), "a list of weights names no step of the kernel")
            require(int(np.bincount(places, minlength=1).max()) < 2**7, "a step is listed too often")
            while places.size:
                _, first = np.unique(places, return_index=True)
                block[places[first]] += weights[first]
                places, weights = np.delete(places, first), np.delete(weights, first, axis=0)
        require(int(digits.min()) >= -128 and int(digits.max()) <= 127, "a byte does not hold a digit")
        each = digits.astype(np.int8).reshape(one.count, passes, -1, kernel.steps, one.channels, step)
        found.append(each.transpose(0, 4, 1, 2, 3, 5).reshape(-1, passes, each.shape[2], kernel.steps * step))
    return found


def _list(data: memoryview, head: Sequence[int], shape: tuple[int, int]) -> tuple[Array, Array]:
    """The distances of the steps of a list, and the weights of each, an array of this shape. Proves that no product of
    the list saturates: neither the sums of two products, nor those of the four that a pair of steps adds up.
    """
    steps, packed, pairs, alone = head
    require(min(head) >= 0, "a list of weights has a negative number")
    count = 2 * pairs + alone
    distances, size = _numbers(data, steps, count), count * math.prod(shape)
    require(packed + size <= len(data), "a list of weights ends behind the constants")
    weights = np.frombuffer(data, np.int8, size, packed).reshape(count, *shape)
    even, odd = weights[..., ::2], weights[..., 1::2]
    four = (part[first : 2 * pairs : 2] for part in (even, odd) for first in (0, 1))
    require(not saturates(*four), "products of two steps could saturate")
    require(not saturates(even[2 * pairs :], odd[2 * pairs :]), "pairs of products could saturate")
    return distances, weights


def _numbers(data: memoryview, start: int, count: int) -> Array:
    require(start + 4 * count <= len(data), "a list of weights ends behind the constants")
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
