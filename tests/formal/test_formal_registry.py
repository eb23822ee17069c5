from __future__ import annotations

import inspect

import pytest

from cvm.ops import REGISTRY
from formal.registry import OPS

DOCUMENT = """
    sum max
    broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_max
    conv2d dense relu max_pool2d upsampling
    abs cvm_precision elemwise_add elemwise_sub negative clip cvm_clip cvm_right_shift cvm_left_shift
    repeat tile flatten concatenate transpose slice slice_like take cvm_lut expand_dims reshape squeeze where
    get_valid_count non_max_suppression
"""


def test_formal_has_the_ops_of_the_document_and_the_extension_ops_in_order() -> None:
    document = DOCUMENT.split()
    assert list(OPS)[: len(document)] == document
    assert list(OPS) == list(REGISTRY)


@pytest.mark.parametrize("name", OPS)
def test_formal_takes_the_declared_attributes(name: str) -> None:
    parameters = inspect.signature(OPS[name]).parameters.values()
    keywords = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert keywords == list(REGISTRY[name].Attributes.declared)


@pytest.mark.parametrize("name", OPS)
def test_formal_takes_the_declared_inputs(name: str) -> None:
    parameters = [p for p in inspect.signature(OPS[name]).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    declared = REGISTRY[name].inputs
    if any(spec.many for spec in declared):
        assert [parameter.kind for parameter in parameters] == [inspect.Parameter.VAR_POSITIONAL]
    else:
        assert [parameter.name for parameter in parameters] == [spec.name for spec in declared]
        assert [p.default is None for p in parameters] == [spec.optional for spec in declared]
