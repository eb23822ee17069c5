"""The table of operations against the declarations of chapter 4 and the valid documents of the shared corpus."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from cvm.frontends import nnef
from cvm.frontends.nnef.declarations import khronos_library
from cvm.graph import QuantizedGraph, TensorData, declaration
from cvm.graph.shapes import RULES
from cvm.reference import OPERATIONS, Reference
from cvm.reference.operations.windows import Sliding
from tests.frontends.nnef.documents import SHARED, corpus

OTHERS = {
    "bitwise", "erf", "integer_pow", "l2_pool", "l2_reduce", "layer_normalization",
    "log_sum_exp_reduce", "log_sum_reduce", "hard_swish", "masked_softmax", "non_max_suppression", "rms_normalization",
    "softsign",
    "truncated_div", "update_slice", "wrap", "wrapping_quantize",
}  # fmt: skip
"""Operations of ONNX, WebNN, OpenVX and TFLite that NNEF has none of."""
DECLARED = sorted(set(khronos_library()) - {"external", "constant", "variable"})


@pytest.mark.parametrize("name", DECLARED)
def test_every_operation_has_a_function_with_its_parameters(name: str) -> None:
    found: list[str] = []
    for parameter in inspect.signature(OPERATIONS[name].function).parameters:
        found += [field.name for field in dataclasses.fields(Sliding)] if parameter == "sliding" else [parameter]
    declared = [parameter.name for parameter in declaration(name).parameters]
    if name == "selu":  # its second factor is called lambda, which is no name in Python
        found, declared = found[:2], declared[:2]
    assert found == declared


@pytest.mark.parametrize("name", DECLARED)
def test_operations_stand_in_the_section_that_the_shape_rules_cite(name: str) -> None:
    assert OPERATIONS[name].section == RULES[name].section


def test_there_are_no_other_operations() -> None:
    assert sorted(OPERATIONS) == sorted({*DECLARED, *OTHERS})


def filled(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph with made-up contents for its variables."""
    rng = np.random.default_rng(1)
    tensors = dict(graph.tensors)
    for name, tensor in graph.tensors.items():
        if tensor.kind == "variable" and tensor.data is None:
            tensors[name] = dataclasses.replace(tensor, data=TensorData(items(tensor.shape, tensor.dtype, rng)))
    return dataclasses.replace(graph, tensors=tensors)


def items(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    """Items that every operation can take: indices are 0, scalars positive."""
    if dtype == "integer":
        return np.zeros(shape, np.int64)
    return rng.random(shape) < 0.5 if dtype == "logical" else rng.uniform(0.25, 2.0, shape)


def feeds(graph: QuantizedGraph) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    externals = [graph.tensors[name] for name in graph.inputs]
    return {tensor.name: items(tensor.shape, tensor.dtype, rng) for tensor in externals}


def document(entry: dict[str, Any], lower: Collection[str] = ()) -> QuantizedGraph:
    return filled(nnef.load(SHARED / "nnef" / "corpus" / entry["file"], lower=lower))


@pytest.mark.parametrize("entry", corpus("valid") + corpus("quant-valid"))
@pytest.mark.parametrize("pseudo_quantize", [False, True])
def test_valid_documents_are_evaluated_with_their_shapes(entry: dict[str, Any], pseudo_quantize: bool) -> None:
    graph = document(entry)
    found = Reference(graph, pseudo_quantize).run(feeds(graph), "all")
    assert list(found) == list(dict.fromkeys([*graph.outputs, *graph.tensors]))
    for name, array in found.items():
        tensor = graph.tensors[name]
        assert array.shape == tensor.shape
        assert array.dtype == {"scalar": np.float64, "integer": np.int64, "logical": np.bool_}[tensor.dtype]
        assert not np.isnan(array).any(), name


@pytest.mark.parametrize("entry", corpus("valid"))
def test_compound_operations_are_their_definitions(entry: dict[str, Any]) -> None:
    """A document gives the same with its compound operations expanded as section 4.9 defines them."""
    whole, lowered = document(entry), document(entry, lower=nnef.compound_operations())
    expected = Reference(whole).run(feeds(whole))
    for name, array in Reference(lowered).run(feeds(lowered)).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-12, atol=1e-12)
