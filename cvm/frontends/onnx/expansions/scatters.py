"""Scatters with computed indices: for each element, find the last update that writes it, if any.

Indices that follow one another and that are proven to exist, such as those of a cache, replace one slice instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cvm.frontends.onnx.call import OnnxCall
from cvm.frontends.onnx.expansions.positions import interval_of, places_of
from cvm.frontends.onnx.expansions.registry import Expansion
from cvm.frontends.onnx.writing import Writer

__all__ = ["of_computed_indices"]

_MOST_PAIRS = 2**22
"""The greatest number of comparisons: elements times updates."""


def of_computed_indices(call: OnnxCall) -> Expansion | None:
    """The expansion of a scatter whose indices are not constant; None for any other node."""
    scatters = {"ScatterElements": _elements, "ScatterND": _slices}
    indices = call.optional(1)
    if call.node.domain or call.node.op not in scatters or indices is None or indices.values is not None:
        return None
    return scatters[call.node.op]


def _checked(w: Writer) -> None:
    call = w.call
    call.same_type(call.operand(0), call.operand(2))
    if call.operand(1).data_type not in ("int32", "int64"):
        raise call.invalid("type", f"indices must be int32 or int64, found {call.operand(1).data_type}")
    if call.text("reduction", "none") != "none":
        raise call.refuse(
            "a scatter with a reduction is not computed", "leave it out: then the last of equal indices stays"
        )


def _last(w: Writer, numbers: str, lead: Sequence[int], extent: int, updates: int) -> tuple[str, str]:
    """For each of ``extent`` elements, whether an update writes it and the index of the last such update: [*lead,
    extent].

    ``numbers`` holds the index of the element that each update writes: [*lead, updates]. An index that does not exist
    writes nothing.
    """
    if math.prod(lead) * extent * updates > _MOST_PAIRS:
        raise w.call.refuse(f"{extent} elements and {updates} updates are compared with each other", "use fewer")
    column = w.reshape(numbers, (*lead, 1, updates))
    every = w.constant(np.arange(extent).reshape((1,) * len(lead) + (extent, 1)), "int64")
    named = w.add("Cast", [w.add("Equal", [column, every])], to=7)
    ranked = w.add("Mul", [named, w.integers(range(1, updates + 1))])
    most = w.add("ReduceMax", [ranked, w.integers([-1])], keepdims=0)
    last = w.add("Max", [w.add("Sub", [most, w.integers([1])]), w.integers([0])])
    return w.add("Greater", [most, w.integers([0])]), last


def _as_slice(w: Writer, axis: int) -> bool:
    """Replace a slice along an axis, if the indices follow one another there and are alike beside it."""
    source, indices, updates = (w.call.operand(i) for i in range(3))
    found = places_of(w.scope, indices.name)
    if found is None:
        return False
    count, extent = updates.shape[axis], source.shape[axis]
    first = int(found.offsets.min())
    along = (count,) + (1,) * (indices.rank - axis - 1)
    if (found.offsets != first + np.arange(count).reshape(along)).any():
        return False
    interval = interval_of(w.scope, found.start)
    if interval is None or interval[0] + first < 0 or interval[1] + first + count > extent:
        return False
    start = w.reshape(found.start, (1,))
    if first:
        start = w.add("Add", [start, w.constant(np.array([first]), w.operand(found.start).data_type)])
    data, order = _before_transposition(w, w.required(0)[0], source.rank)
    back = tuple(int(item) for item in np.argsort(order))
    new = w.required(2)[0] if order == tuple(range(source.rank)) else w.add("Transpose", w.required(2), perm=back)
    shapes = [tuple(item.shape[axis] for axis in back) for item in (source, updates)]
    data, new = (w.reshape(name, (1, *shape)) for name, shape in zip((data, new), shapes, strict=True))
    whole = w.add("TensorScatter", [data, new, start], axis=order[axis] + 1)
    if order == tuple(range(source.rank)):
        w.reshape(whole, source.shape, w.node.outputs[0])
    else:
        w.add("Transpose", [w.reshape(whole, shapes[0])], w.node.outputs[0], perm=order)
    return True


def _before_transposition(w: Writer, name: str, rank: int) -> tuple[str, tuple[int, ...]]:
    """A tensor before it was transposed, and the order of axes: a cache is written in place of its transposition."""
    call = w.scope.call_of(name)
    order = (
        None if call is None or call.node.domain or call.node.op != "Transpose" else call.node.attributes.get("perm")
    )
    if call is None or not isinstance(order, tuple):
        return name, tuple(range(rank))
    return call.operand().name, tuple(int(item) for item in order)


def _nonnegative(w: Writer, indices: str, extent: int) -> str:
    """Indices as int64, with negative ones counted from the end."""
    indices = w.add("Cast", [indices], to=7)
    below = w.add("Cast", [w.add("Less", [indices, w.integers([0])])], to=7)
    return w.add("Add", [indices, w.add("Mul", [below, w.integers([extent])])])


def _elements(w: Writer) -> None:
    _checked(w)
    source, indices, updates = (w.call.operand(i) for i in range(3))
    axis = w.call.axis(w.call.integer("axis", 0), source.rank)
    beside = [
        (n, m) for i, (n, m) in enumerate(zip(source.shape, indices.shape, strict=False)) if i != axis
    ]  # fmt: skip
    if indices.shape != updates.shape or indices.rank != source.rank:
        raise w.call.invalid("shape", f"indices have shape {list(indices.shape)}, updates {list(updates.shape)}")
    if any(n != m for n, m in beside):
        raise w.call.refuse("computed indices do not reach all along the other axes", "give them the input's extents")
    if _as_slice(w, axis):
        return
    order = (*(i for i in range(source.rank) if i != axis), axis)
    data, at, new = (w.add("Transpose", [name], perm=order) for name in w.required(0, 1, 2))
    lead = tuple(source.shape[i] for i in order[:-1])
    extent = source.shape[axis]
    named, last = _last(w, _nonnegative(w, at, extent), lead, extent, indices.shape[axis])
    chosen = w.add("GatherElements", [new, last], axis=len(lead))
    found = w.add("Where", [named, chosen, data])
    w.add("Transpose", [found], w.node.outputs[0], perm=tuple(int(i) for i in np.argsort(order)))


def _slices(w: Writer) -> None:
    _checked(w)
    source, indices, updates = (w.call.operand(i) for i in range(3))
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= source.rank:
        raise w.call.invalid("shape", f"indices have shape {list(indices.shape)}, the input {list(source.shape)}")
    rest, count = source.shape[depth:], math.prod(indices.shape[:-1])
    if updates.shape != (*indices.shape[:-1], *rest):
        raise w.call.invalid("shape", f"updates have shape {list(updates.shape)}, indices {list(indices.shape)}")
    if depth == 1 and indices.rank == 2 and _as_slice(w, 0):
        return
    rows, inner = math.prod(source.shape[:depth]), math.prod(rest)
    at = w.reshape(w.required(1)[0], (count, depth))
    number = inside = ""
    for axis, extent in enumerate(source.shape[:depth]):
        column = _nonnegative(w, w.add("Gather", [at, w.constant(np.array(axis), "int64")], axis=1), extent)
        clipped = w.add("Min", [w.add("Max", [column, w.integers([0])]), w.integers([extent - 1])])
        there = w.add("Equal", [column, clipped])
        inside = w.add("And", [inside, there]) if inside else there
        number = w.add("Add", [w.add("Mul", [number, w.integers([extent])]), clipped]) if number else clipped
    number = w.add("Where", [inside, number, w.integers([-1])])
    named, last = _last(w, number, (), rows, count)
    chosen = w.add("Gather", [w.reshape(w.required(2)[0], (count, inner)), last], axis=0)
    data = w.reshape(w.required(0)[0], (rows, inner))
    found = w.add("Where", [w.reshape(named, (rows, 1)), chosen, data])
    w.reshape(found, source.shape, w.node.outputs[0])
