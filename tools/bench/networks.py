"""The networks, described once: layers, the quantisers of their tensors, and weights from fixed seeds.

All tensors are maps (C, H, W) of unsigned 8-bit codes: code q stands for scale * (q - zero). Weights are signed,
symmetric, with one scale per output channel; biases have the accumulator's scale. All scales are float32 numbers, since
the formats of other engines hold float32; none is a power of two. A tensor behind a rectifier has zero 0, so
that the rectifier is the lower end of the codes; any other tensor has a zero of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["NETWORKS", "Codes", "Layer", "Network", "Parameters", "parameters"]

Shape = tuple[int, int, int]

_SPREAD = 72.0
"""The approximate root mean square of the codes of a sum; scales are chosen for it."""
_SIZE = 45.0
"""The approximate root mean square of the codes of a tensor that is read, less its zero."""
_WEIGHT = 30
"""The standard deviation of the weights."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Unsigned 8-bit codes: q stands for scale * (q - zero). The scale is a float32 number."""

    scale: Fraction
    zero: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, named after the tensor that it computes.

    ``max_pool`` and ``mean`` (over the whole map) have the codes of their source. ``padding`` is the same at all four
    edges. ``add`` has two sources.
    """

    name: str
    kind: Literal["conv", "dense", "add", "max_pool", "mean"]
    sources: tuple[str, ...]
    shape: Shape
    codes: Codes
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1


@dataclass(frozen=True)
class Network:
    """Layers in the order of execution; the last one's tensor is the result."""

    name: str
    input: Shape
    input_codes: Codes
    layers: tuple[Layer, ...]

    @cached_property
    def _by_name(self) -> Mapping[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    def shape(self, name: str) -> Shape:
        """The shape of a tensor; the input is called ``x``."""
        return self.input if name == "x" else self._by_name[name].shape

    def codes(self, name: str) -> Codes:
        """The codes of a tensor."""
        return self.input_codes if name == "x" else self._by_name[name].codes

    def terms(self, layer: Layer) -> int:
        """How many products one sum of a layer has."""
        channels, height, width = self.shape(layer.sources[0])
        if layer.kind == "conv":
            return channels // layer.groups * layer.kernel**2
        return channels * height * width if layer.kind == "dense" else 0

    @property
    def macs(self) -> int:
        """The multiply-adds of one inference."""
        return sum(math.prod(layer.shape) * self.terms(layer) for layer in self.layers)

    def image(self) -> npt.NDArray[np.uint8]:
        """Codes for the input, (1, C, H, W), from a fixed seed."""
        return _random_bytes(math.prod(self.input), self.name, "x").reshape(1, *self.input)


@dataclass(frozen=True)
class Parameters:
    """Weights (OC, IC, KH, KW) or (OC, K), one bias and one scale per output channel."""

    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32]
    scales: npt.NDArray[np.float32]


def parameters(network: Network, layer: Layer) -> Parameters:
    """The parameters of a ``conv`` or ``dense`` layer, from its names as the seed."""
    terms, channels = network.terms(layer), layer.shape[0]
    shape: tuple[int, ...] = (channels, terms)
    if layer.kind == "conv":
        shape = (channels, terms // layer.kernel**2, layer.kernel, layer.kernel)
    # The sum of four bytes has a mean of 510 and a standard deviation of 148.
    four = _random_bytes(4 * channels * terms, network.name, layer.name, "weights").reshape(4, *shape)
    weights = np.clip(((four.sum(axis=0, dtype=np.int32) - 510) * _WEIGHT + 74) // 148, -127, 127).astype(np.int8)
    bias = (4000 * _random_units(channels, network.name, layer.name, "bias")).astype(np.int32) - 2000
    source = network.codes(layer.sources[0])
    even = _SPREAD * layer.codes.scale / (source.scale * Fraction(_SIZE * _WEIGHT * math.sqrt(terms)))
    uneven = 0.6 + _random_units(channels, network.name, layer.name, "scales")
    return Parameters(weights, bias, (float(even) * uneven).astype(np.float32))


def _random_bytes(count: int, *names: str) -> npt.NDArray[np.uint8]:
    """Bytes drawn with the name as the seed: the same name gives the same bytes on every machine."""
    return np.frombuffer(hashlib.shake_256("/".join(names).encode()).digest(count), np.uint8)


def _random_units(count: int, *names: str) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) drawn with the name as the seed."""
    return _random_bytes(4 * count, *names).view("<u4") / 2**32


class _Maker:
    """Collects the layers of a network."""

    def __init__(self, name: str, shape: Shape, zero: int) -> None:
        self.name = name
        self.input = shape
        self.input_codes = Codes(_float32(1 / 57), zero)
        self._layers: dict[str, Layer] = {}

    def done(self) -> Network:
        return Network(self.name, self.input, self.input_codes, tuple(self._layers.values()))

    def shape(self, name: str) -> Shape:
        return self.input if name == "x" else self._layers[name].shape

    def _codes(self, name: str) -> Codes:
        return self.input_codes if name == "x" else self._layers[name].codes

    def _fresh(self, relu: bool, scale: float | None = None) -> Codes:
        """Codes for the next layer's tensor."""
        first, second = _random_units(2, self.name, "codes", str(len(self._layers))).tolist()
        zero = 0 if relu else 105 + int(45 * second)
        return Codes(_float32(0.015 + 0.045 * first if scale is None else scale), zero)

    def _put(self, kind: Literal["conv", "dense", "add", "max_pool", "mean"], sources: tuple[str, ...], shape: Shape,
             codes: Codes, kernel: int = 1, stride: int = 1, padding: int = 0, groups: int = 1) -> str:  # fmt: skip
        name = f"t{len(self._layers)}"
        self._layers[name] = Layer(name, kind, sources, shape, codes, kernel, stride, padding, groups)
        return name

    def _window(self, name: str, kernel: int, stride: int, padding: int) -> tuple[int, int]:
        _, height, width = self.shape(name)
        return (height + 2 * padding - kernel) // stride + 1, (width + 2 * padding - kernel) // stride + 1

    def conv(
        self, source: str, channels: int, kernel: int, stride: int = 1, padding: int | None = None, relu: bool = True
    ) -> str:
        padding = kernel // 2 if padding is None else padding
        shape = (channels, *self._window(source, kernel, stride, padding))
        return self._put("conv", (source,), shape, self._fresh(relu), kernel, stride, padding)

    def depthwise(self, source: str, stride: int = 1) -> str:
        channels = self.shape(source)[0]
        shape = (channels, *self._window(source, 3, stride, 1))
        return self._put("conv", (source,), shape, self._fresh(True), 3, stride, 1, channels)

    def dense(self, source: str, channels: int, relu: bool = False) -> str:
        return self._put("dense", (source,), (channels, 1, 1), self._fresh(relu))

    def add(self, a: str, b: str, relu: bool) -> str:
        scale = 1.2 * float(max(self._codes(a).scale, self._codes(b).scale))
        return self._put("add", (a, b), self.shape(a), self._fresh(relu, scale))

    def max_pool(self, source: str, kernel: int, stride: int, padding: int = 0) -> str:
        shape = (self.shape(source)[0], *self._window(source, kernel, stride, padding))
        return self._put("max_pool", (source,), shape, self._codes(source), kernel, stride, padding)

    def mean(self, source: str) -> str:
        return self._put("mean", (source,), (self.shape(source)[0], 1, 1), self._codes(source))


def _float32(value: float) -> Fraction:
    """The float32 number nearest to a value."""
    return Fraction(float(np.float32(value)))


def _resnet18() -> Network:
    net = _Maker("resnet18", (3, 224, 224), 118)
    x = net.max_pool(net.conv("x", 64, 7, 2), 3, 2, 1)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            short = net.conv(x, channels, 1, stride, relu=False) if stride == 2 else x
            y = net.conv(net.conv(x, channels, 3, stride), channels, 3, relu=False)
            x = net.add(y, short, relu=True)
    net.dense(net.mean(x), 1000)
    return net.done()


def _resnet50() -> Network:
    net = _Maker("resnet50", (3, 224, 224), 118)
    x = net.max_pool(net.conv("x", 64, 7, 2), 3, 2, 1)
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            short = net.conv(x, 4 * channels, 1, stride, relu=False) if not block else x
            y = net.conv(net.conv(x, channels, 1), channels, 3, stride)
            x = net.add(net.conv(y, 4 * channels, 1, relu=False), short, relu=True)
    net.dense(net.mean(x), 1000)
    return net.done()


def _mobilenet_v1() -> Network:
    net = _Maker("mobilenet_v1", (3, 224, 224), 118)
    x = net.conv("x", 32, 3, 2)
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
    for channels, stride in blocks:
        x = net.conv(net.depthwise(x, stride), channels, 1)
    net.dense(net.mean(x), 1000)
    return net.done()


def _mobilenet_v2() -> Network:
    net = _Maker("mobilenet_v2", (3, 224, 224), 118)
    x = net.conv("x", 32, 3, 2)
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, blocks, first in stages:
        for block in range(blocks):
            stride = 1 if block else first
            inner = net.shape(x)[0] * expansion
            y = net.conv(x, inner, 1) if expansion > 1 else x
            y = net.conv(net.depthwise(y, stride), channels, 1, relu=False)
            x = net.add(x, y, relu=False) if block else y
    net.dense(net.mean(net.conv(x, 1280, 1)), 1000)
    return net.done()


def _lenet() -> Network:
    net = _Maker("lenet", (1, 28, 28), 0)
    x = net.max_pool(net.conv("x", 20, 5, padding=0), 2, 2)
    x = net.max_pool(net.conv(x, 50, 5, padding=0), 2, 2)
    net.dense(net.dense(x, 500, relu=True), 10)
    return net.done()


def _chain_conv3x3() -> Network:
    net, x = _Maker("chain_conv3x3", (64, 56, 56), 0), "x"
    for _ in range(8):
        x = net.conv(x, 64, 3)
    return net.done()


def _chain_conv1x1() -> Network:
    net, x = _Maker("chain_conv1x1", (256, 14, 14), 0), "x"
    for channels in (512, 256) * 4:
        x = net.conv(x, channels, 1)
    return net.done()


def _chain_depthwise() -> Network:
    net, x = _Maker("chain_depthwise", (64, 112, 112), 0), "x"
    for _ in range(8):
        x = net.depthwise(x)
    return net.done()


def _chain_dense() -> Network:
    net, x = _Maker("chain_dense", (1024, 1, 1), 0), "x"
    for channels in (1000, 1024) * 4:
        x = net.dense(x, channels, relu=True)
    return net.done()


NETWORKS: Mapping[str, Callable[[], Network]] = MappingProxyType(
    {
        "resnet18": _resnet18,
        "resnet50": _resnet50,
        "mobilenet_v1": _mobilenet_v1,
        "mobilenet_v2": _mobilenet_v2,
        "lenet": _lenet,
        "chain_conv3x3": _chain_conv3x3,
        "chain_conv1x1": _chain_conv1x1,
        "chain_depthwise": _chain_depthwise,
        "chain_dense": _chain_dense,
    }
)
"""All networks by name. The chains have eight equal layers each."""
