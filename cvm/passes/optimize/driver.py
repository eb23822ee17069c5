"""The driver runs all passes in their order, again and again, until none of them finds anything to do."""

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
"""A function that verifies a program which a pass has made from a verified one."""

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
"""The largest number of rounds. Each round merges all pairs of neighbours that can be merged, so n mergeable ops in a
row take log2 n rounds.
"""


def optimize(program: Program) -> Program:
    """A program that computes the same outputs and states for less gas; the program itself if the passes find none.

    Inputs, outputs and states keep names, shapes and quantisers. Every tensor of the document that the exactness report
    names keeps its codes, under its own name or under one that the report now gives. Only a tensor that is constant, or
    has the elements of another value in another order, may be removed. Raises the errors of `verify` for ``program``.
    After each pass only the changed nodes are proven (`reproven`); at the end the whole result is verified once.
    """
    with timed("verification", "before the passes"):
        original = verify(program)
    found = _optimized(original)
    return program if found is None else found.program


def optimize_built(program: Program) -> Program:
    """Optimise a program that `ProgramBuilder` has just built.

    The builder has proven each node when it was added, and proofs that are remembered are not repeated before the
    passes. The whole result is verified, even if the passes change nothing.
    """
    with timed("verification", "before the passes"):
        original = built(program)
    found = _optimized(original) or verify(program)
    remember(found)  # the builder and the passes make the same tuples as the decoder
    return found.program


def _optimized(original: VerifiedProgram) -> VerifiedProgram | None:
    """The program that all passes have made, verified as a whole; None if they find nothing to do."""
    verified, unchanged = original, 0
    for name, run in islice(cycle(PASSES.items()), ROUNDS * len(PASSES)):
        before = verified
        with timed("passes", name):
            verified = _applied(run, verified, _reproven)
        # The loop ends when every pass has seen the present program without changing it.
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
    """The program that a pass makes, without dead code, verified; the old program if the new one would cost more gas.

    A new program that does not verify, or promises less than the old one, is a defect of the pass: AssertionError.
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
    """The program with its exactness report corrected, and with the note that it was optimised."""
    was, now = _ops(before), _ops(after)
    constants = {constant.name for constant in after.constants}
    exactness = []
    for old, new in zip(before.provenance.exactness, after.provenance.exactness, strict=True):
        # A tensor whose value is now another one, or is computed by another op, no longer has a sum of its own.
        same = old.value == new.value and was.get(old.value) == now.get(new.value)
        value = "" if new.value in constants else new.value
        exactness.append(replace(new, value=value, accumulator=new.accumulator if same else None))
    tool = f"{before.provenance.tool}, optimised".lstrip(", ")
    return replace(after, provenance=replace(after.provenance, tool=tool, exactness=tuple(exactness)))


def _ops(program: Program) -> dict[str, str]:
    """The op that computes each value."""
    return {value.name: node.op for node in program.nodes for value in node.outputs}
