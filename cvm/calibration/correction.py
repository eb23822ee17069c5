"""Bias correction: rounding must not shift the mean of any channel.

Rounding a filter and its input shifts the mean of each channel of the result. The shift is measured on data, layer by
layer in the order of execution with all earlier layers corrected, and subtracted from the bias, so that each channel
has the mean that it has in the float graph. What remains is the rounding of the bias itself: to the floating-point type
in which the model stores it, or to the codes of its quantiser.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721,
section 4.2 and appendix D (empirical bias correction).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from math import prod
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cvm.calibration.contents import Floats, contents, in_type_of, owned
from cvm.calibration.observing import Measurements, channel_mean, measure
from cvm.calibration.roles import Uses, moved_operands
from cvm.graph import GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData, verify
from cvm.records import dataclass
from cvm.reference import Reference, sample_count
from cvm.reference.registry import Array
from cvm.reference.values import pseudo_quantized

__all__ = ["MOST_SAMPLES", "Corrected", "apart_count", "corrected", "fitting_samples", "means_wanted"]

MOST_SAMPLES = 16
"""The most samples from which means are taken: the values of all of them are in memory together."""


_LEAST_SAMPLES, _MOST_APART = 8, 8
"""From `_LEAST_SAMPLES` samples on, the last quarter is held apart, but at most `_MOST_APART` samples."""


def fitting_samples(graph: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool) -> slice:
    """The samples from which means are taken: those not held apart, at most `MOST_SAMPLES`."""
    total = sample_count(graph, inputs, cycles)
    return slice(0, min(total - apart_count(total), MOST_SAMPLES))


def apart_count(total: int) -> int:
    """The number of samples that are held apart, of ``total``."""
    return min(total // 4, _MOST_APART) if total >= _LEAST_SAMPLES else 0


@dataclass(frozen=True, slots=True)
class Corrected:
    """One correction: the mean of each channel of ``tensor`` was shifted, by at most ``greatest``, through the tensor
    ``bias``.
    """

    tensor: str
    bias: str
    greatest: float
    is_new: bool
    """Whether the bias was added because the graph had no stored tensor that could be changed."""


@dataclass(slots=True)
class _Site:
    """A site of a correction: the result after the bias of a product, its axis of channels, and the bias tensor, if
    any.
    """

    result: str
    axis: int
    bias: str | None
    shift: Floats
    after: Floats | None = None
    """The contents of the bias tensor after the correction."""


def corrected(
    graph: QuantizedGraph,
    rounded: QuantizedGraph,
    inputs: Mapping[str, npt.ArrayLike],
    filters: Collection[str],
    samples: slice,
    *,
    may_add: bool = True,
    known: Mapping[str, Floats] = MappingProxyType({}),
) -> tuple[QuantizedGraph, tuple[Corrected, ...]]:
    """``rounded`` with changed biases after the products with these filters: channels have the means that they have in
    ``graph``.

    The two graphs differ in quantisers alone. A bias that is stored as floats, and read by that operation alone, gets
    other contents; where there is none, a constant is added to the result if ``may_add``. A graph with state stays as
    it is, because its means depend on cycles. ``known`` are means that were measured before (`means_wanted`); the graph
    is evaluated if some are not there. ``samples`` begin with the first one. Raises the errors of `Reference.run`.
    """
    sites = {site.result: site for site in _correctable(graph, filters, may_add)}
    if not sites:
        return rounded, ()
    means = known
    if not sites.keys() <= known.keys():
        wanted = Measurements(means={name: site.axis for name, site in sites.items()}, samples=samples.stop)
        means = measure(graph, inputs, wanted, within=samples).means

    def change(name: str, arrays: list[Array]) -> list[Array]:
        site = sites.get(name)
        if site is None:
            return arrays
        _shift(rounded, site, means[name] - channel_mean(arrays, site.axis))
        shift = site.shift.reshape([-1 if i == site.axis else 1 for i in range(arrays[0].ndim)])
        return [array + shift for array in arrays]

    Reference(rounded, pseudo_quantize=True).side_by_side(inputs, samples, change)
    return _changed(rounded, [site for site in sites.values() if site.shift.any()])


def means_wanted(graph: QuantizedGraph, filters: Collection[str], may_add: bool) -> dict[str, int]:
    """The tensors whose means by channel `corrected` takes from data, with their axes of channels."""
    return {site.result: site.axis for site in _correctable(graph, filters, may_add)}


def _correctable(graph: QuantizedGraph, filters: Collection[str], may_add: bool) -> list[_Site]:
    """The sites of corrections, none in a graph with state."""
    if any(operation.name == "update" for operation in graph.operations):
        return []
    return [site for site in _sites(Uses(graph), filters) if may_add or site.bias is not None]


def _sites(uses: Uses, filters: Collection[str]) -> list[_Site]:
    """The sites where the bias of a product with one of the filters is added, or could be."""
    found = []
    for operation in uses.graph.operations:
        factors = uses.product(operation)
        if factors is None or _origin(uses, factors.filter) not in filters:
            continue
        result, bias = operation.outputs[0], operation.inputs.get("bias")
        if bias is None:
            result, bias = _added(uses, result)
        shape = uses.graph.tensors[result].shape
        extent = shape[factors.channels]
        stored = None if bias is None else _per_channel(uses, bias, factors.channels, extent)
        found.append(_Site(result, factors.channels, stored, np.zeros(extent)))
    return found


def _added(uses: Uses, result: str) -> tuple[str, Operand | None]:
    """The result of adding a stored operand to a product, and that operand; or the product itself, and None."""
    reader = uses.only_reader(result)
    tensors = uses.graph.tensors
    if reader is None or reader[0].name != "add" or tensors[result].quantizer is not None:
        return result, None
    operation, parameter = reader
    (other,) = (value for key, value in operation.inputs.items() if key != parameter)
    total = operation.outputs[0]
    return (total, other) if uses.fixed(other) and tensors[total].shape == tensors[result].shape else (result, None)


def _origin(uses: Uses, name: str) -> str:
    """The tensor from which the elements of a filter were moved."""
    while (maker := uses.made_by.get(name)) is not None and len(moved_operands(maker)) == 1:
        (name,) = moved_operands(maker)
    return name


def _per_channel(uses: Uses, bias: Operand, axis: int, extent: int) -> str | None:
    """The stored tensor that holds one number of a bias per channel and may be changed; None where there is none."""
    name = owned(uses, bias)
    if name is None or not isinstance(bias, str):
        return None
    shape = uses.graph.tensors[bias].shape
    return name if len(shape) > axis and shape[axis] == extent == prod(shape) else None


def _shift(rounded: QuantizedGraph, site: _Site, wanted: Floats) -> None:
    """Choose the new contents of the bias of a site, and the shift of the channels that they cause."""
    if site.bias is None:
        held = wanted.astype(np.float32)
        site.after = held.astype(np.float64)
        site.shift = site.after
    else:
        before = _real(rounded, site.bias, contents(rounded, site.bias))
        site.after = in_type_of(rounded, site.bias, before + wanted.reshape(before.shape)).astype(np.float64)
        site.shift = (_real(rounded, site.bias, site.after) - before).reshape(-1)
    if not np.isfinite(site.after).all():
        site.shift = np.zeros(len(wanted))


def _real(rounded: QuantizedGraph, name: str, values: Floats) -> Floats:
    """The numbers of a stored tensor after its quantiser has rounded them."""
    quantizer = rounded.tensors[name].quantizer
    return values if quantizer is None else pseudo_quantized(values, quantizer)


def _changed(rounded: QuantizedGraph, sites: Sequence[_Site]) -> tuple[QuantizedGraph, tuple[Corrected, ...]]:
    """The graph with all corrections, verified once, and a record of each."""
    tensors, found = dict(rounded.tensors), []
    added: dict[str, GraphOperation] = {}
    for site in sites:
        assert site.after is not None
        if site.bias is None:
            name, added[site.result] = _add_constant(tensors, site)
        else:
            name = site.bias
            values = in_type_of(rounded, name, site.after)
            tensors[name] = replace(tensors[name], data=TensorData(values))
        found.append(Corrected(site.result, name, float(np.abs(site.shift).max()), site.bias is None))
    operations: list[GraphOperation] = []
    for operation in rounded.operations:
        outputs, sums = list(operation.outputs), []
        for index, result in enumerate(operation.outputs):
            if result in added:
                addition = added[result]
                outputs[index] = str(addition.inputs["x"])
                sums.append(replace(addition, location=operation.location))
        operations += [replace(operation, outputs=tuple(outputs)) if sums else operation, *sums]
    graph = replace(rounded, tensors=MappingProxyType(tensors), operations=tuple(operations))
    return verify(graph, "the calibration"), tuple(found)


def _add_constant(tensors: dict[str, GraphTensor], site: _Site) -> tuple[str, GraphOperation]:
    """Add a constant for a result, which keeps its name and quantiser. Returns its name and the addition."""
    assert site.after is not None
    tensor = tensors[site.result]
    name, before = _free(tensors, f"{site.result}.correction"), _free(tensors, f"{site.result}.uncorrected")
    values = site.after.astype(np.float32).reshape([-1 if i == site.axis else 1 for i in range(len(tensor.shape))])
    tensors[name] = GraphTensor(name, values.shape, "constant", data=TensorData(values), location=tensor.location)
    tensors[before] = replace(tensor, name=before, quantizer=None)
    return name, GraphOperation("add", {"x": before, "y": name}, {}, (site.result,), tensor.location)


def _free(tensors: Container[str], name: str) -> str:
    """The name itself, or with a number appended if there is a tensor of that name already."""
    numbered = (f"{name}.{i}" for i in count(2))
    return next(item for item in chain((name,), numbered) if item not in tensors)
