"""Operators in the form of older opset versions, rewritten in the form of the newest version.

Source: ONNX, "Operator Changelog". A form is registered with the first version in which it no longer holds; for a node
of some version, the first form whose limit is above that version applies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from cvm.frontends.onnx.expansions.registry import Expansion, expansion
from cvm.frontends.onnx.model import Attribute
from cvm.frontends.onnx.tensors import DATA_TYPES
from cvm.frontends.onnx.writing import Writer

__all__ = ["OLDER", "older_form"]

OLDER: dict[str, list[tuple[int, Expansion]]] = {}
"""Per operator of ONNX: its older forms, each with the first version in which it no longer holds, oldest first."""


def older_form(op: str, version: int) -> Expansion | None:
    """The rewriting of a node of a version in the form of the newest version; None where the forms agree."""
    return next((write for before, write in OLDER.get(op, ()) if version < before), None)


def _before(version: int, *ops: str) -> Callable[[Expansion], Expansion]:
    def enter(function: Expansion) -> Expansion:
        for op in ops:
            OLDER.setdefault(op, []).append((version, function))
            OLDER[op].sort(key=lambda item: item[0])
        return function

    return enter


@_before(13, "LogSoftmax", "Hardmax")
def flattened(w: Writer) -> None:
    """Flatten all axes from ``axis`` (default 1) on to one axis. (The rule of Softmax handles Softmax.)"""
    source = w.call.operand()
    axis = w.call.integer("axis", 1)
    axis = axis if axis == source.rank else w.call.axis(axis, source.rank)
    if axis == source.rank - 1:
        w.result(w.node.op, w.required(0), axis=axis)
        return
    matrix = w.add("Flatten", w.required(0), axis=axis)
    w.reshape(w.add(w.node.op, [matrix], axis=1), source.shape, w.node.outputs[0])


def _moved(w: Writer, *names: str) -> list[str]:
    """Integer attributes as constant operands; "" for an attribute that is left out."""
    found = [w.call.integers(name) for name in names]
    return ["" if items is None else w.integers(items) for items in found]


@_before(13, "Squeeze", "Unsqueeze", "Split")
def along(w: Writer) -> None:
    """Rewrite axes, or the extents of parts, from an attribute to an operand."""
    name = "split" if w.node.op == "Split" else "axes"
    if w.node.op == "Split" and not w.call.has(name):
        source = w.call.operand()
        extent, count = source.shape[w.call.axis(w.call.integer("axis", 0), source.rank)], len(w.node.outputs)
        if extent % count:
            raise w.call.invalid("shape", f"{extent} items cannot be split into {count} equal parts")
    if w.node.op == "Unsqueeze" and not w.call.has(name):
        raise w.call.invalid("attribute", "attribute axes is missing")
    w.alike(w.node.op, [*w.required(0), *_moved(w, name)], name)


@_before(11, "Clip")
def clip(w: Writer) -> None:
    """Rewrite the bounds of Clip from attributes to operands; a missing bound stays missing."""
    source = w.call.operand()
    bounds = [w.number(float(w.call.number(name, None)), source) if w.call.has(name) else "" for name in ("min", "max")]
    w.result("Clip", [*w.required(0), *bounds])


@_before(11, "Pad")
def pad(w: Writer) -> None:
    """Rewrite the widths and the value of Pad from attributes to operands."""
    value = w.number(float(w.call.number("value", Fraction(0))), w.call.operand())
    if not w.call.has("pads"):
        raise w.call.invalid("attribute", "attribute pads is missing")
    w.alike("Pad", [*w.required(0), *_moved(w, "pads"), value], "pads", "value")


@_before(10, "Slice")
def slice_(w: Writer) -> None:
    """Rewrite the bounds and axes of Slice from attributes to operands."""
    names = ("starts", "ends", "axes")
    parts = _moved(w, *names)
    if not parts[0] or not parts[1]:
        raise w.call.invalid("attribute", "attribute starts or ends is missing")
    w.result("Slice", [*w.required(0), *parts])


@_before(10, "TopK")
def top_k(w: Writer) -> None:
    """Rewrite the count of TopK from an attribute to an operand."""
    k = w.call.integer("k", 0)
    w.alike("TopK", [*w.required(0), w.integers([k])], "k")


@_before(12, "Dropout")
def dropout(w: Writer) -> None:
    """Drop the ratio of Dropout, which has no meaning at inference."""
    w.call.ignore("ratio", "is_test")
    w.alike("Dropout", w.required(0), "ratio", "is_test")


@_before(9, "BatchNormalization")
def batch_normalization(w: Writer) -> None:
    """BatchNormalization with parameters per channel; ``spatial`` 0, parameters per element, is refused."""
    if not w.call.flag("spatial", True):
        raise w.call.refuse("it has parameters per item (spatial is 0)", "write it as Mul and Add")
    w.call.ignore("is_test", "consumed_inputs")
    w.alike("BatchNormalization", w.required(0, 1, 2, 3, 4), "spatial", "is_test", "consumed_inputs")


@_before(6, "Cast")
def cast(w: Writer) -> None:
    """Rewrite the target data type of Cast from its name to its number."""
    name = w.call.text("to", "").lower()
    numbers = {text: number for number, text in DATA_TYPES.items()} | {"float": 1, "double": 11}
    if name not in numbers:
        raise w.call.refuse(f"the data type {name!r} is not read")
    w.result("Cast", w.required(0), to=numbers[name])


@expansion("Scatter")
def scatter(w: Writer) -> None:
    """Scatter, the old name of ScatterElements."""
    w.alike("ScatterElements", w.required(0, 1, 2))


@_before(11, "Resize")
def resize(w: Writer) -> None:
    """Resize of version 10 has scales alone: output x lies at x / scale, and the nearest element is at or before it."""
    _resampled(w, _scales(w))


@expansion("Upsample")
def upsample(w: Writer) -> None:
    """Upsample of version 9, which means what Resize of version 10 means."""
    _resampled(w, _scales(w))


@_before(9, "Upsample")
def upsample_by_attribute(w: Writer) -> None:
    """Upsample before version 9: as `upsample`, with the scales as an attribute."""
    found = w.call.numbers("scales")
    if not found:
        raise w.call.invalid("attribute", "attribute scales is missing")
    _resampled(w, found)


def _scales(w: Writer) -> Sequence[float]:
    return [float(item) for item in w.call.constant(1, "the scales").ravel().tolist()]


def _resampled(w: Writer, scales: Sequence[float]) -> None:
    mode = w.call.text("mode", "nearest", "nearest", "linear", "bilinear")
    for scale in scales:
        if mode == "nearest" and 0 < scale < 1 and Fraction(1) / Fraction(scale) % 1:
            message = f"the scale {scale} of version {w.call.version} does not say which item is the nearest one"
            raise w.call.refuse(message, "export the model with opset 11 or later")
    given: dict[str, Attribute] = {
        "mode": "linear" if mode == "bilinear" else mode, "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }  # fmt: skip
    w.result("Resize", [*w.required(0), "", w.constant(scales, "float32")], given=given)
