import numpy as np
import pytest

from cvm.agreement import compare, judge
from cvm.errors import Mismatch
from cvm.executors import RunResult, create
from cvm.inputs import Intake, arrange
from cvm.program import verify
from tests.api import small


class Liar:
    """The NumPy executor, but for one element of one tensor in one run, with capture and without."""

    name = "liar"

    def __init__(self, verified, tensor, index, run=0):
        self._honest = create("numpy", verified)
        self._tensor, self._index, self._run = tensor, index, run

    def run(self, inputs, state, capture=frozenset()):
        result = self._honest.run(inputs, state, capture)
        if self._run == 0 and self._tensor in result.values:
            result.values[self._tensor][self._index] += 1
        self._run -= not capture  # a run without capture follows each one with it
        return RunResult(result.values, result.state)

    def explain(self):
        return self._honest.explain()


@pytest.fixture
def negated():
    return verify(small.negated())


def samples(verified, array):
    return arrange(verified.program, {verified.program.inputs[0].value.name: array}, intake=Intake(codes=True))[1]


IMAGES = np.arange(18).reshape(3, 2, 3)


def test_executors_agree_on_every_tensor(negated):
    seen = []
    both = [create(name, negated) for name in ("formal", "numpy")]
    agreement = compare(negated.program, both, samples(negated, IMAGES), seen.append)
    assert (agreement.runs, agreement.tensors, agreement.elements) == (3, 3, 3 * 13)
    assert agreement.difference is None
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("tensor", "op", "index"), [("difference", "broadcast_sub", (0, 1, 2)), ("total", "sum", (0,))]
)
def test_the_first_difference_is_named(negated, tensor, op, index):
    agreement = compare(
        negated.program,
        [create("formal", negated), Liar(negated, tensor, index, run=1)],
        samples(negated, IMAGES),
    )
    found = agreement.difference
    assert (found.run, found.op, found.tensor, found.index) == (1, op, tensor, index)
    assert found.values["liar"] == found.values["formal"] + 1
    assert agreement.runs == 2
    error = found.error()
    assert isinstance(error, Mismatch)
    assert f"tensor {tensor!r} (op {op}) differs at {list(index)}" in error.message


def test_formal_judges_elements_from_the_operands_that_were_there(negated):
    agreement = judge(negated, create("numpy", negated), samples(negated, IMAGES), 4)
    assert agreement.difference is None
    assert agreement.elements <= 3 * (4 + 1)
    # Wrong in its second tensor: what is computed from it is right, so only that tensor is to blame.
    lied = judge(negated, Liar(negated, "difference", (0, 0, 1)), samples(negated, IMAGES[:1]), 6)
    assert (lied.difference.tensor, lied.difference.index) == ("difference", (0, 0, 1))
    assert lied.difference.values == {"formal": 254, "liar": 255}
    consequence = judge(negated, Liar(negated, "total", (0,)), samples(negated, IMAGES[:1]), 1)
    assert (consequence.difference.tensor, consequence.difference.op) == ("total", "sum")


def test_which_elements_are_judged_is_the_same_everywhere(negated):
    runs = [judge(negated, create("numpy", negated), samples(negated, IMAGES), 3).elements for _ in range(2)]
    assert runs[0] == runs[1]


def test_state_is_compared_from_cycle_to_cycle():
    verified = verify(small.counter())
    steps = np.array([[[1, 2]], [[3, 4]]])
    _, cycles = arrange(verified.program, {"step": steps}, cycles=True)
    both = [create(name, verified) for name in ("formal", "numpy")]
    assert compare(verified.program, both, cycles).difference is None
    assert judge(verified, both[1], cycles, 5).difference is None


def test_the_self_test_finds_a_wrong_executor(monkeypatch):
    from cvm import selftest

    assert all(verdict.agrees for verdict in selftest.run_selftest(["numpy"]))
    honest = selftest.create
    monkeypatch.setattr(
        selftest,
        "create",
        lambda name, verified: honest(name, verified) if name == "formal" else Liar(verified, "y", 0),
    )
    assert not any(verdict.agrees for verdict in selftest.run_selftest(["liar"]))


def test_a_salt_draws_other_elements_of_the_same_number(negated):
    def judged(salt):
        liar = Liar(negated, "total", (0,), run=5)  # it has no fault in these runs
        return judge(negated, liar, samples(negated, IMAGES), 4, salt=salt)

    assert {judged(str(salt)).elements for salt in range(10)} == {3 * (4 + 1)}

    def found(salt):
        liar = Liar(negated, "difference", (0, 0, 1))
        return judge(negated, liar, samples(negated, IMAGES[:1]), 1, salt=salt).difference

    # One of six elements is wrong; the sum, which does not follow from it, is judged in any case.
    assert {found(str(salt)).tensor for salt in range(40)} == {"difference", "total"}
