"""What a kernel may ask the planner, and how an op says by which function it is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.claims import Claim
from cvm.executors.native.plan.groups import Groups
from cvm.executors.native.plan.homes import Buffer, Constants, Home
from cvm.ops.declaration import Call
from cvm.program.model import Node

__all__ = ["MadeClaim", "OpPlan", "Planning"]

MadeClaim: TypeAlias = "Callable[[object, Sequence[Home], int], Claim]"
"""Makes the claim of a kernel, from the kernel, the homes that it reads, and the number of its call."""


class Planning(Protocol):
    """The planner, as kernels see it while they plan one node or one group of nodes."""

    # The program ----------------------------------------------------------------------------------------------------

    @property
    def machine(self) -> Machine:
        """The machine that the kernels are for."""

    @property
    def plain(self) -> Mapping[str, str]:
        """Values that are computed without what is hard to prove, with the reasons."""

    @property
    def groups(self) -> Groups:
        """Which nodes one kernel computes."""

    def call_of(self, node: Node) -> Call:
        """The verified call of a node."""

    def hull(self, name: str) -> tuple[int, int]:
        """The proven interval of a value."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""

    def constant(self, name: str) -> npt.NDArray[Any] | None:
        """The elements of a constant, in 64 bits; None for what is computed or fed."""

    def weights(self, name: str) -> npt.NDArray[np.signedinteger[Any]]:
        """The elements of a constant in as few bits as the program stores them. Raises KeyError for other values."""

    def uses(self, name: str) -> int:
        """The number of node inputs that read a value."""

    def contracts(self, node: Node) -> bool:
        """Whether a node is planned as a contraction."""

    # Homes ----------------------------------------------------------------------------------------------------------

    @property
    def constants(self) -> Constants:
        """The packed constants."""

    def home(self, name: str) -> Home:
        """Where a value lies."""

    def result(self, name: str) -> Home:
        """A home for a value that is about to be computed."""

    def border(self, name: str) -> tuple[int, int]:
        """The rows and columns of zeros that convolutions want around a map."""

    def destination(self, name: str) -> tuple[str, int, int] | None:
        """The concatenation, axis and start that a value is computed in, if it is."""

    def laid_out(self, name: str, format_: Format, order: Sequence[int], border: tuple[int, int]) -> Home:
        """A copy of a value in another format and order, made once."""

    def rearranged(self, home: Home) -> Home:
        """A row-major copy of any view."""

    def read_from(self, name: str, home: Home) -> None:
        """Let all later nodes read a value from this home, which holds it too."""

    def scratch(self, size: int) -> Buffer:
        """Memory of so many bytes that one call uses for itself."""

    # Kernels --------------------------------------------------------------------------------------------------------

    @property
    def next_call(self) -> int:
        """The number of the call that is added next."""

    def claim(self, claim: Claim) -> None:
        """Say what calls or homes are meant to do, for the checker."""

    def kernel(self, kernel: object, prefix: str) -> str:
        """The name of the function of a kernel, the same for equal kernels."""

    def call(
        self, function: str, arguments: Sequence[tuple[Buffer, int]], units: int, what: str, note: str, cost: float
    ) -> None:
        """Add a call; ``cost`` in nanoseconds (see `KernelCall`)."""

    def nest(
        self, reads: Sequence[Home], target: Home, formula: Formula, what: str, note: str, made: MadeClaim
    ) -> None:
        """Compute a formula at every index of ``target``; the reads have its shape."""

    def copy(self, source: Home, target: Home, what: str) -> None:
        """Copy the elements of one home to another."""

    def fill(self, target: Home, value: int, what: str) -> None:
        """Give every element one value."""

    def view(self, node: Node, source: Home, target: Home) -> None:
        """Note that a node that only moves elements has the result ``target``, a view of the buffer of ``source``."""


@dataclass(frozen=True, slots=True)
class OpPlan:
    """How an op is planned: by ``plan``, which is given the planner and the node.

    ``placeable`` says that the result can be computed in any home, such as a part of a concatenation.
    """

    plan: Callable[[Planning, Node], None]
    placeable: bool = True
