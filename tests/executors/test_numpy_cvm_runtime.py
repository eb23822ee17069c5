"""The kernels on the op vectors made with the C++ library cvm-runtime."""

from __future__ import annotations

import pytest

from cvm.executors.numpy import KERNELS
from tests.vectors_cvm_runtime import mapping

from .kernels import call_of, run_step

CASES = mapping.cases()


@pytest.mark.skipif(not CASES, reason="../shared/cvm_runtime/vectors is not there")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernel_equals_the_vector(case: mapping.Case) -> None:
    call = call_of(case.op, case.inputs, case.attributes)
    found = run_step(KERNELS[case.op](call), call, case.inputs)
    equal = [array.tolist() for array in found] == [array.tolist() for array in case.outputs]
    assert equal == (case.name not in mapping.DIFFERENT)
