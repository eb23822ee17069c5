"""Captured tensors by the names of the document, also where optimisation gave their codes another value's name."""

from __future__ import annotations

import numpy as np
import pytest

import cvm
from cvm.errors import Invalid
from cvm.passes.optimize import optimize
from tests.passes.optimize.chains import add, built


def grow(b, x):
    transposed = add(b, "transpose", x, axes=(1, 0), name="turned")
    back = add(b, "transpose", transposed, axes=(1, 0))
    first = add(b, "abs", back, name="first")
    return add(b, "negative", add(b, "relu", first, name="second"))


PROGRAM = built(-9, 9, grow, shape=(2, 3), named=["turned", "first", "second"])
X = np.array([[1, -2, 3], [-4, 5, -6]])


def test_a_tensor_whose_codes_another_value_has_is_found_under_its_own_name():
    session = cvm.Session(optimize(PROGRAM))
    result = session.run({"x": X}, ["tensor second", "first"])
    assert list(result) == ["y0", "first", "tensor second"]
    np.testing.assert_array_equal(result["tensor second"], np.abs(X))
    np.testing.assert_array_equal(result["first"], np.abs(X))
    assert list(session.run({"x": X}, "tensor second")) == ["y0", "tensor second"]


def test_all_are_the_values_of_the_program():
    assert list(cvm.Session(optimize(PROGRAM)).run({"x": X}, "all")) == ["y0", "first", "negative", "x"]


def test_a_tensor_that_is_gone_is_named_with_the_reason():
    with pytest.raises(Invalid, match="another order of some value") as caught:
        cvm.Session(optimize(PROGRAM)).run({"x": X}, "tensor turned")
    assert caught.value.code == "executors.capture"
    np.testing.assert_array_equal(cvm.Session(PROGRAM).run({"x": X}, "tensor turned")["tensor turned"], X.T)


def test_a_name_that_is_nowhere_is_refused_as_ever():
    with pytest.raises(Invalid, match="there is no value 'nothing' to capture"):
        cvm.Session(PROGRAM).run({"x": X}, ["nothing"])
