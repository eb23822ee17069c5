"""The network as ONNX Runtime runs it best: its own attention op with past keys and values, matrices in int8.

The float form has the ops that ONNX Runtime's exporter of GPT-2 writes. Its own tool `quantize_dynamic` makes int8 of
all matrices, per channel; activations are quantised while it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.bench.language.network import EPSILON, Network

__all__ = ["write_onnx"]

_OPSET = 17
_MICROSOFT = "com.microsoft"


def write_onnx(network: Network, path: Path, past: bool) -> None:
    """Write the int8 form. Inputs: token (1, n), position (1, n); output: logits (1, n, vocabulary).

    With ``past``, the keys and values of earlier tokens are inputs past_0, .. and outputs present_0, ..., of shape
    (2, 1, heads, tokens, head width).
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    float_form = path.with_suffix(".float.onnx")
    onnx.save(_float_form(network, past), float_form)
    try:
        quantize_dynamic(
            float_form,
            path,
            op_types_to_quantize=["MatMul", "Attention"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": TensorProto.FLOAT},  # the shapes of its own ops are unknown to it
        )
    finally:
        float_form.unlink()


class _Writer:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def weight(self, name: str, transposed: bool = False) -> str:
        array = self.network.weights[name]
        return self.constant(name, array.T if transposed else array)

    def add(self, op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        return output

    def dense(self, x: str, name: str) -> str:
        product = self.add("MatMul", [x, self.weight(f"{name}.weight", True)], f"{name}.product")
        return self.add("Add", [product, self.weight(f"{name}.bias")], name)

    def normalised(self, x: str, name: str) -> str:
        parts = [self.weight(f"{name}.{part}") for part in ("weight", "bias")]
        return self.add("LayerNormalization", [x, *parts], name, axis=-1, epsilon=EPSILON)

    def attention(self, x: str, block: int, past: bool) -> str:
        name = f"blocks.{block}"
        layer = f"{name}.query_key_value"
        inputs = [x, self.weight(f"{layer}.weight", True), self.weight(f"{layer}.bias")]
        outputs = [f"{name}.mixed"]
        if past:
            inputs += ["", f"past_{block}"]
            outputs.append(f"present_{block}")
        self.nodes.append(
            helper.make_node("Attention", inputs, outputs, name=f"{name}.attention", domain=_MICROSOFT,
                             num_heads=self.network.heads, unidirectional=1)
        )  # fmt: skip
        return outputs[0]


def _float_form(network: Network, past: bool) -> onnx.ModelProto:
    w = _Writer(network)
    rows = [w.add("Gather", [w.weight(f"{name}.weight"), index], f"{name}.rows")
            for name, index in (("embedding", "token"), ("position", "position"))]  # fmt: skip
    x = w.add("Add", rows, "start")
    for block in range(network.blocks):
        name = f"blocks.{block}"
        mixed = w.attention(w.normalised(x, f"{name}.first_norm"), block, past)
        x = w.add("Add", [x, w.dense(mixed, f"{name}.projection")], f"{name}.middle")
        wide = w.dense(w.normalised(x, f"{name}.second_norm"), f"{name}.widen")
        wide = w.add("Gelu", [wide], f"{name}.gelu", _MICROSOFT)
        x = w.add("Add", [x, w.dense(wide, f"{name}.narrow")], f"{name}.end")
    w.add("MatMul", [w.normalised(x, "norm"), w.weight("head.weight", True)], "logits")
    head = network.width // network.heads
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [1, "n"]) for name in ("token", "position")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "n", network.vocabulary])]
    if past:
        for block in range(network.blocks):
            for items, name, count in ((inputs, "past", "before"), (outputs, "present", "after")):
                shape = [2, 1, network.heads, count, head]
                items.append(helper.make_tensor_value_info(f"{name}_{block}", TensorProto.FLOAT, shape))
    graph = helper.make_graph(w.nodes, "gpt", inputs, outputs, w.constants)
    domains = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)
