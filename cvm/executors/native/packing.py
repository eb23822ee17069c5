"""Packing: constants in the order in which kernels read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.executors.native.formats import Format
from cvm.executors.native.machine import Machine

if TYPE_CHECKING:
    from cvm.executors.native.contraction import Contraction
    from cvm.executors.native.depthwise import Depthwise

__all__ = ["ROWS", "packed", "packed_channels", "packed_taps", "packed_weights", "passes"]

Integers = npt.NDArray[np.int64]
ROWS = 4
"""Rows of a depthwise window in one dot product."""


def passes(weights: Integers, machine: Machine, per: int, highest: int) -> list[tuple[Integers, int]]:
    """Weights as digits that the dot product takes, each with the shift before its pass: w = sum of w_i * 2^(..).

    With bytes: digits to the base 256 in [-128, 127]. Where the product saturates pairs at 16 bits, and ``highest``
    times a pair of weights could get there, every digit is the sum of two halves in [-64, 64] (highest <= 255).
    """
    if per != 4:
        return [(weights, 0)]
    digits = []
    rest = weights
    while True:
        digit = ((rest + 128) & 255) - 128
        digits.append(digit)
        rest = (rest - digit) >> 8
        if not rest.any():
            break
    digits.reverse()
    result: list[tuple[Integers, int]] = []
    for place, digit in enumerate(digits):
        shift = 8 if place else 0
        if machine.saturates and highest * 2 * int(np.abs(digit).max()) > 32767:
            half = digit >> 1
            result += [(half, shift), (digit - half, 0)]
        else:
            result.append((digit, shift))
    return result


def packed_weights(digits: Sequence[Integers], kernel: Contraction) -> bytes:
    """Digits (channels, taps, run) each, as [block][pass][tap][step][vector][lane][element of the step]."""
    dtype = {4: np.int8, 2: np.int16, 1: np.int32}[kernel.per]
    channels, taps, run = digits[0].shape
    shape = (kernel.blocks * kernel.block, len(digits), taps, kernel.steps * kernel.per)
    padded = np.zeros(shape, dtype)
    for place, digit in enumerate(digits):
        padded[:channels, place, :, :run] = digit
    split = padded.reshape(kernel.blocks, kernel.vectors, kernel.lane, len(digits), taps, kernel.steps, kernel.per)
    return np.ascontiguousarray(split.transpose(0, 3, 4, 5, 1, 2, 6)).tobytes()


def packed_channels(values: npt.NDArray[np.generic], kernel: Contraction, format_: Format) -> bytes:
    """One value per channel, in vectors; 64-bit ones with the even lanes of each vector before the odd ones."""
    padded = np.zeros(kernel.blocks * kernel.block, np.int64)
    padded[: kernel.channels] = values
    if format_.bits == 64 and kernel.lane > 1:
        padded = padded.reshape(-1, kernel.lane // 2, 2).transpose(0, 2, 1).reshape(-1)
    return format_.stored(padded).tobytes()


def order(lane: int) -> npt.NDArray[np.intp]:
    """The channels of a chunk in the order of its vectors' lanes."""
    return np.arange(4 * lane).reshape(lane // 4, 4, 4).transpose(1, 0, 2).reshape(-1)


def packed(values: npt.NDArray[np.generic], kernel: Depthwise, format_: Format) -> bytes:
    """One value per channel in the order of the lanes; 64-bit ones with the even lanes of each vector first."""
    pieces = []
    for chunk, number in kernel.places:
        whole = np.zeros(4 * chunk.lane, np.int64)
        start = chunk.start + number * 4 * chunk.lane
        whole[: chunk.valid] = values[start : start + chunk.valid]
        whole = whole[order(chunk.lane)]
        if format_.bits == 64:
            whole = whole.reshape(4, chunk.lane // 2, 2).transpose(0, 2, 1).reshape(-1)
        pieces.append(format_.stored(whole))
    return b"".join(piece.tobytes() for piece in pieces)


def packed_taps(parts: Sequence[Integers], kernel: Depthwise) -> bytes:
    """Weights (channels, KH, KW) of every part as [chunk][column][part][group of rows][vector][lane][row]."""
    KH, KW = kernel.window
    pieces = []
    for chunk, number in kernel.places:
        start = chunk.start + number * 4 * chunk.lane
        whole = np.zeros((len(parts), 4 * chunk.lane, kernel.groups * ROWS, KW), np.int8)
        for place, part in enumerate(parts):
            whole[place, : chunk.valid, :KH] = part[start : start + chunk.valid]
        whole = whole[:, order(chunk.lane)].reshape(len(parts), 4, chunk.lane, kernel.groups, ROWS, KW)
        pieces.append(np.ascontiguousarray(whole.transpose(5, 0, 3, 1, 2, 4)).tobytes())
    return b"".join(pieces)
