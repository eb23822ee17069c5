"""Claims: what the planner says of its plan, as data that `checker` proves.

A plan makes one claim for every home that it gives to a tensor, and one for every kernel that it calls. A claim holds
the very objects that the emitter and the call get - kernel, homes, arguments - so that what is proven is what runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cvm.executors.native.plan.homes import Home
from cvm.program.model import Node

__all__ = ["Claim", "Computes", "Copies", "Fills", "Holds", "Joins", "Views"]


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
    """``target`` holds a concatenation; each of its parts has been written where it belongs."""

    node: Node
    target: Home


@dataclass(frozen=True, slots=True)
class Computes:
    """Calls compute the group whose last node is ``root`` from ``reads`` into ``targets``, one home per output.

    ``reads`` are in the order in which the kernel numbers them; None stands for elements that are packed per channel.
    A contraction reads ``source`` besides, and there is one call for each of its groups from ``call`` on.
    """

    root: Node
    kernel: object
    reads: tuple[Home | None, ...]
    targets: tuple[Home, ...]
    call: int
    source: Home | None = None


Claim: TypeAlias = Holds | Views | Copies | Fills | Joins | Computes
