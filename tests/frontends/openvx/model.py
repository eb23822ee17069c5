"""The kernels by the formulas of the specification, in loops over indices, fractions and decimals of 120 digits.

Nothing here is shared with the product. Arrays are object arrays of Python integers in C order, so that an element of
the specification's [x, y, map, batch] is [batch, map, y, x].
"""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Number = Fraction | Decimal

LIMITS = {"U8": (0, 255), "S8": (-128, 127), "S16": (-(2**15), 2**15 - 1)}
POINT = {"U8": 0, "S8": 0, "S16": 8}

_CONTEXT = decimal.Context(prec=120, Emax=10**9, Emin=-(10**9))


def rounded(x: Number, policy: str) -> int:
    """To zero, or to the nearest integer, ties to the even one."""
    if policy == "TO_ZERO":
        return int(x)
    return round(x) if isinstance(x, Fraction) else int(x.to_integral_value(decimal.ROUND_HALF_EVEN))


def converted(x: int, fmt: str, policy: str = "SATURATE") -> int:
    lo, hi = LIMITS[fmt]
    if policy == "SATURATE":
        return min(max(x, lo), hi)
    return (x - lo) % (hi - lo + 1) + lo


def skip(size: int, output: int, kernel: int, padding: int, rounding: str, dilation: int = 0) -> int:
    """The least that gives the output, by trying."""
    if output == 1:
        return 1
    up = math.ceil if rounding == "CEILING" else math.floor
    span = size + 2 * padding - kernel - (kernel - 1) * dilation
    return next(s for s in itertools.count(1) if up(Fraction(span, s)) + 1 == output)


def total(products: Sequence[int], bias: int, fmt: str, params: dict[str, Any]) -> int:
    """saturate(round(sum + bias)), where products have twice the bits behind the point."""
    exact = Fraction(sum(products) + (bias << POINT[fmt]), 2 ** POINT[fmt])
    return converted(rounded(exact, params["rounding_policy"]), fmt, params["overflow_policy"])


def _bias(biases: Array | None, o: int, y: int, x: int) -> int:
    if biases is None:
        return 0
    return int(biases[o] if biases.ndim == 1 else biases[o, y, x])


def convolution(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    w = arrays["weights"]
    images = arrays["inputs"].reshape(-1, *arrays["inputs"].shape[-3:])
    height, width = images.shape[2:]
    maps, inputs, kh, kw = w.shape
    oh, ow = shape[-2:]
    dx, dy, px, py = (params[name] for name in ("dilation_x", "dilation_y", "padding_x", "padding_y"))
    rounding = params["down_scale_size_rounding"]
    sx, sy = skip(width, ow, kw, px, rounding, dx), skip(height, oh, kh, py, rounding, dy)
    found = np.empty((len(images), maps, oh, ow), dtype=object)
    for b, o, k, j in np.ndindex(*found.shape):
        products = []
        for c, n, m in itertools.product(range(inputs), range(kh), range(kw)):
            y, x = k * sy + n * (dy + 1) - py, j * sx + m * (dx + 1) - px
            if 0 <= y < height and 0 <= x < width:
                products.append(images[b, c, y, x] * w[o, c, n, m])
        found[b, o, k, j] = total(products, _bias(arrays.get("biases"), o, k, j), fmt, params)
    return found.reshape(shape)


def deconvolution(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """Upscale with zeros, pad by kernel - padding - 1, correlate."""
    w = arrays["weights"]
    images = arrays["inputs"].reshape(-1, *arrays["inputs"].shape[-3:])
    maps, inputs, kh, kw = w.shape
    oh, ow = shape[-2:]
    ups = params["upscale_y"], params["upscale_x"]
    starts = kh - params["padding_y"] - 1, kw - params["padding_x"] - 1
    wide = np.zeros(
        (*images.shape[:2], *((n - 1) * u + 1 for n, u in zip(images.shape[2:], ups, strict=True))), dtype=object
    )
    wide[:, :, :: ups[0], :: ups[1]] = images
    found = np.empty((len(images), maps, oh, ow), dtype=object)
    for b, o, k, j in np.ndindex(*found.shape):
        products = []
        for c, n, m in itertools.product(range(inputs), range(kh), range(kw)):
            y, x = k + n - starts[0], j + m - starts[1]
            if 0 <= y < wide.shape[2] and 0 <= x < wide.shape[3]:
                products.append(wide[b, c, y, x] * w[o, c, n, m])
        found[b, o, k, j] = total(products, _bias(arrays.get("biases"), o, k, j), fmt, params)
    return found.reshape(shape)


def fully_connected(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    maps = arrays["weights"].shape[0]
    w = arrays["weights"].reshape(maps, -1)
    rows = arrays["inputs"].reshape(-1, w.shape[1])
    found = np.empty((len(rows), maps), dtype=object)
    for r, o in np.ndindex(*found.shape):
        products = [x * y for x, y in zip(rows[r], w[o], strict=True)]
        found[r, o] = total(products, _bias(arrays.get("biases"), o, 0, 0), fmt, params)
    return found.reshape(shape)


def pooling(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    images = arrays["inputs"].reshape(-1, *arrays["inputs"].shape[-3:])
    height, width = images.shape[2:]
    kw, kh, px, py = (params[f"pooling_{what}"] for what in ("size_x", "size_y", "padding_x", "padding_y"))
    oh, ow = shape[-2:]
    sx, sy = skip(width, ow, kw, px, params["rounding"]), skip(height, oh, kh, py, params["rounding"])
    found = np.empty((*images.shape[:2], oh, ow), dtype=object)
    for b, c, k, j in np.ndindex(*found.shape):
        items = []
        for n, m in itertools.product(range(kh), range(kw)):
            y, x = k * sy + n - py, j * sx + m - px
            items.append(images[b, c, y, x] if 0 <= y < height and 0 <= x < width else 0)
        mean = rounded(Fraction(sum(items), kw * kh), "TO_ZERO")
        found[b, c, k, j] = max(items) if params["pooling_type"] == "MAX" else mean
    return found.reshape(shape)


def _decimal(x: Fraction) -> Decimal:
    return _CONTEXT.divide(Decimal(x.numerator), Decimal(x.denominator))


def _nearest(x: Decimal, fmt: str) -> int:
    """The raw integer of a number of 120 digits, half to even."""
    return converted(rounded(_CONTEXT.multiply(x, Decimal(2 ** POINT[fmt])), "TO_NEAREST_EVEN"), fmt)


def softmax(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    x = arrays["inputs"]
    axis = x.ndim - 1 - (0 if x.ndim < 3 else 2)
    moved = np.moveaxis(x, axis, -1)
    found = np.empty(moved.shape, dtype=object)
    for place in np.ndindex(*moved.shape[:-1]):
        row = moved[place]
        if len(set(row)) == 1:
            values = [converted(rounded(Fraction(2 ** POINT[fmt], len(row)), "TO_NEAREST_EVEN"), fmt)] * len(row)
        else:
            exps = [_CONTEXT.exp(_decimal(Fraction(int(item - max(row)), 2 ** POINT[fmt]))) for item in row]
            bottom = Decimal(0)
            for item in exps:
                bottom = _CONTEXT.add(bottom, item)
            values = [_nearest(_CONTEXT.divide(item, bottom), fmt) for item in exps]
        found[place] = values
    return np.moveaxis(found, -1, axis).reshape(shape)


def _activation(function: str, x: Fraction, a: Fraction, b: Fraction) -> Number:
    rational: dict[str, Callable[[], Fraction]] = {
        "RELU": lambda: max(x, Fraction(0)),
        "BRELU": lambda: min(a, max(x, Fraction(0))),
        "ABS": lambda: abs(x),
        "SQUARE": lambda: x * x,
        "LINEAR": lambda: a * x + b,
    }
    if function in rational:
        return rational[function]()
    if function == "SQRT":
        return _CONTEXT.sqrt(_decimal(max(x, Fraction(0))))
    if function == "HYPERBOLIC_TAN":
        if x == 0 or a == 0 or b == 0:
            return Fraction(0)
        twice = _CONTEXT.exp(_decimal(-2 * abs(b * x)))
        ratio = _CONTEXT.divide(_CONTEXT.subtract(Decimal(1), twice), _CONTEXT.add(Decimal(1), twice))
        value = _CONTEXT.multiply(_decimal(a), ratio)
        return value if x > 0 else -value
    power = _CONTEXT.add(Decimal(1), _CONTEXT.exp(_decimal(-abs(x))))
    if function == "SOFTRELU":
        return _CONTEXT.add(_decimal(max(x, Fraction(0))), _CONTEXT.ln(power))
    above = _CONTEXT.divide(Decimal(1), power)
    return above if x >= 0 else _CONTEXT.subtract(Decimal(1), above)


def activation(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    a, b = Fraction(params["a"]), Fraction(params["b"])
    found = []
    for item in arrays["inputs"].ravel():
        value = _activation(params["function"], Fraction(int(item), 2 ** POINT[fmt]), a, b)
        if isinstance(value, Fraction):
            found.append(converted(rounded(value * 2 ** POINT[fmt], "TO_NEAREST_EVEN"), fmt))
        else:
            found.append(_nearest(value, fmt))
    return np.array(found, dtype=object).reshape(shape)


def normalization(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """Ties of rational results are decided by rational roots; others have none within 100 digits."""
    images = arrays["inputs"].reshape(-1, *arrays["inputs"].shape[-3:])
    size, half, unit = params["normalization_size"], params["normalization_size"] // 2, Fraction(1, 2 ** POINT[fmt])
    alpha, beta, bias = (Fraction(params[name]) for name in ("alpha", "beta", "bias"))
    found = np.empty(images.shape, dtype=object)
    for b, c, y, x in np.ndindex(*images.shape):
        if params["type"] == "ACROSS_MAPS":
            window = images[b, max(c - half, 0) : c + half + 1, y, x].ravel()
            count = size
        else:
            window = images[b, c, max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1].ravel()
            count = size * size
        squares = sum(int(item) ** 2 for item in window)
        divisor = bias + alpha * squares * unit * unit / count
        raw = int(images[b, c, y, x])
        found[b, c, y, x] = converted(_quotient(raw, divisor, beta), fmt)
    return found.reshape(shape)


def _quotient(raw: int, divisor: Fraction, beta: Fraction) -> int:
    """round(raw / divisor^beta): the integer k nearest to it, a tie known by (2 raw)^q = (2 k - 1)^q * divisor^p."""
    if raw == 0:
        return 0
    value = _CONTEXT.divide(Decimal(abs(raw)), _CONTEXT.power(_decimal(divisor), _decimal(beta)))
    below = int(value)
    p, q = beta.numerator, beta.denominator
    if q <= 4 and (2 * abs(raw)) ** q == (2 * below + 1) ** q * divisor**p:
        magnitude = below + below % 2
    else:
        magnitude = rounded(value, "TO_NEAREST_EVEN")
    return magnitude if raw > 0 else -magnitude


def roi_pooling(fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    images = arrays["input_data"].reshape(-1, *arrays["input_data"].shape[-3:])
    rois = arrays["input_rois"].reshape(len(images), -1, 4)
    oh, ow = shape[-2:]
    found = np.empty((len(images), rois.shape[1], images.shape[1], oh, ow), dtype=object)
    for b, r, c, k, j in np.ndindex(*found.shape):
        x0, y0, x1, y1 = (int(item) for item in rois[b, r])
        items = []
        for y, x in np.ndindex(*images.shape[2:]):
            if all(
                start + math.floor(Fraction(cell * n, cells)) <= at < start + math.ceil(Fraction((cell + 1) * n, cells))
                for start, n, cell, cells, at in (
                    (x0, max(x1 - x0, 0) + 1, j, ow, x),
                    (y0, max(y1 - y0, 0) + 1, k, oh, y),
                )
            ):
                items.append(images[b, c, y, x])
        found[b, r, c, k, j] = max(items, default=0)
    return found.reshape(shape)


KERNELS = {
    "convolution": convolution,
    "fully_connected": fully_connected,
    "pooling": pooling,
    "softmax": softmax,
    "activation": activation,
    "normalization": normalization,
    "roi_pooling": roi_pooling,
    "deconvolution": deconvolution,
}


def expected(kernel: str, fmt: str, params: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """What a kernel gives for arrays of raw integers."""
    exact = {name: np.asarray(items).astype(object) for name, items in arrays.items()}
    return KERNELS[kernel](fmt, params, exact, shape).astype(np.int64)
