"""The codes of a target shape of `reshape`.

0 copies an extent, -1 is inferred from the volume, -2 copies all remaining extents, -3 multiplies two extents, and -4
is followed by the two extents into which one is split, of which one may be -1.
"""

from __future__ import annotations

import math

from cvm.errors import Invalid

__all__ = ["target_shape"]

_MOST = 64
"""The most codes: a shape has six extents, and each code but -2 consumes an extent of the input or makes one."""


def _wrong(message: str) -> Invalid:
    return Invalid("cvm_runtime.reshape", f"reshape: {message}")


def target_shape(codes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``codes`` stand for, given the shape of the input.

    The library writes the extent of a -1 at its index among the codes, which is not always its index in the result;
    codes for which that makes a difference are refused. Raises `Invalid` (``cvm_runtime.reshape``).
    """
    if not 1 <= len(codes) <= _MOST:
        raise _wrong(f"expected 1 to {_MOST} codes, found {len(codes)}")
    target, inferred = _walk(codes, shape)
    if inferred is not None:
        index, written = inferred
        known = math.prod(target)  # the inferred extent counts as 1 here
        extent = math.prod(shape) // known if known > 0 else 0
        there = list(target)
        if written < len(there):
            there[written] = extent
        target[index] = extent
        if there != target:
            raise _wrong(f"the library fills in the -1 of {codes} at the wrong index")
    if min(target) < 1 or math.prod(target) != math.prod(shape):
        raise _wrong(f"{list(shape)} has not as many elements as {target}, which {codes} stands for")
    return tuple(target)


def _walk(codes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[list[int], tuple[int, int] | None]:
    """The target with 1 for an inferred extent, and the indices of that extent in the target and among the codes."""
    target: list[int] = []
    inferred = None
    source = index = 0
    while index < len(codes):
        code = codes[index]
        if code < -4:
            raise _wrong(f"there is no code {code}")
        if code == -2:
            target += shape[source:]
            source = len(shape)
        elif code == -3:
            _require(shape, source + 2, codes)
            target.append(shape[source] * shape[source + 1])
            source += 2
        elif code == -4:
            _require(shape, source + 1, codes)
            target += _split(codes[index + 1 : index + 3], shape[source])
            source += 1
            index += 2
        elif code == -1:
            if inferred is not None:
                raise _wrong(f"only one extent of {codes} can be inferred")
            inferred = len(target), index
            target.append(1)
            source += 1
        else:
            if code == 0:
                _require(shape, source + 1, codes)
            target.append(shape[source] if code == 0 else code)
            source += 1
        index += 1
    return target, inferred


def _require(shape: tuple[int, ...], dimensions: int, codes: tuple[int, ...]) -> None:
    if dimensions > len(shape):
        raise _wrong(f"{codes} takes more than the {len(shape)} dimensions of the input")


def _split(parts: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The two extents that follow a -4, one of them inferred where it is -1."""
    if len(parts) != 2:
        raise _wrong("-4 is followed by two extents")
    left, right = parts
    if left == right == -1:
        raise _wrong("one of the extents that follow a -4 must be given")
    left, right = (extent // max(right, 1) if left == -1 else left), (extent // max(left, 1) if right == -1 else right)
    if left < 1 or right < 1 or left * right != extent:
        raise _wrong(f"{extent} is not {parts[0]} * {parts[1]}")
    return left, right
