"""The rules on single parts of a program: names, shapes, intervals, constants, quantisers.

Each function returns nothing or raises `Invalid` (code ``program.<rule>``) or `LimitExceeded` (``limit.<limit>``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import get_args

from cvm.errors import Invalid, LimitExceeded, Location
from cvm.limits import INT32_MAX, INT64_MAX, Limits, elements, require
from cvm.ops import Range, TypedAttributes
from cvm.program.model import AttributeValue, Constant, ProgramParts, Shape, Value
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding

__all__ = [
    "ENTRIES",
    "attribute_values",
    "check_constant_data",
    "check_constants_fit",
    "check_entries",
    "check_int32",
    "check_interval",
    "check_name",
    "check_quantizer",
    "check_shape",
    "interval_text",
    "operand_entries",
    "same_attributes",
]

ENTRIES = "inputs, constants, states, nodes, outputs, scales, offsets and exactness records of a program"
"""The words by which messages name what the limit of entries counts."""

_MAGNITUDE = {"tensor": INT32_MAX, "parameter": INT64_MAX}
_ITEM_BYTES = {"tensor": 4, "parameter": 8}
_WIDTHS = (1, 2, 4, 8)

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, line and paragraph separators, changes of writing direction, halves of surrogate pairs. They are listed
here since ``str.isprintable`` differs between Python versions."""


def interval_text(lo: int, hi: int) -> str:
    """An interval as messages show it."""
    return f"[{lo}, {hi}]"


def check_name(name: str, limits: Limits, what: str = "value") -> None:
    """Require that a name is not empty, is printable, and is within the limit of bytes."""
    location = Location(tensor=name[:80])
    found = _UNPRINTABLE.search(name)
    if not name or found:
        reason = f"holds the code point U+{ord(found[0]):04X}" if found else "is empty"
        raise Invalid("program.name", f"the name {name[:80]!r} of a {what} {reason}", location)
    require("name", len(name.encode("utf-8")), limits.name_bytes, f"bytes of the name of a {what}", location)


def check_shape(shape: Shape, limits: Limits, location: Location) -> int:
    """Require rank 1..8 and extents of 1 or more, within the limits. Returns the number of elements."""
    try:
        count = elements(shape, limits)
    except LimitExceeded as error:
        raise error.at(tensor=location.tensor, op=location.op) from None
    if not shape or min(shape) < 1:
        raise Invalid(
            "program.shape", f"a shape has at least one extent, each 1 or more; found {list(shape)}", location
        )
    return count


def check_interval(value: Value, location: Location) -> None:
    """Require that a declared interval is not empty and lies within +-(2^31 - 1)."""
    if not -INT32_MAX <= value.lo <= value.hi <= INT32_MAX:
        found = interval_text(value.lo, value.hi)
        raise Invalid("program.bounds", f"expected lo <= hi within +-(2^31 - 1), found {found}", location)


def check_int32(proven: Range, location: Location) -> None:
    """Require that a proven range lies within +-(2^31 - 1)."""
    lo, hi = proven.hull()
    if not -INT32_MAX <= lo <= hi <= INT32_MAX:
        found = interval_text(lo, hi)
        message = f"the elements lie in {found}, which is not proven to be within +-(2^31 - 1)"
        raise Invalid("program.range", message, location)


def operand_entries(operands: int) -> int:
    """The number of entries for which the operands of one node count."""
    return operands // 16


def check_entries(program: ProgramParts, limits: Limits) -> None:
    """All parts of a program together are within the limit of entries, since each takes memory whatever it holds."""
    parts = (program.inputs, program.constants, program.state, program.nodes, program.outputs)
    quantizers = [item.quantizer for item in program.inputs] + [item.quantizer for item in program.outputs]
    scales = sum(len(found.scale) + len(found.offset) for found in quantizers if isinstance(found, LinearQuantizer))
    operands = sum(operand_entries(len(node.inputs)) for node in program.nodes)
    total = sum(map(len, parts)) + len(program.provenance.exactness) + scales + operands
    require("entries", total, limits.entries, ENTRIES)


def check_constants_fit(constants: Sequence[Constant], limits: Limits, total: int = 0) -> int:
    """Check kinds, shapes, widths and lengths of constants, before any is expanded.

    ``total`` is the number of bytes of earlier constants, expanded. Returns the number that includes these constants.
    """
    for constant in constants:
        location = Location(tensor=constant.name)
        if constant.kind not in _MAGNITUDE:
            expected = "a constant is a tensor or a parameter"
            raise Invalid("program.constant.kind", f"{expected}, found {constant.kind!r}", location)
        count = check_shape(constant.shape, limits, location)
        total += count * _ITEM_BYTES[constant.kind]
        require("constants", total, limits.constants, "bytes of all constants, expanded", location)
        if constant.width not in _WIDTHS:
            raise Invalid("program.constant.width", f"expected width 1, 2, 4 or 8, found {constant.width}", location)
        if len(constant.data) != count * constant.width:
            expected = f"{count} elements of {constant.width} bytes take {count * constant.width}"
            raise Invalid("program.constant.length", f"{expected}, found {len(constant.data)} bytes", location)
    return total


def check_constant_data(constant: Constant) -> None:
    """Require that the values of a constant lie within their bounds, and are stored at the smallest width."""
    location = Location(tensor=constant.name)
    items = constant.stored()
    lo, hi = int(items.min()), int(items.max())
    largest = _MAGNITUDE[constant.kind]
    if not -largest <= lo <= hi <= largest:
        bits = largest.bit_length()
        message = f"elements of a {constant.kind} are within +-(2^{bits} - 1), found {interval_text(lo, hi)}"
        raise Invalid("program.constant.value", message, location)
    smallest = next(width for width in _WIDTHS if -(2 ** (8 * width - 1)) <= lo and hi < 2 ** (8 * width - 1))
    if constant.width != smallest:
        message = f"values in {interval_text(lo, hi)} take {smallest} bytes each, stored with {constant.width}"
        raise Invalid("program.constant.width", message, location)


def check_quantizer(quantizer: Quantizer, shape: Shape, location: Location) -> None:
    """Require that a quantiser has a known rounding, and per channel one scale for each index of its axis."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return  # it was checked when it was made, and it fits every shape
    if quantizer.rounding not in get_args(Rounding):
        raise Invalid("program.quantizer", f"there is no rounding {quantizer.rounding!r}", location)
    if quantizer.axis is None:
        return
    if not 0 <= quantizer.axis < len(shape):
        raise Invalid("program.quantizer", f"axis {quantizer.axis} of a tensor of rank {len(shape)}", location)
    if len(quantizer.scale) != shape[quantizer.axis]:
        found = f"{len(quantizer.scale)} scales for {shape[quantizer.axis]} indices of axis {quantizer.axis}"
        raise Invalid("program.quantizer", found, location)


def attribute_values(attributes: TypedAttributes) -> dict[str, AttributeValue]:
    """The canonical complete form of typed attributes: defaults included, None left out."""
    return {name: value for name, value in attributes if value is not None}


def same_attributes(found: Mapping[str, AttributeValue], expected: Mapping[str, AttributeValue]) -> bool:
    """Whether attributes are equal, types included."""
    return found.keys() == expected.keys() and all(
        type(found[name]) is type(value) and found[name] == value for name, value in expected.items()
    )
