"""The LeNet of ``cvm/demo`` as a float ONNX model, an attention block on the same images, and both quantised.

Weights are those of the demo, and the calibration data its first images; the attention block has fixed random weights.
So the same versions of onnx and onnxruntime always make the same models.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from cvm.frontends import nnef

__all__ = ["FORMS", "Form", "attention", "images", "lenet", "quantised"]

OPSET = 17
IR_VERSION = 8
_DEMO = Path(__file__).parents[2] / "cvm" / "demo"
_CALIBRATION = 16

Array = npt.NDArray[Any]
Form = tuple[Literal["QDQ", "QOperator"], bool, Literal["uint8", "int8"]]

FORMS: tuple[Form, ...] = (
    ("QDQ", False, "uint8"), ("QDQ", True, "int8"), ("QOperator", False, "uint8"), ("QOperator", True, "uint8"),
)  # fmt: skip
"""Format, whether weights have a scale per channel, and the type of activations."""


def images() -> tuple[Array, Array]:
    """The images of the demo, and their labels."""
    with np.load(_DEMO / "digits.npz") as data:
        return data["image"], data["label"]


class _Model:
    """Nodes and constants of a model with the input ``image`` and one output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, values: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values, order="C"), name))
        return name

    def made(self, output: str, shape: Sequence[int | str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "digits",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ("N", 1, 8, 8))],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model


def lenet(softmax: bool = True) -> onnx.ModelProto:
    """The float LeNet, as an exporter writes it: the batch is open, the reshape is computed from the shape."""
    stored = {tensor.label: tensor.data.values for tensor in nnef.load(_DEMO / "lenet_digits", False).tensors.values()
              if tensor.label is not None and tensor.data is not None}  # fmt: skip
    model = _Model()

    def weights(label: str, flat: bool = False) -> str:
        values = stored[label].astype(np.float32)
        return model.constant(label.replace("/", "."), values.ravel() if flat else values)

    name = "image"
    for number in (1, 2):
        inputs = [name, weights(f"conv{number}/filter"), weights(f"conv{number}/bias", flat=True)]
        name = model.add("Conv", inputs, f"conv{number}", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        parts = [weights(f"bn{number}/{part}", flat=True) for part in ("scale", "offset", "mean", "var")]
        name = model.add("BatchNormalization", [name, *parts], f"norm{number}")
        name = model.add("Relu", [name], f"act{number}")
        name = model.add("MaxPool", [name], f"pool{number}", kernel_shape=[2, 2], strides=[2, 2])
    # PyTorch writes this for x.view(x.size(0), -1).
    shape = model.add("Shape", [name], "shape")
    first = model.constant("first", np.array(0, np.int64))
    batch = model.add("Gather", [shape, first], "batch", axis=0)
    axes = model.constant("axes", np.array([0], np.int64))
    parts = [model.add("Unsqueeze", [batch, axes], "rows"), model.constant("rest", np.array([-1], np.int64))]
    name = model.add("Reshape", [name, model.add("Concat", parts, "wish", axis=0)], "flat")
    for number, relu in ((1, True), (2, False)):
        inputs = [name, weights(f"fc{number}/filter"), weights(f"fc{number}/bias", flat=True)]
        name = model.add("Gemm", inputs, "logits" if number == 2 else f"dense{number}", transB=1)
        if relu:
            name = model.add("Relu", [name], f"act{number + 2}")
    if softmax:
        name = model.add("Softmax", [name], "probs", axis=1)
    return model.made(name, ("N", 10))


def attention() -> onnx.ModelProto:
    """Rows of the image as 8 tokens: two heads of attention with a residual, and a linear layer."""
    random = np.random.default_rng(7)
    model = _Model()
    tokens = model.add("Reshape", ["image", model.constant("tokens_shape", np.array([-1, 8, 8], np.int64))], "tokens")

    def projected(what: str) -> str:
        weights = model.constant(f"{what}.weights", random.normal(0, 0.5, (8, 8)).astype(np.float32))
        name = model.add("MatMul", [tokens, weights], f"{what}.product")
        name = model.add(
            "Add", [name, model.constant(f"{what}.bias", random.normal(0, 0.1, 8).astype(np.float32))], what
        )
        split = model.add(
            "Reshape", [name, model.constant(f"{what}.cut", np.array([-1, 8, 2, 4], np.int64))], f"{what}.heads"
        )
        return model.add("Transpose", [split], f"{what}.by_head", perm=[0, 2, 3, 1] if what == "key" else [0, 2, 1, 3])

    scores = model.add("MatMul", [projected("query"), projected("key")], "scores")
    scores = model.add("Mul", [scores, model.constant("half", np.array(0.5, np.float32))], "scaled")
    chosen = model.add("MatMul", [model.add("Softmax", [scores], "weights", axis=-1), projected("value")], "chosen")
    joined = model.add("Transpose", [chosen], "joined", perm=[0, 2, 1, 3])
    joined = model.add("Reshape", [joined, model.constant("back", np.array([-1, 8, 8], np.int64))], "rows")
    summed = model.add("Add", [tokens, joined], "summed")
    flat = model.add("Reshape", [summed, model.constant("flat_shape", np.array([-1, 64], np.int64))], "flat")
    weights = model.constant("out.weights", random.normal(0, 0.2, (64, 10)).astype(np.float32))
    return model.made(model.add("MatMul", [flat, weights], "logits"), ("N", 10))


class _Reader:
    """Calibration data, one image at a time."""

    def __init__(self) -> None:
        self._items: Iterator[Array] = iter(images()[0][:_CALIBRATION])

    def get_next(self) -> dict[str, Array] | None:
        item = next(self._items, None)
        return None if item is None else {"image": item[None]}


def quantised(model: onnx.ModelProto, form: Form) -> onnx.ModelProto:
    """The model as ``onnxruntime.quantization.quantize_static`` quantises it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(_Reader, CalibrationDataReader):  # type: ignore[misc]
        """The data reader that the library expects."""

    format_name, per_channel, activations = form
    kind = QuantType.QUInt8 if activations == "uint8" else QuantType.QInt8
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
            onnx.save(model, source)  # the library changes a model that it gets in memory
            quantize_static(
                source, target, Reader(), quant_format=QuantFormat[format_name], per_channel=per_channel,
                activation_type=kind, weight_type=QuantType.QInt8,
            )  # fmt: skip
            return onnx.load(target)
    finally:
        logging.root.setLevel(level)
