"""Random cases of every kernel: sizes, policies and contents, extremes and ties among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.frontends.openvx.cases import DTYPES
from tests.frontends.openvx.model import LIMITS

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Draw:
    """A case: parameters by the names of the specification, raw integers in C order, the shape of the output."""

    params: Mapping[str, Any]
    arrays: Mapping[str, Array]
    shape: tuple[int, ...]


def integers(random: Random, fmt: str, *shape: int) -> Array:
    """Raw integers: of the whole range, small ones, or those at its ends."""
    lo, hi = LIMITS[fmt]
    kind = random.randrange(4)
    count = int(np.prod(shape))
    if kind == 0:
        items = [random.randint(lo, hi) for _ in range(count)]
    elif kind == 1:
        items = [random.choice((lo, lo + 1, 0, hi - 1, hi)) for _ in range(count)]
    else:
        reach = 2 ** random.randint(1, 6) * (8 if fmt == "S16" else 1)
        items = [random.randint(max(lo, -reach), min(hi, reach)) for _ in range(count)]
    return np.array(items, dtype=DTYPES[fmt]).reshape(shape)


def _policies(random: Random) -> dict[str, Any]:
    return {
        "overflow_policy": random.choice(("WRAP", "SATURATE")),
        "rounding_policy": random.choice(("TO_ZERO", "TO_NEAREST_EVEN")),
    }


def _batches(random: Random, most: int) -> tuple[int, ...]:
    return tuple(random.randint(1, 2) for _ in range(random.randint(0, most)))


def _windows(random: Random, kernel: int, padding: int, rounding: str, dilation: int) -> tuple[int, int]:
    """An extent, and an output size that some skip gives."""
    size = random.randint(1, 7)
    span = size + 2 * padding - kernel - (kernel - 1) * dilation
    if span < 0:
        size, span = size - span, 0
    skip = random.randint(1, 3)
    return size, (-(-span // skip) if rounding == "CEILING" else span // skip) + 1


def convolution(random: Random, fmt: str) -> Draw:
    rounding = random.choice(("FLOOR", "CEILING"))
    params = {**_policies(random), "down_scale_size_rounding": rounding}
    extents, outputs, kernels = [], [], []
    for axis in "yx":
        kernel, padding, dilation = random.randint(1, 3), random.randint(0, 2), random.randint(0, 2)
        size, output = _windows(random, kernel, padding, rounding, dilation)
        params |= {f"padding_{axis}": padding, f"dilation_{axis}": dilation}
        extents.append(size)
        outputs.append(output)
        kernels.append(kernel)
    batches, inputs, maps = _batches(random, 3), random.randint(1, 3), random.randint(1, 3)
    arrays = {
        "inputs": integers(random, fmt, *batches, inputs, *extents),
        "weights": integers(random, fmt, maps, inputs, *kernels),
    }
    biases = random.randrange(3)
    if biases:
        arrays["biases"] = integers(random, fmt, *((maps,) if biases == 1 else (maps, *outputs)))
    return Draw(params, arrays, (*batches, maps, *outputs))


def deconvolution(random: Random, fmt: str) -> Draw:
    params = dict(_policies(random))
    extents, outputs, kernels = [], [], []
    for axis in "yx":
        size, kernel = random.randint(1, 4), random.randint(1, 3)
        upscale = random.randint(1, 3)
        a = random.randrange(upscale)
        if size == 1:
            upscale = a + 1
        padding = random.randint(0, kernel + 1)
        output = (size - 1) * upscale - 2 * padding + kernel + a
        if output < 1:
            padding = 0
            output = (size - 1) * upscale + kernel + a
        params |= {f"padding_{axis}": padding, f"a_{axis}": a, f"upscale_{axis}": upscale}
        extents.append(size)
        outputs.append(output)
        kernels.append(kernel)
    batches, inputs, maps = _batches(random, 1), random.randint(1, 3), random.randint(1, 3)
    arrays = {
        "inputs": integers(random, fmt, *batches, inputs, *extents),
        "weights": integers(random, fmt, maps, inputs, *kernels),
    }
    if random.randrange(2):
        arrays["biases"] = integers(random, fmt, maps)
    return Draw(params, arrays, (*batches, maps, *outputs))


def fully_connected(random: Random, fmt: str) -> Draw:
    maps, batches = random.randint(1, 4), _batches(random, 3)
    core = (random.randint(1, 12),) if random.randrange(2) else tuple(random.randint(1, 3) for _ in range(3))
    columns = int(np.prod(core))
    square = len(core) == 3 and random.randrange(2)
    arrays = {
        "inputs": integers(random, fmt, *batches, *core),
        "weights": integers(random, fmt, maps, *(core if square else (columns,))),
    }
    if random.randrange(2):
        arrays["biases"] = integers(random, fmt, maps)
    return Draw(_policies(random), arrays, (*batches, maps))


def pooling(random: Random, fmt: str) -> Draw:
    rounding = random.choice(("FLOOR", "CEILING"))
    params: dict[str, Any] = {"pooling_type": random.choice(("MAX", "AVG")), "rounding": rounding}
    extents, outputs = [], []
    for axis in "yx":
        kernel, padding = random.randint(1, 4), random.randint(0, 3)
        size, output = _windows(random, kernel, padding, rounding, 0)
        params |= {f"pooling_size_{axis}": kernel, f"pooling_padding_{axis}": padding}
        extents.append(size)
        outputs.append(output)
    leading = (*_batches(random, 1), random.randint(1, 3))
    return Draw(params, {"inputs": integers(random, fmt, *leading, *extents)}, (*leading, *outputs))


def softmax(random: Random, fmt: str) -> Draw:
    shape = tuple(random.randint(1, 6) for _ in range(random.randint(1, 4)))
    items = integers(random, fmt, *shape)
    if not random.randrange(8):
        items = np.full(shape, items.flat[0])
    return Draw({}, {"inputs": items}, shape)


_PARAMETERS = ((0.0, 0.0), (1.0, 1.0), (2.0, 0.5), (0.75, 0.3330000042915344))
"""Of which the tables are made once; the last is no fraction of small numbers."""


def activation(random: Random, fmt: str) -> Draw:
    functions = ("LOGISTIC", "HYPERBOLIC_TAN", "RELU", "BRELU", "SOFTRELU", "ABS", "SQUARE", "SQRT", "LINEAR")
    a, b = random.choice(_PARAMETERS)
    shape = tuple(random.randint(1, 4) for _ in range(random.randint(1, 5)))
    return Draw(
        {"function": random.choice(functions), "a": a, "b": b}, {"inputs": integers(random, fmt, *shape)}, shape
    )


_CONSTANTS = ((1.0, 1.0), (9.999999747378752e-05, 0.75), (0.5, 0.5), (3.0, 0.5), (0.0010000000474974513, 2.0),
              (1.0, 0.25), (0.25, 0.30000001192092896))  # fmt: skip
_BIASES = (1.0, 1.0, 2.0, 0.5, 9.0, 1.0000000031710769e-30)


def normalization(random: Random, fmt: str) -> Draw:
    alpha, beta = random.choice(_CONSTANTS)
    params = {
        "type": random.choice(("SAME_MAP", "ACROSS_MAPS")), "normalization_size": random.choice((3, 5, 7)),
        "alpha": alpha, "beta": beta, "bias": random.choice(_BIASES),
    }  # fmt: skip
    shape = (*_batches(random, 1), random.randint(1, 4), random.randint(1, 4), random.randint(1, 4))
    return Draw(params, {"inputs": integers(random, fmt, *shape)}, shape)


def roi_pooling(random: Random, fmt: str) -> Draw:
    batches, channels = _batches(random, 1), random.randint(1, 2)
    height, width, count = random.randint(1, 8), random.randint(1, 8), random.randint(1, 3)
    lo = LIMITS[fmt][0]
    if random.randrange(4):
        coordinates = np.array([random.randint(max(lo, -4), 10) for _ in range(int(np.prod(batches)) * count * 4)])
    else:
        coordinates = integers(random, fmt, int(np.prod(batches)) * count * 4)
    arrays = {
        "input_data": integers(random, fmt, *batches, channels, height, width),
        "input_rois": coordinates.astype(DTYPES[fmt]).reshape(*batches, count, 4),
    }
    size = random.randint(1, 4), random.randint(1, 4)
    return Draw({}, arrays, (*batches, count, channels, *size))


DRAWS: Mapping[str, Callable[[Random, str], Draw]] = {
    "convolution": convolution,
    "fully_connected": fully_connected,
    "pooling": pooling,
    "softmax": softmax,
    "activation": activation,
    "normalization": normalization,
    "roi_pooling": roi_pooling,
    "deconvolution": deconvolution,
}
