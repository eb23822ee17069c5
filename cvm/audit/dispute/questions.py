"""The questions to the parties of a dispute, and their answers.

A question names the part of a run to open. An answer is data, or None: a party that does not answer withholds
what it committed to. No answer is believed, see `cvm.audit.dispute.game`.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from cvm.audit.dispute.proof import ListOpening, Path
from cvm.audit.receipt import Roots
from cvm.program.model import Shape
from cvm.records import dataclass

__all__ = [
    "Answer",
    "Children",
    "Commit",
    "ListOpening",
    "LogNode",
    "OpOpening",
    "OpenAuxiliaries",
    "OpenLeaf",
    "OpenOp",
    "OpenTensor",
    "OpenTrace",
    "PartialNode",
    "PartialsOpening",
    "Party",
    "ProveStep",
    "Question",
    "TensorNode",
    "TensorOpening",
    "TraceOpening",
]


@dataclass(frozen=True, slots=True)
class OpenTrace:
    """What does your trace root commit to? A `TraceOpening`."""


@dataclass(frozen=True, slots=True)
class LogNode:
    """What are the children of the node over these records of your log? `Children`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OpenOp:
    """What is this op, and what are the roots of its outputs? An `OpOpening`."""

    op: int


@dataclass(frozen=True, slots=True)
class OpenAuxiliaries:
    """What are the roots of the auxiliary tensors of this op? `Roots`."""

    op: int


@dataclass(frozen=True, slots=True)
class OpenTensor:
    """What does the root of this target commit to? A `TensorOpening`."""

    op: int
    target: int


@dataclass(frozen=True, slots=True)
class TensorNode:
    """What are the children of the node over these leaves of the target? `Children`."""

    op: int
    target: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OpenLeaf:
    """What is this leaf of the target? The answer is its bytes."""

    op: int
    target: int
    leaf: int


@dataclass(frozen=True, slots=True)
class Commit:
    """How does this element come about, step by step? A `PartialsOpening`."""

    op: int
    target: int
    element: int


@dataclass(frozen=True, slots=True)
class PartialNode:
    """What are the children of the node over these partials of the element? `Children`."""

    op: int
    target: int
    element: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ProveStep:
    """Why does this step follow? The bytes of a proof (`cvm.audit.dispute.proof`)."""

    op: int
    target: int
    element: int
    step: int


Question: TypeAlias = (
    OpenTrace
    | LogNode
    | OpenOp
    | OpenAuxiliaries
    | OpenTensor
    | TensorNode
    | OpenLeaf
    | Commit
    | PartialNode
    | ProveStep
)


@dataclass(frozen=True, slots=True)
class TraceOpening:
    """The content of a trace root: the program, the inputs and state before the run, and the log."""

    op_set: int
    limits: str
    lists: tuple[ListOpening, ...]
    inputs: Roots
    before: Roots
    steps: int
    log: bytes


@dataclass(frozen=True, slots=True)
class Children:
    """The two nodes below a node."""

    left: bytes
    right: bytes


@dataclass(frozen=True, slots=True)
class OpOpening:
    """The record of an op with its path in the program, and the roots of its outputs."""

    record: bytes
    path: Path
    roots: Roots


@dataclass(frozen=True, slots=True)
class TensorOpening:
    """A tensor root: the shape, and the root of the data."""

    shape: Shape
    data_root: bytes


@dataclass(frozen=True, slots=True)
class PartialsOpening:
    """The tree over the partials of an element, and the path of the last partial, which is the element."""

    count: int
    root: bytes
    path: Path


Answer: TypeAlias = TraceOpening | Children | OpOpening | TensorOpening | PartialsOpening | Roots | bytes | None


class Party(Protocol):
    """One side of a dispute."""

    def answer(self, question: Question) -> Answer:
        """The answer to a question; None to withhold it."""
