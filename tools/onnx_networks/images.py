"""Well-known networks for images, narrow and shallow, with random weights, as exporters write them."""

from __future__ import annotations

import numpy as np
import onnx

from tools.onnx_networks.building import Net

__all__ = ["ds_cnn", "efficientnet", "espcn", "mobilenet_v3", "resnet", "unet", "yolo"]


def _convolution(
    net: Net, x: str, inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, bias: bool = True
) -> str:
    half = size // 2
    parts = [x, net.weights(outputs, inputs // groups, size, size), *([net.bias(outputs)] if bias else [])]
    return net.add(
        "Conv", *parts, kernel_shape=[size] * 2, pads=[half] * 4, strides=[stride] * 2, group=groups
    )  # fmt: skip


def _normalised(net: Net, x: str, channels: int) -> str:
    random = net.random
    parts = [random.uniform(0.5, 1.5, channels), random.normal(0, 0.2, channels), random.normal(0, 0.2, channels),
             random.uniform(0.5, 1.5, channels)]  # fmt: skip
    return net.add("BatchNormalization", x, *(net.constant(part, "norm") for part in parts), epsilon=1e-5)


def _block(net: Net, x: str, inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> str:
    return _normalised(net, _convolution(net, x, inputs, outputs, size, stride, groups, bias=False), outputs)


def _classified(net: Net, x: str, channels: int, classes: int = 10) -> str:
    flat = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    return net.add("Gemm", flat, net.weights(classes, channels), net.bias(classes), transB=1)


def resnet() -> onnx.ModelProto:
    """ResNet: a stem with pooling, residual blocks of two convolutions, one of them with a projection."""
    net = Net("resnet")
    x = net.add("Relu", _block(net, net.input("image", (1, 3, 32, 32)), 3, 8, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for inputs, outputs, stride in ((8, 8, 1), (8, 16, 2)):
        inner = net.add("Relu", _block(net, x, inputs, outputs, 3, stride))
        inner = _block(net, inner, outputs, outputs)
        beside = x if inputs == outputs else _block(net, x, inputs, outputs, 1, stride)
        x = net.add("Relu", net.add("Add", inner, beside))
    return net.made(_classified(net, x, 16))


def _excited(net: Net, x: str, channels: int, gate: str, inner: str) -> str:
    """Squeeze and excitation."""
    narrow = max(channels // 4, 2)
    small = net.add("GlobalAveragePool", x)
    small = _convolution(net, small, channels, narrow, 1)
    small = _silu(net, small) if inner == "silu" else net.add("Relu", small)
    return net.add("Mul", x, net.add(gate, _convolution(net, small, narrow, channels, 1)))


def _silu(net: Net, x: str) -> str:
    return net.add("Mul", x, net.add("Sigmoid", x))


def mobilenet_v3() -> onnx.ModelProto:
    """MobileNetV3: hard swish, squeeze and excitation with a hard sigmoid, inverted residuals."""
    net = Net("mobilenet_v3")
    x = net.add("HardSwish", _block(net, net.input("image", (1, 3, 32, 32)), 3, 8, 3, 2))
    for outputs, stride, swish in ((8, 1, False), (12, 2, True)):
        inner = _block(net, x, 8, 16, 1)
        inner = net.add("HardSwish" if swish else "Relu", inner)
        inner = _block(net, inner, 16, 16, 5, stride, 16)
        inner = net.add("HardSwish" if swish else "Relu", inner)
        inner = _excited(net, inner, 16, "HardSigmoid", "relu")
        inner = _block(net, inner, 16, outputs, 1)
        x = net.add("Add", x, inner) if outputs == 8 else inner
    pooled = net.add("GlobalAveragePool", net.add("HardSwish", _block(net, x, 12, 24, 1)))
    wide = net.add("HardSwish", _convolution(net, pooled, 24, 32, 1))
    return net.made(net.add("Flatten", _convolution(net, wide, 32, 10, 1)))


def efficientnet() -> onnx.ModelProto:
    """EfficientNet: x * sigmoid(x), squeeze and excitation, inverted residuals."""
    net = Net("efficientnet")
    x = _silu(net, _block(net, net.input("image", (1, 3, 32, 32)), 3, 8, 3, 2))
    for _ in range(2):
        inner = _silu(net, _block(net, x, 8, 16, 1))
        inner = _silu(net, _block(net, inner, 16, 16, 3, 1, 16))
        inner = _excited(net, inner, 16, "Sigmoid", "silu")
        x = net.add("Add", x, _block(net, inner, 16, 8, 1))
    return net.made(_classified(net, _silu(net, _block(net, x, 8, 24, 1)), 24))


def yolo() -> onnx.ModelProto:
    """YOLO: cross-stage blocks, pooling of several sizes, a larger map joined again, boxes decoded at the end."""
    net = Net("yolo")
    x = _silu(net, _convolution(net, net.input("image", (1, 3, 32, 32)), 3, 8, 3, 2))
    early = _silu(net, _convolution(net, x, 8, 16, 3, 2))
    parts = net.add_many("Split", early, net.shared(8, 8), outputs=2, axis=1)
    inner = _silu(net, _convolution(net, parts[1], 8, 8))
    joined = net.add("Concat", parts[0], parts[1], net.add("Add", parts[1], inner), axis=1)
    x = _silu(net, _convolution(net, joined, 24, 16, 3, 2))
    pools = [_silu(net, _convolution(net, x, 16, 8, 1))]
    for _ in range(3):
        pools.append(net.add("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    x = _silu(net, _convolution(net, net.add("Concat", *pools, axis=1), 32, 16, 1))
    scales = net.constant(np.array([1.0, 1.0, 2.0, 2.0]), "scales")
    x = net.add("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                nearest_mode="floor")  # fmt: skip
    x = _silu(net, _convolution(net, net.add("Concat", x, early, axis=1), 32, 16))
    head = net.add("Reshape", _convolution(net, x, 16, 9, 1), net.shared(1, 9, 64))
    boxes, classes = net.add_many("Split", head, net.shared(4, 5), outputs=2, axis=1)
    corner, extent = net.add_many("Split", net.add("Sigmoid", boxes), net.shared(2, 2), outputs=2, axis=1)
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8))).reshape(1, 2, 64).astype(np.float32)
    centre = net.add("Mul", net.add("Add", corner, net.constant(grid, "grid")), net.constant(np.float32(4), "stride"))
    squared = net.add("Mul", extent, extent)
    extent = net.add("Mul", squared, net.constant(np.full((1, 2, 1), 16.0), "anchor"))
    return net.made(net.add("Concat", centre, extent, net.add("Sigmoid", classes), axis=1))


def unet() -> onnx.ModelProto:
    """U-Net: pooling on the way down; on the way up once a transposed convolution and once linear resampling."""
    net = Net("unet")

    def double(x: str, inputs: int, outputs: int) -> str:
        x = net.add("Relu", _convolution(net, x, inputs, outputs))
        return net.add("Relu", _convolution(net, x, outputs, outputs))

    first = double(net.input("image", (1, 1, 16, 16)), 1, 8)
    second = double(net.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 8, 16)
    third = double(net.add("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 16, 16)
    up = net.add("ConvTranspose", third, net.weights(16, 8, 2, 2), net.bias(8), kernel_shape=[2, 2], strides=[2, 2])
    x = double(net.add("Concat", up, second, axis=1), 24, 16)
    scales = net.constant(np.array([1.0, 1.0, 2.0, 2.0]), "scales")
    up = net.add("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    x = double(net.add("Concat", up, first, axis=1), 24, 8)
    return net.made(net.add("Sigmoid", _convolution(net, x, 8, 1, 1)))


def espcn() -> onnx.ModelProto:
    """ESPCN: tanh between convolutions, channels moved to space at the end."""
    net = Net("espcn")
    x = net.add("Tanh", _convolution(net, net.input("image", (1, 1, 12, 12)), 1, 16, 5))
    x = net.add("Tanh", _convolution(net, x, 16, 8))
    return net.made(net.add("DepthToSpace", _convolution(net, x, 8, 4), blocksize=2, mode="CRD"))


def ds_cnn() -> onnx.ModelProto:
    """DS-CNN of keyword spotting: one wide convolution, then separable ones."""
    net = Net("ds_cnn")
    source = net.input("image", (1, 1, 25, 10))
    x = net.add("Conv", source, net.weights(16, 1, 10, 4), net.bias(16), kernel_shape=[10, 4], pads=[4, 1, 5, 2],
                strides=[2, 2])  # fmt: skip
    x = net.add("Relu", _normalised(net, x, 16))
    for _ in range(2):
        x = net.add("Relu", _block(net, x, 16, 16, 3, 1, 16))
        x = net.add("Relu", _block(net, x, 16, 16, 1))
    pooled = net.add("AveragePool", x, kernel_shape=[13, 5])
    flat = net.add("Reshape", pooled, net.shared(1, 16))
    logits = net.add("Gemm", flat, net.weights(12, 16), net.bias(12), transB=1)
    return net.made(net.add("Softmax", logits, axis=1))
