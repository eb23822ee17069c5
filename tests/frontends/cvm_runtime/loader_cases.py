"""The models that the C++ library was tried with, rebuilt from its notes, and what is made of each of them here.

``../shared/cvm_runtime/models/loader_cases.txt`` has their outcomes there, under the names that `CASES` uses.
`python -m tests.frontends.cvm_runtime.page` writes the table of docs/cvm-runtime-loader.md from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .models import DATA, NO_PARAMETERS, Op, Variable, document, parameters

Kind = Literal["same", "stricter", "more"]
"""The same outcome; refused here only; accepted here, or computed here as it should be, where the library fails."""


@dataclass(frozen=True)
class Case:
    """A model, the input that it was given, and the outcome here.

    ``error`` is the class and the code of the refusal; ``result`` what it gives under "correct"; ``formal`` what it
    gives under "cvm-1", or the code of the refusal there; None: the same.
    """

    name: str
    kind: Kind
    why: str
    text: str | bytes
    params: bytes = NO_PARAMETERS
    inputs: Sequence[int] | None = None
    error: tuple[str, str] | None = None
    result: Sequence[int] | None = None
    formal: Sequence[int] | str | None = None


def _relu(shape: Sequence[int] = (2, 3), precision: int = 8, func: str = "relu", **changes: Any) -> Any:
    return document(Variable("data", shape, precision), Op(func, [0], [shape]), **changes)


def _changed(change: Callable[[Any], None], made: Any = None) -> str:
    made = _relu() if made is None else made
    change(made)
    return json.dumps(made)


def _set(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        for step in path[:-1]:
            made = made[step]
        made[path[-1]] = value

    return change


def _drop(*path: Any) -> Callable[[Any], None]:
    def change(made: Any) -> None:
        for step in path[:-1]:
            made = made[step]
        del made[path[-1]]

    return change


def _text(made: Any) -> str:
    return json.dumps(made)


def _added(**changes: Any) -> Any:
    """data + w."""
    return document(Variable("data", (2,)), Variable("w", (2,)), Op("elemwise_add", [0, 1], [(2,)]), **changes)


INT8 = np.int8
CLOBBERED: list[Variable | Op] = [
    Variable("data", (2,)),
    Op("negative", [0], [(2,)]),
    Op("abs", [0], [(2,)]),
    Op("negative", [2], [(2,)]),
    Op("elemwise_add", [1, 3], [(2,)]),
]
DENSE = Op("dense", [0, 1], [(4096, 4096)], {"units": "4096", "use_bias": "False"})
HUGE = Op("dense", [0, 1], [(16384, 16384)], {"units": "16384", "use_bias": "False"})
ROWS = (1, 4, 6)
_TWO = parameters(("w", np.array([1, 2], INT8)))

CASES = (
    Case(
        "ndim 7",
        "same",
        "A shape has at most six dimensions.",
        _text(_relu((1,) * 6 + (2,))),
        error=("Invalid", "cvm_runtime.shape"),
    ),
    Case("ndim 6", "same", "Six are allowed.", _text(_relu((1,) * 5 + (2,))), inputs=[-5, 0], result=[0, 0]),
    Case("dim 0", "same", "An extent is at least 1.", _text(_relu((2, 0))), error=("Invalid", "cvm_runtime.shape")),
    Case(
        "dim 2^24+1",
        "same",
        "An extent is at most 2^24.",
        _text(_relu((2**24 + 1,))),
        error=("Invalid", "cvm_runtime.shape"),
    ),
    Case("dim 2^24", "same", "2^24 is allowed.", _text(_relu((2**24,)))),
    Case(
        "size > 2^30",
        "same",
        "A tensor has at most 2^30 elements.",
        _text(_relu((2**16, 2**15))),
        error=("LimitExceeded", "limit.cvm_runtime.elements"),
    ),
    Case(
        "prec 33",
        "same",
        "A precision is at most 32.",
        _text(_relu(precision=33)),
        error=("Invalid", "cvm_runtime.precision"),
    ),
    Case(
        "prec 0",
        "same",
        "A precision is at least 1, or -1 where it is not said.",
        _text(_relu(precision=0)),
        error=("Invalid", "cvm_runtime.precision"),
    ),
    Case(
        "prec -1 on data",
        "same",
        "Of variables it must be said.",
        _text(_relu(precision=-1)),
        error=("Invalid", "cvm_runtime.variable"),
    ),
    Case(
        "no data node",
        "same",
        "The input is the variable called data.",
        _text(document(Variable("x", (2, 3)), Op("relu", [0], [(2, 3)]))),
        error=("Invalid", "cvm_runtime.variable"),
    ),
    Case(
        "two data nodes",
        "same",
        "Names of variables are unique.",
        _text(document(DATA, DATA, Op("relu", [0], [(2, 3)]))),
        error=("Invalid", "cvm_runtime.variable"),
    ),
    Case(
        "data not first (shape read by arg index)",
        "same",
        "Only variables stand before it, so that the number under which its shape is looked up is right.",
        _text(
            document(
                Variable("w", (2, 3)),
                Variable("data", (2, 2)),
                Op("relu", [1], [(2, 2)]),
                Op("relu", [0], [(2, 3)]),
                heads=[2],
            )
        ),
        parameters(("w", np.ones((2, 3), INT8))),
        [1, -1, 2, -2],
        result=[1, 0, 2, 0],
    ),
    Case(
        "data after an op node",
        "more",
        "The library loads it and then expects the length of another entry. Here the input has its own shape; cvm-1, "
        "which has no result for it, refuses it.",
        _text(
            document(
                Variable("w", (2, 3)), Op("relu", [0], [(2, 3)]), Variable("data", (2, 2)), Op("relu", [2], [(2, 2)])
            )
        ),
        parameters(("w", np.ones((2, 3), INT8))),
        [1, -1, 2, -2],
        result=[1, 0, 2, 0],
        formal="cvm_runtime.undefined",
    ),
    Case(
        "wrong stored output shape",
        "same",
        "A shape that is written is the inferred one.",
        _text(document(DATA, Op("relu", [0], [(3, 2)]))),
        error=("Invalid", "cvm_runtime.shape"),
    ),
    Case(
        "unknown op", "same", "There is no such op.", _text(_relu(func="nosuch")), error=("Invalid", "cvm_runtime.op")
    ),
    Case(
        "func_name with suffix relu_12",
        "same",
        "One number at the end of a function's name is taken off.",
        _text(_relu(func="relu_12")),
        inputs=[-1, 0, -2, -3, -4, -5],
        result=[0] * 6,
    ),
    Case(
        "alias nn.relu",
        "same",
        "The front end of the library knows it, its executors do not.",
        _text(_relu(func="nn.relu")),
        error=("Invalid", "cvm_runtime.op"),
    ),
    Case(
        "op key not cvm_op",
        "same",
        "A node is a cvm_op or null.",
        _changed(_set("nodes", 1, "op", value="relu")),
        error=("Invalid", "cvm_runtime.node"),
    ),
    Case(
        "extra key in json",
        "same",
        "The keys of a document are known.",
        _changed(_set("zzz", value=[])),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    Case(
        "extra key in attrs",
        "same",
        "Those of its attrs too.",
        _changed(_set("attrs", "zzz", value=["list_int", [0]])),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    Case(
        "dtype attr list_int ignored",
        "same",
        "It is read and ignored.",
        _changed(_set("attrs", "dtype", value=["list_int", [4, 4]])),
        inputs=[-1, 0, -2, -3, -4, -5],
        result=[0] * 6,
    ),
    Case(
        "dltype float32",
        "same",
        "Every tensor is int32.",
        _changed(_set("attrs", "dltype", 1, 1, value="float32")),
        error=("Invalid", "cvm_runtime.type"),
    ),
    Case(
        "version cvm_1.2.0",
        "same",
        "There are versions cvm_1.0.0, which need not be said, and cvm_1.1.0.",
        _changed(_set("version", value="cvm_1.2.0")),
        error=("Invalid", "cvm_runtime.version"),
    ),
    Case(
        "device_index present",
        "same",
        "It must be absent or empty.",
        _changed(_set("attrs", "device_index", value=["list_int", [1, 1]])),
        error=("Invalid", "cvm_runtime.device"),
    ),
    Case(
        "missing storage_id",
        "same",
        "It is required.",
        _changed(_drop("attrs", "storage_id")),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    Case(
        "missing precision",
        "same",
        "It is required, though their reader notices only later.",
        _changed(_drop("attrs", "precision")),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    Case(
        "in-place negative (not in reuse list)",
        "same",
        "A result of negative needs storage apart from its input's; the list of the ops that do not misspells it.",
        _text(_relu(func="negative", storage=[0, 0])),
        error=("Invalid", "cvm_runtime.storage"),
    ),
    Case(
        "in-place relu",
        "same",
        "relu may work in place.",
        _text(_relu(storage=[0, 0])),
        inputs=[1, -1, 2, -2, 3, -3],
        result=[1, 0, 2, 0, 3, 0],
    ),
    Case(
        "in-place elemwise_add",
        "same",
        "So may elemwise_add, of an operand to itself.",
        _text(document(Variable("data", (2,)), Op("elemwise_add", [0, 0], [(2,)]), storage=[0, 0])),
        inputs=[5, -3],
        result=[10, -6],
    ),
    Case(
        "bad liveness plan accepted (storage clobber)",
        "more",
        "The third op overwrites the result of the first while it is needed; the library then gives [-10, -6]. Storage "
        "numbers are for the costs alone here, and values are values; cvm-1 refuses the model.",
        _text(document(*CLOBBERED, storage=[0, 1, 2, 1, 3])),
        inputs=[5, -3],
        result=[-10, 0],
        formal="cvm_runtime.undefined",
    ),
    Case(
        "param storage clobbered between runs",
        "more",
        "The result has the parameter's storage, so that the next run adds it. Here a run leaves nothing behind; cvm-1 "
        "refuses the model.",
        _text(_added(storage=[0, 1, 1])),
        _TWO,
        [5, -3],
        result=[6, -1],
        formal="cvm_runtime.undefined",
    ),
    Case(
        "storage id negative",
        "same",
        "A number of storage is 0 or more.",
        _text(_relu(storage=[0, -1])),
        error=("Invalid", "cvm_runtime.storage"),
    ),
    Case(
        "head out of range",
        "stricter",
        "The library reads beyond its nodes. A head is an output of a node.",
        _changed(_set("heads", value=[[9, 0, 0]])),
        error=("Invalid", "cvm_runtime.order"),
    ),
    Case(
        "input node id out of range",
        "stricter",
        "Likewise. An input is an output of an earlier node.",
        _changed(_set("nodes", 1, "inputs", value=[[9, 0, 0]])),
        error=("Invalid", "cvm_runtime.order"),
    ),
    Case(
        "cycle / forward ref",
        "same",
        "An input stands before the op.",
        _changed(_set("nodes", 1, "inputs", value=[[1, 0, 0]])),
        error=("Invalid", "cvm_runtime.order"),
    ),
    Case(
        "param missing",
        "same",
        "Every parameter has an array.",
        _text(_added()),
        error=("Invalid", "cvm_runtime.params.missing"),
    ),
    Case(
        "param extra",
        "same",
        "Every array is a variable's.",
        _text(_added()),
        parameters(("w", np.array([1, 2], INT8)), ("zz", np.array([1], INT8))),
        error=("Invalid", "cvm_runtime.params.unknown"),
    ),
    Case(
        "param exceeds precision",
        "same",
        "Precision 8 admits +-127.",
        _text(_added()),
        parameters(("w", np.array([128, 0], np.int32))),
        error=("Invalid", "cvm_runtime.params.value"),
    ),
    Case(
        "param int8 -128 prec 8",
        "same",
        "Also of a byte.",
        _text(_added()),
        parameters(("w", np.array([-128, 0], INT8))),
        error=("Invalid", "cvm_runtime.params.value"),
    ),
    Case(
        "param wrong shape",
        "same",
        "The shape is the graph's.",
        _text(_added()),
        parameters(("w", np.array([[1, 2]], INT8))),
        error=("Invalid", "cvm_runtime.params.shape"),
    ),
    Case(
        "param int16",
        "same",
        "Arrays are int8 or int32.",
        _text(_added()),
        parameters(("w", np.array([1, 2], np.int16))),
        error=("Invalid", "cvm_runtime.params.dtype"),
    ),
    Case(
        "param twice",
        "same",
        "The last one counts.",
        _text(_added()),
        parameters(("w", np.array([1, 2], np.int32)), ("w", np.array([3, 4], np.int32))),
        [0, 0],
        result=[3, 4],
    ),
    Case(
        "data given in params too",
        "same",
        "It is set, and the input of each run replaces it.",
        _text(_relu((2,))),
        parameters(("data", np.array([9, 9], INT8))),
        [1, -1],
        result=[1, 0],
    ),
    Case(
        "params trailing bytes",
        "same",
        "They are not looked at; a note says so.",
        _text(_relu((2,))),
        parameters(trailing=b"12345"),
        [1, -1],
        result=[1, 0],
    ),
    Case(
        "params truncated",
        "same",
        "The file ends early.",
        _text(_added()),
        _TWO[:40],
        error=("Malformed", "cvm_runtime.params.truncated"),
    ),
    Case(
        "params empty bytes",
        "same",
        "Without parameters there is an empty list, of 32 bytes.",
        _text(_relu()),
        b"",
        error=("Malformed", "cvm_runtime.params.truncated"),
    ),
    Case(
        "int8 input -128 with prec 8",
        "same",
        "Inputs are clamped: the program begins with cvm_clip.",
        _text(_relu((2,), func="negative")),
        inputs=[-128, 127],
        result=[127, -127],
    ),
    Case(
        "int8 input, prec 4",
        "same",
        "To the precision, however narrow.",
        _text(_relu((2,), 4, "negative")),
        inputs=[-128, 127],
        result=[7, -7],
    ),
    Case(
        "wrong input length",
        "same",
        "An input has exactly the bytes of its shape.",
        _text(_relu((2,), func="negative")),
        inputs=[1, 2, 3],
        error=("Invalid", "cvm_runtime.input"),
    ),
    Case(
        "input prec 9 -> int32 LE",
        "same",
        "More than 8 bits are four bytes.",
        _text(_relu((2,), 9, "negative")),
        inputs=[1000, -1000],
        result=[-255, 255],
    ),
    Case(
        "argmax multi row",
        "more",
        "The library visits 2 of 4 rows and leaves the other results unset. Here every row has its argmax; cvm-1 "
        "refuses the model.",
        _text(_relu((4, 3)) | {"postprocess": "argmax"}),
        inputs=[1, 2, 3, 1, 5, 3, 0, 0, 1, 7, 7, 0],
        result=[2, 1, 2, 0],
        formal="cvm_runtime.undefined",
    ),
    Case(
        "argmax wide values",
        "more",
        "The library compares the lowest bytes, of which that of 256 is 0. Here the numbers are compared, under cvm-1 "
        "the bytes.",
        _text(_relu((1, 2), 16) | {"postprocess": "argmax"}),
        inputs=[256, 1],
        result=[0],
        formal=[1],
    ),
    Case(
        "left shift cpu",
        "more",
        "Their CPU backend fails on every left shift. Here it is what FORMAL computes.",
        _text(
            document(Variable("data", (2,)), Op("cvm_left_shift", [0], [(2,)], {"precision": "16", "shift_bit": "2"}))
        ),
        inputs=[1, -2],
        result=[4, -8],
    ),
    Case(
        "where precision hole -> conv cpu/formal differ",
        "stricter",
        "where has the precision of its condition there, so that numbers of 32 bits enter a convolution, which the two "
        "backends compute differently. Here it has that of what is selected, and the convolution is refused; under "
        "cvm-1 it is what FORMAL computes.",
        _text(
            document(
                Variable("data", (1, 1, 2, 2), 1),
                Variable("a", (1, 1, 2, 2)),
                Variable("b", (1, 1, 2, 2), 32),
                Variable("w", (1, 1, 1, 1)),
                Op("where", [0, 1, 2], [(1, 1, 2, 2)]),
                Op("conv2d", [4, 3], [(1, 1, 2, 2)], {"channels": "1", "kernel_size": "(1, 1)", "use_bias": "False"}),
            )
        ),
        parameters(
            ("a", np.ones((1, 1, 2, 2), INT8)),
            ("b", np.array([1000, -5000, 1000, -5000], np.int32).reshape(1, 1, 2, 2)),
            ("w", np.ones((1, 1, 1, 1), INT8)),
        ),
        [5, 5, 5, 5],
        error=("Invalid", "cvm_runtime.precision"),
        formal=[1000, -5000, 1000, -5000],
    ),
    Case(
        "conv weight kernel mismatch graph",
        "stricter",
        "The library does not look at the weight's shape, and reads beyond the weight.",
        _text(
            document(
                Variable("data", (1, 1, 4, 4)),
                Variable("w", (1, 1, 1, 1)),
                Op("conv2d", [0, 1], [(1, 1, 2, 2)], {"channels": "1", "kernel_size": "(3, 3)", "use_bias": "False"}),
            )
        ),
        parameters(("w", np.ones((1, 1, 1, 1), INT8))),
        [0] * 16,
        error=("Invalid", "cvm_runtime.operands"),
    ),
    Case(
        "gas nms / gvc",
        "same",
        "Their own weights, for either: 1 for each count, 20 for each number of a suppression.",
        _text(document(Variable("data", ROWS, 16), Op("get_valid_counts", [0], [(1,), ROWS]), heads=[(1, 1)])),
    ),
    Case(
        "gas limit",
        "same",
        "206 410 088 448 is within the limits.",
        _text(document(Variable("data", (4096, 4096)), Variable("w", (4096, 4096)), DENSE)),
    ),
    Case(
        "gas limit exceeded",
        "same",
        "Gas is refused when it is asked for; the model is valid.",
        _text(document(Variable("data", (16384, 16384)), Variable("w", (16384, 16384)), HUGE)),
    ),
    Case(
        "attrs as ints not strings",
        "same",
        "Attributes are strings.",
        _text(document(Variable("data", (2,)), Op("cvm_clip", [0], [(2,)], {"precision": 4}))),  # type: ignore[dict-item]
        error=("Malformed", "cvm_runtime.structure"),
    ),
    Case(
        "is_sign attr",
        "same",
        "It is read and ignored.",
        _text(document(Variable("data", (2,)), Op("cvm_clip", [0], [(2,)], {"precision": "4", "is_sign": "False"}))),
        inputs=[-99, 99],
        result=[-7, 7],
    ),
    Case(
        "device 1 gpu",
        "more",
        "There is no device to choose here; their build had none.",
        _text(_relu()),
        inputs=[1, -1, 2, -2, 3, -3],
        result=[1, 0, 2, 0, 3, 0],
    ),
)
