"""Fuzzer of models of ONNX: quantised networks and single operators, damaged as messages or as bytes.

    python -m tools.fuzz.onnx_models --count 20000 --seed 1

A model that is read is lowered. A small model that compiles runs on the middle of its inputs' ranges, and two executors
must give the same outputs. Every case is also read with floats, as `cvm quantize` reads it. If it is small, it is
calibrated on random data and lowered.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from cvm.calibration import Settings as Calibrating
from cvm.errors import CvmError
from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.program.verifier import verify
from cvm.quantizing import quantize_completed, random_inputs
from cvm.session import Session
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes

__all__ = ["FUZZER"]

_MODELS = Path(__file__).parents[2] / "tests" / "frontends" / "onnx" / "models"
_LARGEST = 2**16
"""A program is run only if it has at most this many elements."""
_GAS = 2**22
_NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 8, 13, 16, 21, 22, 127, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63))
_FLOATS = (0.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("nan"))
_SINGLE: tuple[tuple[str, tuple[tuple[int, ...], ...], dict[str, Any], tuple[list[Any], ...]], ...] = (
    ("Add", ((2, 3), (3,)), {}, ()),
    ("Mod", ((2, 3), (2, 3)), {"fmod": 0}, ()),
    ("BitShift", ((4,), (4,)), {"direction": "RIGHT"}, ()),
    ("BitwiseXor", ((4,), (2, 1)), {}, ()),
    ("Where", ((2, 1), (2, 3), (3,)), {}, ()),
    ("Slice", ((4, 5),), {}, ([0, 4], [3, -6], [0, 1], [1, -2])),
    ("Pad", ((2, 3),), {"mode": "reflect"}, ([0, 1, 1, 2],)),
    ("Reshape", ((2, 6),), {}, ([3, -1],)),
    ("Expand", ((2, 1),), {}, ([3, 2, 4],)),
    ("Tile", ((2, 3),), {}, ([2, 1],)),
    ("Gather", ((4, 3),), {"axis": 1}, ([0, -1, 2],)),
    ("ScatterND", ((4, 2),), {}, ([[1], [0]], [[1, 2], [3, 4]])),
    ("Split", ((4, 2),), {"axis": 0}, ([4],)),
    ("TopK", ((2, 5),), {"largest": 1}, ([2],)),
    ("ReduceProd", ((2, 3),), {"keepdims": 0}, ([1],)),
    ("CumSum", ((2, 3),), {"exclusive": 1}, ([1],)),
    ("MaxPool", ((1, 2, 5, 5),), {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]}, ()),
    ("MatMul", ((2, 3, 4), (4, 2)), {}, ()),
    ("Gemm", ((2, 3), (3, 4), (4,)), {"alpha": 2.0}, ()),
    ("Resize", ((1, 1, 3, 3),), {"mode": "nearest"}, ([], [], [1, 1, 5, 2])),
    ("DepthToSpace", ((1, 8, 2, 2),), {"blocksize": 2}, ()),
    ("OneHot", ((3,),), {"axis": -1}, ([4], [0, 1])),
    ("Trilu", ((3, 4),), {"upper": 1}, ([1],)),
    ("ConvInteger", ((1, 2, 4, 4),), {"pads": [1, 1, 1, 1]}, ([[[[1, 2], [3, 4]], [[1, 1], [2, 2]]]],)),
)


@lru_cache(maxsize=1)
def _seeds() -> tuple[bytes, ...]:
    found = [path.read_bytes() for path in sorted(_MODELS.glob("*.onnx"))]
    small = ("espcn-*", "tcn-*", "ds_cnn-*")
    found += [path.read_bytes() for name in small for path in sorted((_MODELS.parent / "family").glob(f"{name}.onnx"))]
    found += [_trees(), _trees(), _floats(), _floats()]
    for op, shapes, attributes, constants in _SINGLE:
        kind = TensorProto.UINT8 if op == "ConvInteger" else TensorProto.INT8 if op != "BitShift" else TensorProto.UINT8
        kinds = [TensorProto.BOOL if op == "Where" and not i else kind for i in range(len(shapes))]
        names = [f"x{i}" for i in range(len(shapes))]
        inputs = [helper.make_tensor_value_info(*item) for item in zip(names, kinds, shapes, strict=True)]
        stored = []
        for i, values in enumerate(constants):
            data_type: npt.DTypeLike = (
                np.uint8 if op == "ConvInteger" else np.int8 if (op, i) == ("ScatterND", 1) else np.int64
            )
            data_type = np.float32 if op == "Resize" and i < 2 else data_type
            stored.append(numpy_helper.from_array(np.array(values, data_type), f"c{i}"))
            names.append(f"c{i}")
        node = helper.make_node(op, names, ["y"], **attributes)
        result = TensorProto.INT32 if op == "ConvInteger" else TensorProto.INT64 if op == "OneHot" else kinds[-1]
        output = helper.make_tensor_value_info("y", result, None)
        graph = helper.make_graph([node], "single", inputs, [output], stored)
        found.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    return tuple(found)


def _trees() -> bytes:
    """A tree of three branches with leaves for two classes, on codes."""
    modes = ["BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ", *["LEAF"] * 4]
    attributes: dict[str, Any] = {
        "nodes_treeids": [0] * 7, "nodes_nodeids": list(range(7)), "nodes_featureids": [0, 1, 2, 0, 0, 0, 0],
        "nodes_modes": modes, "nodes_values": [1.5, -2.0, 0.25, 0.0, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0], "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0],
        "class_treeids": [0] * 4, "class_nodeids": [3, 4, 5, 6], "class_ids": [0, 1, 1, 0],
        "class_weights": [0.5, 0.25, -1.0, 2.0], "classlabels_int64s": [3, 7],
    }  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale"], ["r"]),
             helper.make_node("TreeEnsembleClassifier", ["r"], ["y", "s"], domain="ai.onnx.ml", **attributes),
             helper.make_node("QuantizeLinear", ["s", "scale"], ["z"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "trees", [helper.make_tensor_value_info("x", TensorProto.INT8, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None),
         helper.make_tensor_value_info("z", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.float32(0.125), "scale")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def _floats() -> bytes:
    """Layers of floats, among them those that are written out and those that are not defined everywhere."""
    random_ = np.random.default_rng(0)
    shapes = {"w": (2, 1, 3, 3), "b": (2,), "v": (1, 8, 2), "r": (1, 8, 2), "g": (2,), "o": (2,), "m": (2, 3)}
    stored = [numpy_helper.from_array(random_.normal(size=s).astype("f"), name) for name, s in shapes.items()]
    stored.append(numpy_helper.from_array(np.array([4, 1, 2]), "shape"))
    lines: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("Conv", "x w b", "c", {"strides": [2, 2]}), ("Relu", "c", "d", {}),
        ("Transpose", "d", "e", {"perm": [0, 2, 3, 1]}), ("Reshape", "e shape", "f", {}),
        ("LSTM", "f v r", "l h", {"hidden_size": 2}), ("Squeeze", "h", "s", {}),
        ("LayerNormalization", "s g o", "n", {"axis": -1}), ("MatMul", "n m", "p", {}), ("Exp", "p", "q", {}),
        ("Log", "q", "t", {}), ("Div", "t q", "u", {}), ("Softmax", "u", "y", {"axis": -1}),
    )  # fmt: skip
    nodes = [helper.make_node(op, x.split(), y.split(), **attributes) for op, x, y, attributes in lines]
    graph = helper.make_graph(
        nodes, "floats", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, 5, 5))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored,
    )  # fmt: skip
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())


def make(random_: random.Random) -> bytes:
    """A model with some changed messages, or some changed bytes."""
    data = random_.choice(_seeds())
    kind = random_.randrange(8)
    if kind == 0:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4, 16)))
    if kind == 1:
        return data[: random_.randrange(len(data))]
    model = onnx.load_from_string(data)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        _change(random_, model)
    return bytes(model.SerializeToString())


def _change(random_: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    node = random_.choice(graph.node) if graph.node else None
    what = random_.randrange(14)
    if what == 0 and graph.node:
        del graph.node[random_.randrange(len(graph.node))]
    elif what == 1 and node is not None:
        graph.node.append(node)
    elif what == 2 and node is not None:
        node.op_type = random_.choice(
            [item[0] for item in _SINGLE] + ["Conv", "Loop", "Softmax", "QLinearAdd", "", "X"]
        )
    elif what == 3 and node is not None and node.input:
        names = [name for item in graph.node for name in (*item.input, *item.output)]
        node.input[random_.randrange(len(node.input))] = random_.choice([*names, "", "nothing"])
    elif what == 4 and node is not None and node.attribute:
        _change_attribute(random_, random_.choice(node.attribute))
    elif what in (5, 6) and graph.initializer:
        _change_tensor(random_, random_.choice(graph.initializer))
    elif what == 7 and graph.input:
        tensor = random_.choice(graph.input).type.tensor_type
        tensor.elem_type = random_.randrange(30)
    elif what in (8, 9) and graph.input:
        dims = random_.choice(graph.input).type.tensor_type.shape.dim
        if dims:
            random_.choice(dims).dim_value = random_.choice(_NUMBERS)
    elif what == 10 and model.opset_import:
        random_.choice(model.opset_import).version = random_.choice(_NUMBERS)
    elif what == 11 and node is not None:
        node.attribute.append(helper.make_attribute(random_.choice(("axis", "x", "group")), random_.choice(_NUMBERS)))
    elif what == 12 and node is not None and node.input:
        del node.input[random_.randrange(len(node.input))]
    elif graph.output:
        random_.choice(graph.output).name = random_.choice([*(graph.node[0].output if graph.node else []), "none", ""])


def _change_attribute(random_: random.Random, attribute: onnx.AttributeProto) -> None:
    match random_.randrange(4):
        case 0:
            attribute.type = random_.randrange(15)
        case 1:
            attribute.i = random_.choice(_NUMBERS)
            attribute.f = random_.choice(_FLOATS)
            attribute.s = random_.choice((b"", b"same", b"\xff", b"LEFT"))
        case 2:
            attribute.ints.append(random_.choice(_NUMBERS))
        case _:
            if attribute.ints:
                attribute.ints[random_.randrange(len(attribute.ints))] = random_.choice(_NUMBERS)


def _change_tensor(random_: random.Random, tensor: TensorProto) -> None:
    match random_.randrange(6):
        case 0:
            tensor.data_type = random_.randrange(30)
        case 1:
            tensor.dims.append(random_.choice(_NUMBERS))
        case 2 if tensor.dims:
            tensor.dims[random_.randrange(len(tensor.dims))] = random_.choice(_NUMBERS)
        case 3:
            tensor.raw_data = mutate_bytes(random_, tensor.raw_data, 2)
        case 4:
            tensor.data_location = TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = (
                "location",
                random_.choice(("../x", "/etc/passwd", "", "x\0y", "models", "a" * 300)),
            )
        case _:
            width = max(1, len(tensor.raw_data) // 4)
            tensor.raw_data = bytes(random_.randbytes(width)) + tensor.raw_data[width:]


def examine(case: bytes) -> str:
    """Read a model, lower it, and run it if it is small; the word is for this, not for the way with floats."""
    with suppress(CvmError):
        _calibrate(case)
    loaded = front.loads(case, folder=str(_MODELS))
    try:
        program = lower(loaded.graph)
    except CvmError as error:
        raise loaded.explained(error) from None
    elements = sum(int(np.prod(value.shape, dtype=object)) for node in program.nodes for value in node.outputs)
    if elements > _LARGEST:
        return "valid, too large to run"
    verified = verify(program)
    if verified.gas > _GAS:
        return "valid, too large to run"
    feeds = {
        item.value.name: np.full(item.value.shape, (item.value.lo + item.value.hi) // 2) for item in program.inputs
    }
    results = [Session(verified, executor).run(feeds, codes=True) for executor in ("numpy", "formal")]
    for name in results[0]:
        assert (results[0][name] == results[1][name]).all(), "two executors differ"
    return "valid"


def _calibrate(case: bytes) -> None:
    """Read a model as `cvm quantize` does, as if it were mapped; make a program of it where it is small."""
    loaded = front.loads(memoryview(case), front.Settings(floats=True), str(_MODELS))
    tensors = loaded.graph.tensors.values()
    if sum(int(np.prod(tensor.shape, dtype=object)) for tensor in tensors if tensor.shape is not None) <= _LARGEST:
        quantize_completed("case", loaded, random_inputs(loaded.graph, 2, 0), Calibrating())


FUZZER = Fuzzer("tools.fuzz.onnx_models", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
