"""The passes in their order, run until none finds anything to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import cycle, islice
from types import MappingProxyType

from cvm.passes.optimize.affine import merged_steps
from cvm.passes.optimize.clamps import merged_clamps
from cvm.passes.optimize.clips import exact_clips
from cvm.passes.optimize.common import common_subexpressions
from cvm.passes.optimize.dead import dead_code
from cvm.passes.optimize.folding import constant_folding
from cvm.passes.optimize.movement import movement
from cvm.passes.optimize.neutral import neutral_ops
from cvm.passes.optimize.offsets import offsets_into_biases
from cvm.passes.optimize.reproving import built, reproven
from cvm.passes.optimize.tables import composed_tables
from cvm.passes.optimize.transposes import cancelled_transposes
from cvm.program import Program
from cvm.program.verifier import VerifiedProgram, remember, verify
from cvm.timing import timed

__all__ = ["PASSES", "ROUNDS", "Pass", "optimize", "optimize_built"]

Pass = Callable[[VerifiedProgram], Program]
"""Rewrites a verified program; returns the program itself if there is nothing to rewrite."""

_Prove = Callable[[Program, VerifiedProgram], VerifiedProgram]
"""What is proven of a program that was made from a verified one."""

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "constant folding": constant_folding,
        "neutral ops": neutral_ops,
        "movement": movement,
        "cancelled transposes": cancelled_transposes,
        "exact clips": exact_clips,
        "merged clamps": merged_clamps,
        "merged steps": merged_steps,
        "offsets into biases": offsets_into_biases,
        "composed tables": composed_tables,
        "common subexpressions": common_subexpressions,
    }
)
"""All passes by name, in the order in which they run. Dead code is removed after each."""

ROUNDS = 16
"""How often all passes run at most. Each pair of neighbours that can be merged is, so that n in a row take log2 n."""


def optimize(program: Program) -> Program:
    """A program that computes the same outputs and states for less gas; the program itself if there is none.

    Inputs, outputs and states keep names, shapes and quantisers. Every tensor of the document that the exactness report
    names keeps its codes: as a value of its name, or as one that the report now names; but for a tensor that is
    constant, or only has the elements of another value in another order: it may be gone. Raises what `verify` raises
    for ``program``. Between passes only what changed is proven (`reproven`); the result is verified whole, once.
    """
    with timed("verification", "before the passes"):
        original = verify(program)
    found = _optimized(original)
    return program if found is None else found.program


def optimize_built(program: Program) -> Program:
    """What `optimize` makes of a program that `ProgramBuilder` has just built.

    Each of its nodes was proven when it was added: what was proven and is remembered is not proven again before the
    passes. The result is verified whole, also where the passes change nothing.
    """
    with timed("verification", "before the passes"):
        original = built(program)
    found = _optimized(original) or verify(program)
    remember(found)  # the builder and the passes make tuples, as the decoder does
    return found.program


def _optimized(original: VerifiedProgram) -> VerifiedProgram | None:
    """The program that the passes end with, verified whole; None where they find nothing to do."""
    verified, unchanged = original, 0
    for name, run in islice(cycle(PASSES.items()), ROUNDS * len(PASSES)):
        before = verified
        with timed("passes", name):
            verified = _applied(run, verified, _reproven)
        # A pass that has seen this very program need not see it again.
        unchanged = unchanged + 1 if verified is before else 0
        if unchanged == len(PASSES):
            break
    if verified is original:
        return None
    with timed("verification", "after the passes"):
        result = verify(_reported(original.program, verified.program), verified.limits)
        _check_interface(original, result)
    return result


def _reproven(program: Program, before: VerifiedProgram) -> VerifiedProgram:
    with timed("verification", "between the passes"):
        return reproven(program, before)


def applied(run: Pass, verified: VerifiedProgram) -> VerifiedProgram:
    """What a pass makes of a program, without dead code, verified; the program itself if it would cost more gas.

    What does not verify, or promises less than before, is a defect of the pass: AssertionError.
    """
    return _applied(run, verified, lambda program, before: verify(program, before.limits))


def _applied(run: Pass, verified: VerifiedProgram, prove: _Prove) -> VerifiedProgram:
    program = dead_code(run(verified))
    if program is verified.program:
        return verified
    result = prove(program, verified)
    _check_interface(verified, result)
    return result if result.gas <= verified.gas else verified


def _check_interface(before: VerifiedProgram, after: VerifiedProgram) -> None:
    old, new = before.program, after.program
    assert new.inputs == old.inputs, "a pass changed the inputs"
    assert new.limits == old.limits, "a pass changed the limits"
    assert [state.value for state in new.state] == [state.value for state in old.state], "a pass changed a state"
    assert len(new.outputs) == len(old.outputs), "a pass changed the number of outputs"
    for was, now in zip(old.outputs, new.outputs, strict=True):
        assert (was.name, was.quantizer) == (now.name, now.quantizer), "a pass changed an output"
        assert before.shapes[was.value] == after.shapes[now.value], "a pass changed the shape of an output"
        assert before.ranges[was.value].contains(after.ranges[now.value]), "a pass lost a bound of an output"


def _reported(before: Program, after: Program) -> Program:
    """The program with a report that is true of it, and the note that it was optimised."""
    was, now = _ops(before), _ops(after)
    constants = {constant.name for constant in after.constants}
    exactness = []
    for old, new in zip(before.provenance.exactness, after.provenance.exactness, strict=True):
        # A tensor that now shares the value of another tensor or op has no sum of its own.
        same = old.value == new.value and was.get(old.value) == now.get(new.value)
        value = "" if new.value in constants else new.value
        exactness.append(replace(new, value=value, accumulator=new.accumulator if same else None))
    tool = f"{before.provenance.tool}, optimised".lstrip(", ")
    return replace(after, provenance=replace(after.provenance, tool=tool, exactness=tuple(exactness)))


def _ops(program: Program) -> dict[str, str]:
    """The op that computes each value."""
    return {value.name: node.op for node in program.nodes for value in node.outputs}
