"""Every op that is declared can be built, stored, verified and proven, with its attributes in canonical form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cvm import ops
from cvm.errors import CvmError, Invalid
from cvm.ops.specification import STATEMENTS
from cvm.program import Output, ProgramBuilder, decode, encode, verify
from tests.program.mutations import mutations

PLANE, MATRIX = (1, 2, 4, 4), (3, 4)

CALLS = {
    "sum": ([PLANE], {"axes": (2, 3)}),
    "max": ([PLANE], {"axes": (1,), "keepdims": True}),
    "broadcast_add": ([PLANE, (2, 1, 1)], {}),
    "broadcast_sub": ([PLANE, (4,)], {}),
    "broadcast_mul": ([PLANE, (1,)], {}),
    "broadcast_div": ([PLANE, (1,)], {}),
    "broadcast_max": ([PLANE, PLANE], {}),
    "conv2d": ([PLANE, (3, 2, 3, 3), (3,)], {"padding": (1, 1)}),
    "dense": ([MATRIX, (5, 4)], {}),
    "relu": ([PLANE], {}),
    "max_pool2d": ([PLANE], {"pool_size": (2, 2), "strides": (2, 2)}),
    "upsampling": ([PLANE], {"scale": 2}),
    "abs": ([PLANE], {}),
    "cvm_precision": ([PLANE], {}),
    "elemwise_add": ([PLANE, PLANE], {}),
    "elemwise_sub": ([PLANE, PLANE], {}),
    "negative": ([PLANE], {}),
    "clip": ([PLANE], {"a_min": -2, "a_max": 3}),
    "cvm_clip": ([PLANE], {"precision": 3}),
    "cvm_right_shift": ([PLANE], {"precision": 8, "shift_bit": 2}),
    "cvm_left_shift": ([PLANE], {"precision": 8, "shift_bit": 2}),
    "repeat": ([MATRIX], {"axis": 1, "repeats": 2}),
    "tile": ([MATRIX], {"reps": [2, 2]}),
    "flatten": ([PLANE], {}),
    "concatenate": ([MATRIX, MATRIX, MATRIX], {"axis": 0}),
    "transpose": ([MATRIX], {"axes": [1, 0]}),
    "slice": ([MATRIX], {"begin": (0, 1), "end": (2, 3)}),
    "slice_like": ([MATRIX, (2, 2)], {}),
    "take": ([MATRIX, (2,)], {}),
    "cvm_lut": ([MATRIX, (7,)], {}),
    "expand_dims": ([MATRIX], {"axis": 0}),
    "reshape": ([MATRIX], {"target_shape": (2, 6)}),
    "squeeze": ([PLANE], {"axes": (0,)}),
    "where": ([MATRIX, MATRIX, MATRIX], {}),
    "get_valid_count": ([(1, 4, 6)], {"score_threshold": 0}),
    "non_max_suppression": ([(1, 4, 6), (1,)], {"iou_threshold": 50}),
    "requantize": ([PLANE, (1,), (2, 1, 1), (1,)], {"rounding": "half_even", "lo": -128, "hi": 127}),
    "broadcast_greater": ([PLANE, (1,)], {}),
    "matmul": ([PLANE, (1, 1, 4, 3)], {"transpose_a": True}),
    "quotient": (
        [PLANE, (2, 1, 1), (4,), (1,), (2, 1, 1), (1,), (1,), (1,)],
        {"terms": 2, "rounding": "half_even", "lo": -128, "hi": 127},
    ),
    "normalize": (
        [PLANE, (2, 1, 1), (1,), (1,), (1,), (1,)],
        {"axes": (2, 3), "statistic": "variance", "rounding": "half_up", "lo": -128, "hi": 127},
    ),
    "update_slice": ([MATRIX, (3, 2), (1,)], {"axis": 1}),
}
"""Input shapes and attributes of one call of an op; the other ops are used as in their example."""
for name in ops.REGISTRY.keys() - CALLS.keys():
    CALLS[name] = ([item.shape for item in STATEMENTS[name].example.inputs], dict(STATEMENTS[name].example.attributes))


def build(op: str):
    """A program of one op; each parameter constant holds ones."""
    shapes, attributes = CALLS[op]
    builder = ProgramBuilder()
    kinds = ops.get(op).input_kinds(len(shapes))
    names = [
        builder.input(f"x{index}", shape, 0, 4) if kind == "tensor" else builder.parameter(np.ones(shape, np.int64))
        for index, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
    ]
    results = builder.add(op, names, attributes)
    return builder, builder.build([Output(f"out {name}", name) for name in results])


@pytest.mark.parametrize("op", CALLS)
def test_a_program_of_the_op_survives_a_round_trip(op):
    builder, program = build(op)
    again = decode(encode(program))
    assert again.nodes == program.nodes
    assert again.digest == program.digest
    verified = verify(again)
    assert verified.gas == builder.gas > 0
    for value in program.nodes[0].outputs:
        assert verified.ranges[value.name].hull() == (value.lo, value.hi)
        assert verified.ranges[value.name].rank == len(value.shape)


@pytest.mark.parametrize("op", CALLS)
def test_attributes_are_refused_unless_complete(op):
    _, program = build(op)
    node = program.nodes[0]
    for name in node.attributes:
        rest = {key: value for key, value in node.attributes.items() if key != name}
        with pytest.raises(Invalid) as caught:
            verify(replace(program, nodes=(replace(node, attributes=rest),)))
        assert caught.value.code in ("program.attributes", f"ops.{op}.attribute.{name}")


@pytest.mark.parametrize("op", CALLS)
def test_every_input_must_be_of_its_kind(op):
    shapes, attributes = CALLS[op]
    kinds = ops.get(op).input_kinds(len(shapes))
    for wrong in range(len(shapes)):
        builder = ProgramBuilder()
        names = [
            builder.input(f"x{index}", shape, 0, 1)
            if (kind == "tensor") != (index == wrong)
            else builder.parameter(np.ones(shape, np.int64))
            for index, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        ]
        with pytest.raises(Invalid) as caught:
            builder.add(op, names, attributes)
        assert caught.value.code == "program.kind"
        assert caught.value.location.op == op


def test_the_rounding_of_requantize_is_in_the_digest():
    _, program = build("requantize")
    node = program.nodes[0]
    other = replace(node, attributes={**node.attributes, "rounding": "half_up"})
    assert replace(program, nodes=(other,)).digest != program.digest


@pytest.mark.parametrize("op", CALLS)
def test_a_changed_program_is_refused_as_one_of_ours_or_has_another_digest(op):
    _, program = build(op)
    refused = 0
    for path, other in mutations(program):
        try:
            verify(other)
        except CvmError:  # any other exception is a failure
            refused += 1
            continue
        assert (other.digest == program.digest) == path.startswith(".provenance"), path
    assert refused > 10
