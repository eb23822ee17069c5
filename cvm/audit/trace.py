"""Traces: a commitment to every tensor of a run, built for disputes.

A program is SSA, so a run is a log that only grows: record k holds the roots of the outputs of op k. The state after
k ops is the head: the root of the tree over the first k records, bound to the program, the inputs and the state before
the run. Two parties who agree on these three compare heads to find the first op on which they differ. They then open
its record and the tree of one tensor, down to 1 KiB. A proof as in RFC 6962, section 2.1.2, shows that a shorter log is
the beginning of a longer one. ``docs/commitments.md`` gives every byte.

A trace depends on program, inputs and state alone: not on the executor, its threads, or the time. So nobody
needs to keep one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256

from cvm.audit.receipt import HASH_BYTES, Roots
from cvm.errors import Invalid
from cvm.program import Program
from cvm.program.commitments import list_root
from cvm.program.preimage import listed, u32
from cvm.records import dataclass

__all__ = ["Trace", "head_of", "step_record", "trace_bytes", "trace_of"]


def step_record(number: int, roots: Roots) -> bytes:
    """The record of op ``number``, whose outputs have these roots."""
    return b"cvm1:step\0" + u32(number) + listed(roots)


def head_of(program: bytes, inputs: Roots, before: Roots, log: bytes) -> bytes:
    """The state of a run after the ops whose records have the list root ``log``."""
    return sha256(b"cvm1:trace\0" + program + listed(inputs) + listed(before) + log).digest()


@dataclass(frozen=True, slots=True)
class Trace:
    """The roots of all tensors of one run."""

    program: bytes
    """The digest of the program."""
    inputs: Roots
    before: Roots
    """The state that the run began with."""
    steps: tuple[Roots, ...]
    """The roots of the outputs of each op, in execution order."""

    def __post_init__(self) -> None:
        for roots in ((self.program,), self.inputs, self.before, *self.steps):
            for root in roots:
                if len(root) != HASH_BYTES:
                    raise Invalid("trace.root", f"a root has {HASH_BYTES} bytes, found {len(root)}")

    def record(self, number: int) -> bytes:
        """The record of op ``number``: a leaf of the log."""
        return step_record(number, self.steps[number])

    def records(self) -> list[bytes]:
        """The whole log."""
        return [self.record(number) for number in range(len(self.steps))]

    def head(self, count: int) -> bytes:
        """The state after ``count`` ops. Raises IndexError for more ops than there are."""
        if not 0 <= count <= len(self.steps):
            raise IndexError(f"the state after {count} of {len(self.steps)} ops")
        log = list_root([self.record(number) for number in range(count)])
        return head_of(self.program, self.inputs, self.before, log)

    @property
    def root(self) -> bytes:
        """The state after all ops: the root to which a receipt commits."""
        return self.head(len(self.steps))

    def first_difference(self, other: Trace) -> int | None:
        """The number of the first op with other roots in ``other``, or that only one log has; None if there is none."""
        for number, (one, another) in enumerate(zip(self.steps, other.steps, strict=False)):
            if one != another:
                return number
        shorter = min(len(self.steps), len(other.steps))
        return None if len(self.steps) == len(other.steps) else shorter


def trace_of(program: Program, roots: Mapping[str, bytes]) -> Trace:
    """The trace of a run, from the roots of its inputs, its state and the outputs of all ops, by name."""
    return Trace(
        bytes.fromhex(program.digest),
        tuple(roots[item.value.name] for item in program.inputs),
        tuple(roots[item.value.name] for item in program.state),
        tuple(tuple(roots[value.name] for value in node.outputs) for node in program.nodes),
    )


def trace_bytes(program: Program) -> int:
    """The bytes that a trace of one run hashes: 4 for each element of inputs, state and outputs of ops."""
    values = [item.value for item in program.inputs] + [item.value for item in program.state]
    values += [value for node in program.nodes for value in node.outputs]
    return 4 * sum(math.prod(value.shape) for value in values)
