"""Programs of the trial with the ops of op-set 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.limits import INT32_MAX
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.program import Program

__all__ = ["matrices", "of_op_set_2"]


def matrices() -> Program:
    """Products of computed matrices in bytes, 16 and 32 bits, whose elements lie side by side in rows or in columns."""
    builder = ProgramBuilder()
    outputs: list[Output] = []
    for bits, ends, others in (
        (8, (-120, 135), (-128, 127)),
        (16, (0, 255), (-200, 200)),
        (32, (-(2**16), 9), (0, 99)),
    ):
        for transposed, columns in ((True, 21), (False, 37)):
            x = builder.input(f"x{len(outputs)}", (4, 5, 70), *ends)
            w = builder.input(f"w{len(outputs)}", (2, columns, 70) if transposed else (2, 70, columns), *others)
            (result,) = builder.add("matmul", [x, w], {"transpose_b": transposed})
            outputs.append(Output(f"{bits} bits, {columns} columns", result))
    for transposed in (True, False):
        x = builder.input(f"row{transposed}", (4, 1, 96), -120, 135)
        w = builder.input(f"of{transposed}", (2, 96, 96), -128, 127)
        (w,) = builder.add("clip", [w], {"a_min": -128, "a_max": 127})
        (result,) = builder.add("matmul", [x, w], {"transpose_b": transposed})
        outputs.append(Output(f"one row, {transposed}", result))
    return builder.build(outputs)


def of_op_set_2() -> Program:
    """Products, quotients in 64, 128 and 256 bits, rows of every statistic, and an updated slice."""
    builder = ProgramBuilder()
    x = builder.input("x", (2, 3, 17), -(2**15), 2**15)
    y = builder.input("y", (2, 3, 1), 0, INT32_MAX)
    at = builder.input("at", (1,), -2, 20)
    outputs: list[Output] = []

    def enter(op: str, inputs: list[str], attributes: dict[str, Any]) -> str:
        (result,) = builder.add(op, inputs, attributes)
        outputs.append(Output(f"{op}_{len(outputs)}", result))
        return result

    def one(number: int) -> str:
        return builder.parameter(np.array([number], np.int64))

    def per_item(*numbers: int) -> str:
        return builder.parameter(np.resize(np.array(numbers, np.int64), 17))

    quotients = (
        (0, -128, 127, "half_up"),
        (40, -(2**15), 2**15, "half_even"),
        (62, -INT32_MAX, INT32_MAX, "toward_zero"),
        (62, 1 - 2**30, 2**30, "half_up"),
    )
    for bits, lo, hi, rounding in quotients:
        factors = [per_item(1 << bits, -3), one(1), one((1 << bits) - 1), one(1 << bits)]
        enter("quotient", [x, y, *factors], {"terms": 1, "rounding": rounding, "lo": lo, "hi": hi})
    for statistic, rounding in (("variance", "half_even"), ("mean_square", "half_up"), ("square_sum", "half_up")):
        parameters = [per_item(3 * 2**30, -(2**31)), per_item(2**29, -1, 0), per_item(2**24, 12345), one(77), one(5)]
        attributes = {"axes": (2,), "statistic": statistic, "shift": 20, "rounding": rounding, "lo": -128, "hi": 127}
        enter("normalize", [x, *parameters], attributes)
    updated = enter("update_slice", [x, enter("max", [x], {"axes": (2,), "keepdims": True}), at], {"axis": 2})
    small = enter("clip", [updated], {"a_min": -99, "a_max": 99})
    enter("matmul", [small, small], {"transpose_b": True})
    return builder.build(outputs)
