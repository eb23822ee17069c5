"""Traces: a log that only grows, bound to program, inputs and state, equal on every executor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cvm.audit import Recorder, trace_bytes
from cvm.executors import EXECUTORS, create, initial_state
from cvm.inputs import Intake, arrange
from cvm.program.commitments import list_root, tensor_root
from cvm.program.merkle import Tree, root, verify_consistency
from cvm.session import Session
from tests.audit.examples import SUBJECTS, subject
from tests.program.proofs import observed_trace, verify_proof


def traced(name: str, executor: str = "formal", threads: int | None = None):
    item = subject(name)
    _, samples = arrange(item.verified.program, item.inputs, item.cycles, intake=Intake(codes=True))
    made = create(executor, item.verified, threads)
    result = made.run(samples[0][0], initial_state(item.verified.program), "all")
    return item.verified, result, observed_trace(item.verified.program, result)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_step_holds_the_roots_of_its_op(name, executor):
    verified, result, trace = traced(name, executor)
    assert trace == traced(name)[2]
    for node, step in zip(verified.program.nodes, trace.steps, strict=True):
        assert step == tuple(tensor_root(result.values[value.name]) for value in node.outputs)


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_of_a_trace_can_be_changed(name):
    _, _, trace = traced(name)
    other = bytes(32)
    mutants = [replace(trace, program=other)]
    for field in ("inputs", "before"):
        roots = getattr(trace, field)
        mutants += [replace(trace, **{field: (*roots[:i], other, *roots[i + 1 :])}) for i in range(len(roots))]
        mutants += [replace(trace, **{field: (*roots, other)})]
    steps = trace.steps
    for i, step in enumerate(steps):
        mutants += [replace(trace, steps=(*steps[:i], (other,) * len(step), *steps[i + 1 :]))]
        mutants += [replace(trace, steps=(*steps[:i], (*step, other), *steps[i + 1 :]))]
        mutants += [replace(trace, steps=(*steps[:i], step[:-1], *steps[i + 1 :]))]
        mutants += [replace(trace, steps=steps[:i] + steps[i + 1 :])]
    mutants += [replace(trace, steps=(*steps, (other,)))]
    # A root moved across a boundary, e.g. from the inputs to the state.
    mutants += [replace(trace, inputs=trace.inputs[:-1], before=(trace.inputs[-1], *trace.before))]
    found = [mutant.root for mutant in mutants]
    assert trace.root not in found
    assert len(set(found)) == len(set(mutants))


@pytest.mark.parametrize("name", SUBJECTS)
def test_heads_tell_the_first_op_that_differs(name):
    _, _, trace = traced(name)
    for wrong in range(len(trace.steps)):
        steps = (*trace.steps[:wrong], (bytes(32),), *trace.steps[wrong + 1 :])
        liar = replace(trace, steps=steps)
        agreeing = [count for count in range(len(steps) + 1) if liar.head(count) == trace.head(count)]
        assert agreeing == list(range(wrong + 1))
    with pytest.raises(IndexError):
        trace.head(len(trace.steps) + 1)
    with pytest.raises(IndexError):
        trace.head(-1)


def test_a_step_opens_from_the_root():
    _, _, trace = traced("example")
    tree = Tree.of(trace.records())
    for number in range(len(trace.steps)):
        assert verify_proof(tree.root, trace.record(number), tree.prove(number))
    assert list_root(trace.records())


def test_the_bytes_of_a_trace_are_known_before_the_run():
    for name in SUBJECTS:
        verified, result, _ = traced(name)
        assert trace_bytes(verified.program) == sum(array.nbytes for array in result.values.values())


def test_a_witness_does_not_change_what_a_session_returns():
    for name in SUBJECTS:
        item = subject(name)
        plain = Session(item.verified).run(item.inputs, cycles=item.cycles, codes=True)
        session = Session(item.verified)
        seen = session.run(item.inputs, cycles=item.cycles, witness=Recorder(item.verified, trace=True), codes=True)
        assert set(seen) == set(plain)
        assert all(np.array_equal(seen[output], plain[output]) for output in plain)


# Consistency of logs


LEAVES = [bytes([number]) for number in range(40)]


def test_the_first_leaves_of_a_tree_are_proven_to_be_so():
    for count in range(1, len(LEAVES) + 1):
        tree = Tree.of(LEAVES[:count])
        for first in range(1, count + 1):
            path = tree.prove_consistency(first)
            assert len(path) <= count.bit_length() + 1
            assert verify_consistency(first, root(LEAVES[:first]), count, tree.root, path)


def test_no_other_beginning_is_proven():
    for count in range(1, 20):
        tree = Tree.of(LEAVES[:count])
        for first in range(1, count + 1):
            path, old = tree.prove_consistency(first), root(LEAVES[:first])
            other = root([*LEAVES[: first - 1], b"other"])
            assert not verify_consistency(first, other, count, tree.root, path)
            assert not verify_consistency(first, old, count, bytes(32), path)
            assert not verify_consistency(first, old, count, tree.root, (*path, bytes(32)))
            assert not verify_consistency(first, old, count, tree.root, tuple(node[:-1] for node in path) or (b"",))
            if path:
                assert not verify_consistency(first, old, count, tree.root, path[:-1])
            for index in range(len(path)):
                changed = (*path[:index], bytes(32), *path[index + 1 :])
                assert not verify_consistency(first, old, count, tree.root, changed)
    assert not verify_consistency(0, root([]), 3, root(LEAVES[:3]), ())
    assert not verify_consistency(4, root(LEAVES[:4]), 3, root(LEAVES[:3]), ())


def test_a_proof_of_consistency_has_a_beginning():
    tree = Tree.of(LEAVES[:3])
    for first in (0, 4, -1):
        with pytest.raises(IndexError):
            tree.prove_consistency(first)
