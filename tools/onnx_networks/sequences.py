"""Well-known networks for sequences, narrow and shallow, with random weights, as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx

from tools.onnx_networks.building import Net

__all__ = ["bert", "gpt", "gru", "lstm", "tcn", "vit"]

_WIDTH, _HEADS, _LENGTH = 16, 2, 8


def _dense(net: Net, x: str, inputs: int, outputs: int) -> str:
    return net.add("Add", net.add("MatMul", x, net.weights(inputs, outputs)), net.bias(outputs))


def _layer_norm(net: Net, x: str) -> str:
    scale = net.constant(net.random.uniform(0.5, 1.5, _WIDTH), "scale")
    return net.add("LayerNormalization", x, scale, net.bias(_WIDTH), axis=-1, epsilon=1e-5)


def _written_norm(net: Net, x: str) -> str:
    """A layer normalisation as exporters before opset 17 write it."""
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    variance = net.add("ReduceMean", net.add("Pow", centred, net.constant(np.float32(2))), axes=[-1])
    root = net.add("Sqrt", net.add("Add", variance, net.constant(np.float32(1e-5))))
    scaled = net.add("Mul", net.add("Div", centred, root), net.constant(net.random.uniform(0.5, 1.5, _WIDTH)))
    return net.add("Add", scaled, net.bias(_WIDTH))


def _gelu(net: Net, x: str) -> str:
    """Gelu by the error function, as exporters write it."""
    inner = net.add("Erf", net.add("Div", x, net.constant(np.float32(2**0.5))))
    both = net.add("Mul", x, net.add("Add", inner, net.constant(np.float32(1))))
    return net.add("Mul", both, net.constant(np.float32(0.5)))


def _gelu_by_tanh(net: Net, x: str) -> str:
    cube = net.add("Mul", net.add("Pow", x, net.constant(np.float32(3))), net.constant(np.float32(0.044715)))
    inner = net.add("Tanh", net.add("Mul", net.add("Add", x, cube), net.constant(np.float32((2 / np.pi) ** 0.5))))
    both = net.add("Mul", x, net.add("Add", inner, net.constant(np.float32(1))))
    return net.add("Mul", both, net.constant(np.float32(0.5)))


def _attention(net: Net, x: str, length: int, mask: str = "") -> str:
    size = _WIDTH // _HEADS

    def head(order: list[int]) -> str:
        cut = net.add("Reshape", _dense(net, x, _WIDTH, _WIDTH), net.shared(1, length, _HEADS, size))
        return net.add("Transpose", cut, perm=order)

    query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scores = net.add("Div", net.add("MatMul", query, key), net.constant(np.float32(size**0.5)))
    if mask == "future":  # as in GPT-2: scores of later tokens are replaced
        past = net.constant(np.tri(length, dtype=bool)[None, None], "past")
        scores = net.add("Where", past, scores, net.constant(np.float32(-100), "least"))
    elif mask:
        scores = net.add("Add", scores, mask)
    chosen = net.add("MatMul", net.add("Softmax", scores, axis=-1), value)
    joined = net.add("Reshape", net.add("Transpose", chosen, perm=[0, 2, 1, 3]), net.shared(1, length, _WIDTH))
    return _dense(net, joined, _WIDTH, _WIDTH)


def _before(net: Net, x: str, length: int, mask: str = "", tanh: bool = False) -> str:
    """A block that normalises before its operation."""
    x = net.add("Add", x, _attention(net, _layer_norm(net, x), length, mask))
    wide = _dense(net, _layer_norm(net, x), _WIDTH, 2 * _WIDTH)
    return net.add("Add", x, _dense(net, _gelu_by_tanh(net, wide) if tanh else _gelu(net, wide), 2 * _WIDTH, _WIDTH))


def vit() -> onnx.ModelProto:
    """A vision transformer: patches by a convolution, a class token, positions."""
    net = Net("vit")
    patches = net.add("Conv", net.input("image", (1, 3, 16, 16)), net.weights(_WIDTH, 3, 8, 8), net.bias(_WIDTH),
                      kernel_shape=[8, 8], strides=[8, 8])  # fmt: skip
    tokens = net.add("Transpose", net.add("Reshape", patches, net.shared(1, _WIDTH, 4)), perm=[0, 2, 1])
    tokens = net.add("Concat", net.constant(net.random.normal(0, 0.5, (1, 1, _WIDTH)), "token"), tokens, axis=1)
    x = net.add("Add", tokens, net.constant(net.random.normal(0, 0.3, (1, 5, _WIDTH)), "positions"))
    for _ in range(2):
        x = _before(net, x, 5)
    first = net.add("Gather", _layer_norm(net, x), net.constant(np.array(0)), axis=1)
    return net.made(net.add("Gemm", first, net.weights(10, _WIDTH), net.bias(10), transB=1))


def bert() -> onnx.ModelProto:
    """An encoder like BERT: embeddings of words and positions, an additive mask, normalisation after each block."""
    net = Net("bert")
    words = net.add("Gather", net.constant(net.random.normal(0, 1, (50, _WIDTH)), "words"),
                    net.input("ids", (1, _LENGTH), "int64"), axis=0)  # fmt: skip
    x = net.add("Add", words, net.constant(net.random.normal(0, 0.3, (1, _LENGTH, _WIDTH)), "positions"))
    x = _written_norm(net, x)
    kept = net.add("Cast", net.add("Unsqueeze", net.input("mask", (1, _LENGTH), "int64"), net.shared(1, 2)), to=1)
    mask = net.add("Mul", net.add("Sub", net.constant(np.float32(1)), kept), net.constant(np.float32(-10000)))
    for _ in range(2):
        x = _written_norm(net, net.add("Add", x, _attention(net, x, _LENGTH, mask)))
        wide = _gelu(net, _dense(net, x, _WIDTH, 2 * _WIDTH))
        x = _written_norm(net, net.add("Add", x, _dense(net, wide, 2 * _WIDTH, _WIDTH)))
    first = net.add("Gather", x, net.constant(np.array(0)), axis=1)
    return net.made(net.add("Gemm", first, net.weights(10, _WIDTH), net.bias(10), transB=1))


def gpt() -> onnx.ModelProto:
    """A block of a decoder like GPT: a causal mask, gelu by tanh, the words' embedding as the last layer."""
    net = Net("gpt")
    table = net.random.normal(0, 1, (50, _WIDTH))
    words = net.add("Gather", net.constant(table, "words"), net.input("ids", (1, _LENGTH), "int64"), axis=0)
    x = net.add("Add", words, net.constant(net.random.normal(0, 0.3, (1, _LENGTH, _WIDTH)), "positions"))
    x = _before(net, x, _LENGTH, "future", tanh=True)
    return net.made(net.add("MatMul", _layer_norm(net, x), net.constant(table.T / 4, "words_again")))


def tcn() -> onnx.ModelProto:
    """A temporal convolutional network: dilated, causal, residual."""
    net = Net("tcn")
    x = net.input("signal", (1, 4, 32))
    for number, (inputs, outputs) in enumerate(((4, 8), (8, 8), (8, 8))):
        gap = 2**number
        inner = x
        for channels in (inputs, outputs):
            padded = net.add("Pad", inner, net.shared(0, 0, 2 * gap, 0, 0, 0), mode="constant")
            inner = net.add("Relu", net.add("Conv", padded, net.weights(outputs, channels, 3), net.bias(outputs),
                                            kernel_shape=[3], dilations=[gap]))  # fmt: skip
        beside = x if inputs == outputs else net.add("Conv", x, net.weights(8, 4, 1), net.bias(8), kernel_shape=[1])
        x = net.add("Relu", net.add("Add", inner, beside))
    last = net.add("Slice", x, net.shared(31), net.shared(32), net.shared(2))
    return net.made(net.add("Gemm", net.add("Flatten", last), net.weights(5, 8), net.bias(5), transB=1))


def _recurrent(op: str, gates: int) -> onnx.ModelProto:
    net = Net(op.lower())
    x = net.add("Transpose", net.input("signal", (1, 6, 4)), perm=[1, 0, 2])
    hidden = 8
    parts = [net.weights(1, gates * hidden, 4, spread=0.4), net.weights(1, gates * hidden, hidden, spread=0.3),
             net.constant(net.random.normal(0, 0.1, (1, 2 * gates * hidden)), "bias")]  # fmt: skip
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    results = net.add_many(op, x, *parts, outputs=2, hidden_size=hidden, **more)
    every = net.add("Squeeze", results[0], net.shared(1))
    last = net.add("Squeeze", net.add("Slice", every, net.shared(5), net.shared(6), net.shared(0)), net.shared(1))
    return net.made(net.add("Gemm", last, net.weights(5, hidden), net.bias(5), transB=1))


def lstm() -> onnx.ModelProto:
    """A long short-term memory over six steps, and a linear layer."""
    return _recurrent("LSTM", 4)


def gru() -> onnx.ModelProto:
    """Gated recurrent units over six steps, and a linear layer."""
    return _recurrent("GRU", 3)
