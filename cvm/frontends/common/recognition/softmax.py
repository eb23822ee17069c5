"""Recognition of softmax, written as exp(d) / sum(exp(d)). Where d is x - max(x), it is the softmax of x."""

from __future__ import annotations

from dataclasses import replace

from cvm.frontends.common.recognition.regions import Regions, Whole
from cvm.graph import GraphOperation, Operand

__all__ = ["softmax_around"]


def softmax_around(regions: Regions, exponential: GraphOperation) -> Whole | None:
    """The softmax that an exponential is part of, or None."""
    name = exponential.outputs[0]
    for total in regions.readers(name):
        if total.name == "sum_reduce" and not total.attributes["normalize"]:
            found = _shares(regions, name, total)
            if found is not None:
                last, parts = found
                return _of_parts(regions, exponential, total, last, [exponential, total, *parts])
    return None


def _shares(regions: Regions, name: str, total: GraphOperation) -> tuple[GraphOperation, list[GraphOperation]] | None:
    """The operation that divides exponentials by their sum, and the operations between the sum and the division."""
    for quotient in regions.readers(name):
        if quotient.name == "div" and quotient.inputs["x"] == name:
            parts: list[GraphOperation] = []
            divisor = quotient.inputs["y"]
        elif quotient.name == "mul":
            others = [operand for operand in quotient.inputs.values() if operand != name]
            inverse = regions.maker(others[0], "rcp") if len(others) == 1 else None
            if inverse is None:
                continue
            parts, divisor = [inverse], inverse.inputs["x"]
        else:
            continue
        source, moves = regions.behind_reshapes(divisor)
        if source == total.outputs[0] and _kept(regions, divisor, name, total):
            return quotient, [quotient, *parts, *moves]
    return None


def _kept(regions: Regions, reduced: Operand, name: str, reduction: GraphOperation) -> bool:
    """Whether a reduction kept its axes, so that its result and the tensor broadcast element by element."""
    axes = reduction.attributes["axes"]
    assert isinstance(axes, tuple)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(regions.shape(name)))
    return isinstance(reduced, str) and regions.shape(reduced) == shape


def _subtracted(regions: Regions, source: Operand, total: GraphOperation) -> tuple[str, list[GraphOperation]] | None:
    """The tensor x and the operations that compute the exponent x - max(x) from it; None for any other exponent."""
    less = regions.maker(source, "sub")
    if less is None:
        return None
    name, maximum = less.inputs["x"], less.inputs["y"]
    reduced, moves = regions.behind_reshapes(maximum)
    most = regions.maker(reduced, "max_reduce")
    if most is None or not isinstance(name, str) or most.inputs["input"] != name:
        return None
    fits = most.attributes["axes"] == total.attributes["axes"] and _kept(regions, maximum, name, most)
    return (name, [less, *moves, most]) if fits else None


def _of_parts(
    regions: Regions,
    exponential: GraphOperation,
    total: GraphOperation,
    last: GraphOperation,
    parts: list[GraphOperation],
) -> Whole | None:
    source = exponential.inputs["x"]
    found = _subtracted(regions, source, total)
    if found is not None and regions.closed([*parts, *found[1]], last):
        source, parts = found[0], [*parts, *found[1]]
    if not isinstance(source, str) or not regions.closed(parts, last):
        return None
    attributes = {"axes": total.attributes["axes"], "accuracy": "default"}
    return Whole(replace(last, name="softmax", inputs={"x": source}, attributes=attributes), last, parts)
