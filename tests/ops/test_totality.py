"""`infer` answers any call with shapes or `Invalid`; valid calls with proven inputs always get ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.ops import REGISTRY, Call, get

from .strategies import RECIPES, any_call, proven_call

FEW, MANY = (
    settings(deadline=None, max_examples=count, suppress_health_check=[HealthCheck.too_slow]) for count in (20, 600)
)


@pytest.mark.sweep
@pytest.mark.parametrize("name", REGISTRY)
@FEW
@given(data=st.data())
def test_infer_returns_tensor_shapes_or_raises_invalid(name: str, data: st.DataObject) -> None:
    check_infer(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRY)
@MANY
@given(data=st.data())
def test_infer_returns_tensor_shapes_or_raises_invalid_for_many_calls(name: str, data: st.DataObject) -> None:
    check_infer(name, data)


def check_infer(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(any_call(op))
    labels = [rule.label for rule in op.constraints if rule.on == "shapes"]
    verdict: str | None = None
    try:
        found = op.infer(call)
    except Invalid as error:
        verdict = error.code
    assert verdict in {None, *(f"ops.{name}.{reason}" for reason in ("arity", "shape", *labels))}
    if verdict is not None:
        return
    assert len(found) == len(op.outputs)
    for shape in found:
        assert 1 <= len(shape) <= 8
        assert all(type(extent) is int and extent >= 1 for extent in shape)
    assert type(op.gas(call)) is int
    assert op.gas(call) > 0


@pytest.mark.parametrize("name", REGISTRY)
@FEW
@given(data=st.data())
def test_a_valid_call_gets_ranges_that_fit_its_output_shapes(name: str, data: st.DataObject) -> None:
    check_ranges(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRY)
@MANY
@given(data=st.data())
def test_many_valid_calls_get_ranges_that_fit_their_output_shapes(name: str, data: st.DataObject) -> None:
    check_ranges(name, data)


def check_ranges(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(proven_call(op))
    found = op.infer(call)
    for shape, bounds in zip(found, op.prove(call), strict=True):
        assert bounds.lo.shape == bounds.hi.shape
        assert len(bounds.lo.shape) == len(shape)
        assert all(n in (1, extent) for n, extent in zip(bounds.lo.shape, shape, strict=True))
        assert bounds.lo.dtype in (np.dtype(np.int64), np.dtype(object))
        assert bool((bounds.lo <= bounds.hi).all())
        assert bounds.per_channel().contains(bounds)


def test_every_op_has_a_recipe() -> None:
    assert set(RECIPES) == set(REGISTRY)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,) * 9])
def test_an_input_that_no_tensor_can_be_is_invalid(shape: tuple[int, ...]) -> None:
    op = get("relu")
    with pytest.raises(Invalid) as caught:
        op.infer(Call((shape,), op.parse({})))
    assert caught.value.code == "ops.relu.shape"
