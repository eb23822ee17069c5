"""Transformers of published shapes with random weights, as exporters write them, at any width.

`NETWORKS` has one block, or two, of each architecture at a small size; `TRUE` the sizes that were published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx

from tools.onnx_networks.building import Net

__all__ = ["NETWORKS", "SMALL", "TRUE", "Size", "bert", "gemma", "gpt2", "llama", "t5", "vit", "whisper"]


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a transformer. ``shared`` is the number of heads of keys and values, ``inner`` the width between the
    two products of a block; an image has ``length`` patches.
    """

    width: int
    heads: int
    shared: int
    inner: int
    length: int
    layers: int = 1
    words: int = 50

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.width // self.heads


SMALL = Size(width=16, heads=4, shared=2, inner=32, length=6, layers=1)
TRUE: Mapping[str, Size] = MappingProxyType(
    {
        "gpt2": Size(768, 12, 12, 3072, 64),
        "llama": Size(2048, 32, 8, 8192, 16),
        "gemma": Size(2048, 8, 1, 16384, 16),
        "bert": Size(768, 12, 12, 3072, 128),
        "t5": Size(512, 8, 8, 1024, 64),
        "vit": Size(768, 12, 12, 3072, 196),
        "whisper": Size(384, 6, 6, 1536, 100),
    }
)
"""GPT-2, Llama 3.2 1B, Gemma 2B, BERT base, T5 v1.1 small, ViT-B/16, Whisper tiny: one block, fewer tokens."""


def _number(net: Net, value: float) -> str:
    return net.constant(np.float32(value))


def _dense(net: Net, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
    product = net.add("MatMul", x, net.weights(inputs, outputs, spread=inputs**-0.5))
    return net.add("Add", product, net.bias(outputs)) if bias else product


def _layer_norm(net: Net, x: str, size: Size) -> str:
    scale = net.constant(net.random.uniform(0.5, 1.5, size.width), "scale")
    return net.add("LayerNormalization", x, scale, net.bias(size.width), axis=-1, epsilon=1e-5)


def _rms_norm(net: Net, x: str, size: Size, plus_one: bool = False) -> str:
    """RMS normalisation: x * (1 / sqrt(mean(x^2) + epsilon)) * scale, with the scale as it is, or (Gemma) less one."""
    square = net.add("ReduceMean", net.add("Pow", x, _number(net, 2)), axes=[-1])
    root = net.add("Sqrt", net.add("Add", square, _number(net, 1e-6)))
    scale = net.constant(net.random.uniform(0.5, 1.5, size.width) - plus_one, "scale")
    if plus_one:
        scale = net.add("Add", scale, _number(net, 1))
    return net.add("Mul", scale, net.add("Mul", x, net.add("Reciprocal", root)))


def _gelu(net: Net, x: str) -> str:
    inner = net.add("Erf", net.add("Div", x, _number(net, 2**0.5)))
    return net.add("Mul", net.add("Mul", x, net.add("Add", inner, _number(net, 1))), _number(net, 0.5))


def _gelu_by_tanh(net: Net, x: str) -> str:
    cube = net.add("Mul", net.add("Pow", x, _number(net, 3)), _number(net, 0.044715))
    inner = net.add("Tanh", net.add("Mul", net.add("Add", x, cube), _number(net, (2 / np.pi) ** 0.5)))
    return net.add("Mul", net.add("Mul", x, net.add("Add", inner, _number(net, 1))), _number(net, 0.5))


def _silu(net: Net, x: str) -> str:
    return net.add("Mul", x, net.add("Sigmoid", x))


def _gated(net: Net, x: str, size: Size, function: Callable[[Net, str], str]) -> str:
    """Function(gate) * up, and the product that leads back: SwiGLU, GeGLU."""
    gate = function(net, _dense(net, x, size.width, size.inner, bias=False))
    up = _dense(net, x, size.width, size.inner, bias=False)
    return _dense(net, net.add("Mul", gate, up), size.inner, size.width, bias=False)


def _heads(net: Net, x: str, size: Size, count: int, bias: bool) -> str:
    whole = _dense(net, x, size.width, count * size.head, bias)
    return net.add("Transpose", net.add("Reshape", whole, net.shared(1, -1, count, size.head)), perm=[0, 2, 1, 3])


def _rotated(net: Net, x: str, size: Size) -> str:
    """Rotary embeddings: x cos + (the halves of x exchanged, one negated) sin."""
    half = size.head // 2
    angles = np.arange(size.length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = (net.constant(np.tile(f(angles), 2)[None, None], f.__name__) for f in (np.cos, np.sin))
    first = net.add("Slice", x, net.shared(0), net.shared(half), net.shared(-1))
    second = net.add("Slice", x, net.shared(half), net.shared(size.head), net.shared(-1))
    turned = net.add("Concat", net.add("Neg", second), first, axis=-1)
    return net.add("Add", net.add("Mul", x, cos), net.add("Mul", turned, sin))


def _repeated(net: Net, x: str, size: Size) -> str:
    """Each head of keys or values once for each of the queries that share it."""
    times = size.heads // size.shared
    if times == 1:
        return x
    wide = net.add("Expand", net.add("Unsqueeze", x, net.shared(2)),
                   net.shared(1, size.shared, times, size.length, size.head))  # fmt: skip
    return net.add("Reshape", wide, net.shared(1, size.heads, size.length, size.head))


def _attention(net: Net, x: str, size: Size, mask: str = "", bias: bool = True, turned: bool = False,
               scaled: bool = True) -> str:  # fmt: skip
    query = _heads(net, x, size, size.heads, bias)
    key, value = (_heads(net, x, size, size.shared, bias) for _ in range(2))
    if turned:
        query, key = _rotated(net, query, size), _rotated(net, key, size)
    key, value = _repeated(net, key, size), _repeated(net, value, size)
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
    if scaled:
        scores = net.add("Mul", scores, _number(net, size.head**-0.5))
    if mask:
        scores = net.add("Add", scores, mask)
    found = net.add("MatMul", net.add("Softmax", scores, axis=-1), value)
    joined = net.add("Reshape", net.add("Transpose", found, perm=[0, 2, 1, 3]), net.shared(1, size.length, size.width))
    return _dense(net, joined, size.width, size.width, bias)


def _embedded(net: Net, size: Size) -> str:
    table = net.constant(net.random.normal(0, 1, (size.words, size.width)), "words")
    return net.add("Gather", table, net.input("ids", (1, size.length), "int64"), axis=0)


def _causal(net: Net, size: Size) -> str:
    least = np.finfo(np.float32).min
    return net.constant(np.where(np.tri(size.length, dtype=bool), 0, least)[None, None], "mask")


def _padding(net: Net, size: Size) -> str:
    """A mask of numbers: 0 where the given one is not 0, else the least float."""
    kept = net.add("Cast", net.add("Unsqueeze", net.input("mask", (1, size.length), "int64"), net.shared(1, 2)), to=9)
    return net.add("Where", kept, _number(net, 0), _number(net, float(np.finfo(np.float32).min)))


def _output(net: Net, x: str, size: Size) -> onnx.ModelProto:
    return net.made(_dense(net, x, size.width, 16, bias=False))


def gpt2(size: Size = SMALL) -> onnx.ModelProto:
    """A decoder like GPT-2: normalised before each part, a causal mask, gelu by tanh."""
    net = Net("gpt2")
    x = net.add("Add", _embedded(net, size), net.constant(net.random.normal(0, 0.3, (1, size.length, size.width))))
    mask = _causal(net, size)
    for _ in range(size.layers):
        x = net.add("Add", x, _attention(net, _layer_norm(net, x, size), size, mask))
        inner = _gelu_by_tanh(net, _dense(net, _layer_norm(net, x, size), size.width, size.inner))
        x = net.add("Add", x, _dense(net, inner, size.inner, size.width))
    return _output(net, _layer_norm(net, x, size), size)


def _rotary_decoder(name: str, size: Size, function: Callable[[Net, str], str], gemma: bool) -> onnx.ModelProto:
    net = Net(name)
    x, mask = _embedded(net, size), _causal(net, size)
    if gemma:
        x = net.add("Mul", x, _number(net, size.width**0.5))
    for _ in range(size.layers):
        inner = _rms_norm(net, x, size, gemma)
        x = net.add("Add", x, _attention(net, inner, size, mask, bias=False, turned=True))
        x = net.add("Add", x, _gated(net, _rms_norm(net, x, size, gemma), size, function))
    return _output(net, _rms_norm(net, x, size, gemma), size)


def llama(size: Size = SMALL) -> onnx.ModelProto:
    """A decoder like Llama: RMS normalisation, rotary embeddings, shared keys and values, SwiGLU."""
    return _rotary_decoder("llama", size, _silu, gemma=False)


def gemma(size: Size = SMALL) -> onnx.ModelProto:
    """A decoder like Gemma: as Llama, with GeGLU, a scaled embedding, and scales less one."""
    return _rotary_decoder("gemma", size, _gelu_by_tanh, gemma=True)


def bert(size: Size = SMALL, masked: bool = True) -> onnx.ModelProto:
    """An encoder like BERT: normalised after each part, a mask of padding."""
    net = Net("bert")
    x = net.add("Add", _embedded(net, size), net.constant(net.random.normal(0, 0.3, (1, size.length, size.width))))
    x, mask = _layer_norm(net, x, size), _padding(net, size) if masked else ""
    for _ in range(size.layers):
        x = _layer_norm(net, net.add("Add", x, _attention(net, x, size, mask)), size)
        inner = _gelu(net, _dense(net, x, size.width, size.inner))
        x = _layer_norm(net, net.add("Add", x, _dense(net, inner, size.inner, size.width)), size)
    return _output(net, x, size)


def t5(size: Size = SMALL) -> onnx.ModelProto:
    """An encoder like T5: a bias by relative positions, to which the mask is added, scores that are not scaled, and
    GeGLU.
    """
    net = Net("t5")
    x, mask = _embedded(net, size), _padding(net, size)
    distance = np.clip(np.arange(size.length)[None, :] - np.arange(size.length)[:, None] + 8, 0, 15)
    table = net.constant(net.random.normal(0, 0.5, (16, size.heads)), "relative")
    bias = net.add("Transpose", net.add("Gather", table, net.constant(distance), axis=0), perm=[2, 0, 1])
    mask = net.add("Add", net.add("Unsqueeze", bias, net.shared(0)), mask)
    for _ in range(size.layers):
        inner = _rms_norm(net, x, size)
        x = net.add("Add", x, _attention(net, inner, size, mask, bias=False, scaled=False))
        x = net.add("Add", x, _gated(net, _rms_norm(net, x, size), size, _gelu_by_tanh))
    return _output(net, _rms_norm(net, x, size), size)


def _encoder(net: Net, x: str, size: Size) -> onnx.ModelProto:
    x = net.add("Add", x, net.constant(net.random.normal(0, 0.3, (1, size.length, size.width)), "positions"))
    for _ in range(size.layers):
        x = net.add("Add", x, _attention(net, _layer_norm(net, x, size), size))
        inner = _gelu(net, _dense(net, _layer_norm(net, x, size), size.width, size.inner))
        x = net.add("Add", x, _dense(net, inner, size.inner, size.width))
    return _output(net, _layer_norm(net, x, size), size)


def vit(size: Size = SMALL) -> onnx.ModelProto:
    """A vision transformer: patches by a convolution, and an encoder."""
    net = Net("vit")
    patches = net.add("Conv", net.input("image", (1, 3, 4, 4 * size.length)), net.weights(size.width, 3, 4, 4),
                      net.bias(size.width), kernel_shape=[4, 4], strides=[4, 4])  # fmt: skip
    flat = net.add("Reshape", patches, net.shared(1, size.width, size.length))
    return _encoder(net, net.add("Transpose", flat, perm=[0, 2, 1]), size)


def whisper(size: Size = SMALL) -> onnx.ModelProto:
    """The encoder of a recogniser of speech: two convolutions over time, and an encoder."""
    net = Net("whisper")
    x, channels = net.input("mel", (1, 8, 2 * size.length)), 8
    for stride in (1, 2):
        x = net.add("Conv", x, net.weights(size.width, channels, 3), net.bias(size.width), kernel_shape=[3],
                    strides=[stride], pads=[1, 1])  # fmt: skip
        x, channels = _gelu(net, x), size.width
    return _encoder(net, net.add("Transpose", x, perm=[0, 2, 1]), size)


NETWORKS: Mapping[str, Callable[[Size], onnx.ModelProto]] = MappingProxyType(
    {function.__name__: function for function in (gpt2, llama, gemma, bert, t5, vit, whisper)}
)
