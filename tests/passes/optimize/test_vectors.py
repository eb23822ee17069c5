"""The shipped vectors: optimised programs give the answers that the vectors say."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors import create
from cvm.ops import REGISTRY
from cvm.passes.optimize.folding import WORK
from cvm.program import Output, Program, ProgramBuilder, decode, verify
from tests.passes.optimize.equality import assert_equal, optimized
from tests.spec_vectors.shipped import op_cases, program_cases

PROGRAMS = [case for case in program_cases() if case.verdict == "value"]


@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.id)
def test_programs(case) -> None:
    program = decode(case.program)
    feeds = [{name: np.array(tensor.array()) for name, tensor in run.inputs.items()} for run in case.runs]
    after = optimized(program)
    assert_equal(program, after, feeds)
    assert_equal(program, after, feeds, "numpy")


def program_of(case, op: str, constants: bool) -> tuple[Program, dict[str, np.ndarray]]:
    """One node, of inputs or of constants, and what it is fed."""
    builder, names, feed = ProgramBuilder(), [], {}
    for index, tensor in enumerate(case.inputs):
        items = np.array(tensor.array())
        if items.dtype == np.int64 or constants:
            names.append(builder.constant(items, kind="parameter" if items.dtype == np.int64 else "tensor"))
        else:
            names.append(builder.input(f"x{index}", items.shape, int(items.min()), int(items.max())))
            feed[f"x{index}"] = items
    results = builder.add(op, names, case.attributes)
    return builder.build([Output(f"y{index}", name) for index, name in enumerate(results)]), feed


@pytest.mark.sweep
@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("op", REGISTRY)
def test_ops(op: str, constants: bool) -> None:
    cases = [case for case in op_cases(op) if case.verdict == "value"]
    assert cases
    folded = unproven = dear = 0
    for case in cases:
        try:
            program, feed = program_of(case, op, constants)
        except Invalid:  # proven for these very operands only, not for all within their intervals
            assert not constants
            unproven += 1
            continue
        after = optimized(program)
        values = create("numpy", verify(after)).run(feed, {}).values
        for output, expected in zip(after.outputs, case.outputs, strict=True):
            np.testing.assert_array_equal(values[output.value], expected.array(), err_msg=case.id, strict=True)
        folded += not after.nodes
        dear += verify(program).gas > WORK
    if constants and len(REGISTRY[op].outputs) == 1:  # FORMAL computes all constants but the dearest
        assert folded == len(cases) - dear
    assert unproven < len(cases) / 2
