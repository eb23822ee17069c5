"""Attention and rotary embeddings: the tests of ONNX, and ONNX Runtime's own operators against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.errors import CvmError
from cvm.frontends import onnx as front
from cvm.reference import Reference
from tests.frontends.onnx.making import Shape, made
from tools.onnx_networks.float_cases import EXCLUDED, examine_floats
from tools.onnx_networks.node_cases import every_case

RANDOM = np.random.default_rng(11)
BATCH, ITEMS, SIZE = 2, 5, 16
ANGLES = RANDOM.uniform(0, 3, (16, SIZE // 2)).astype(np.float32)


def node_tests() -> list[Any]:
    """The tests of the operators themselves; their expansions are tests of other operators."""
    names = ("test_attention", "test_rotary", "test_rms_normalization")
    found = [case for case in every_case() if case.name.startswith(names) and not case.name.endswith("expanded")]
    return [case for case in found if case.name not in EXCLUDED]


@pytest.mark.slow
def test_the_tests_of_onnx_are_near_or_refused_for_a_reason() -> None:
    cases = node_tests()
    verdicts = [examine_floats(case).verdict for case in cases[::4]]
    assert set(verdicts) <= {"near", "onnx.unsupported", "input.real"}
    assert verdicts.count("near") >= len(verdicts) * 3 // 4


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def evaluated(model: onnx.ModelProto, data: dict[str, Any], **settings: Any) -> list[Any]:
    graph = front.loads(model.SerializeToString(), front.Settings(floats=True, **settings)).graph
    assert not {"Attention", "RotaryEmbedding"} & {item.name for item in graph.operations}
    feeds = {name: data[name].reshape(graph.tensors[name].shape) for name in graph.inputs}
    found = Reference(graph).run(feeds)
    return [found[name] for name in graph.outputs]


def expected(model: onnx.ModelProto, data: dict[str, Any]) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime computes what is expected")
    model.ir_version = min(model.ir_version, 10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, data))


def operator(
    op: str, data: dict[str, Any], constants: dict[str, Any], operands: list[str], outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    types = {np.dtype(np.float32): "float32", np.dtype(np.int32): "int32", np.dtype(np.int64): "int64"}
    inputs: dict[str, tuple[str, Shape | None]] = {
        name: (types[array.dtype], array.shape) for name, array in data.items()
    }
    names = [f"y{index}" for index in range(outputs)]
    made_node = helper.make_node(op, operands, names, domain="com.microsoft", **attributes)
    return made([made_node], inputs, dict.fromkeys(names, "float32"), constants)


def agree(model: onnx.ModelProto, data: dict[str, Any]) -> None:
    for found, wanted in zip(evaluated(model, data), expected(model, data), strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([3]), np.array([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])], ids=["one", "all"])
def test_rotary_embedding_of_the_runtime(positions: Any, interleaved: int) -> None:
    data = {"x": floats(BATCH, ITEMS, 3 * SIZE), "p": positions.astype(np.int64)}
    tables = {"c": np.cos(ANGLES), "s": np.sin(ANGLES)}
    agree(operator("RotaryEmbedding", data, tables, ["x", "p", "c", "s"], interleaved=interleaved), data)


def heads(*counts: int) -> dict[str, Any]:
    return {name: floats(BATCH, ITEMS, count * SIZE) for name, count in zip("qkv", counts, strict=True)}


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        (heads(4, 2, 2), {}),
        (heads(4, 1, 1), {"do_rotary": 1}),
        (heads(2, 2, 2), {"local_window_size": 2, "scale": 0.25}),
        ({"q": floats(BATCH, ITEMS, 8 * SIZE)}, {"do_rotary": 1, "softcap": 2.0}),
    ],
    ids=["shared", "turned", "window", "packed"],
)
def test_group_query_attention_at_the_start_of_a_sequence(data: dict[str, Any], attributes: dict[str, Any]) -> None:
    shared = data["k"].shape[-1] // SIZE if "k" in data else 2
    count = data["q"].shape[-1] // SIZE - (0 if "k" in data else 2 * shared)
    fixed = {"l": np.full(BATCH, ITEMS - 1, np.int32), "t": np.int32(ITEMS)}
    fixed |= {"c": np.cos(ANGLES), "s": np.sin(ANGLES)} if "do_rotary" in attributes else {}
    operands = ["q", *("k" if "k" in data else "",), *("v" if "v" in data else "",), "", "", "l", "t"]
    operands += ["c", "s"] if "do_rotary" in attributes else []
    model = operator(
        "GroupQueryAttention", data, fixed, operands, 3, num_heads=count, kv_num_heads=shared, **attributes
    )
    agree(model, data)


def test_group_query_attention_behind_a_past() -> None:
    data = {name: floats(1, 1, count * SIZE) for name, count in (("q", 4), ("k", 2), ("v", 2))}
    data |= {"pk": floats(1, 2, 6, SIZE), "pv": floats(1, 2, 6, SIZE)}
    fixed = {"l": np.full(1, 6, np.int32), "t": np.int32(7), "c": np.cos(ANGLES), "s": np.sin(ANGLES)}
    operands = ["q", "k", "v", "pk", "pv", "l", "t", "c", "s"]
    model = operator("GroupQueryAttention", data, fixed, operands, 3, num_heads=4, kv_num_heads=2, do_rotary=1)
    agree(model, data)
    fixed["l"] = np.full(1, 5, np.int32)
    padded = operator("GroupQueryAttention", data, fixed, operands, 3, num_heads=4, kv_num_heads=2, do_rotary=1)
    with pytest.raises(CvmError, match="give a past without padding"):
        evaluated(padded, data)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_a_mask(causal: int) -> None:
    data = {**heads(2, 2, 2), "m": np.array([[1, 1, 1, 0, 1], [1, 1, 1, 1, 0]], np.int32)}
    fixed = {"b": floats(6 * SIZE)}
    agree(
        operator("MultiHeadAttention", data, fixed, ["q", "k", "v", "b", "m"], num_heads=2, unidirectional=causal), data
    )


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_the_runtime(causal: int) -> None:
    data = {"x": floats(BATCH, ITEMS, 12), "m": np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32)}
    fixed = {"w": floats(12, 6 * SIZE), "b": floats(6 * SIZE)}
    agree(operator("Attention", data, fixed, ["x", "w", "b", "m"], num_heads=2, unidirectional=causal), data)
