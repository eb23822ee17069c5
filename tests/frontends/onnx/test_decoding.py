"""What models need that read a token at a time: slices of state replaced at a position, masks, chosen outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.errors import Invalid, Unsupported
from cvm.frontends import onnx as front
from cvm.lowering import lower
from cvm.program import Program
from cvm.session import Session
from tests.frontends.onnx.making import made

node = helper.make_node
RANDOM = np.random.default_rng(7)
OP_SETS = pytest.mark.parametrize("op_set", [1, 2])


def program_of(model: onnx.ModelProto, op_set: int, **settings: Any) -> Program:
    return lower(front.loads(model.SerializeToString(), front.Settings(**settings)).graph, op_set=op_set)


def scattered(cache: Any, update: Any, starts: Any, axis: int) -> Any:
    """What ONNX's pseudocode says, with starts clipped so that the update fits."""
    found = cache.copy()
    for item, start in enumerate(starts):
        first = min(max(int(start), 0), cache.shape[axis] - update.shape[axis])
        place = (slice(None),) * (axis - 1) + (slice(first, first + update.shape[axis]),)
        found[item][place] = update[item]
    return found


# TensorScatter


@OP_SETS
@pytest.mark.parametrize(("batch", "count"), [(1, 1), (1, 3), (2, 2), (2, 5)])
def test_rows_are_written_at_their_starts(op_set: int, batch: int, count: int) -> None:
    cache, update = (batch, 2, 5, 3), (batch, 2, count, 3)
    inputs = {"x": ("int8", cache), "u": ("int8", update), "s": ("int64", (batch,))}
    model = made([node("TensorScatter", ["x", "u", "s"], ["y"])], inputs, {"y": "int8"}, opset=24)
    program = program_of(model, op_set)
    assert sum(item.op == "update_slice" for item in program.nodes) == (batch if op_set == 2 else 0)
    session = Session(program, "numpy")
    for start in range(-2, 8):
        x, u = (RANDOM.integers(-128, 128, shape).astype(np.int8) for shape in (cache, update))
        starts = (start + np.arange(batch)).astype(np.int64)
        found = session.run({"x": x, "u": u, "s": starts})["y"]
        np.testing.assert_array_equal(found, scattered(x, u, starts, 2))


@OP_SETS
def test_real_rows_take_the_scale_of_the_result(op_set: int) -> None:
    """The cache is rounded to the scale of the result, as the update is; without a start, rows are written at 0."""
    nodes = [node("DequantizeLinear", ["x", "a", "z"], ["xr"]), node("DequantizeLinear", ["u", "b", "z"], ["ur"]),
             node("TensorScatter", ["xr", "ur"], ["yr"], axis=1),
             node("QuantizeLinear", ["yr", "c", "z"], ["y"])]  # fmt: skip
    fixed = {"a": np.float32(0.5), "b": np.float32(0.75), "c": np.float32(1), "z": np.int8(0)}
    model = made(nodes, {"x": ("int8", (1, 4, 2)), "u": ("int8", (1, 2, 2))}, {"y": "int8"}, fixed, opset=24)
    x, u = (RANDOM.integers(-128, 128, shape).astype(np.int8) for shape in ((1, 4, 2), (1, 2, 2)))
    found = Session(program_of(model, op_set), "numpy").run({"x": x, "u": u})["y"]
    wanted = scattered(np.rint(x * 0.5), np.rint(u * 0.75), [0], 1)
    np.testing.assert_array_equal(found, wanted)


def test_rows_of_two_scales_need_a_quantiser() -> None:
    nodes = [node("DequantizeLinear", ["x", "a", "z"], ["xr"]), node("DequantizeLinear", ["u", "b", "z"], ["ur"]),
             node("TensorScatter", ["xr", "ur"], ["yr"], axis=1), node("Mul", ["yr", "yr"], ["m"]),
             node("QuantizeLinear", ["m", "a", "z"], ["y"])]  # fmt: skip
    fixed = {"a": np.float32(0.5), "b": np.float32(0.75), "z": np.int8(0)}
    model = made(nodes, {"x": ("int8", (1, 4, 2)), "u": ("int8", (1, 2, 2))}, {"y": "int8"}, fixed, opset=24)
    with pytest.raises(Unsupported, match="quantis") as caught:
        program_of(model, 2)
    assert caught.value.code == "lowering.unquantized"


@pytest.mark.parametrize(
    ("update", "starts", "attributes", "error", "message"),
    [
        ((1, 2, 1, 3), (1,), {"mode": "circular"}, Unsupported, "mode linear"),
        ((1, 2, 6, 3), (1,), {}, Invalid, "do not fit axis 2"),
        ((1, 1, 1, 3), (1,), {}, Invalid, "do not fit axis 2"),
        ((1, 2, 1, 3), (2,), {}, Invalid, "do not fit axis 2"),
        ((1, 2, 5, 3), (1,), {"axis": 0}, Invalid, "do not fit axis 0"),
    ],
)
def test_what_does_not_fit(update: Any, starts: Any, attributes: Any, error: Any, message: str) -> None:
    inputs = {"x": ("int8", (1, 2, 5, 3)), "u": ("int8", update), "s": ("int64", starts)}
    model = made([node("TensorScatter", ["x", "u", "s"], ["y"], **attributes)], inputs, {"y": "int8"}, opset=24)
    with pytest.raises(error, match=message):
        program_of(model, 2)


# Masks

LEAST = np.finfo(np.float32).min


def masked(form: str, far: float = LEAST) -> onnx.ModelProto:
    """Softmax of x / 8 over the last axis where s, by a choice or by an addition."""
    chosen = {"where": [node("Where", ["s", "xr", "far"], ["m"])],
              "add": [node("Where", ["s", "none", "far"], ["bias"]), node("Add", ["xr", "bias"], ["m"])]}  # fmt: skip
    nodes = [node("DequantizeLinear", ["x", "a", "z"], ["xr"]), *chosen[form], node("Softmax", ["m"], ["yr"]),
             node("QuantizeLinear", ["yr", "b", "l"], ["y"])]  # fmt: skip
    fixed = {"a": np.float32(0.125), "z": np.int8(0), "b": np.float32(1 / 256), "l": np.uint8(0),
             "far": np.float32(far), "none": np.float32(0)}  # fmt: skip
    return made(nodes, {"x": ("int8", (2, 3, 6)), "s": ("bool", (1, 3, 6))}, {"y": "uint8"}, fixed)


@OP_SETS
@pytest.mark.parametrize("form", ["where", "add"])
@pytest.mark.parametrize("far", [float(LEAST), -np.inf])
def test_hidden_items_have_no_share(form: str, far: float, op_set: int) -> None:
    program = program_of(masked(form, far), op_set)
    assert [item.bound for item in program.provenance.exactness if item.tensor.startswith("yr")] == [1]
    session = Session(program, "numpy")
    for _ in range(30):
        x = RANDOM.integers(-128, 128, (2, 3, 6)).astype(np.int8)
        seen = RANDOM.random((1, 3, 6)) < 0.6
        seen[..., 0] |= ~seen.any(axis=-1)
        found = session.run({"x": x, "s": seen.astype(np.int32)})["y"]
        powers = np.where(seen, np.exp(x / 8 - 16), 0)
        wanted = np.minimum(255, 256 * powers / powers.sum(axis=-1, keepdims=True))
        assert (found[~np.broadcast_to(seen, x.shape)] == 0).all()
        assert (np.abs(found - wanted) < 0.5 + 1e-6).all()


@OP_SETS
def test_where_nothing_is_seen_all_shares_are_equal(op_set: int) -> None:
    x = RANDOM.integers(-128, 128, (2, 3, 6)).astype(np.int8)
    found = Session(program_of(masked("where"), op_set), "numpy").run({"x": x, "s": np.zeros((1, 3, 6), np.int32)})["y"]
    assert (found == 43).all()  # 256 / 6 = 42.67


def test_a_number_that_others_may_reach_hides_nothing() -> None:
    with pytest.raises(Unsupported, match="softmax needs 'm' as integers"):
        program_of(masked("where", -4.0), 2)


# Chosen outputs


def test_a_state_does_not_need_its_output() -> None:
    nodes = [node("Add", ["x", "h"], ["n"]), node("Mul", ["n", "x"], ["y"])]
    model = made(nodes, {"x": ("int8", (2, 3)), "h": ("int8", (2, 3))}, {"y": "int8", "n": "int8"})
    program = program_of(model, 1, states={"h": "n"}, outputs=("y",))
    assert [item.name for item in program.outputs] == ["y"]
    session, kept = Session(program, "numpy"), np.zeros((2, 3), np.int8)
    for _ in range(10):
        given = RANDOM.integers(-100, 100, (2, 3)).astype(np.int8)
        kept = given + kept
        np.testing.assert_array_equal(session.run({"x": given})["y"], given * kept)
    with pytest.raises(Invalid, match="there is no output 'z'; the outputs are 'y', 'n'"):
        program_of(model, 1, outputs=("z",))
