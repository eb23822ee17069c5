"""Spot checks: no answer rests on an executor that FORMAL contradicts, and nobody can foresee what is judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import audit
from cvm.agreement import compare, drawn_indices, judge
from cvm.audit import Judging, Receipt, Recorder, Verdict, verify
from cvm.audit import spot_check as checks
from cvm.audit.draw import HEAVY, Draw, draws, terms
from cvm.audit.spot_check import RUNS, SpotCheck, spot_check
from cvm.demo import IMAGES, MODEL
from cvm.errors import Invalid
from cvm.executors import create, initial_state
from cvm.executors.numpy import NumpyExecutor
from cvm.inputs import Intake, arrange
from cvm.program import Output, ProgramBuilder, VerifiedProgram
from cvm.program import verify as verify_program
from tests.audit.examples import SUBJECTS, subject
from tests.audit.faulty import Faulty, channel, everywhere, fraction

SALT = "0123456789abcdef"
FIXED = Judging(SALT)


@pytest.fixture(scope="module")
def lenet() -> VerifiedProgram:
    return verify_program(cvm.compile(MODEL))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with np.load(IMAGES) as data:
        return data["image"][:4]


def nowhere(array: np.ndarray) -> np.ndarray:
    """No element is wrong."""
    return np.zeros(array.shape, bool)


def claimed_by(executor: Any, verified: VerifiedProgram, inputs: Mapping[str, Any], trace: bool = False) -> Receipt:
    """The receipt that a maker with this executor gives away."""
    recorder, number = Recorder(verified, trace), 0
    for feeds in arrange(verified.program, inputs, intake=Intake(codes=True))[1]:
        state = initial_state(verified.program)
        for feed in feeds:
            observer = recorder.begin(feed, state)
            result = executor.run(feed, state, watch=observer.watch)
            recorder.keep([observer.end(result)])
            state, number = result.state, number + 1
    assert number
    return recorder.receipt()


def verified_by_its_maker(
    executor: Any, verified: VerifiedProgram, inputs: Mapping[str, Any], judging: Judging = FIXED, trace: bool = False
) -> Verdict:
    """The answer of who verifies with the executor that made the claim."""
    receipt = claimed_by(executor, verified, inputs, trace)
    return verify(receipt, verified, inputs, executor=executor, judging=judging, codes=True)


def biased() -> VerifiedProgram:
    """A convolution whose sums take an offset near 2^63: with an offset that is taken modulo 2^63, y is -128."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2, 1, 1), 0, 255)
    (sums,) = builder.add("conv2d", [x, builder.constant(np.array([[1, -1], [-1, 1]]).reshape(2, 2, 1, 1))], {})
    offset = np.array([9 * 10**18, -2 * 10**18]).reshape(1, 2, 1, 1)
    factors = [np.full((1, 2, 1, 1), 2**20), offset, np.array([54])]
    parameters = [builder.parameter(array) for array in factors]
    (y,) = builder.add("requantize", [sums, *parameters], {"rounding": "half_up", "lo": -128, "hi": 127}, name="y")
    return verify_program(builder.build([Output("y", y)]))


# A defect of the executor that made the claim and verifies it


@pytest.mark.parametrize("trace", [False, True])
def test_the_wrong_bytes_of_one_executor_are_not_reproduced_by_itself(trace):
    verified, inputs = biased(), {"x": np.zeros((1, 2, 1, 1), np.int32)}
    assert create("formal", verified).run(inputs, {}).values["y"].ravel().tolist() == [127, -111]

    def native() -> Faulty:
        """The first channel is 127 - 255, as where the offset does not fit the arithmetic."""
        return Faulty(verified, "y", channel(0), name="native", by=255)

    found = verified_by_its_maker(native(), verified, inputs, trace=trace)
    assert (found.answer, found.level, found.executor) == ("CANNOT_RECOMPUTE", "outputs", "native")
    assert "tensor 'y' (op requantize) differs at [0, 0, 0, 0]: formal has 127, native has -128" in found.reason
    assert "--executor" in found.reason
    assert found.judged is not None
    assert found.judged.difference is not None
    # Without FORMAL, the executor confirms itself; the verdict says that nobody else looked.
    believed = verified_by_its_maker(native(), verified, inputs, Judging(SALT, 0), trace)
    assert believed.answer == "REPRODUCED"
    assert believed.judged is not None
    assert (believed.judged.elements, str(believed.judged)) == (0, "nothing was judged by FORMAL")


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("when", ["open", "ordinary"])
@pytest.mark.parametrize("tensor", ["difference", "total"])
def test_kernels_that_differ_with_what_is_returned_are_found(when, tensor, trace):
    item = subject("batch")
    for count in (1, None):
        found = verified_by_its_maker(
            Faulty(item.verified, tensor, fraction(0.01), when), item.verified, item.inputs, Judging(SALT, count), trace
        )
        assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "outputs"), (when, count)
        assert f"tensor {tensor!r}" in found.reason


def test_a_tensor_that_is_wrong_everywhere_is_found_with_any_salt(lenet, images):
    names = [value.name for node in lenet.program.nodes for value in node.outputs]
    for number, name in enumerate(names):
        executor = Faulty(lenet, name, everywhere)
        judging = Judging(f"{number:04x}", len(names))
        found = verified_by_its_maker(executor, lenet, {"image": images[:2]}, judging, trace=number % 2 == 0)
        assert found.answer == "CANNOT_RECOMPUTE", name
        assert f"tensor {name!r}" in found.reason


def test_a_defect_of_a_part_of_a_tensor_is_found_as_often_as_chance_says(lenet, images):
    inputs, name, part = {"image": images[:1]}, "conv1", 0.25
    assert math.prod(lenet.shapes[name]) > 100
    tensors = len(lenet.program.nodes)
    executor = Faulty(lenet, name, fraction(part))
    receipt = claimed_by(executor, lenet, inputs)
    for rounds in (1, 8):
        answers = [
            verify(receipt, lenet, inputs, executor=executor, judging=Judging(f"{salt:04x}", rounds * tensors)).answer
            for salt in range(40)
        ]
        caught = answers.count("CANNOT_RECOMPUTE")
        expected = 40 * (1 - (1 - part) ** rounds)
        assert abs(caught - expected) < 4 * math.sqrt(40 * part * (1 - part)), rounds


def test_one_wrong_channel_is_found(lenet, images):
    for tensor in ("conv1", "pool1"):
        executor = Faulty(lenet, tensor, channel(3))
        judging = Judging(SALT, 100 * len(lenet.program.nodes))
        found = verified_by_its_maker(executor, lenet, {"image": images}, judging)
        assert found.answer == "CANNOT_RECOMPUTE"
        assert found.judged is not None
        assert found.judged.difference is not None
        assert (found.judged.difference.tensor, found.judged.difference.index[1]) == (tensor, 3)


def test_an_honest_claim_is_not_diverged_because_the_verifiers_executor_is_wrong():
    item = subject("batch")
    receipt = item.receipt(trace=False)
    wrong = Faulty(item.verified, "total")
    found = verify(receipt, item.verified, item.inputs, executor=wrong, judging=FIXED, codes=True)
    assert found.answer == "CANNOT_RECOMPUTE"
    assert "the executor faulty is wrong" in found.reason
    assert (
        verify(receipt, item.verified, item.inputs, executor="numpy", judging=FIXED, codes=True).answer == "REPRODUCED"
    )


def test_a_false_claim_is_diverged_and_the_verdict_says_who_looked():
    item = subject("batch")
    receipt = item.receipt(trace=False)
    false = replace(receipt.claim.runs[1], outputs=receipt.claim.runs[0].outputs)
    claim = replace(receipt.claim, runs=(receipt.claim.runs[0], false, receipt.claim.runs[2]))
    found = verify(
        replace(receipt, claim=claim), item.verified, item.inputs, executor="numpy", judging=FIXED, codes=True
    )
    assert (found.answer, found.level, found.executor) == ("DIVERGED", "outputs", "numpy")
    assert found.judged is not None
    assert found.judged.elements == 2 * 7  # all of the two runs so far


@pytest.mark.parametrize("when", ["always", "open", "ordinary"])
@pytest.mark.parametrize("tensor", ["raised", "count"])
def test_a_wrong_state_is_found(when, tensor):
    item = subject("counter")
    nodes = {node.op: node.outputs[0].name for node in item.verified.program.nodes}
    name = {"raised": nodes["elemwise_add"], "count": nodes["clip"]}[tensor]
    if (when, tensor) == ("ordinary", "raised"):
        return  # an ordinary run returns no such tensor
    executor = Faulty(item.verified, name, when=when)
    judged = spot_check(item.verified, executor, arrange(item.verified.program, item.inputs, True)[1], FIXED, b"id")
    assert judged.difference is not None
    assert judged.difference.tensor == name


def test_operands_are_not_taken_from_the_executor():
    item = subject("negated")

    class Blurring(NumpyExecutor):
        """Computes from another image than it was given."""

        name = "blurring"

        def run(self, inputs, state, capture=frozenset(), watch=None):
            return super().run({"image": inputs["image"] + 1}, state, capture, watch)

    found = verified_by_its_maker(Blurring(item.verified), item.verified, item.inputs)
    assert found.answer == "CANNOT_RECOMPUTE"
    assert "tensor 'difference'" in found.reason


def test_who_shows_other_outputs_than_it_leaves_is_found():
    item = subject("negated")

    class Pretending(NumpyExecutor):
        name = "pretending"

        def run(self, inputs, state, capture=frozenset(), watch=None):
            result = super().run(inputs, state, capture, watch)
            result.values["total"] = result.values["total"] + 1
            return result

    executor = Pretending(item.verified)
    for trace in (False, True):
        found = verified_by_its_maker(executor, item.verified, item.inputs, trace=trace)
        assert found.answer == "CANNOT_RECOMPUTE"
        assert "what pretending showed" in found.reason


def test_an_executor_that_does_not_show_a_tensor_is_a_bug():
    item = subject("negated")

    class Hiding(NumpyExecutor):
        name = "hiding"

        def run(self, inputs, state, capture=frozenset(), watch=None):
            def see(tensors):
                watch({name: array for name, array in tensors.items() if name == "total"})

            return super().run(inputs, state, capture, None if watch is None else see)

    with pytest.raises(AssertionError, match="did not show"):
        verified_by_its_maker(Hiding(item.verified), item.verified, item.inputs)


# What is drawn


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("trace", [False, True])
def test_small_programs_are_judged_whole(name, trace):
    item = subject(name)
    receipt = item.receipt(trace)
    found = verify(receipt, item.verified, item.inputs, cycles=item.cycles, executor="numpy", codes=True)
    values = [value for node in item.verified.program.nodes for value in node.outputs]
    runs = len(receipt.claim.runs)
    assert found.judged is not None
    assert found.judged.elements == runs * sum(math.prod(value.shape) for value in values)
    assert (found.judged.tensors, found.judged.of, found.judged.runs) == (len(values), len(values), runs)
    assert found.checked == audit.LEVELS[: 4 if trace else 3]


def test_every_element_is_drawn_once_a_tensor_of_a_run_after_the_other(lenet):
    runs = [5, 2]
    tensors = len(lenet.program.nodes)
    order = list(draws(lenet, "seed", runs))
    sizes = sum(math.prod(value.shape) for node in lenet.program.nodes for value in node.outputs)
    assert len(order) == len(set(order)) == len(runs) * sizes
    for start, run in ((0, 5), (tensors, 2)):
        part = order[start : start + tensors]
        assert {draw.run for draw in part} == {run}
        assert len({(draw.node, draw.output) for draw in part}) == tensors


def test_the_draw_depends_on_the_claim_and_the_salt_alone(lenet, images):
    def drawn(identity: bytes, judging: Judging) -> list[Draw]:
        check = SpotCheck(lenet, create("numpy", lenet), judging, identity, 9)
        return check._drawn(check._order)

    first = drawn(b"claim", Judging("00", 50))
    assert first == drawn(b"claim", Judging("00", 50))
    assert first[:20] == drawn(b"claim", Judging("00", 20))
    assert first != drawn(b"claim", Judging("01", 50))
    assert first != drawn(b"another", Judging("00", 50))
    inputs = {"image": images}
    receipt = claimed_by(create("numpy", lenet), lenet, inputs)
    asked = Judging("00", 50)
    once = verify(receipt, lenet, inputs, executor="numpy", judging=asked).judged
    assert once == verify(receipt, lenet, inputs, executor="native", judging=asked).judged
    assert once is not None
    assert (once.elements, once.salt) == (50, "00")


def test_indices_are_drawn_evenly():
    found = Counter(next(drawn_indices(5, f"seed {number}")) for number in range(5000))
    assert set(found) == set(range(5))
    assert all(abs(count - 1000) < 150 for count in found.values())
    for size in (1, 2, 3, 64):
        assert sorted(drawn_indices(size, "seed")) == list(range(size))


def test_a_fresh_salt_is_another_one_each_time():
    item = subject("negated")
    receipt = item.receipt()
    found = [verify(receipt, item.verified, item.inputs, executor="numpy", codes=True).judged for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].salt != found[1].salt
    assert len(found[0].salt) == 32


@pytest.mark.parametrize(
    ("salt", "count", "code"),
    [
        ("", None, "judge.salt"),
        ("0", None, "judge.salt"),
        ("xy", None, "judge.salt"),
        ("00 00", None, "judge.salt"),
        ("00" * 65, None, "judge.salt"),
        ("00", -1, "judge.count"),
    ],
)
def test_what_is_no_salt_or_no_count_is_refused(salt, count, code):
    with pytest.raises(Invalid) as caught:
        Judging(salt, count)
    assert caught.value.code == code


# What it costs


def planned(verified: VerifiedProgram, monkeypatch: pytest.MonkeyPatch, seconds: float, runs: int = 1) -> list[Any]:
    """What is drawn where FORMAL takes a microsecond for a term, and each run takes so many seconds."""
    monkeypatch.setattr(checks, "_seconds_per_term", lambda: 1e-6)
    check = SpotCheck(verified, create("numpy", verified), FIXED, b"id", runs)
    feed = arrange(
        verified.program,
        {item.value.name: np.zeros(item.value.shape, int) for item in verified.program.inputs},
        intake=Intake(codes=True),
    )
    state = initial_state(verified.program)
    result = create("numpy", verified).run(feed[1][0][0], state)
    for number in range(runs):
        check.note(number, feed[1][0][0], state, result, seconds)
    return check._drawn(check._order)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0, 4.0])
def test_no_more_is_drawn_than_the_budget_allows(lenet, monkeypatch, seconds):
    costs = terms(lenet)
    taken = planned(lenet, monkeypatch, seconds)
    budget = max(0.05, 0.2 * seconds)
    spent = sum(costs[draw.node] for draw in taken) * 1e-6
    assert spent <= budget
    everything = sum(math.prod(node.outputs[0].shape) for node in lenet.program.nodes)
    assert len(taken) == everything or spent > budget - max(costs) * 1e-6


def test_laying_further_runs_open_is_paid_from_the_budget(lenet, monkeypatch):
    costs = terms(lenet)
    for seconds in (0.0, 0.001, 0.02, 0.2):
        taken = planned(lenet, monkeypatch, seconds, runs=20)
        opened = len({draw.run for draw in taken})
        spent = sum(costs[draw.node] for draw in taken) * 1e-6 + (opened - 1) * seconds
        assert spent <= max(0.05, 0.2 * 20 * seconds) + 1e-9
        assert opened > 1


def test_one_element_is_judged_even_if_it_costs_more_than_the_budget(lenet, monkeypatch):
    monkeypatch.setattr(checks, "_seconds_per_term", lambda: 1.0)
    judged = spot_check(lenet, create("numpy", lenet), [[{"image": np.zeros((1, 1, 8, 8), np.int32)}]], FIXED, b"id")
    assert (judged.elements, judged.tensors, judged.runs) == (1, 1, 1)


def test_any_tensor_can_be_the_one_that_a_short_budget_is_spent_on(lenet):
    first = {next(draws(lenet, f"seed {number}", [0])).node for number in range(400)}
    assert first == set(range(len(lenet.program.nodes)))


def test_an_element_that_takes_formal_a_second_is_not_drawn_but_counted():
    builder = ProgramBuilder()
    x = builder.input("x", (1, HEAVY), 0, 1)
    (y,) = builder.add("sum", [x], {"axes": ()}, name="y")
    (z,) = builder.add("negative", [y], name="z")
    verified = verify_program(builder.build([Output("z", z)]))
    feed = {"x": np.ones((1, HEAVY), np.int32)}
    judged = spot_check(verified, create("numpy", verified), [[feed]], FIXED, b"id")
    assert (judged.elements, judged.tensors, judged.of) == (1, 1, 2)


def test_boxes_cost_the_work_of_their_batch():
    builder = ProgramBuilder()
    x = builder.input("x", (2, 100, 6), 0, 99)
    count, rows = builder.add("get_valid_count", [x], {"score_threshold": 5})
    attributes = {"iou_threshold": 50, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    (kept,) = builder.add("non_max_suppression", [rows, count], attributes)
    verified = verify_program(builder.build([Output("kept", kept)]))
    assert terms(verified)[1] > 32 * 100 * 99 / 2 > terms(verified)[0] > 100


def test_runs_are_not_laid_open_without_end():
    item = subject("negated")
    feed = {"image": np.zeros((1, 2, 3), np.int32)}
    executor = Faulty(item.verified, "total", nowhere)
    judged = spot_check(item.verified, executor, [[feed]] * (RUNS + 20), FIXED, b"id")
    assert (judged.runs, executor.opened, executor.ordinary) == (RUNS, RUNS, RUNS)


def test_nothing_runs_twice_where_nothing_is_judged(lenet, images):
    executor = Faulty(lenet, "probs", nowhere)
    verified_by_its_maker(executor, lenet, {"image": images}, Judging(SALT, 0))
    assert (executor.ordinary, executor.opened) == (2 * len(images), 0)
    executor = Faulty(lenet, "probs", nowhere)
    verified_by_its_maker(executor, lenet, {"image": images}, Judging(SALT, 1))
    assert (executor.ordinary, executor.opened) == (2 * len(images), 1)


def test_only_what_is_read_later_is_kept(lenet, images):
    check = SpotCheck(lenet, create("numpy", lenet), Judging(SALT, 3), b"id", 1)
    (feed,), *_ = arrange(lenet.program, {"image": images[:1]})[1]
    check.note(0, feed, {}, create("numpy", lenet).run(feed, {}), 0.0)
    part = sorted(check._drawn([0]), key=lambda draw: draw.node)
    view = check._view(check._noted[0], part)
    assert view.judged == part
    assert set(view._held) == {output.value for output in lenet.program.outputs}


# Levels and executors


def test_where_nothing_is_executed_nothing_is_said_to_be_reproduced():
    item = subject("negated")
    receipt = item.receipt()
    for level, words in (("structure", "STRUCTURE HOLDS"), ("roots", "ROOTS AGREE")):
        found = verify(receipt, item.verified, item.inputs, level=level, codes=True)
        assert (found.answer, found.words, found.executor, found.judged) == ("REPRODUCED", words, None, None)
        assert found.checked[-1] == level
    found = verify(receipt, item.verified, item.inputs, executor="formal", codes=True)
    assert (found.words, found.executor, found.judged) == ("REPRODUCED", "formal", None)
    found = verify(receipt, item.verified, item.inputs, level="formal", codes=True)
    assert (found.executor, found.judged) == ("formal", None)
    other = verify(receipt, item.verified, {"image": item.inputs["image"] + 1}, level="roots", codes=True)
    assert (other.words, other.checked) == ("CANNOT_RECOMPUTE", ("structure",))


@pytest.mark.parametrize("when", ["always", "open", "ordinary"])
def test_level_formal_with_a_sample_finds_what_is_wrong(when):
    item = subject("batch")
    executor = Faulty(item.verified, "total", when=when)
    receipt = claimed_by(executor, item.verified, item.inputs)
    found = verify(
        receipt,
        item.verified,
        item.inputs,
        level="formal",
        sample=1,
        executor=executor,
        judging=Judging("ab"),
        codes=True,
    )
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "formal")
    honest = verify(
        item.receipt(),
        item.verified,
        item.inputs,
        level="formal",
        sample=1,
        executor="numpy",
        judging=Judging("ab"),
        codes=True,
    )
    assert honest.judged is not None
    assert (honest.judged.elements, honest.judged.runs, honest.judged.salt) == (6, 3, "ab")


@pytest.mark.parametrize("when", ["always", "open", "ordinary"])
def test_comparisons_find_a_defect_in_either_way_of_running(lenet, images, when):
    _, samples = arrange(lenet.program, {"image": images})
    executor = Faulty(lenet, "probs", fraction(0.01), when)
    agreement = compare(lenet.program, [create("numpy", lenet), executor], samples)
    assert agreement.difference is not None
    assert (agreement.difference.run, agreement.difference.tensor) == (0, "probs")
    judged = judge(lenet, executor, samples, 100)
    assert judged.difference is not None
    assert judged.difference.tensor == "probs"
    if when == "ordinary":
        assert set(agreement.difference.values) == {"faulty", "faulty with every tensor laid open"}
