"""Other quantisers for a drawn document: every form, 2 to 16 bits, per tensor and per channel, near its ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

from cvm.graph import GraphTensor
from tests.lowering.documents import Document

__all__ = ["requantise"]

_DRAWN = re.compile(r"linear_quantize\(min = ([-\d.e]+), max = ([-\d.e]+), bits = (\d+)\)")
_BITS = (2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 9, 10, 12, 16)
_LEAST_EXTENT = 0.02


def requantise(document: Document, tensors: Mapping[str, GraphTensor]) -> None:
    """Replace the quantisers of a document, but for those that are `fixed`, by others of about the same ranges."""
    random = document.random
    for name, text in document.quantisers.items():
        drawn = _DRAWN.fullmatch(text)
        most = document.most_bits.get(name, 16)
        if drawn is None or name in document.fixed or (int(drawn[3]) <= most and random.random() < 0.1):
            continue
        low, high = float(drawn[1]), float(drawn[2])
        bits = random.choice([item for item in _BITS if item <= most])
        document.quantisers[name] = _quantiser(random, low, high, bits, tensors[name])


def _quantiser(random: Random, low: float, high: float, bits: int, tensor: GraphTensor) -> str:
    if tensor.kind == "variable" and random.random() < 0.15:
        return f"logarithmic_quantize(max = {max(abs(low), abs(high))!r}, bits = {min(bits, random.randint(1, 4))})"
    form = random.choice(["linear", "linear", "linear", "min_max", "min_max", "zero_point"])
    if form == "linear":
        return f"linear_quantize(min = {low!r}, max = {high!r}, bits = {bits})"
    count = _channels(random, tensor.shape)
    flags = f"bits = {bits}, signed = {_flag(random)}, symmetric = {_flag(random)}"
    if form == "min_max" or low > 0:  # a zero point would bring zero and negative numbers into the range
        lows = [_inside(random, low, 1) for _ in range(count)]
        highs = [max(_inside(random, high, -1), least + _LEAST_EXTENT) for least in lows]
        return f"min_max_linear_quantize(min = {_list(lows)}, max = {_list(highs)}, {flags})"
    signed = "signed = true" in flags
    scales = [round((high - low) / (2**bits - 1) * random.uniform(0.8, 1.0), 7) or 1e-6 for _ in range(count)]
    least = -(2 ** (bits - 1)) if signed else 0
    zeros = [min(max(round(-low / scale) + least, least), least + 2**bits - 1) for scale in scales]
    return f"zero_point_linear_quantize(zero_point = {_list(zeros)}, scale = {_list(scales)}, {flags})"


def _channels(random: Random, shape: tuple[int, ...]) -> int:
    """The length of a list that only one axis has, or 1."""
    extents = [extent for extent in shape if extent > 1 and shape.count(extent) == 1]
    return random.choice(extents) if extents and random.random() < 0.5 else 1


def _inside(random: Random, bound: float, side: int) -> float:
    """A bound near the drawn one, moved up (side 1) or down, so that functions stay within their domains."""
    factor = 1 + random.uniform(0, 0.2) * (side if bound > 0 else -side)
    return round(bound * factor, random.randint(4, 7))


def _list(items: list[float] | list[int]) -> str:
    return str(items[0]) if len(items) == 1 else str(items)


def _flag(random: Random) -> str:
    return random.choice(["true", "false"])
