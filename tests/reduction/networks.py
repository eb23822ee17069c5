"""Networks of 50 to 200 operations, the same in three formats, and engines with one planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cvm.compiling import program_of
from cvm.export.onnx import graph_model
from cvm.frontends import nnef
from cvm.graph import GraphBuilder, QuantizedGraph
from cvm.quantization import LinearQuantizer
from cvm.reduction import Subject, opened
from cvm.reduction.network import Array, Feed, Form, Network, Node, Part, joined, parts

CODES = LinearQuantizer((Fraction(1, 16),), (Fraction(0),), -128, 127, rounding="half_even")
WEIGHTS = LinearQuantizer((Fraction(1, 64),), (Fraction(0),), -128, 127, rounding="half_even")


def network(seed: int, operations: int, half_even: bool = True) -> QuantizedGraph:
    """A network of so many operations: convolutions, activations, pools, sums and products."""
    random = Random(seed)
    rounding: Any = "half_even" if half_even else "half_up"
    codes, weights = replace(CODES, rounding=rounding), replace(WEIGHTS, rounding=rounding)
    builder = GraphBuilder("tests")
    current = builder.external("image", (1, 4, 12, 11), codes)
    kept = current

    def emit(op: str, *operands: Any, **attributes: Any) -> str:
        return builder.emit(op, *operands, quantizer=codes, wish=f"{op}_{len(builder.operations)}", **attributes)

    def conv(name: str, extent: int, stride: int, groups: int) -> str:
        channels = builder.shape(name)[1]
        shape = (channels, channels // groups, extent, extent)
        values = np.array([random.randint(-20, 20) for _ in range(int(np.prod(shape)))], np.int8).reshape(shape)
        number = len(builder.operations)
        weight = builder.variable(f"weight_{number}", values, weights)
        bias = builder.variable(f"bias_{number}", np.array([[random.randint(-9, 9) / 8] * channels], np.float32), None)
        edge = (extent // 2, extent // 2)
        return emit(
            "conv", name, weight, bias, padding=(edge, edge), stride=(stride,) * 2, dilation=(1, 1), groups=groups
        )

    def pool(name: str) -> str:
        sizes = {"size": (1, 1, 3, 3), "stride": (1,) * 4, "dilation": (1,) * 4}
        return emit("max_pool", name, border="ignore", padding=((0, 0), (0, 0), (1, 1), (1, 1)), **sizes)

    while len(builder.operations) < operations:
        kind = ("conv", "relu", "conv1", "add", "depthwise", "tanh", "max_pool", "mul")[len(builder.operations) % 8]
        if len(builder.operations) == operations // 2:
            kind, kept = "halved", ""
        if kind == "conv":
            current = conv(current, 3, 1, 1)
        elif kind == "conv1":
            current = conv(current, 1, 1, 1)
        elif kind == "halved":
            current = conv(current, 3, 2, 1)
        elif kind == "depthwise":
            current = conv(current, 3, 1, 4)
        elif kind in ("add", "mul"):
            current = emit(kind, current, kept or current)
        elif kind == "max_pool":
            current = pool(current)
        else:
            current = emit(kind, current)
        if kind in ("relu", "max_pool") or not kept:
            kept = current
    return builder.finish("network", ["image"], [current])


def subject(kind: str, seed: int, operations: int, folder: Path) -> Subject:
    """The network in a format: cvm, nnef or onnx."""
    graph = network(seed, operations, half_even=kind != "nnef")
    path = folder / {"cvm": "network.cvm", "nnef": "network", "onnx": "network.onnx"}[kind]
    if kind == "nnef":
        nnef.save(graph, path)
    else:
        path.write_bytes(program_of(graph).to_bytes() if kind == "cvm" else graph_model(graph))
    return opened(path)


# Faults -----------------------------------------------------------------------------------------------------------


class Crash(Exception):
    """The engine ends."""


class Seen:
    """A part as an engine sees it: its operation, the data that it reads, and its exact result."""

    def __init__(self, whole: Network, form: Form, part: Part, data: Feed, makers: dict[str, str]) -> None:
        nodes = [whole.nodes[number] for number in part.nodes if form.counts(whole.nodes[number])]
        self.node: Node = nodes[-1] if nodes else whole.nodes[part.nodes[-1]]
        self.op = NAMES.get(self.node.op, self.node.op)
        made = {name for number in part.nodes for name in whole.nodes[number].outputs}
        read = [name for number in part.nodes for name in whole.nodes[number].inputs]
        self.inputs = [_signed(data[name]) for name in read if name in data and name not in made]
        weights = [array for array in (whole.constants.get(name) for name in read) if array is not None]
        self.kernel = next((array.shape for array in weights if array.ndim == 4), ())
        self.after = [makers[name] for name in read if name in makers]
        attributes = self.node.attributes
        self.stride = tuple(attributes.get("stride", attributes.get("strides", ())))
        self.padded = bool(np.any(attributes.get("padding", attributes.get("pads", (0,)))))
        self.exact: Array = data[part.makes[0]]
        self.codes = _signed(self.exact)


def _signed(array: Array) -> Array:
    """Codes around zero; ONNX has those of 8 bits around 128."""
    return array.astype(np.int64) - 128 if array.dtype == np.uint8 else array


NAMES = {
    "conv2d": "conv",
    "Conv": "conv",
    "MaxPool": "max_pool",
    "max_pool2d": "max_pool",
    "Tanh": "tanh",
    "cvm_lut": "tanh",
}
Fault = Callable[[Seen], Array]


def differs(form: Form, whole: Network, fault: Fault) -> str:
    """How an engine with a fault fails on a network: "crash", "differs", or "" if its outputs are exact."""
    for exact in form.tensors(whole):
        found = dict(exact)
        makers: dict[str, str] = {}
        changed: set[str] = set()
        for part in parts(whole, form):
            (name,) = part.makes
            read = {item for number in part.nodes for item in whole.nodes[number].inputs}
            if read & changed:
                piece = joined(replace(whole, outputs=part.makes), form, [part], [found], frozen=True)
                assert piece is not None
                found[name] = form.tensors(piece)[0][name]
            seen = Seen(whole, form, part, found, makers)
            try:
                found[name] = fault(seen)
            except Crash:
                return "crash"
            makers[name] = seen.op
            if not np.array_equal(found[name], exact[name]):
                changed.add(name)
            if changed.intersection(whole.outputs):
                return "differs"
    return ""


def _wrong(array: Array, where: Any) -> Array:
    made = array.copy()
    made[where] ^= 1
    return made


def rounding(seen: Seen) -> Array:
    """Some codes of convolutions with kernels of 3 are rounded up."""
    if seen.op == "conv" and seen.kernel[2:] == (3, 3):
        return _wrong(seen.exact, seen.codes % 4 == 1)
    return seen.exact


def border(seen: Seen) -> Array:
    """The last column of padded convolutions is wrong."""
    return _wrong(seen.exact, np.s_[..., -1]) if seen.op == "conv" and seen.padded else seen.exact


def value(seen: Seen) -> Array:
    """A pool is wrong where its result is 3, if it reads -1 somewhere."""
    if seen.op == "max_pool" and (seen.inputs[0] == -1).any():
        return _wrong(seen.exact, seen.codes == 3)
    return seen.exact


def in_a_row(seen: Seen) -> Array:
    """Pools right after a table of tanh are wrong."""
    return _wrong(seen.exact, ...) if seen.op == "max_pool" and "tanh" in seen.after else seen.exact


def extent(seen: Seen) -> Array:
    """What is left of rows that are no multiple of 4 is wrong, if it is 3 elements."""
    if seen.op == "tanh" and seen.exact.ndim == 4 and seen.exact.shape[-1] % 4 == 3:
        return _wrong(seen.exact, np.s_[..., -3:])
    return seen.exact


def crash(seen: Seen) -> Array:
    """Convolutions of several groups end the engine if their last group reads anything."""
    if seen.op == "conv" and seen.kernel[1] == 1 and seen.inputs[0].shape[1] > 1 and seen.inputs[0][:, -1].any():
        raise Crash
    return seen.exact


def channels(seen: Seen) -> Array:
    """Two channels of strided convolutions are swapped."""
    if seen.op == "conv" and seen.stride == (2, 2) and seen.exact.shape[1] > 2:
        return np.ascontiguousarray(seen.exact[:, [2, 1, 0, *range(3, seen.exact.shape[1])]])
    return seen.exact


def sign(seen: Seen) -> Array:
    """Negative results of convolutions with kernels of 1 are one too great."""
    if seen.op == "conv" and seen.kernel[1:] == (4, 1, 1):
        return _wrong(seen.exact, seen.codes < 0)
    return seen.exact


FAULTS: dict[str, Fault] = {
    one.__name__: one for one in (rounding, border, value, in_a_row, extent, crash, channels, sign)
}
