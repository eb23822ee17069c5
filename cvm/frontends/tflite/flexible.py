"""The options of custom operators: a map from names to numbers in the FlexBuffers format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cvm.errors import Location, Malformed
from cvm.frontends.tflite.model import TfliteOperator

__all__ = ["numbers_of"]


def numbers_of(operator: TfliteOperator, names: Sequence[str]) -> dict[str, Fraction]:
    """Those of the named options that exist and are numbers or truth values. Raises `Malformed`."""
    from flatbuffers import flexbuffers

    found: dict[str, Fraction] = {}
    try:
        options = flexbuffers.GetRoot(operator.custom).AsMap
        for name in names:
            item = _item(options, name)
            if item is not None and (item.IsFloat or item.IsInt or item.IsBool):
                found[name] = Fraction(item.AsFloat if item.IsFloat else int(item.AsInt))
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, AttributeError, struct.error) as error:
        message = f"{operator.label}: its options are no map of FlexBuffers: {error}"
        raise Malformed("tflite.custom-options", message, Location(op=operator.op)) from None
    return found


def _item(options: Any, name: str) -> Any:
    try:
        return options[name]
    except KeyError:
        return None
