"""Models with one unusual spelling each: what the C++ library's readers of JSON, attributes and parameters make of
them, and what is made of them here.

``../shared/findings/cvm_runtime`` has such models as files; `FILES` rebuilds each under the name of its files.
`FURTHER` holds spellings that are listed there as texts only. The second table of docs/cvm-runtime-loader.md is
written from both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .loader_cases import Case, Kind
from .models import Op, Variable, document, parameters

_WEIGHT = parameters(("w", np.array([1, 2, 3], np.int8)))
_MALFORMED_JSON = ("Malformed", "cvm_runtime.json")
_WRONG_ATTRIBUTE = ("Invalid", "cvm_runtime.attribute")
_CONTROL = "A reader of standard JSON refuses control characters in strings, so the text would mean two things."
_MARKED = "The format says 0 there; another value is damage or another format."


def _relu(**changes: Any) -> Any:
    return document(Variable("data", (3,)), Op("relu", [0], [(3,)])) | changes


def _unary(func: str, shape: Sequence[int], result: Sequence[int], **attributes: str) -> str:
    return json.dumps(document(Variable("data", shape), Op(func, [0], [result], attributes)))


def _respelled(before: str, after: str, **changes: Any) -> str:
    """The text of a relu in which one part, which stands there once, is spelled in another way."""
    text = json.dumps(_relu(**changes), ensure_ascii=False)
    assert text.count(before) == 1, before
    return text.replace(before, after)


def _stored(number: int) -> str:
    return json.dumps(document(Variable("data", (3,)), Op("relu", [0], [(3,)]), storage=[0, number]))


def _taken(axis: str) -> str:
    return json.dumps(document(Variable("data", (3,)), Op("take", [0, 0], [(3,)], {"axis": axis})))


def _case(name: str, kind: Kind, why: str, text: str | bytes, **others: Any) -> Case:
    return Case(name, kind, why, text, **others)


_ADDED = json.dumps(
    document(Variable("data", (3,)), Variable("w", (3,)), Op("elemwise_add", [0, 1], [(3,)])), ensure_ascii=False
)
_SLICED = json.dumps(
    document(Variable("data", (3, 3)), Variable("w", (2, 2)), Op("slice_like", [0, 1], [(3, 2)], {"axis": "(1,1)"}))
)
_COUNTED = json.dumps(
    document(
        Variable("data", (1, 2, 6)),
        Op("get_valid_counts", [0], [(1,), (1, 2, 6)], {"score_threshold": "-2147483648"}),
        heads=[(1, 1)],
    )
)
_TILED = {"inputs": [1, 2, 3, 4, 5, 6], "result": [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]}
_TURNED = {"inputs": [-1, 0, 2], "result": [0, 0, 2]}

FILES: Mapping[str, Case] = {
    "X_axis_1L": _case(
        "axis 0L of take",
        "same",
        "An L may follow an optional integer at once.",
        _taken("0L"),
        inputs=[2, 0, 1],
        result=[1, 2, 0],
    ),
    "X_int_12_digits": _case(
        "an integer of 12 digits",
        "same",
        "Leading zeros do not count.",
        _unary("repeat", (2, 3), (4, 3), repeats="000000000002", axis="0"),
        inputs=[1, 2, 3, 4, 5, 6],
        result=[1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6],
    ),
    "X_key_twice": _case(
        "a key twice",
        "stricter",
        "The last one counts there; readers of JSON differ in that: the text would mean two things.",
        _respelled('"heads": [[1, 0, 0]]', '"heads": [[0, 0, 0]], "heads": [[1, 0, 0]]'),
        error=_MALFORMED_JSON,
    ),
    "X_mixed_brackets": _case(
        "tuple [2,1)",
        "same",
        "Brackets of a tuple need not match.",
        _unary("tile", (2, 3), (4, 3), reps="[2,1)"),
        **_TILED,
    ),
    "X_number_plus": _case(
        "number +3",
        "stricter",
        "It is no number of JSON.",
        _respelled("[[3], [3]]", "[[+3], [3]]"),
        error=_MALFORMED_JSON,
    ),
    "X_number_zero": _case(
        "number 03",
        "stricter",
        "It is no number of JSON.",
        _respelled("[[3], [3]]", "[[03], [3]]"),
        error=_MALFORMED_JSON,
    ),
    "X_params_cut": _case(
        "params without their last byte",
        "stricter",
        "The library takes what its buffer held before for the missing bytes: the result depends on chance.",
        _ADDED,
        params=_WEIGHT[:-1],
        error=("Malformed", "cvm_runtime.params.truncated"),
    ),
    "X_params_reserved": _case(
        "params with a reserved word of the list",
        "stricter",
        _MARKED,
        _ADDED,
        params=_WEIGHT[:8] + b"\1" + _WEIGHT[9:],
        error=("Malformed", "cvm_runtime.params.reserved"),
    ),
    "X_postprocess_foo": _case(
        "postprocess foo",
        "stricter",
        "Whoever wrote it meant something that would be left out. The library does nothing for it, nor does cvm-1.",
        json.dumps(_relu(postprocess="foo")),
        inputs=[-1, 0, 2],
        error=("Unsupported", "cvm_runtime.postprocess"),
        formal=[0, 0, 2],
    ),
    "X_row_ptr_v110": _case(
        "a wrong node_row_ptr in version cvm_1.1.0",
        "stricter",
        "The library computes it again, and reads the given one before: a wrong one is damage.",
        json.dumps(_relu(version="cvm_1.1.0", node_row_ptr=[0, 1, 2, 99])),
        error=("Invalid", "cvm_runtime.index"),
    ),
    "X_score_threshold_int_min": _case(
        "score_threshold -2^31",
        "same",
        "Every score is above it. No op of cvm has that threshold; ops that give the same stand for it.",
        _COUNTED,
        inputs=[0, -127, 1, 2, 3, 4, 1, 127, 5, 6, 7, 8],
        result=[0, -127, 1, 2, 3, 4, 1, 127, 5, 6, 7, 8],
    ),
    "X_slice_like_axis_twice": _case(
        "axis (1,1) of slice_like",
        "same",
        "An axis may be named twice.",
        _SLICED,
        params=parameters(("w", np.zeros((2, 2), np.int8))),
        inputs=[1, 2, 3, 4, 5, 6, 7, 8, 9],
        result=[1, 2, 4, 5, 7, 8],
    ),
    "X_space_before_L": _case(
        "tuple (2 L,1)",
        "same",
        "Spaces may stand before the L of an item.",
        _unary("tile", (2, 3), (4, 3), reps="(2 L,1)"),
        **_TILED,
    ),
    "X_text_behind": _case(
        "} behind the text",
        "stricter",
        "The library stops reading at the end of the object. A text with more in it is damaged, or is two texts.",
        json.dumps(_relu()) + "}",
        error=_MALFORMED_JSON,
    ),
    "attribute_name_4_underscores": _case(
        "attribute ____",
        "same",
        "Names that are ignored have something between two underscores and two underscores.",
        _unary("max", (2, 3), (2,), axis="(1,)", ____="1"),
        error=_WRONG_ATTRIBUTE,
    ),
    "bool_space": _case(
        "a logical value with a space before it",
        "same",
        "No space stands beside a logical value.",
        _unary("max", (2, 3), (2,), axis="(1,)", keepdims=" 0"),
        error=_WRONG_ATTRIBUTE,
    ),
    "entry_version_2_32": _case(
        "version 2^32 of an entry",
        "same",
        "It has 32 bits, although nothing depends on it.",
        json.dumps(_relu(heads=[[1, 0, 2**32]])),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    "none_space": _case(
        "None with a space before it",
        "same",
        "No space stands before None, though one may stand behind it.",
        _taken(" None"),
        error=_WRONG_ATTRIBUTE,
    ),
    "storage_id_2_31": _case(
        "storage_id 2^31",
        "same",
        "A number of storage has 31 bits.",
        _stored(2**31),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    "storage_id_2_31_less_1": _case(
        "storage_id 2^31 - 1",
        "more",
        "The library makes an array for every number up to the largest, here some 34 GB of tables alone, so that the "
        "machine's memory decides. Here a number only says what shares its storage.",
        _stored(2**31 - 1),
        **_TURNED,
    ),
    "tuple_L_space": _case(
        "tuple (2L ,1)",
        "same",
        "A comma or a bracket follows an L at once.",
        _unary("tile", (2, 3), (4, 3), reps="(2L ,1)"),
        error=_WRONG_ATTRIBUTE,
    ),
    "tuple_bare_L": _case(
        "tuple 2L",
        "same",
        "A tuple without brackets has no L.",
        _unary("tile", (2, 3), (2, 6), reps="2L"),
        error=_WRONG_ATTRIBUTE,
    ),
    "tuple_bare_plus": _case(
        "tuple +2",
        "same",
        "A tuple without brackets begins with a digit or a minus sign.",
        _unary("tile", (2, 3), (2, 6), reps="+2"),
        error=_WRONG_ATTRIBUTE,
    ),
}
"""The models of ../shared/findings/cvm_runtime by the names of their files."""

_ARRAY = _WEIGHT.index((0xDD5E40F096B4A13F).to_bytes(8, "little"))
"""Where the first array of the parameters begins."""

FURTHER = (
    _case(
        "a vertical tab before a number",
        "stricter",
        "It is no space of JSON.",
        _respelled("[[3], [3]]", "[[\v3], [3]]"),
        error=_MALFORMED_JSON,
    ),
    _case(
        "a form feed behind a number",
        "stricter",
        "It is no space of JSON.",
        _respelled("[[3], [3]]", "[[3\f], [3]]"),
        error=_MALFORMED_JSON,
    ),
    _case("a tab in a string", "stricter", _CONTROL, _respelled('"relu_1"', '"relu\t1"'), error=_MALFORMED_JSON),
    _case("byte 1 in a string", "stricter", _CONTROL, _respelled('"relu_1"', '"\x01"'), error=_MALFORMED_JSON),
    _case(
        "bytes in a string that are not UTF-8",
        "stricter",
        "A text of JSON is UTF-8. The library copies the bytes.",
        _respelled('"relu_1"', '"relu_1?"').encode("utf-8").replace(b"?", b"\xed\xa0\x80"),
        error=_MALFORMED_JSON,
    ),
    _case(
        "a key of a node twice",
        "stricter",
        "As above, for every object.",
        _respelled('"func_name": "relu"', '"func_name": "relu", "func_name": "negative"'),
        error=_MALFORMED_JSON,
    ),
    _case(
        "version twice",
        "stricter",
        "As above.",
        _respelled('"nodes"', '"version": "cvm_1.0.0", "version": "cvm_1.1.0", "nodes"'),
        error=_MALFORMED_JSON,
    ),
    *(
        _case(
            f"{name} behind the text",
            "stricter",
            "As above: whatever stands there.",
            json.dumps(_relu()) + behind,
            error=_MALFORMED_JSON,
        )
        for name, behind in (("x", "x"), ("{}", "{}"), ("byte 0", "\x00"), ("a comma", ","))
    ),
    _case(
        "text behind the attributes of an op",
        "stricter",
        "As above.",
        _respelled('["{}", "{}"]', '["{}", "{} x"]'),
        error=_MALFORMED_JSON,
    ),
    _case(
        "a head of node -(2^32)",
        "same",
        "The number of a node has 32 bits.",
        json.dumps(_relu(heads=[[-(2**32), 0, 0]])),
        error=("Malformed", "cvm_runtime.structure"),
    ),
    _case(
        "a head of node -(2^32 - 1)",
        "stricter",
        "The library counts from 2^32, which makes it node 1. No writer means that.",
        json.dumps(_relu(heads=[[-(2**32 - 1), 0, 0]])),
        error=("Invalid", "cvm_runtime.order"),
    ),
    _case(
        "a head of output 2^32 - 1",
        "stricter",
        "The library adds modulo 2^32 and takes the entry before the node's. No writer means that.",
        json.dumps(_relu(heads=[[1, 2**32 - 1, 0]])),
        error=("Invalid", "cvm_runtime.order"),
    ),
    _case(
        "postprocess argmax with a space before it",
        "stricter",
        "It is not the name, so that the library does nothing.",
        json.dumps(_relu(postprocess=" argmax")),
        inputs=[-1, 0, 2],
        error=("Unsupported", "cvm_runtime.postprocess"),
        formal=[0, 0, 2],
    ),
    _case(
        "postprocess argmax with a line end behind it",
        "stricter",
        "As above.",
        json.dumps(_relu(postprocess="argmax\n")),
        inputs=[-1, 0, 2],
        error=("Unsupported", "cvm_runtime.postprocess"),
        formal=[0, 0, 2],
    ),
    _case(
        "postprocess of 40 letters",
        "stricter",
        "As above.",
        json.dumps(_relu(postprocess="a" * 40)),
        inputs=[-1, 0, 2],
        error=("Unsupported", "cvm_runtime.postprocess"),
        formal=[0, 0, 2],
    ),
    _case(
        "params without their last two bytes",
        "stricter",
        "As for one byte; the library refuses when three are missing.",
        _ADDED,
        params=_WEIGHT[:-2],
        error=("Malformed", "cvm_runtime.params.truncated"),
    ),
    _case(
        "params with a reserved word of an array",
        "stricter",
        _MARKED,
        _ADDED,
        params=_WEIGHT[: _ARRAY + 8] + b"\1" + _WEIGHT[_ARRAY + 9 :],
        error=("Malformed", "cvm_runtime.params.reserved"),
    ),
    _case(
        "params of another device",
        "stricter",
        "A file holds the arrays of a CPU, device type 1. The library does not look at the type.",
        _ADDED,
        params=_WEIGHT[: _ARRAY + 16] + b"\2" + _WEIGHT[_ARRAY + 17 :],
        error=("Invalid", "cvm_runtime.params.device"),
    ),
)
"""Spellings that stand in the lists of texts only."""

READER_CASES = (*FILES.values(), *FURTHER)
