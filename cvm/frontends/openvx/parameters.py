"""The structures of the extension, with the C names of their fields (section 2.1.1).

Unlike in C, fields have defaults: no padding, no dilation, SATURATE, TO_ZERO, FLOOR, MAX.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.frontends.openvx.constants import ConvertPolicy, Pooling, RoundPolicy, SizeRounding
from cvm.frontends.openvx.errors import InvalidParameters, InvalidValue
from cvm.frontends.openvx.objects import integer
from cvm.records import dataclass

__all__ = ["NNConvolutionParams", "NNDeconvolutionParams", "NNROIPoolParams", "checked", "enumerator", "float32"]


@dataclass(slots=True)
class NNConvolutionParams:
    """vx_nn_convolution_params_t. ``dilation_x`` zeros lie between the taps of the kernel."""

    padding_x: int = 0
    padding_y: int = 0
    overflow_policy: int = ConvertPolicy.VX_CONVERT_POLICY_SATURATE
    rounding_policy: int = RoundPolicy.VX_ROUND_POLICY_TO_ZERO
    down_scale_size_rounding: int = SizeRounding.VX_NN_DS_SIZE_ROUNDING_FLOOR
    dilation_x: int = 0
    dilation_y: int = 0


@dataclass(slots=True)
class NNDeconvolutionParams:
    """vx_nn_deconvolution_params_t. The padding is removed from the output; ``a_x`` is added to its width."""

    padding_x: int = 0
    padding_y: int = 0
    overflow_policy: int = ConvertPolicy.VX_CONVERT_POLICY_SATURATE
    rounding_policy: int = RoundPolicy.VX_ROUND_POLICY_TO_ZERO
    a_x: int = 0
    a_y: int = 0


@dataclass(slots=True)
class NNROIPoolParams:
    """vx_nn_roi_pool_params_t. The extension supports maxima alone."""

    pool_type: int = Pooling.VX_NN_POOLING_MAX


_ENUMERATIONS: dict[str, type[IntEnum]] = {
    "overflow_policy": ConvertPolicy,
    "rounding_policy": RoundPolicy,
    "down_scale_size_rounding": SizeRounding,
    "pool_type": Pooling,
}
_MOST = 4096
"""The greatest padding, dilation and ``a``: windows of the machine's convolution reach no farther."""


def enumerator(value: Any, enumeration: type[IntEnum], what: str) -> IntEnum:
    """An argument that must be a member of an enumeration. Raises `InvalidParameters` or `InvalidValue`."""
    found = integer(value, what, -(2**31))
    try:
        return enumeration(found)
    except ValueError:
        names = ", ".join(member.name for member in enumeration)
        raise InvalidValue("argument.enum", f"{what} must be one of {names}, found {found}") from None


def checked(params: Any, kind: type[Any], what: str) -> Any:
    """A structure with valid fields, whose enumerators are converted to members of their enumerations."""
    if not isinstance(params, kind):
        raise InvalidParameters(
            "argument.structure", f"{what} must be a {kind.__name__}, found {type(params).__name__}"
        )
    found: dict[str, int] = {}
    for field in fields(kind):
        value, name = getattr(params, field.name), f"{what}.{field.name}"
        enumeration = _ENUMERATIONS.get(field.name)
        found[field.name] = enumerator(value, enumeration, name) if enumeration else integer(value, name, 0, _MOST - 1)
    return kind(**found)


def float32(value: Any, what: str, zero: bool = False) -> Fraction:
    """A vx_float32 argument as an exact rational; it must be positive, or with ``zero`` not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction, np.number)):
        raise InvalidParameters("argument.float", f"{what} must be a number, found {value!r}")
    try:
        with np.errstate(over="ignore"):
            found = np.float32(float(value))
    except OverflowError:
        found = np.float32(np.inf)
    if not np.isfinite(found) or found < 0 or (found == 0 and not zero):
        rule = "a finite number that is not negative" if zero else "a finite number above 0"
        raise InvalidValue("argument.positive", f"{what} must be {rule}, found {value!r}")
    return Fraction(float(found))
