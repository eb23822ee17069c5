"""The networks as programs: a wide ``requantize`` turns every sum into codes, as the compiler writes it.

Codes are shifted so that zero is 0 (q - zero, within [-zero, 255 - zero]), as zero padding needs it.
Multipliers have 31 bits and one shift per channel; they equal the scales' exact ratio to within 2^-31 of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.program import Program
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from tools.bench.networks import Codes, Layer, Network, parameters

__all__ = ["moved", "multiplier", "program_of"]

BITS = 31


def multiplier(ratio: Fraction) -> tuple[int, int]:
    """(m, s) with m of 31 bits and |m / 2^s - ratio| <= 2^-31 * ratio."""
    shift = BITS - (ratio.numerator.bit_length() - ratio.denominator.bit_length())
    while round(ratio * 2**shift) >= 2**BITS:
        shift -= 1
    return round(ratio * 2**shift), shift


def moved(codes: Codes) -> tuple[int, int]:
    """The interval of codes less their zero."""
    return -codes.zero, 255 - codes.zero


def program_of(network: Network) -> Program:
    """The network as a program with the input ``x`` (1, C, H, W) and the output ``y``, codes less their zeros."""
    build = ProgramBuilder()
    values = {"x": build.input("x", (1, *network.input), *moved(network.input_codes))}
    for layer in network.layers:
        values[layer.name] = _layer(build, network, layer, [values[name] for name in layer.sources])
    return build.build([Output("y", values[network.layers[-1].name])])


def _layer(build: ProgramBuilder, network: Network, layer: Layer, sources: Sequence[str]) -> str:
    if layer.kind == "max_pool":
        sizes = {"pool_size": (layer.kernel,) * 2, "strides": (layer.stride,) * 2, "padding": (layer.padding,) * 2}
        return build.add("max_pool2d", sources, sizes, layer.name)[0]
    scales = [network.codes(name).scale / layer.codes.scale for name in layer.sources]
    if layer.kind == "add":
        return _sum_of_two(build, layer, sources, scales)
    if layer.kind == "mean":
        _, height, width = network.shape(layer.sources[0])
        summed = build.add("sum", sources, {"axes": (2, 3), "keepdims": True}, f"{layer.name}.sum")[0]
        return _requantized(build, layer, summed, [scales[0] / (height * width)], [0], (1, 1, 1, 1))
    found = parameters(network, layer)
    ratios = [scales[0] * Fraction(float(scale)) for scale in found.scales]
    weights = build.constant(found.weights.astype(np.int32), f"{layer.name}.weights")
    if layer.kind == "dense":
        data = sources[0]
        if len(build.shape(data)) == 4:
            shape = (1, found.weights.shape[1])
            data = build.add("reshape", [data], {"target_shape": shape}, f"{layer.name}.flat")[0]
        summed = build.add("dense", [data, weights], {}, f"{layer.name}.sum")[0]
        return _requantized(build, layer, summed, ratios, found.bias.tolist(), (1, -1))
    geometry = {
        "padding": (layer.padding,) * 2, "stride": (layer.stride,) * 2, "dilation": (1, 1), "groups": layer.groups
    }  # fmt: skip
    summed = build.add("conv2d", [sources[0], weights], geometry, f"{layer.name}.sum")[0]
    return _requantized(build, layer, summed, ratios, found.bias.tolist(), (1, -1, 1, 1))


def _requantized(
    build: ProgramBuilder,
    layer: Layer,
    summed: str,
    ratios: Sequence[Fraction],
    bias: Sequence[int],
    shape: tuple[int, ...],
) -> str:
    """round((sum + bias) * ratio), channel by channel."""
    fixed = [multiplier(ratio) for ratio in ratios]
    columns = ([m for m, _ in fixed], [m * b for (m, _), b in zip(fixed, bias, strict=True)], [s for _, s in fixed])
    constants = [build.parameter(np.array(column, np.int64).reshape(shape)) for column in columns]
    return build.add("requantize", [summed, *constants], _rounding(layer), layer.name)[0]


def _sum_of_two(build: ProgramBuilder, layer: Layer, sources: Sequence[str], scales: Sequence[Fraction]) -> str:
    _, shift = multiplier(max(scales))
    ones = (1, 1, 1, 1)
    constants = [
        build.parameter(np.array(value, np.int64).reshape(ones))
        for value in (*(round(scale * 2**shift) for scale in scales), 0, shift)
    ]
    return build.add("requantize", [*sources, *constants], _rounding(layer), layer.name)[0]


def _rounding(layer: Layer) -> dict[str, int | str]:
    lo, hi = moved(layer.codes)
    return {"rounding": "half_up", "lo": lo, "hi": hi}
