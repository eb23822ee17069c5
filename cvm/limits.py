"""Limits as data: named profiles, checked before anything is allocated.

A profile is chosen by name and the name is part of a program's digest, so that everyone who loads a program applies
the same bounds. All sizes are in elements, bytes or counts as named; products of extents are Python integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from cvm.errors import LimitExceeded, Location
from cvm.records import dataclass

__all__ = [
    "DEFAULT",
    "INT32_MAX",
    "INT64_MAX",
    "LARGE",
    "MAX_RANK",
    "PROFILES",
    "Limits",
    "elements",
    "require",
]

INT32_MAX = 2**31 - 1
"""Largest magnitude of a tensor element; -2^31 is never legal."""
INT64_MAX = 2**63 - 1
"""Largest magnitude of an element of a parameter, and of a sum."""

MAX_RANK = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """One profile of limits."""

    name: str
    extent: int = INT32_MAX
    """Largest extent of a tensor."""
    elements: int = 2**28
    """The most elements of one tensor."""
    constants: int = 2**32
    """The most bytes of all constants of a program, expanded."""
    nodes: int = 1_000_000
    """The most operations of a document, and items of one list of a program."""
    entries: int = 25_000
    """The most inputs, constants, states, nodes, outputs, scales, offsets and exactness records of a program, together;
    a node counts once more for every 16 operands."""
    program_bytes: int = 2**32
    """The most bytes of a program file."""
    receipt_bytes: int = 2**26
    """The most bytes of a receipt or of a trace."""
    name_bytes: int = 1_024
    """The most UTF-8 bytes of one name."""
    text_bytes: int = 16 * 2**20
    """The most bytes of a document's text."""
    nesting: int = 64
    """The greatest depth of nested expressions, arrays and fragment invocations."""
    expansion: int = 65_536
    """The most operations made by expanding fragments; the most items made by one compile-time expression."""
    archive_members: int = 4_096
    archive_bytes: int = 2 * 2**30
    """The most bytes of all members of an archive, inflated."""
    archive_ratio: int = 200
    """The most inflated bytes per compressed byte."""
    work: int = 2**40
    """The most gas of one run."""


DEFAULT = Limits("default")
LARGE = Limits(
    "large", entries=1_000_000, elements=2**31, constants=2**36, program_bytes=2**36, archive_bytes=2**36, work=2**50
)
PROFILES = MappingProxyType({profile.name: profile for profile in (DEFAULT, LARGE)})


def require(limit: str, found: int, bound: int, what: str, location: Location | None = None) -> None:
    """Raise `LimitExceeded` with code ``limit.<limit>`` unless ``found <= bound``."""
    if found > bound:
        raise LimitExceeded(f"limit.{limit}", f"{what}: {found} exceeds the limit of {bound}", location)


def elements(shape: Sequence[int], limits: Limits = DEFAULT, what: str = "tensor") -> int:
    """The number of elements of ``shape`` as a Python integer, within the limits of rank, extent and elements."""
    require("rank", len(shape), MAX_RANK, f"{what}: rank")
    for extent in shape:
        require("extent", extent, limits.extent, f"{what}: extent")
    count = math.prod(shape)
    require("elements", count, limits.elements, f"{what}: elements")
    return count
