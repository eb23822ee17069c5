"""Bytes in and out, costs, and storage plans."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from cvm.errors import CvmError, LimitExceeded
from cvm.frontends.cvm_runtime import read_model
from cvm.frontends.cvm_runtime.storage import planned

from .models import Op, Variable, codes, document, given, loaded


def heads(*shapes: tuple[int, ...], precision: int = 8, postprocess: str = "") -> Any:
    """A model whose heads are reshapes of its input."""
    size = math.prod(shapes[0])
    nodes = [Variable("data", (size,), precision)]
    nodes += [Op("reshape", [0], [shape], {"shape": str(shape)}) for shape in shapes]
    made = document(*nodes, heads=list(range(1, len(nodes))))
    return made | {"postprocess": postprocess}


@pytest.mark.parametrize("precision", range(1, 33))
def test_the_size_of_elements_and_the_clamping_follow_the_precision(precision: int) -> None:
    imported = loaded(document(Variable("data", (5,), precision), Op("negative", [0], [(5,)])))
    interface = imported.model.interface
    assert interface.input_size == interface.output_size == (1 if precision <= 8 else 4)
    largest = 2 ** (8 * interface.input_size - 1)
    x = [-largest, largest - 1, 0, 1, -1]
    bound = 2 ** (precision - 1) - 1
    assert codes(imported, x) == [-max(-bound, min(bound, value)) for value in x]


def test_four_bytes_are_big_endian_outside_of_the_library() -> None:
    interface = loaded(document(Variable("data", (2,), 16), Op("negative", [0], [(2,)]))).model.interface
    assert interface.decode(bytes([0, 0, 1, 2, 255, 255, 255, 255]), "big").tolist() == [258, -1]
    assert interface.encode([np.array([258, -1])], "big") == bytes([0, 0, 1, 2, 255, 255, 255, 255])
    assert interface.decode(bytes([2, 1, 0, 0, 255, 255, 255, 255])).tolist() == [258, -1]


def test_several_heads_are_joined_row_by_row() -> None:
    imported = loaded(heads((2, 3), (2, 1, 3), (1, 2, 3)))
    assert codes(imported, [1, 2, 3, 4, 5, 6]) == [1, 2, 3] * 3 + [4, 5, 6] * 3
    assert imported.model.interface.output_length == 18


def test_heads_with_other_numbers_of_rows_do_not_fit() -> None:
    for postprocess in ("", "detection"):
        with pytest.raises(CvmError) as caught:
            loaded(heads((2, 3), (3, 2), postprocess=postprocess))
        assert caught.value.code == "cvm_runtime.heads"


def test_a_detection_has_four_bytes_per_element() -> None:
    imported = loaded(heads((1, 2, 3), (1, 2, 3), postprocess="detection"))
    assert imported.model.interface.output_size == 4
    assert len(given(imported, bytes(6))) == imported.model.interface.output_length == 48


def test_heads_may_be_variables_and_the_same_one() -> None:
    made = document(Variable("data", (2,)), Op("relu", [0], [(2,)]), heads=[0, 1, 1])
    imported = loaded(made)
    assert codes(imported, [-128, 5]) == [-127, 5, 0, 5, 0, 5]
    assert len({item.name for item in imported.program.outputs}) == 3


def test_names_of_nodes_may_be_anything() -> None:
    made = document(
        Variable("data", (2,)), Op("relu", [0], [(2,)]), Op("negative", [1], [(2,)]), Op("abs", [2], [(2,)])
    )
    for place, name in ((1, ""), (2, "data"), (3, "x\u202ey")):
        made["nodes"][place]["name"] = name
    imported = loaded(made)
    assert codes(imported, [-3, 5]) == [0, 5]
    assert len(set(imported.program.value_names())) == 5


def test_storage_beyond_the_limit_is_refused_when_loading() -> None:
    shape = (2**15, 2**15)
    nodes = [Variable("data", shape), Op("relu", [0], [shape]), Op("abs", [1], [shape])]
    assert read_model(json.dumps(document(*nodes, storage=[0, 0, 0]))).metering.storage == 2**32
    with pytest.raises(LimitExceeded) as caught:
        read_model(json.dumps(document(*nodes)))
    assert caught.value.code == "limit.cvm_runtime.storage"


def gas(*nodes: Variable | Op) -> int:
    return read_model(json.dumps(document(*nodes))).metering.ops


def test_ops_are_charged_by_their_weights() -> None:
    x, w, b = Variable("data", (1, 4, 5, 6)), Variable("w", (8, 2, 3, 2)), Variable("b", (8,), 16)
    options = {"channels": "8", "kernel_size": "(3,2)", "groups": "2"}
    out = (1, 8, 3, 5)
    assert gas(x, w, b, Op("conv2d", [0, 1, 2], [out], options)) == (2 * 3 * 2 * 3 + 1) * 120
    assert gas(x, w, Op("conv2d", [0, 1], [out], {**options, "use_bias": "0"})) == 2 * 3 * 2 * 3 * 120
    assert gas(x, Op("max_pool2d", [0], [(1, 4, 4, 4)], {"pool_size": "(2,3)"})) == 6 * 64
    assert gas(x, Op("sum", [0], [(1, 6)], {"axis": "(1,2)"})) == 20 * 6
    assert gas(x, Op("max", [0], [(1, 6)], {"axis": "(1,2)"})) == 6
    m, v, c = Variable("data", (3, 7)), Variable("w", (2, 7)), Variable("b", (2,))
    assert gas(m, v, c, Op("dense", [0, 1, 2], [(3, 2)], {"units": "2"})) == 22 * 6
    rows = Variable("data", (2, 5, 6), 16)
    assert gas(rows, Op("get_valid_counts", [0], [(2,), (2, 5, 6)])) == 2
    counts = Variable("n", (2,))
    assert gas(rows, counts, Op("non_max_suppression", [0, 1], [(2, 5, 6)])) == 40 * 60


@hypothesis_given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=12))
def test_a_storage_plan_never_overwrites_what_is_still_read(inputs: list[list[int]]) -> None:
    """Step i writes entry i + 1 and reads some entries before it; entry 0 is a variable."""
    sizes = [(1 + place % 3,) for place in range(len(inputs) + 1)]
    reads = [[number % (step + 1) for number in numbers] for step, numbers in enumerate(inputs)]
    writes = [[step + 1] for step in range(len(inputs))]
    heads = [len(inputs)]
    plan = planned(sizes, [*reads, heads], [*writes, []], [0])
    held = {plan[0]: 0}
    for read, (written,) in zip(reads, writes, strict=True):
        assert all(held[plan[number]] == number for number in read)
        assert plan[written] not in {plan[number] for number in [0, *read]}
        held[plan[written]] = written
    assert held[plan[heads[0]]] == heads[0]
