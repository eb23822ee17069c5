"""Read the cvm-runtime op vectors and say each case in the terms of the mathematical document.

The C++ library names ops and attributes in its own way, writes attributes as strings, has defaults of its own and a
few ops that differ in form. `OPS` is the whole difference as a table; `cases` applies it. An executor is tested by
``run(case.op, case.inputs, case.attributes) == case.outputs`` for every case; `DIFFERENT` lists by name the
cases whose expected output is not what the document means, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parents[3] / "shared" / "cvm_runtime" / "vectors"
"""Where the vectors lie, if they are there."""

Array: TypeAlias = npt.NDArray[np.int32]
Shape: TypeAlias = tuple[int, ...]
Attributes: TypeAlias = "dict[str, bool | int | tuple[int, ...]]"

DIFFERENT: Mapping[str, str] = {}
"""Case name -> why its expected output is not what the document means."""


@dataclass(frozen=True)
class Case:
    """One vector: ``name`` is the op and the case id of the file, all else is in the document's terms."""

    name: str
    op: str
    inputs: tuple[Array, ...]
    attributes: Attributes
    outputs: tuple[Array, ...]


def integer(text: str) -> int:
    """An int: decimal."""
    return int(text)


def optional(text: str) -> int | None:
    """An optional int: decimal or None."""
    return None if text == "None" else int(text)


def boolean(text: str) -> bool:
    """A bool: true, false, 1 or 0 in any case."""
    return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]


def integers(text: str) -> tuple[int, ...]:
    """A tuple: ``(a, b)`` or ``[a, b]``, a trailing comma allowed; a bare integer has one element."""
    items = text.strip().strip("()[]").split(",")
    return tuple(int(item.strip().removesuffix("L")) for item in items if item.strip())


def pair(text: str) -> tuple[int, ...]:
    """Two integers, or one that stands for both."""
    items = integers(text)
    return items * 2 if len(items) == 1 else items


Parser: TypeAlias = "Callable[[str], bool | int | tuple[int, ...] | None]"


@dataclass(frozen=True)
class Attribute:
    """An attribute: its name in the document, the parser of its text and the C++ library's default."""

    name: str
    parse: Parser
    default: str | None = None


@dataclass(frozen=True)
class Mapped:
    """What an op of the C++ library is in the document.

    ``attributes`` by their name there; ``dropped`` are attributes that only repeat what the inputs' shapes say, or
    are ignored there. ``inputs`` is the order of the inputs, if it is not the same. ``resolve`` replaces attributes by
    what they stand for, given the first input's shape. ``shape`` is the output's shape in the document, if it differs:
    elements and their row-major order are the same.
    """

    op: str
    attributes: Mapping[str, Attribute]
    dropped: tuple[str, ...] = ()
    inputs: tuple[int, ...] | None = None
    resolve: Callable[[Attributes, Shape], Attributes] | None = None
    shape: Callable[[Shape], Shape] | None = None


def reshape_codes(attributes: Attributes, n: Shape) -> Attributes:
    """The MXNet codes of a target shape replaced by extents.

    0 copies an extent, -1 is what is left over, -2 copies all remaining extents, -3 multiplies two, -4 splits one into
    the two numbers that follow, one of which may be -1. The document's target_shape has extents only.
    """
    codes = attributes["target_shape"]
    assert isinstance(codes, tuple)
    target: list[int] = []
    at = index = 0
    while index < len(codes):
        code = codes[index]
        if code == -2:
            target += n[at:]
            at = len(n)
        elif code == -3:
            target.append(n[at] * n[at + 1])
            at += 2
        elif code == -4:
            left, right = codes[index + 1 : index + 3]
            target += [n[at] // right if left == -1 else left, n[at] // left if right == -1 else right]
            at += 1
            index += 2
        else:
            target.append(n[at] if code == 0 else code)
            at += 1
        index += 1
    return {"target_shape": tuple(-prod(n) // prod(target) if extent == -1 else extent for extent in target)}


def same(op: str, **attributes: Attribute) -> Mapped:
    """An op of the same name, inputs in the same order."""
    return Mapped(op, attributes)


_REDUCE = {
    "axis": Attribute("axes", integers, "()"),
    "keepdims": Attribute("keepdims", boolean, "False"),
    "exclude": Attribute("exclude", boolean, "False"),
}
_SHIFT = {"precision": Attribute("precision", integer), "shift_bit": Attribute("shift_bit", integer)}

OPS: Mapping[str, Mapped] = {
    "sum": Mapped("sum", _REDUCE, dropped=("dtype",)),
    "max": Mapped("max", _REDUCE, dropped=("dtype",)),
    "broadcast_add": same("broadcast_add"),
    "broadcast_sub": same("broadcast_sub"),
    "broadcast_mul": same("broadcast_mul"),
    "broadcast_div": same("broadcast_div"),
    "broadcast_max": same("broadcast_max"),
    "broadcast_greater": same("broadcast_greater"),
    "conv2d": Mapped(
        "conv2d",
        {
            "padding": Attribute("padding", integers, "(0, 0)"),
            "strides": Attribute("stride", integers, "(1, 1)"),
            "dilation": Attribute("dilation", integers, "(1, 1)"),
            "groups": Attribute("groups", integer, "1"),
        },
        dropped=("channels", "kernel_size", "use_bias", "layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    "dense": Mapped("dense", {}, dropped=("units", "use_bias")),
    "relu": same("relu"),
    "max_pool2d": Mapped(
        "max_pool2d",
        {
            "pool_size": Attribute("pool_size", integers),
            "padding": Attribute("padding", pair, "(0, 0)"),
            "strides": Attribute("strides", integers, "(1, 1)"),
            "ceil_mode": Attribute("ceil_mode", boolean, "False"),
        },
        dropped=("layout",),
    ),
    "upsampling": Mapped("upsampling", {"scale": Attribute("scale", integer)}, dropped=("method", "layout")),
    "abs": same("abs"),
    "cvm_precision": same("cvm_precision"),
    "elemwise_add": same("elemwise_add"),
    "elemwise_sub": same("elemwise_sub"),
    "negative": same("negative"),
    "clip": same("clip", a_min=Attribute("a_min", integer), a_max=Attribute("a_max", integer)),
    "cvm_clip": Mapped("cvm_clip", {"precision": Attribute("precision", integer)}, dropped=("is_sign",)),
    "cvm_right_shift": Mapped("cvm_right_shift", _SHIFT, dropped=("is_sign",)),
    "cvm_left_shift": Mapped("cvm_left_shift", _SHIFT, dropped=("is_sign",)),
    "repeat": same("repeat", axis=Attribute("axis", integer, "0"), repeats=Attribute("repeats", integer)),
    "tile": same("tile", reps=Attribute("reps", integers)),
    # There flatten keeps the first dimension: (d_0, d_1 * d_2 * ..). In the document Y has one dimension.
    "flatten": Mapped("flatten", {}, shape=lambda y: (prod(y),)),
    "concatenate": same("concatenate", axis=Attribute("axis", integer, "1")),
    "transpose": same("transpose", axes=Attribute("axes", integers, "()")),
    "strided_slice": Mapped(
        "slice",
        {
            "begin": Attribute("begin", integers, "(0)"),
            "end": Attribute("end", integers, "(1)"),
            "stride": Attribute("strides", integers, "()"),
        },
    ),
    "slice_like": same("slice_like", axis=Attribute("axes", integers, "()")),
    "take": same("take", axis=Attribute("axis", optional, "None")),
    # There the indices come first, then the table.
    "cvm_lut": Mapped("cvm_lut", {}, dropped=("in_dim",), inputs=(1, 0)),
    "expand_dims": same(
        "expand_dims", axis=Attribute("axis", integer), num_newaxis=Attribute("num_newaxis", integer, "1")
    ),
    "reshape": Mapped("reshape", {"shape": Attribute("target_shape", integers)}, resolve=reshape_codes),
    "squeeze": same("squeeze", axis=Attribute("axes", integers, "()")),
    "where": same("where"),
    "get_valid_counts": Mapped("get_valid_count", {"score_threshold": Attribute("score_threshold", integer, "0")}),
    "non_max_suppression": Mapped(
        "non_max_suppression",
        {
            "iou_threshold": Attribute("iou_threshold", integer, "50"),
            "max_output_size": Attribute("max_output_size", integer, "-1"),
            "force_suppress": Attribute("force_suppress", boolean, "False"),
            "top_k": Attribute("top_k", integer, "-1"),
        },
        dropped=("coord_start", "score_index", "id_index", "return_indices", "invalid_to_bottom"),
    ),
}
"""Every op of the C++ library by its name there."""


def attributes_of(mapped: Mapped, texts: Mapping[str, str], shape: Shape) -> Attributes:
    """The document's attributes for the C++ library's attribute strings. Raises KeyError for an unknown attribute."""
    unknown = [name for name in texts if name not in mapped.attributes and name not in mapped.dropped]
    if unknown:
        raise KeyError(f"{mapped.op}: {unknown[0]}")
    parsed: Attributes = {}
    for name, attribute in mapped.attributes.items():
        text = texts.get(name, attribute.default)
        if text is None:
            raise KeyError(f"{mapped.op}: {name} is missing")
        value = attribute.parse(text)
        if value is not None:  # an attribute that is None is absent
            parsed[attribute.name] = value
    return mapped.resolve(parsed, shape) if mapped.resolve else parsed


def cases(folder: Path = FOLDER) -> Sequence[Case]:
    """All cases of all files in ``folder``, in the order of the files' names; empty if the folder is not there."""
    found: list[Case] = []
    for file in sorted(folder.glob("*.json")):
        document: dict[str, Any] = json.loads(file.read_text("utf-8"))
        mapped = OPS[document["op"]]
        with np.load(file.with_suffix(".npz"), allow_pickle=False) as arrays:
            for case in document["cases"]:
                inputs = [arrays[f"{case['id']}_in{i}"] for i in range(case["inputs"])]
                if mapped.inputs:
                    inputs = [inputs[i] for i in mapped.inputs]
                outputs = [arrays[f"{case['id']}_out{i}"] for i in range(case["outputs"])]
                if mapped.shape:
                    outputs = [array.reshape(mapped.shape(array.shape)) for array in outputs]
                attributes = attributes_of(mapped, case["attrs"], inputs[0].shape)
                name = f"{document['op']}-{case['id']}"
                found.append(Case(name, mapped.op, tuple(inputs), attributes, tuple(outputs)))
    return found
