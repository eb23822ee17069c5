"""Operators on shapes and constants are computed while compiling, and equal what they mean for arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Unsupported
from cvm.frontends import tflite
from cvm.frontends.tflite.folding import FOLDED
from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written
from tests.frontends.tflite.exact import compiled, run

INPUT = Tensor((1, 2, 3, 2), "int8", (0.5,), (0,))
CODES = np.arange(12, dtype=np.int32).reshape(INPUT.shape)


def integers(values: Any) -> Tensor:
    array = np.asarray(values, np.int32)
    return Tensor(array.shape, "int32", values=array)


def unknown(*shape: int) -> Tensor:
    return Tensor(shape, "int32")


def reshaped(shape: tuple[int, ...], tensors: list[Tensor], operators: list[Operator], source: int) -> np.ndarray:
    """The input reshaped to the shape that the tensor ``source`` holds; tensor 0 is the input, the last the output."""
    every = [INPUT, *tensors, Tensor(shape, "int8", (0.5,), (0,))]
    last = len(every) - 1
    program = compiled(Graph(every, [*operators, Operator("RESHAPE", [0, source], [last])], [0], [last]))
    return run(program, [CODES])[0]


def test_a_flattening_as_converters_write_it() -> None:
    tensors = [unknown(4), integers([0]), integers([1]), integers([1]), unknown(), integers(-1), unknown(2)]
    strided = {"BeginMask": 0, "EndMask": 0, "ShrinkAxisMask": 1}
    operators = [
        Operator("SHAPE", [0], [1], "ShapeOptions", {"OutType": 2}),
        Operator("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", strided),
        Operator("PACK", [5, 6], [7], "PackOptions", {"ValuesCount": 2, "Axis": 0}),
    ]
    assert (reshaped((1, 12), tensors, operators, 7) == CODES.reshape(1, 12)).all()


CASES: list[tuple[str, list[Any], Any, str, dict[str, Any]]] = [
    ("FILL", [[2], 6], [6, 6], "", {}),
    ("RANGE", [3, 5, 1], [3, 4], "", {}),
    ("CONCATENATION", [[6], [2]], [6, 2], "ConcatenationOptions", {"Axis": 0}),
    ("GATHER", [[5, 2, 6], [1, 2]], [2, 6], "GatherOptions", {"Axis": 0}),
    ("SLICE", [[9, 6, 2, 9], [1], [2]], [6, 2], "", {}),
    ("ADD", [[1, 2], [2, 2]], [3, 4], "", {}),
    ("SUB", [[5, 9], [1, 6]], [4, 3], "", {}),
    ("MUL", [[2, 2], [3, 1]], [6, 2], "", {}),
    ("FLOOR_DIV", [[13, 8], [2, 4]], [6, 2], "", {}),
    ("FLOOR_MOD", [[10, 11], [4, 6]], [2, 5], "", {}),
    ("MAXIMUM", [[2, 3], [4, 1]], [4, 3], "", {}),
    ("MINIMUM", [[2, 9], [4, 6]], [2, 6], "", {}),
    ("BROADCAST_TO", [[6], [2]], [6, 6], "", {}),
    ("SQUEEZE", [[[6, 2]]], [6, 2], "SqueezeOptions", {"SqueezeDims": [0]}),
    ("RESHAPE", [[[6], [2]], [2]], [6, 2], "", {}),
    ("TRANSPOSE", [[6, 2], [0]], [6, 2], "", {}),
]


@pytest.mark.parametrize(("op", "operands", "wanted", "kind", "options"), CASES)
def test_an_operator_on_constants(
    op: str, operands: list[Any], wanted: list[int], kind: str, options: dict[str, Any]
) -> None:
    """The result is the shape of the output; where it is no shape of twelve items, it is refused as such."""
    constants = [integers(values) for values in operands]
    tensors = [*constants, unknown(2)]
    operators = [Operator(op, list(range(1, len(constants) + 1)), [len(tensors)], kind, options)]
    if int(np.prod(wanted)) == 12:
        assert (reshaped(tuple(wanted), tensors, operators, len(tensors)) == CODES.reshape(wanted)).all()
    else:
        with pytest.raises(CvmError, match=f"{wanted[0]}.*{wanted[1]}"):
            reshaped((3, 4), tensors, operators, len(tensors))


def test_rank_and_products() -> None:
    tensors = [unknown(), integers(2), unknown(), unknown(4), integers([0]), unknown(1)]
    operators = [
        Operator("RANK", [0], [1]),
        Operator("SUB", [1, 2], [3]),
        Operator("SHAPE", [0], [4], "ShapeOptions", {"OutType": 2}),
        Operator("REDUCE_PROD", [4, 5], [6], "ReducerOptions", {"KeepDims": True}),
    ]
    assert (reshaped((12,), tensors, operators, 6) == CODES.reshape(12)).all()


def test_a_shape_that_depends_on_data_is_refused() -> None:
    tensors = [INPUT, Tensor((1,), "int32"), Tensor((1,), "int32"), Tensor((12,), "int8", (0.5,), (0,))]
    operators = [Operator("FILL", [1, 1], [2]), Operator("RESHAPE", [0, 2], [3])]
    with pytest.raises(Unsupported, match="FILL: this operator is read on constants alone") as caught:
        tflite.loads(written(Graph(tensors, operators, [0, 1], [3])))
    assert caught.value.code == "tflite.operator"


def test_casts_sums_and_rows() -> None:
    tensors = [
        integers([[3, 1], [3, 1]]),
        integers([0]),
        Tensor((2,), "int32"),
        Tensor((2,), "int64"),
        integers(0),
        Tensor((1, 2), "int64"),
        Tensor((2,), "int64"),
    ]
    operators = [
        Operator("SUM", [1, 2], [3], "ReducerOptions", {"KeepDims": False}),
        Operator("CAST", [3], [4], "CastOptions", {}),
        Operator("EXPAND_DIMS", [4, 5], [6]),
        Operator("UNPACK", [6], [7], "UnpackOptions", {"Num": 1, "Axis": 0}),
    ]
    assert (reshaped((6, 2), tensors, operators, 7) == CODES.reshape(6, 2)).all()


LARGE = [2**20, 2**20]
WRONG: list[tuple[str, list[Any], str, dict[str, Any], str]] = [
    *((op, operands[:-1], kind, options, "inputs") for op, operands, _, kind, options in CASES if len(operands) > 1),
    *((op, [*operands, operands[0]], kind, options, "inputs") for op, operands, _, kind, options in CASES),
    ("CAST", [[1], [1]], "CastOptions", {}, "inputs"),
    ("EXPAND_DIMS", [[1]], "", {}, "inputs"),
    ("FILL", [LARGE, 6], "", {}, "too many items"),
    ("FILL", [[-1], 6], "", {}, "cannot be computed"),
    ("BROADCAST_TO", [[6], LARGE], "", {}, "too many items"),
    ("BROADCAST_TO", [[6, 2], [3]], "", {}, "cannot be computed"),
    ("REDUCE_PROD", [[2**30] * 4, [0]], "ReducerOptions", {"KeepDims": False}, "64 bits"),
    ("RANGE", [0, 2**31 - 1, 1], "", {}, "too many items"),
    ("RANGE", [0, 1, 0], "", {}, "cannot be computed"),
    ("FLOOR_DIV", [[1], [0]], "", {}, "cannot be computed"),
    ("TRANSPOSE", [[6, 2], [1]], "", {}, "cannot be computed"),
]
WRONG = [case for case in WRONG if case[0] not in ("CONCATENATION", "RESHAPE") or case[4] != "inputs"]  # they take any


@pytest.mark.parametrize(("op", "operands", "kind", "options", "words"), WRONG)
def test_wrong_operands_of_what_is_folded(
    op: str, operands: list[Any], kind: str, options: dict[str, Any], words: str
) -> None:
    constants = [integers(values) for values in operands]
    tensors = [*constants, unknown(2)]
    operators = [Operator(op, list(range(1, len(constants) + 1)), [len(tensors)], kind, options)]
    with pytest.raises(CvmError, match=words) as caught:
        reshaped((12,), tensors, operators, len(tensors))
    assert caught.value.location.op == op


@pytest.mark.parametrize("value", [1e30, 2.0**63, -(2.0**63) * 1.5])
def test_floats_that_are_no_integers_are_not_cast(value: float) -> None:
    number = Tensor((1,), "float32", values=np.array([value], np.float32))
    operators = [Operator("CAST", [1], [2], "CastOptions", {})]
    with pytest.raises(CvmError, match="does not fit an integer of 64 bits"):
        reshaped((12,), [number, unknown(1)], operators, 2)


def test_every_folded_operator_is_tried() -> None:
    others = {"SHAPE", "RANK", "STRIDED_SLICE", "PACK", "REDUCE_PROD", "SUM", "CAST", "EXPAND_DIMS", "UNPACK"}
    assert {op for op, *_ in CASES} | others == FOLDED
