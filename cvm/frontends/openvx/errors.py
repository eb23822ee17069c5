"""The exceptions of the OpenVX front end: where a C function returns a vx_status, Python raises an error with that
status.
"""

from __future__ import annotations

from typing import ClassVar

from cvm.errors import Invalid, Location, Unsupported
from cvm.frontends.openvx.constants import Status

__all__ = [
    "Error",
    "InvalidDimension",
    "InvalidFormat",
    "InvalidGraph",
    "InvalidParameters",
    "InvalidReference",
    "InvalidScope",
    "InvalidType",
    "InvalidValue",
    "MultipleWriters",
    "NotAllocated",
    "NotImplementedKernel",
    "NotSufficient",
    "NotSupported",
]


class Error(Invalid, RuntimeError):
    """Base of all errors of OpenVX. ``status`` is the vx_status, ``node`` the name of the node, if one is meant.

    Like every error of cvm it has a stable ``code`` and a ``location``, whose ``op`` is the kernel and ``tensor`` the
    parameter.
    """

    status: ClassVar[Status] = Status.VX_FAILURE

    def __init__(self, rule: str, message: str, location: Location | None = None, node: str = "") -> None:
        text = f"{node}: {message}" if node else message
        super().__init__(f"openvx.{rule}", f"{text} ({self.status.name})", location)
        self.node = node


class NotImplementedKernel(Error):
    """OpenVX or its extension has no such kernel."""

    status = Status.VX_ERROR_NOT_IMPLEMENTED


class NotSupported(Error, Unsupported):
    """The request is valid, but not computed here; the message says why."""

    status = Status.VX_ERROR_NOT_SUPPORTED


class NotSufficient(Error):
    """A required parameter is missing."""

    status = Status.VX_ERROR_NOT_SUFFICIENT


class NotAllocated(Error):
    """A [static] tensor has no data when the graph is verified, or an input none when it is processed."""

    status = Status.VX_ERROR_NOT_ALLOCATED


class InvalidParameters(Error):
    """An argument is not of the kind that the function takes."""

    status = Status.VX_ERROR_INVALID_PARAMETERS


class InvalidReference(InvalidParameters):
    """A reference was released, or is of another context."""

    status = Status.VX_ERROR_INVALID_REFERENCE


class InvalidFormat(Error):
    """A data type or fixed-point position that is not supported, or tensors of a node that differ in it."""

    status = Status.VX_ERROR_INVALID_FORMAT


class InvalidDimension(Error):
    """A number of dimensions or a dimension that does not fit."""

    status = Status.VX_ERROR_INVALID_DIMENSION


class InvalidValue(InvalidParameters):
    """A number or an enumerator out of range."""

    status = Status.VX_ERROR_INVALID_VALUE


class InvalidType(InvalidParameters):
    """A type that is none of vx_type_e, or not one for this purpose."""

    status = Status.VX_ERROR_INVALID_TYPE


class InvalidGraph(Error):
    """A graph that has a cycle, is empty, or is not verified."""

    status = Status.VX_ERROR_INVALID_GRAPH


class InvalidScope(Error):
    """A virtual tensor outside of its graph."""

    status = Status.VX_ERROR_INVALID_SCOPE


class MultipleWriters(InvalidGraph):
    """Two nodes write one element."""

    status = Status.VX_ERROR_MULTIPLE_WRITERS
