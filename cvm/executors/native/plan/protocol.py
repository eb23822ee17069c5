"""The part of the planner that kernels may use, and the table entry that says which function plans an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.claims import Claim
from cvm.executors.native.plan.groups import Groups
from cvm.executors.native.plan.homes import Buffer, Constants, Home
from cvm.executors.native.plan.steps import CHUNKS
from cvm.ops.declaration import Call
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["MadeClaim", "OpPlan", "Planning"]

MadeClaim: TypeAlias = "Callable[[object, Sequence[Home], int], Claim]"
"""A function that makes the claim of a kernel from the kernel, the homes that it reads, and the number of its call."""


class Planning(Protocol):
    """The planner, as kernels see it while they plan one node or one group of nodes."""

    # The program ----------------------------------------------------------------------------------------------------

    @property
    def machine(self) -> Machine:
        """The machine that the kernels are written for."""

    @property
    def plain(self) -> Mapping[str, str]:
        """Values that are planned in the form that is easy to prove, each with the reason (see `Planner`)."""

    @property
    def groups(self) -> Groups:
        """The groups: which nodes one kernel computes."""

    def call_of(self, node: Node) -> Call:
        """The verified call of a node."""

    def hull(self, name: str) -> tuple[int, int]:
        """The proven interval of a value."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""

    def constant(self, name: str) -> npt.NDArray[Any] | None:
        """The elements of a constant, in 64 bits; None for any other value."""

    def weights(self, name: str) -> npt.NDArray[np.signedinteger[Any]]:
        """The elements of a constant, in the integer type in which the program stores them.

        Raises KeyError for any other value.
        """

    def uses(self, name: str) -> int:
        """The number of node inputs that read a value."""

    def contracts(self, node: Node) -> bool:
        """Whether a node is planned as a contraction."""

    def by_words(self, node: Node) -> bool:
        """Whether a node is a contraction that multiplies 16-bit integers where bytes would do."""

    def in_squares(self, node: Node) -> bool:
        """Whether a node is a convolution that is faster in squares of results (`plan.gains`)."""

    # Homes ----------------------------------------------------------------------------------------------------------

    @property
    def constants(self) -> Constants:
        """The packed constants."""

    def home(self, name: str) -> Home:
        """The home of a value."""

    def result(self, name: str) -> Home:
        """The home of a value that is about to be computed."""

    def in_place(self, node: Node) -> Home | None:
        """Where an updated slice is written if its tensor is a state that nothing else reads any more; else None."""

    def border(self, name: str) -> tuple[int, int]:
        """How many rows and columns of zeros the convolutions that read a map need around it."""

    def destination(self, name: str) -> tuple[str, int, int] | None:
        """(concatenation, axis, start) if the value is computed as a part of a concatenation's result, else None."""

    def laid_out(self, name: str, format_: Format, order: Sequence[int], border: tuple[int, int]) -> Home:
        """A copy of a value in another format and order of axes. Equal requests share one copy."""

    def rearranged(self, home: Home) -> Home:
        """A row-major copy of a home with any view."""

    def read_from(self, name: str, home: Home) -> None:
        """Let all later nodes read a value from this home, which holds a copy of it."""

    def scratch(self, size: int) -> Buffer:
        """Allocate ``size`` bytes that only the next calls use."""

    # Kernels --------------------------------------------------------------------------------------------------------

    @property
    def next_call(self) -> int:
        """The number of the call that is added next."""

    def claim(self, claim: Claim) -> None:
        """Record a claim about calls or homes, which the checker proves."""

    def kernel(self, kernel: object, prefix: str) -> str:
        """The name of the function that computes a kernel. Equal kernels share one function."""

    def call(
        self,
        function: str,
        arguments: Sequence[tuple[Buffer, int]],
        units: int,
        what: str,
        note: str,
        cost: float,
        per_thread: int = CHUNKS,
    ) -> None:
        """Add a call. ``cost`` is its estimated time in nanoseconds (see `KernelCall`)."""

    def nest(
        self, reads: Sequence[Home], target: Home, formula: Formula, what: str, note: str, made: MadeClaim
    ) -> None:
        """Add a call that computes a formula at every index of ``target``, whose shape all ``reads`` have."""

    def copy(self, source: Home, target: Home, what: str) -> None:
        """Add a call that copies the elements of one home to another."""

    def fill(self, target: Home, value: int, what: str) -> None:
        """Add a call that gives every element of a home one value."""

    def view(self, node: Node, source: Home, target: Home) -> None:
        """Record that ``target``, a view of the buffer of ``source``, is the result of a node that moves elements."""


@dataclass(frozen=True, slots=True)
class OpPlan:
    """How an op is planned: ``plan`` is called with the planner and the node.

    ``placeable`` says that the result can be computed in any home, such as a part of a concatenation's home.
    """

    plan: Callable[[Planning, Node], None]
    placeable: bool = True
