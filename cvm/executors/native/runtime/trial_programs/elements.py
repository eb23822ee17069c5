"""Programs of the trial with ops that do not multiply matrices: by element, movements, windows, reductions, boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.executors.native.runtime.trial_programs.building import (
    SPANS,
    Applied,
    extreme_weights,
    program_of,
    stored_inputs,
)
from cvm.limits import INT32_MAX
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.program import Program

__all__ = ["bytes_in_words", "detections", "elementwise", "moved", "narrow", "pools", "reductions", "transposed"]


def elementwise() -> Program:
    """Ops by element on inputs in 32 bits, and look-ups in tables."""
    builder = ProgramBuilder()
    most = INT32_MAX
    x = builder.input("x", (3, 21), -most, most)
    y = builder.input("y", (1, 21), -(2**15), 2**15)
    z = builder.input("z", (3, 1), -(2**15), 2**15)
    codes = builder.input("codes", (1, 130), -9, 300)
    (bytes_,) = builder.add("clip", [builder.input("bytes", (3, 100), -500, 500)], {"a_min": -100, "a_max": 155})
    few, many = (builder.constant(np.arange(n) * 37 % 120 - 9) for n in (97, 31))
    (short,) = builder.add("slice", [bytes_], {"begin": (0, 7), "end": (3, 67), "strides": (1, 1)})
    table, longer = (builder.constant(extreme_weights(n, least=-most, largest=most)) for n in (200, 257))
    narrow_, words = (
        builder.constant(extreme_weights(n, least=-top, largest=top)) for n, top in ((256, 99), (257, 2**14))
    )
    applied: list[Applied] = [
        ("broadcast_div", [x, z], {}), ("broadcast_div", [y, z], {}),
        ("broadcast_max", [x, y], {}), ("broadcast_greater", [x, y], {}),
        ("broadcast_mul", [y, z], {}), ("broadcast_sub", [y, z], {}), ("abs", [x], {}), ("negative", [x], {}),
        ("cvm_precision", [x], {}), ("cvm_clip", [x], {"precision": 9}), ("relu", [x], {}),
        ("cvm_right_shift", [x], {"precision": 31, "shift_bit": 3}),
        ("cvm_left_shift", [x], {"precision": 31, "shift_bit": 30}), ("cvm_lut", [table, y], {}),
        ("take", [y, z], {"axis": 1}), ("cvm_lut", [longer, codes], {}), ("cvm_lut", [table, codes], {}),
        ("cvm_lut", [narrow_, codes], {}), ("cvm_lut", [words, codes], {}),
        ("take", [bytes_, few], {"axis": 1}), ("take", [short, many], {"axis": 1}),
    ]  # fmt: skip
    return program_of(builder, applied)


def narrow() -> Program:
    """Ops by element on inputs that lie in 8 and 16 bits."""
    builder = ProgramBuilder()
    applied: list[Applied] = []
    codes, positive, words, _ = stored_inputs(builder, (3, 150), SPANS[:4])
    for x in (codes, positive, words):
        applied += [
            ("abs", [x], {}), ("negative", [x], {}), ("relu", [x], {}), ("cvm_precision", [x], {}),
            ("clip", [x], {"a_min": -99, "a_max": 77}), ("cvm_right_shift", [x], {"precision": 7, "shift_bit": 2}),
            ("cvm_left_shift", [x], {"precision": 9, "shift_bit": 2}), ("broadcast_max", [x, codes], {}),
            ("broadcast_greater", [x, codes], {}), ("where", [positive, x, codes], {}),
            ("broadcast_mul", [x, codes], {}), ("broadcast_add", [x, codes], {}), ("broadcast_sub", [codes, x], {}),
        ]  # fmt: skip
    return program_of(builder, applied)


def bytes_in_words() -> Program:
    """Requantizations from bytes to bytes: one multiplier for all, one for each row, and one for each column.

    The offsets let results pass both ends of their interval, and the operands are all bytes.
    """
    builder = ProgramBuilder()
    applied: list[Applied] = []
    for x, (lo, hi) in zip(stored_inputs(builder, (3, 250), SPANS[:2]), ((-128, 127), (5, 200)), strict=True):
        for shape in ((1, 1), (3, 1), (1, 250)):
            number = np.arange(shape[0] * shape[1]).reshape(shape)
            multipliers = 2**29 + number * 1_000_003 % 2**29
            offsets = (number % 61 - 30) * 2**30 + number * 7919
            numbers = [builder.parameter(array) for array in (multipliers, offsets, np.full((1, 1), 30))]
            applied.append(("requantize", [x, *numbers], {"rounding": "half_up", "lo": lo, "hi": hi}))
    return program_of(builder, applied)


def transposed() -> Program:
    """Transposes of inputs in every format."""
    builder = ProgramBuilder()
    applied: list[Applied] = []
    for x in stored_inputs(builder, (75, 37), SPANS):
        (turned,) = builder.add("transpose", [x])
        beside = builder.constant(np.zeros((1, 75), np.int32))
        applied += [("concatenate", [turned, beside], {"axis": 0}), ("negative", [turned], {})]
    return program_of(builder, applied)


def moved() -> Program:
    """Ops that move elements."""
    builder = ProgramBuilder()
    x = builder.input("x", (3, 21), -INT32_MAX, INT32_MAX)
    y = builder.input("y", (1, 21), -(2**15), 2**15)
    z = builder.input("z", (2, 19, 9, 9), -128, 127)
    (wider,) = builder.add("max_pool2d", [z], {"pool_size": (1, 1), "strides": (1, 1), "padding": (0, 0)})
    return program_of(builder, [
        ("transpose", [x], {}), ("tile", [y], {"reps": (2, 3)}), ("concatenate", [x, x], {"axis": 1}),
        ("slice", [x], {"begin": (2, 20), "end": (-4, 1), "strides": (-1, -3)}),
        ("reshape", [x], {"target_shape": (21, 3)}),
        ("transpose", [wider], {"axes": (0, 2, 3, 1)}),
    ])  # fmt: skip


def pools() -> Program:
    """Maxima over windows, of channels that lie apart and of channels that lie side by side."""
    builder = ProgramBuilder()
    x = builder.input("x", (2, 19, 9, 9), -128, 127)
    y = builder.input("y", (2, 48, 9, 9), -128, 127)
    (same,) = builder.add("conv2d", [y, builder.constant(np.eye(48, dtype=np.int32).reshape(48, 48, 1, 1))], {})
    (words,) = builder.add("clip", [same], {"a_min": -128, "a_max": 127})  # channels beside each other, in bytes
    pool = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True}
    return program_of(builder, [("max_pool2d", [x], pool), ("max_pool2d", [words], pool)])


def reductions(op: str, spans: Sequence[tuple[int, int]]) -> Program:
    """Sums or maxima of tensors that lie in the formats of intervals."""
    builder = ProgramBuilder()
    applied: list[Applied] = []
    for source in stored_inputs(builder, (19, 300), spans):
        applied += [(op, [source], {"axes": axes, "keepdims": False}) for axes in ((0,), (1,))]
    lo, hi = spans[0]
    (maps,) = builder.add("clip", [builder.input("maps", (2, 19, 9, 9), lo, hi)], {"a_min": lo, "a_max": hi})
    applied += [(op, [maps], {"axes": axes, "keepdims": True}) for axes in ((2, 3), (1,), (0, 2), (0, 3), ())]
    return program_of(builder, applied)


def detections() -> Program:
    """Boxes with small and with large coordinates: those that count, and those that are kept."""
    builder = ProgramBuilder()
    boxes = builder.input("boxes", (2, 21, 6), -200, 200)
    outputs: list[Output] = []
    count, rows = builder.add("get_valid_count", [boxes], {"score_threshold": 10})
    outputs += [Output("count", count), Output("rows", rows)]
    attributes = {"iou_threshold": 30, "max_output_size": 7, "force_suppress": True, "top_k": 15}
    outputs.append(Output("kept", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    (wide,) = builder.add("broadcast_mul", [boxes, builder.constant(np.full((1, 1, 1), 2**22))])
    count, rows = builder.add("get_valid_count", [wide], {"score_threshold": -(2**29)})
    attributes = {"iou_threshold": 5, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    outputs.append(Output("wide", builder.add("non_max_suppression", [rows, count], attributes)[0]))
    return builder.build(outputs)
