"""Caches that are written at computed positions by scatters: one slice is replaced, where the positions exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.frontends import onnx as front
from cvm.passes.optimize import optimize
from tests.frontends.onnx.making import Shape, compiled, made, results

node = helper.make_node
RANDOM = np.random.default_rng(9)
CACHE = RANDOM.integers(-99, 99, (1, 2, 8, 4)).astype(np.int8)


def scattered(nodes: list[Any], update: tuple[int, ...], cache: tuple[int, ...], position: Shape) -> onnx.ModelProto:
    """DequantizeLinear of c and u gives k and n; QuantizeLinear of o gives y."""
    ends = [node("DequantizeLinear", ["c", "s", "z"], ["k"]), node("DequantizeLinear", ["u", "s", "z"], ["n"]), *nodes,
            node("QuantizeLinear", ["o", "s", "z"], ["y"])]  # fmt: skip
    constants = {"s": np.float32(0.5), "z": np.int8(0), "one": np.array([1]), "nought": np.array(0),
                 "eight": np.array(8), "three": np.arange(3), "wide": np.array([1, 2, 3, 4]),
                 "shape": np.array([1, 1, 3, 1])}  # fmt: skip
    inputs: dict[str, tuple[str, Shape | None]] = {
        "c": ("int8", cache), "u": ("int8", update), "p": ("int64", position)
    }  # fmt: skip
    return made(ends, inputs, {"y": "int8"}, constants)


ALONG_AN_AXIS = [node("Add", ["p", "three"], ["a"]), node("Reshape", ["a", "shape"], ["b"]),
                 node("Expand", ["b", "wide"], ["i"]),
                 node("ScatterElements", ["k", "i", "n"], ["o"], axis=2)]  # fmt: skip
ROWS = [node("Less", ["p", "nought"], ["l"]), node("Add", ["p", "eight"], ["m"]), node("Where", ["l", "m", "p"], ["a"]),
        node("Unsqueeze", ["a", "one"], ["i"]), node("ScatterND", ["k", "i", "n"], ["o"])]  # fmt: skip


TURNED = [node("Unsqueeze", ["p", "one"], ["i"]), node("Transpose", ["k"], ["kt"], perm=[2, 0, 1, 3]),
          node("Transpose", ["n"], ["nt"], perm=[2, 0, 1, 3]), node("ScatterND", ["kt", "i", "nt"], ["ot"]),
          node("Transpose", ["ot"], ["o"], perm=[1, 2, 0, 3])]  # fmt: skip


def operations(model: onnx.ModelProto, highest: int) -> list[str]:
    settings = front.Settings(ranges={"p": (0, highest)})
    return [item.name for item in front.loads(model.SerializeToString(), settings).graph.operations]


@pytest.mark.parametrize("op_set", [1, 2])
def test_three_rows_of_each_head_are_replaced(op_set: int) -> None:
    update = RANDOM.integers(-99, 99, (1, 2, 3, 4)).astype(np.int8)
    model = scattered(ALONG_AN_AXIS, update.shape, CACHE.shape, (1,))
    assert "update_slice" in operations(model, 5)
    for position in range(6):
        wanted = CACHE.copy()
        wanted[:, :, position : position + 3] = update
        data = {"c": CACHE, "u": update, "p": np.array([position])}
        np.testing.assert_array_equal(results(model, data, op_set, ranges={"p": (0, 5)})["y"], wanted)


@pytest.mark.parametrize("op_set", [1, 2])
def test_a_row_is_replaced_though_negative_positions_are_asked_for(op_set: int) -> None:
    cache, update = CACHE[0, 0], RANDOM.integers(-99, 99, (1, 4)).astype(np.int8)
    model = scattered(ROWS, update.shape, cache.shape, (1,))
    assert "update_slice" in operations(model, 7)
    for position in (0, 4, 7):
        wanted = cache.copy()
        wanted[position] = update
        data = {"c": cache, "u": update, "p": np.array([position])}
        np.testing.assert_array_equal(results(model, data, op_set, ranges={"p": (0, 7)})["y"], wanted)


def test_a_cache_is_not_transposed_to_write_a_row() -> None:
    """As PyTorch writes ``index_copy`` along an inner axis."""
    update = RANDOM.integers(-99, 99, (1, 2, 1, 4)).astype(np.int8)
    model = scattered(TURNED, update.shape, CACHE.shape, (1,))
    assert "update_slice" in operations(model, 7)
    program = optimize(compiled(model, 2, ranges={"p": (0, 7)}))
    assert "transpose" not in {item.op for item in program.nodes}
    wanted = CACHE.copy()
    wanted[:, :, 6:7] = update
    found = results(model, {"c": CACHE, "u": update, "p": np.array([6])}, 2, ranges={"p": (0, 7)})["y"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("nodes", "shape", "cache", "highest"), [
    (ALONG_AN_AXIS, (1, 2, 3, 4), CACHE.shape, 6), (ROWS, (1, 4), (8, 4), 8),
], ids=["three rows", "one row"])  # fmt: skip
def test_positions_that_may_not_exist_are_compared_one_by_one(
    nodes: list[Any], shape: tuple[int, ...], cache: tuple[int, ...], highest: int
) -> None:
    model = scattered(nodes, shape, cache, (1,))
    assert "update_slice" not in operations(model, highest)
    codes, update = np.ones(cache, np.int8), np.full(shape, 5, np.int8)
    found = results(model, {"c": codes, "u": update, "p": np.array([highest])}, ranges={"p": (0, highest)})["y"]
    assert (found == 5).sum() == (update.size // 3 * 2 if highest == 6 else 0)  # what does not exist is not written


def test_positions_that_do_not_follow_one_another_are_compared_one_by_one() -> None:
    model = scattered(ALONG_AN_AXIS, (1, 2, 3, 4), CACHE.shape, (1,))
    for item in model.graph.initializer:
        if item.name == "three":
            item.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 2, 1]), "three"))
    assert "update_slice" not in operations(model, 5)
