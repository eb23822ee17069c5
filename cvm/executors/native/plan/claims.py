"""Claims: what the planner says of its plan, as data that `checker` proves.

A plan makes one claim for every home that it gives to a tensor, and one for every kernel that it calls. A claim holds
the same Python objects - kernel, homes, arguments - that the emitter and the call use. So the code that is proven is
the code that runs.
"""

from __future__ import annotations

from typing import TypeAlias

from cvm.executors.native.plan.homes import Home
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["Claim", "Computes", "Copies", "Fills", "Holds", "Joins", "Prepares", "Views"]


@dataclass(frozen=True, slots=True)
class Holds:
    """A home holds a tensor before the run: an input, a state or a constant."""

    name: str
    home: Home


@dataclass(frozen=True, slots=True)
class Views:
    """``target``, another view of the buffer of ``source``, holds the result of a node that only moves elements."""

    node: Node
    source: Home
    target: Home


@dataclass(frozen=True, slots=True)
class Copies:
    """A call gives each element of ``target`` the value of the same element of ``source``.

    ``kernel`` is a `Nest` or an `Exchange`; with ``table``, a `Nest` that reads at the offsets of the table.
    """

    source: Home
    target: Home
    kernel: object
    call: int
    table: Home | None = None


@dataclass(frozen=True, slots=True)
class Fills:
    """A call gives every element of ``target`` one value."""

    target: Home
    value: int
    kernel: object
    call: int


@dataclass(frozen=True, slots=True)
class Joins:
    """``target`` holds the result of a concatenation; earlier calls have written every part at its offset."""

    node: Node
    target: Home


@dataclass(frozen=True, slots=True)
class Computes:
    """Calls compute the group whose last node is ``root`` from ``reads`` into ``targets``, one home per output.

    ``reads`` are in the order in which the kernel numbers them; None stands for an operand whose elements are packed,
    one per channel. A contraction also reads ``source``; each of its groups has a call, numbered from ``call`` on.
    """

    root: Node
    kernel: object
    reads: tuple[Home | None, ...]
    targets: tuple[Home, ...]
    call: int
    source: Home | None = None


@dataclass(frozen=True, slots=True)
class Prepares:
    """A call computes from ``source`` what a later contraction of the same map or matrix reads in ``target``.

    ``kernel`` is a `WindowSums`, whose numbers (one for each output pixel) the contraction adds to its sums, or a
    `WinogradInput`, whose elements it multiplies. Together, the two calls multiply each element by the weight that the
    node has for it.
    """

    source: Home
    target: Home
    kernel: object
    call: int


Claim: TypeAlias = Holds | Views | Copies | Fills | Joins | Computes | Prepares
