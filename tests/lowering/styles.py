"""Styles of quantisers: every property of an operation can be drawn again with the quantisers of another style.

`drawn_in` says in which style the documents of a test carry their quantisers; a document replaces those that it drew
itself (not those that a test wrote) when it is finished, since lists need the shapes of tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random

__all__ = ["STYLES", "Drawn", "Style", "current", "drawn_in"]


@dataclass(frozen=True)
class Drawn:
    """A quantiser as a document drew it, and the tensor that carries it."""

    random: Random
    low: float
    high: float
    bits: int
    shape: tuple[int, ...]


Style = Callable[[Drawn], str]


def _linear(drawn: Drawn, bits: int) -> str:
    return f"linear_quantize(min = {drawn.low!r}, max = {drawn.high!r}, bits = {bits})"


def _logarithmic(drawn: Drawn, bits: int) -> str:
    largest = max(abs(drawn.low), abs(drawn.high)) * drawn.random.uniform(0.3, 1.2)
    return f"logarithmic_quantize(max = {largest:.6f}, bits = {bits})"


def _some(style: Style) -> Style:
    """The style for half of the tensors, so that it meets the others."""
    return lambda drawn: style(drawn) if drawn.random.random() < 0.5 else _linear(drawn, drawn.bits)


def _signs(random: Random) -> tuple[bool, bool, str]:
    signed, symmetric = random.random() < 0.5, random.random() < 0.5
    return signed, symmetric, f"signed = {str(signed).lower()}, symmetric = {str(symmetric).lower()}"


def _khronos(drawn: Drawn, channels: int = 0) -> str:
    """A zero-point or min-max quantiser of about the same range; lists of so many channels, if any."""
    random, bits = drawn.random, max(drawn.bits, 2)
    signed, symmetric, suffix = _signs(random)
    lows = [round(drawn.low * random.uniform(0.6, 1.2), 5) for _ in range(channels or 1)]
    highs = [low + round((drawn.high - drawn.low) * random.uniform(0.6, 1.2), 5) for low in lows]

    def text(items: list[float] | list[int]) -> str:
        return str(items) if channels else repr(items[0])

    if random.random() < 0.5:
        highs = [round(high, 5) for high in highs]
        return f"min_max_linear_quantize(min = {text(lows)}, max = {text(highs)}, bits = {bits}, {suffix})"
    scales = [round((high - low) / 2**bits, 7) + 1e-6 for low, high in zip(lows, highs, strict=True)]
    least = -(2 ** (bits - 1)) + symmetric if signed else 0
    zeros = [least - round(low / scale) for low, scale in zip(lows, scales, strict=True)]
    scales = [round(scale, 7) for scale in scales]
    return f"zero_point_linear_quantize(zero_point = {text(zeros)}, scale = {text(scales)}, bits = {bits}, {suffix})"


def _per_channel(drawn: Drawn) -> str:
    """Lists along an axis whose extent no other axis has, if there is one."""
    extents = Counter(drawn.shape)
    axes = [extent for extent in drawn.shape if extent > 1 and extents[extent] == 1]
    return _khronos(drawn, drawn.random.choice(axes) if axes else 0)


def _one_sided(drawn: Drawn) -> str:
    """Ranges on one side of zero, its end included or not."""
    ends = sorted((abs(drawn.low), abs(drawn.high)))
    low, high = drawn.random.choice([(0.0, ends[1]), (ends[0] + 0.01, ends[1] + 0.3)])
    low, high = (low, high) if drawn.random.random() < 0.5 else (-high, -low)
    return f"linear_quantize(min = {low!r}, max = {high!r}, bits = {drawn.bits})"


STYLES: dict[str, Style] = {
    "logarithmic": _some(lambda drawn: _logarithmic(drawn, drawn.random.randint(1, 4))),
    "wide logarithmic": _some(lambda drawn: _logarithmic(drawn, drawn.random.randint(5, 7))),
    "forms": _khronos,
    "per channel": _per_channel,
    "narrow": lambda drawn: _linear(drawn, drawn.random.choice([1, 2, 4])),
    "wide": _some(lambda drawn: _linear(drawn, drawn.random.choice([9, 10, 12]))),
    "one-sided": _one_sided,
}

_style: ContextVar[Style | None] = ContextVar("style", default=None)


def current() -> Style | None:
    """The style of the documents that are checked now; None leaves quantisers as they are drawn."""
    return _style.get()


@contextmanager
def drawn_in(style: str) -> Iterator[None]:
    """Documents checked inside carry the quantisers of a style."""
    token = _style.set(STYLES[style])
    try:
        yield
    finally:
        _style.reset(token)
