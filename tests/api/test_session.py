import gc
import weakref

import numpy as np
import pytest

import cvm
from cvm.audit import Recorder
from cvm.errors import Invalid
from cvm.executors import EXECUTORS, choose_executor
from cvm.program import verifier
from tests.api import small

STEPS = np.array([[1, 2], [3, 4], [5, 6]])[:, None]


@pytest.fixture(params=sorted(EXECUTORS))
def executor(request):
    return request.param


def test_a_session_says_which_executor_it_uses_and_why():
    session = cvm.Session(small.negated())
    first, *nodes = session.explain()
    assert first == ": ".join(choose_executor())
    assert len(nodes) == len(session.program.nodes)
    assert cvm.Session(small.negated(), executor="formal").explain()[0] == "formal: asked for"


def test_unknown_executors_and_impossible_threads_are_invalid():
    with pytest.raises(Invalid, match="there is no executor 'opencl'; there are formal, numpy"):
        cvm.Session(small.negated(), executor="opencl")
    with pytest.raises(Invalid, match="at least one thread, found 0"):
        cvm.Session(small.negated(), threads=0)


def test_a_program_is_verified_once(monkeypatch):
    calls = []
    verify = verifier.verify
    monkeypatch.setattr(verifier, "verify", lambda program: calls.append(program) or verify(program))
    session = cvm.Session(small.negated())
    session.run({"image": np.zeros((5, 2, 3))})
    assert len(calls) == 1
    cvm.Session(verify(small.negated()))
    assert len(calls) == 1


def test_state_is_kept_between_runs_until_reset(executor):
    session = cvm.Session(small.counter(), executor=executor)
    assert session.state["memory"].tolist() == [[100, 200]]
    assert session.run({"step": STEPS[0]})["count"].tolist() == [[101, 202]]
    assert session.run({"step": STEPS[1]})["count"].tolist() == [[104, 206]]
    assert session.state["memory"].tolist() == [[104, 206]]
    session.state["memory"][:] = 0  # a copy
    assert session.run({"step": STEPS[2]})["count"].tolist() == [[109, 212]]
    session.reset()
    assert session.run({"step": STEPS[0]})["count"].tolist() == [[101, 202]]


def test_cycles_are_runs_one_after_the_other(executor):
    session = cvm.Session(small.counter(), executor=executor)
    result = session.run({"step": STEPS}, capture=["memory"], cycles=True)
    assert result["count"].tolist() == [[[101, 202]], [[104, 206]], [[109, 212]]]
    assert result["memory"].tolist() == [[[100, 200]], [[101, 202]], [[104, 206]]]
    assert session.state["memory"].tolist() == [[109, 212]]


def test_every_sample_of_a_batch_begins_with_the_initial_state(executor):
    session = cvm.Session(small.counter(), executor=executor)
    session.run({"step": STEPS[0]})
    kept = session.state["memory"].tolist()
    assert session.run({"step": STEPS})["count"].tolist() == [[[101, 202]], [[103, 204]], [[105, 206]]]
    twice = session.run({"step": np.stack([STEPS, STEPS])}, cycles=True)["count"]
    assert twice.shape == (2, 3, 1, 2)
    assert (twice[0] == twice[1]).all()
    assert session.state["memory"].tolist() == kept


def test_a_failed_run_leaves_the_state_as_it_was():
    session = cvm.Session(small.counter())
    session.run({"step": STEPS[0]})
    with pytest.raises(Invalid):
        session.run({"step": STEPS[0] + 100})
    with pytest.raises(Invalid):
        session.run({"step": STEPS[0]}, capture=["nothing"])
    assert session.state["memory"].tolist() == [[101, 202]]


def test_capture_adds_tensors_by_name(executor):
    session = cvm.Session(small.negated(), executor=executor)
    image = np.zeros((1, 2, 3), int)
    assert list(session.run({"image": image}, codes=True)) == ["y", "total"]
    assert set(session.run({"image": image}, capture="all", codes=True)) == {"y", "total", "image", "difference"}
    assert set(session.run({"image": image}, capture="image", codes=True)) == {"y", "total", "image"}
    assert session.run({"image": image}, capture=["difference"], codes=True)["difference"].tolist() == [[[255] * 3] * 2]
    with pytest.raises(Invalid, match="there is no value 'a' to capture"):
        session.run({"image": image}, capture=["a"], codes=True)


def test_real_numbers_are_those_of_the_output_quantiser():
    result = cvm.Session(small.negated()).run({"image": np.array([[[0, 51, 102], [153, 204, 255]]])}, codes=True)
    assert result.real("y").tolist() == [[[1.0, 0.8, 0.6], [0.4, 0.2, 0.0]]]
    assert result["y"].dtype == np.int32
    assert not result.has_real("total")
    with pytest.raises(Invalid, match="no quantiser"):
        result.real("total")
    with pytest.raises(KeyError):
        result["nothing"]
    assert repr(result) == "Result(y: [1, 2, 3], total: [1])"


def test_executors_give_the_same_bytes():
    images = np.random.default_rng(3).random((4, 2, 3))
    results = [cvm.Session(small.negated(), executor=name).run({"image": images}, "all") for name in EXECUTORS]
    for result in results[1:]:
        assert {name: array.tobytes() for name, array in result.items()} == {
            name: array.tobytes() for name, array in results[0].items()
        }


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("threads", [1, 3])
def test_many_inputs_give_what_each_gives_alone_in_their_order(executor: str, threads: int) -> None:
    session = cvm.Session(small.negated(), executor=executor, threads=threads)
    name = session.program.inputs[0].value.name
    shape = session.program.inputs[0].value.shape
    inputs = [{name: np.full(shape, number % 100)} for number in range(37)]
    counted: list[int] = []
    results = session.run_many(inputs, progress=counted.append, codes=True)
    output = session.program.outputs[0].name
    assert [result[output].flat[0] for result in results] == [
        session.run(one, codes=True)[output].flat[0] for one in inputs
    ]
    assert counted[-1] == len(inputs)
    assert counted == sorted(counted)


def test_the_first_wrong_one_of_many_inputs_is_named() -> None:
    session = cvm.Session(small.negated())
    name = session.program.inputs[0].value.name
    shape = session.program.inputs[0].value.shape
    with pytest.raises(Invalid):
        session.run_many([{name: np.zeros(shape, int)}, {name: np.full(shape, 10**9)}])


def test_bound_arrays_go_on_from_the_state_of_the_session(executor):
    session = cvm.Session(small.counter(), executor)
    session.run({"step": STEPS[0]})
    bound = session.bind()
    bound.inputs["step"][...] = STEPS[1]
    bound.run()
    assert bound.outputs["count"].tolist() == [[104, 206]]
    bound.run()
    assert session.state["memory"].tolist() == [[107, 210]]
    assert session.run({"step": STEPS[2]})["count"].tolist() == [[112, 216]]
    bound.inputs["step"][...] = 10
    with pytest.raises(Invalid, match="must lie in"):
        bound.run()
    assert session.state["memory"].tolist() == [[112, 216]]


@pytest.mark.parametrize("trace", [False, True])
def test_a_witness_observes_bound_runs_as_others(executor, trace):
    expected, found = (Recorder(cvm.Session(small.counter()).verified, trace) for _ in range(2))
    cvm.Session(small.counter(), executor).run({"step": STEPS}, cycles=True, witness=expected)
    bound = cvm.Session(small.counter(), executor).bind(found)
    for step in STEPS:
        bound.inputs["step"][...] = step
        bound.run()
    assert found.claim() == expected.claim()


def test_a_program_without_state_can_be_bound(executor):
    bound = cvm.Session(small.negated(), executor).bind()
    for array in bound.inputs.values():
        array[...] = 3
    bound.run()
    expected = cvm.Session(small.negated(), "formal").run(dict(bound.inputs), codes=True)
    names = {item.name: item.value for item in small.negated().outputs}
    assert all(np.array_equal(bound.outputs[names[name]], codes) for name, codes in expected.items())


def test_sessions_share_state(executor):
    one, other = cvm.Session(small.counter(), executor), cvm.Session(small.counter(), executor)
    one.run({"step": STEPS[0]})
    other.share(one)
    other.run({"step": STEPS[1]})
    assert one.run({"step": STEPS[2]})["count"].tolist() == [[109, 212]]
    assert other.state["memory"].tolist() == [[109, 212]]


@pytest.mark.parametrize("executor", ["numpy", "native"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bound_run_keeps_its_arrays_alive(executor, threads):
    """Who keeps only the function to call has the arrays for itself: their memory is not given to others."""
    bound = cvm.Session(small.negated(), executor, threads).bind()
    kept = [weakref.ref(array) for array in (*bound.inputs.values(), *bound.outputs.values())]
    run = bound.run
    del bound
    gc.collect()
    assert all(array() is not None for array in kept)
    run()
