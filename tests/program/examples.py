"""Programs for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.program import (
    Constant,
    Exactness,
    Input,
    Node,
    Output,
    Program,
    ProgramBuilder,
    Provenance,
    State,
    Value,
)
from cvm.quantization.quantizer import LinearQuantizer

SHAPE = (1, 2, 3)


def example() -> Program:
    """The worked example of docs/commitments.md: one of everything that a program has."""
    x = Input(Value("x", SHAPE, 0, 15), LinearQuantizer((Fraction(1, 10),), (Fraction(0),), 0, 15))
    per_channel = LinearQuantizer(
        (Fraction(1, 10), Fraction(1, 5)), (Fraction(0), Fraction(-1, 2)), -128, 127, 1, "half_even"
    )
    return Program(
        inputs=(x,),
        constants=(
            Constant.of("bias", np.arange(-3, 3).reshape(SHAPE)),
            Constant.of("nothing", np.zeros(SHAPE, np.int8)),
        ),
        state=(State(Value("memory", SHAPE, -100, 100), "nothing", "sum"),),
        nodes=(
            Node("elemwise_add", ("x", "bias"), (Value("shifted", SHAPE, -3, 17),)),
            Node("elemwise_add", ("shifted", "memory"), (Value("raw", SHAPE, -103, 117),)),
            Node("clip", ("raw",), (Value("sum", SHAPE, -100, 100),), {"a_min": -100, "a_max": 100}),
        ),
        outputs=(Output("y", "sum", per_channel),),
        provenance=Provenance("cvm 0.1", "example.nnef", "", (Exactness("y", "sum", Fraction(0), (-103, 117)),)),
    )


def with_node(program: Program, index: int, node: Node) -> Program:
    """``program`` with one node replaced."""
    return replace(program, nodes=(*program.nodes[:index], node, *program.nodes[index + 1 :]))


def with_constant(program: Program, index: int, constant: Constant) -> Program:
    """``program`` with one constant replaced."""
    return replace(program, constants=(*program.constants[:index], constant, *program.constants[index + 1 :]))


_extents = st.integers(1, 4)
_shapes = st.lists(_extents, min_size=1, max_size=4).map(tuple)
_int32 = st.one_of(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(-200, 200))

_ATTRIBUTES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "clip": st.tuples(_int32, _int32).map(lambda ends: {"a_min": min(ends), "a_max": max(ends)}),
    "cvm_clip": st.fixed_dictionaries({"precision": st.integers(1, 32)}),
    "cvm_right_shift": st.fixed_dictionaries({"precision": st.integers(1, 32), "shift_bit": st.integers(1, 32)}),
    "cvm_left_shift": st.fixed_dictionaries({"precision": st.integers(1, 32), "shift_bit": st.integers(1, 32)}),
    "sum": st.fixed_dictionaries({"axes": st.just((0,)), "keepdims": st.booleans()}),
    "max": st.fixed_dictionaries({"axes": st.just(()), "exclude": st.booleans()}),
    "repeat": st.fixed_dictionaries({"axis": st.just(0), "repeats": st.integers(1, 3)}),
    "expand_dims": st.fixed_dictionaries({"axis": st.just(0), "num_newaxis": st.just(1)}),
}
"""Attributes of some ops that take tensors of any shape."""

_OPERANDS = {
    "abs": 1, "negative": 1, "cvm_precision": 1, "relu": 1, "flatten": 1, "clip": 1, "cvm_clip": 1,
    "cvm_right_shift": 1, "cvm_left_shift": 1, "sum": 1, "max": 1, "repeat": 1, "expand_dims": 1,
    "elemwise_add": 2, "elemwise_sub": 2, "broadcast_add": 2, "broadcast_sub": 2, "broadcast_mul": 2,
    "broadcast_div": 2, "broadcast_max": 2, "broadcast_greater": 2,
}  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Valid programs over tensors of one shape or what the ops make of it."""
    builder = ProgramBuilder()
    shape = draw(_shapes)
    known = []
    for index in range(draw(st.integers(0, 2))):
        lo, hi = sorted((draw(_int32), draw(_int32)))
        known.append(builder.input(f"in {index}", shape, lo, hi))
    size = int(np.prod(shape))
    constant = draw(st.lists(_int32, min_size=size, max_size=size))
    known.append(builder.constant(np.array(constant).reshape(shape)))
    builder.parameter(draw(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=3)))
    if draw(st.booleans()):
        known.append(builder.state("state", known[-1], -(2**31) + 1, 2**31 - 1))
        builder.update("state", draw(st.sampled_from(known)) if draw(st.booleans()) else known[-1])
    for _ in range(draw(st.integers(0, 8))):
        op = draw(st.sampled_from(sorted(_OPERANDS)))
        inputs = [draw(st.sampled_from(known)) for _ in range(_OPERANDS[op])]
        attributes = draw(_ATTRIBUTES.get(op, st.just({})))
        try:
            known += builder.add(op, inputs, attributes, draw(st.sampled_from([None, "t", "größe/1"])))
        except Invalid:
            continue
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
    outputs = [Output(f"out {index}", name) for index, name in enumerate(chosen)]
    return builder.build(outputs, Provenance(tool=draw(st.text(max_size=5)).encode("utf-8", "ignore").decode()))
