"""``cvm dispute``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit.dispute import decode_proof, encode_proof, verify_step
from cvm.audit.trace_file import write_trace
from tests.audit.dispute.games import vector_programs

RUN = ("--program", "m.cvm", "-i", "in.npz")


@pytest.fixture
def true(tmp_path, monkeypatch):
    """A program with its inputs, and files of two sides: `mine` has what follows, `theirs` one other element."""
    monkeypatch.chdir(tmp_path)
    true = vector_programs()["tiny_cnn"]
    program = true.program.program
    program.save("m.cvm")
    names = [item.value.name for item in program.inputs]
    (tmp_path / "in.npz").write_bytes(npz_bytes({name: true.values[name] for name in names}))
    conv = next(node for node in program.nodes if node.op == "conv2d").outputs[0].name
    wrong = true.values[conv].copy()
    wrong.flat[7] += 1
    (tmp_path / "mine.npz").write_bytes(npz_bytes(true.values))
    (tmp_path / "theirs.npz").write_bytes(npz_bytes(true.values | {conv: wrong}))
    write_trace(true.trace, "mine.trace")
    from cvm.audit.dispute import Evidence

    write_trace(Evidence(true.program, true.values | {conv: wrong}).trace, "theirs.trace")
    return true


def conv_of(true) -> tuple[int, str]:
    found = next(k for k, node in enumerate(true.program.program.nodes) if node.op == "conv2d")
    return found, true.program.program.nodes[found].outputs[0].name


def test_what_run_captures_is_what_a_side_has(cvm, true):
    outcome = cvm("run", "m.cvm", "-i", "in.npz", "--codes", "--capture", "all", "-o", "captured.npz")
    assert outcome.code == 0
    outcome = cvm("dispute", "locate", "captured.npz", "mine.npz", "--program", "m.cvm", "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"version": 1, "equal": True, "run": None, "compared": [0], "place": None},
    )
    outcome = cvm("dispute", "locate", "mine.trace", "captured.npz", "--program", "m.cvm")
    assert (outcome.code, outcome.out) == (0, "EQUAL     every op gave the same\n")


def test_locate_tells_the_element_and_who_is_right(cvm, true):
    outcome = cvm("dispute", "locate", "mine.npz", "theirs.npz", "--program", "m.cvm", "--json")
    op, conv = conv_of(true)
    value = int(true.values[conv].flat[7])
    difference = outcome.document["place"]
    assert outcome.code == 1
    assert (difference["op"], difference["name"], difference["tensor"]) == (op, "conv2d", conv)
    assert (difference["element"], difference["leaf"], difference["values"]) == (7, 0, [value, value + 1])
    assert difference["index"] == [int(i) for i in np.unravel_index(7, true.values[conv].shape)]
    assert (difference["follows"], difference["right"]) == (value, ["A"])
    people = cvm("dispute", "locate", "theirs.npz", "mine.npz", "--program", "m.cvm")
    assert people.code == 1
    assert f"element   7, index {difference['index']}: {value + 1} (A) and {value} (B)\n" in people.out
    assert people.out.endswith("B is right\n")


def test_a_run_of_a_batch_is_compared_by_its_number(cvm, true, tmp_path):
    """Of three runs, with other inputs each, the second one differs between the sides."""
    import cvm as library

    program = true.program.program
    numbers = np.random.default_rng(5)
    inputs = {
        item.value.name: numbers.integers(item.value.lo, item.value.hi + 1, (3, *item.value.shape))
        for item in program.inputs
    }
    result = library.Session(program).run(inputs, codes=True, capture="all")
    mine = {name: result[name] for name in result}
    op, conv = conv_of(true)
    theirs = mine | {conv: mine[conv].copy()}
    theirs[conv][1].flat[3] += 1
    for name, arrays in (("in", inputs), ("mine", mine), ("theirs", theirs)):
        (tmp_path / f"{name}.npz").write_bytes(npz_bytes(arrays))
    sides = ("mine.npz", "theirs.npz", "--program", "m.cvm")
    found = [cvm("dispute", "locate", *sides, "--run", str(number), "--json") for number in range(3)]
    assert [outcome.code for outcome in found] == [0, 1, 0]
    assert (found[1].document["place"]["op"], found[1].document["place"]["element"]) == (op, 3)
    every = cvm("dispute", "locate", *sides, "--json")
    assert (every.code, every.document["run"], every.document["compared"]) == (1, 1, [0, 1, 2])
    assert every.document["place"] == found[1].document["place"]
    assert "run       1 is the first that differs, of 3\n" in cvm("dispute", "locate", *sides).out
    equal = cvm("dispute", "locate", "mine.npz", *sides[:1], *sides[2:])
    assert (equal.code, equal.out) == (0, "EQUAL     every op gave the same in each of 3 runs\n")
    (tmp_path / "one.npz").write_bytes(npz_bytes({name: mine[name][1] for name in mine}))
    unclear = cvm("dispute", "locate", "mine.npz", "one.npz", *sides[2:])
    assert (unclear.code, "mine.npz is of 3 runs, one.npz of 1: say which one" in unclear.err) == (2, True)
    played = cvm("dispute", "play", *sides, "-i", "in.npz", "--codes", "--run", "1", "--json").document
    assert (played["winner"], played["true"]) == ("A", played["roots"][0])
    assert cvm("dispute", "play", *sides, "-i", "in.npz", "--codes", "--run", "0", "--json").document["rounds"] == 0
    outcome = cvm("dispute", "locate", *sides, "--run", "3", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (3, "dispute.run")
    assert "there are 3 runs of these inputs, counted from 0: there is no 3" in outcome.err


@pytest.mark.parametrize("program", [(), ("--program", "m.cvm")])
def test_two_traces_tell_the_op(cvm, true, program):
    outcome = cvm("dispute", "locate", "mine.trace", "theirs.trace", *program, "--json")
    assert outcome.code == 1
    difference = outcome.document["place"]
    assert (difference["op"], difference["output"], difference["element"]) == (conv_of(true)[0], 0, None)
    assert difference["name"] == ("conv2d" if program else None)
    people = cvm("dispute", "locate", "mine.trace", "theirs.trace", *program)
    assert people.out.startswith(f"DIFFER    from op {difference['op']}{' conv2d' if program else ''} on")


def test_runs_of_other_inputs_are_not_compared(cvm, true):
    write_trace(replace(true.trace, inputs=(bytes(32),)), "other.trace")
    outcome = cvm("dispute", "locate", "mine.trace", "other.trace", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (3, "dispute.run")


def test_a_longer_log_differs_where_the_other_ends(cvm, true):
    write_trace(replace(true.trace, steps=(*true.trace.steps, (bytes(32),))), "long.trace")
    outcome = cvm("dispute", "locate", "mine.trace", "long.trace", "--program", "m.cvm", "--json")
    difference = outcome.document["place"]
    assert (outcome.code, difference["op"], difference["roots"]) == (1, len(true.trace.steps), [None, "00" * 32])
    assert "A         has no such tensor" in cvm("dispute", "locate", "mine.trace", "long.trace").out


@pytest.mark.parametrize(("sides", "winner"), [(("mine", "theirs"), "A"), (("theirs", "mine"), "B")])
@pytest.mark.parametrize("kinds", [("npz", "npz"), ("trace", "npz"), ("npz", "trace"), ("trace", "trace")])
def test_play_is_won_by_what_follows(cvm, true, sides, winner, kinds):
    files = [f"{side}.{kind}" for side, kind in zip(sides, kinds, strict=True)]
    outcome = cvm("dispute", "play", *files, *RUN, "-o", "won.step", "--json")
    document = outcome.document
    assert (outcome.code, document["winner"]) == (0, winner)
    assert len(document["questions"]) == document["rounds"] <= document["most_rounds"]
    assert document["op"] == conv_of(true)[0]
    if document["proof_bytes"] is None:  # a side with a trace alone withholds the tensor
        assert "trace" in kinds
        assert document["questions"][-1]["question"] == "OpenTensor"
    else:
        assert document["file"]["bytes"] == document["proof_bytes"]
        assert cvm("dispute", "verify-step", "won.step", "--program", "m.cvm").code == 0


def test_play_for_people(cvm, true):
    outcome = cvm("dispute", "play", "mine.npz", "theirs.npz", *RUN)
    assert outcome.code == 0
    assert "winner    A\n" in outcome.out
    same = cvm("dispute", "play", "mine.npz", "mine.trace", *RUN)
    assert same.code == 0
    assert "winner    none\nbecause   the parties name one trace root\n" in same.out


def test_where_nobody_is_right_nobody_wins(cvm, true):
    steps = true.trace.steps
    for name, root in (("one", b"\1"), ("two", b"\2")):
        write_trace(replace(true.trace, steps=(*steps[:-1], (root * 32,))), f"{name}.trace")
    outcome = cvm("dispute", "play", "one.trace", "two.trace", *RUN, "--json")
    assert (outcome.code, outcome.document["winner"]) == (1, None)


def test_a_step_is_proven_and_judged(cvm, true):
    op, conv = conv_of(true)
    named = cvm("dispute", "step", *RUN, "--tensor", conv, "--element", "0,1,2,3", "-o", "a.step", "--json").document
    shape = true.values[conv].shape
    number = int(np.ravel_multi_index((0, 1, 2, 3), shape))
    assert (named["op"], named["element"], named["target"], named["name"]) == (op, number, 0, "conv2d")
    cvm("dispute", "step", *RUN, "--op", op, "--element", number, "-o", "b.step")
    with open("a.step", "rb") as one, open("b.step", "rb") as other:
        data = one.read()
        assert data == other.read()
    proof = decode_proof(data)
    assert proof == true.prove(op, 0, number, named["step"])
    assert verify_step(proof.claim, proof.witness).accepted
    judged = cvm("dispute", "verify-step", "a.step", "--head", named["head"], "--program", "m.cvm", "--json")
    assert judged.code == 0
    assert judged.document["accepted"] is True
    assert (judged.document["after"], judged.document["bytes"]) == (int(true.values[conv].flat[number]), len(data))


def test_a_refused_step_has_exit_code_1(cvm, true):
    op, _ = conv_of(true)
    proof = true.prove(op, 0, 0, 0)
    false = replace(proof, witness=replace(proof.witness, partial_after=proof.witness.partial_after + 1))
    for name, changed in (
        ("after", false),
        ("record", replace(proof, witness=replace(proof.witness, record=b"?"))),
    ):
        with open(f"{name}.step", "wb") as file:
            file.write(encode_proof(changed))
        outcome = cvm("dispute", "verify-step", f"{name}.step", "--json")
        assert (outcome.code, outcome.document["accepted"]) == (1, False)
        assert "REFUSED: " in cvm("dispute", "verify-step", f"{name}.step").out
    with open("true.step", "wb") as file:
        file.write(encode_proof(proof))
    assert cvm("dispute", "verify-step", "true.step", "--head", "00").code == 1
    other = vector_programs()["table"].program.program
    other.save("other.cvm")
    refused = cvm("dispute", "verify-step", "true.step", "--program", "other.cvm", "--json")
    assert (refused.code, refused.document["reason"]) == (1, "the program is another one")


def test_runs_of_stateful_programs_are_told_apart(cvm, files):
    arguments = ("--program", "counter.cvm", "-i", "steps.npy", "--cycles", "--op", "0", "-o", "c.step", "--json")
    first, second = (cvm("dispute", "step", *arguments, "--run", run).document for run in (0, 1))
    assert first["head"] != second["head"]
    np.savez("state.npz", memory=np.array([[1, 2]]))
    given = cvm("dispute", "step", *arguments, "--state", "state.npz").document
    assert given["head"] not in (first["head"], second["head"])
    outcome = cvm("dispute", "step", *arguments, "--run", "2")
    assert (outcome.code, outcome.document["error"]["code"]) == (3, "dispute.run")
    np.savez("wrong.npz", x=np.array([1]))
    outcome = cvm("dispute", "step", *arguments, "--state", "wrong.npz")
    assert (outcome.code, outcome.document["error"]["code"]) == (3, "state.names")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("locate", "mine.npz", "theirs.npz"), 2, "expected --program PROGRAM"),
        (("locate", "nowhere.trace", "mine.trace"), 3, "trace.unreadable"),
        (("locate", "m.cvm", "mine.trace"), 3, "trace.format"),
        (("step", *RUN, "-o", "x.step"), 2, "--tensor NAME, or --op N"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--tensor", "y"), 2, "--tensor NAME, or --op N"),
        (("step", *RUN, "-o", "x.step", "--tensor", "nothing"), 2, "no op gives the tensor 'nothing'"),
        (("step", *RUN, "-o", "x.step", "--op", "999"), 2, "there is no op 999"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--target", "9"), 2, "there is no 9"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--element", "1,x"), 2, "found '1,x'"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--element", "-1"), 2, "there is no element -1"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--element", "9999999"), 2, "there is no element 9999999"),
        (("step", *RUN, "-o", "x.step", "--op", "0", "--step", "1000"), 2, "there is no step 1000"),
        (("verify-step", "m.cvm"), 3, "step.tag"),
        (("verify-step", "nowhere.step"), 3, "step.unreadable"),
        (("verify-step", "large.step"), 4, "limit.proof_bytes"),
        (("play", "mine.npz", "short.npz", *RUN), 3, "dispute.tensor"),
        (("play", "mine.npz", "floats.npz", *RUN), 3, "dispute.tensor"),
        (("play", "mine.npz", "shaped.npz", *RUN), 3, "dispute.tensor"),
    ],
)
def test_mistakes_are_said(cvm, true, tmp_path, arguments, code, words):
    (tmp_path / "large.step").write_bytes(bytes(2**20 + 1))
    conv = conv_of(true)[1]
    array = true.values[conv]
    for name, changed in (("floats", array / 2), ("shaped", array[0]), ("short", None)):
        kept = {key: value for key, value in true.values.items() if key != conv}
        (tmp_path / f"{name}.npz").write_bytes(npz_bytes(kept if changed is None else kept | {conv: changed}))
    outcome = cvm("dispute", *arguments)
    assert outcome.code == code, outcome
    assert words in outcome.err
