"""The costs of a run, known before it: gas, multiply-adds, memory, and the bytes that a trace hashes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cvm import ops
from cvm.audit.trace import trace_bytes
from cvm.program import Program
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Costs", "costs", "gas", "macs", "peak_bytes"]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one run."""

    gas: int
    macs: int
    """Multiplications of elements with weights, and of the elements of two computed matrices."""
    constant_bytes: int
    """The bytes of all constants, expanded: 4 for each element of a tensor, 8 for each of a parameter."""
    peak_bytes: int
    """The bytes of the tensors that are alive at the worst moment, 4 for each element; without the constants."""
    trace_bytes: int


def costs(verified: VerifiedProgram) -> Costs:
    """The costs of one run of a program."""
    program = verified.program
    sizes = ((4 if item.kind == "tensor" else 8) * math.prod(item.shape) for item in program.constants)
    return Costs(verified.gas, sum(macs(verified)), sum(sizes), peak_bytes(program), trace_bytes(program))


def gas(verified: VerifiedProgram) -> list[int]:
    """The gas of each node."""
    nodes = zip(verified.program.nodes, verified.calls, strict=True)
    return [ops.get(node.op).gas(call) for node, call in nodes]


def macs(verified: VerifiedProgram) -> list[int]:
    """Multiplications of elements with weights or other elements, node by node: those of conv2d, dense and matmul."""
    return [
        ops.get(node.op).work(call) if node.op in ("conv2d", "dense", "matmul") else 0
        for node, call in zip(verified.program.nodes, verified.calls, strict=True)
    ]


def peak_bytes(program: Program) -> int:
    """The most bytes of tensors alive at once, if no op is fused and each tensor is freed after its last reader.

    Inputs and state live from the beginning, outputs and updates of state to the end. Executors may need less, since
    they fuse ops and store narrow tensors, or somewhat more, for their own workspace.
    """
    values = [item.value for item in program.inputs] + [item.value for item in program.state]
    begin = {value.name: 0 for value in values}
    for index, node in enumerate(program.nodes):
        values += node.outputs
        begin |= {value.name: index for value in node.outputs}
    end = dict(begin)
    for index, node in enumerate(program.nodes):
        end |= {name: index for name in node.inputs if name in end}
    kept = [output.value for output in program.outputs] + [state.update for state in program.state]
    end |= {name: len(program.nodes) for name in kept if name in end}
    change = [0] * (len(program.nodes) + 2)
    for value in values:
        size = 4 * math.prod(value.shape)
        change[begin[value.name]] += size
        change[end[value.name] + 1] -= size
    alive = peak = 0
    for step in change:
        alive += step
        peak = max(peak, alive)
    return peak
