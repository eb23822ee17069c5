"""The rehearsal notices what the emitter does wrong before a result leaves: NumPy's bytes come out all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors import initial_state
from cvm.executors.native.descriptions.expressions import Requantization
from cvm.executors.native.emit import (
    contraction,
    depthwise_sums,
    elements,
    epilogue,
    folds,
    formula,
    nest,
    requantize,
    residual,
)
from cvm.executors.native.emit.ir import V, typed
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.kernels import vision, windows
from cvm.executors.native.runtime import calls, rehearsal, threads, trial
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.selection import mostly_long
from tools.feeds import feeds

MACHINES = (available()[0], available()[-1])


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")


def sampler() -> VerifiedProgram:
    """One kernel of every kind, on more channels and elements than a vector has lanes."""
    random = np.random.default_rng(11)
    builder = ProgramBuilder()
    x = builder.input("x", (2, 40, 6, 7), -128, 127)
    y = builder.input("y", (1, 40, 1, 1), -(2**20), 2**20)
    boxes = builder.input("boxes", (1, 75, 6), -30, 30)

    def codes(sums: str) -> str:
        channels = builder.shape(sums)[1]
        bits = builder.range(sums).magnitude().bit_length()
        parameters = [random.integers(2**29, 2**30, (1, channels, 1, 1)),
                      random.integers(-(2**20), 2**20, (1, channels, 1, 1)), np.full(1, 21 + bits)]  # fmt: skip
        attributes = {"rounding": "half_up", "lo": -128, "hi": 127}
        return builder.add("requantize", [sums, *map(builder.parameter, parameters)], attributes)[0]

    def conv(x: str, weights: tuple[int, ...], groups: int = 1) -> str:
        inputs = [x, builder.constant(random.integers(-127, 127, weights)),
                  builder.constant(random.integers(-900, 900, weights[0]))]  # fmt: skip
        return builder.add("conv2d", inputs, {"padding": (1, 1), "groups": groups})[0]

    a = codes(conv(x, (40, 40, 3, 3)))
    b = codes(conv(a, (40, 1, 3, 3), 40))
    (pooled,) = builder.add("max_pool2d", [b], {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)})
    (total,) = builder.add("broadcast_add", [pooled, y])
    (clipped,) = builder.add("clip", [total], {"a_min": -100_000, "a_max": 300_000})
    (shifted,) = builder.add("cvm_right_shift", [clipped], {"precision": 30, "shift_bit": 3})
    (transposed,) = builder.add("transpose", [pooled], {"axes": (0, 2, 3, 1)})
    (most,) = builder.add("max", [x], {"axes": (2, 3), "keepdims": True})
    (rounded,) = builder.add(
        "requantize", [y, *(builder.parameter(np.full(1, n)) for n in (2**30 + 7, 99, 35))],
        {"rounding": "half_even", "lo": -(2**20), "hi": 2**20},
    )  # fmt: skip
    count, rows = builder.add("get_valid_count", [boxes], {"score_threshold": -20})
    attributes = {"iou_threshold": 5, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    (kept,) = builder.add("non_max_suppression", [rows, count], attributes)
    results = [conv(a, (40, 1, 3, 3), 40), shifted, transposed, most, rounded, kept]
    return verify(builder.build([Output(f"y{index}", name) for index, name in enumerate(results)]))


_lower, _merged, _rounded, _bounds = requantize._lower, requantize._merged, requantize._rounded, windows._bounds
_decoded, _parameter, _starting = elements.decoded, epilogue.Epilogue.parameter, contraction.starting
_results, _overlaps = residual.results, vision._overlaps
_outside, _claim, _write = calls._outside, calls.emit_claim, nest.Reading.write
_least = folds._Rows._least

Plant = Callable[[pytest.MonkeyPatch], None]


def _steps(name: str, wrong: Any) -> Plant:
    return lambda patch: patch.setitem(formula._STEPS, name, wrong)


def _set(owner: object, name: str, wrong: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, wrong)


DEFECTS: dict[str, Plant] = {
    "wrap: the lower halves are not extended": _set(requantize, "_lower", lambda code, wide: wide),
    "bias: one off where bytes are read": _set(
        elements,
        "decoded",
        lambda code, format_, raw: (
            code.binary("add", _decoded(code, format_, raw), 1) if format_.bias else _decoded(code, format_, raw)
        ),
    ),
    "shift: one too far": _steps(
        "right_shift", lambda code, values, static: formula._right_shift(code, values, (static[0] + 1,))
    ),
    "rounding: a half too much": _set(
        requantize,
        "_rounded",
        lambda code, v, s, rounding: _rounded(code, code.binary("add", v, 2**34), s, rounding),
    ),
    "channels: the sums of a block begin with those of another vector": _set(
        depthwise_sums, "starting", lambda *arguments: _starting(*arguments)[::-1]
    ),
    "border: windows reach beyond the map": _set(windows, "_bounds", lambda code, window, index: (0, window.taps)),
    "clip: the lower bound is lost": _steps(
        "clip", lambda code, values, static: code.intrinsic("smin", values[0], static[1])
    ),
    "lanes: even and odd ones exchanged": _set(
        requantize, "_merged", lambda code, even, odd, half: _merged(code, odd, even, half)
    ),
    "lanes: a maximum begins too high": _set(folds._Rows, "_least", lambda self: typed(_least(self).type, 126)),
    "stale: every vector has the parameters of the first": _set(
        epilogue.Epilogue, "parameter", lambda self, number, q, part, type_: _parameter(self, number, 0, part, type_)
    ),
    "detections: nothing overlaps": _set(vision, "_overlaps", lambda code, kernel, a, b: typed("i1", 0)),
}


def require_numpys_bytes(verified: VerifiedProgram, native: NativeExecutor) -> None:
    for capture in (frozenset(), "all"):
        for feed in feeds(verified.program, 4, 5):
            expected = NumpyExecutor(verified).run(feed, {}, capture).values  # type: ignore[arg-type]
            found = native.run(feed, {}, capture).values  # type: ignore[arg-type]
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_right_code_is_refused_nothing(machine: Machine) -> None:
    native = NativeExecutor(sampler(), 2, machine)
    require_numpys_bytes(sampler(), native)
    assert native.refusals == []


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_long(DEFECTS, list(DEFECTS)[::4]))
def test_wrong_code_is_noticed_and_numpy_computes_instead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = sampler()
    DEFECTS[name](monkeypatch)
    native = NativeExecutor(verified, 2, available()[-1])
    assert "when the code was tried" in " ".join(native.refusals)
    require_numpys_bytes(verified, native)


@pytest.mark.sweep
@pytest.mark.parametrize("name", mostly_long(DEFECTS, [name for k, name in enumerate(DEFECTS) if k % 4]))
def test_one_feed_is_enough_for_long_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "QUICK", -1)
    DEFECTS[name](monkeypatch)
    assert "when the code was tried" in " ".join(NativeExecutor(sampler(), 1, available()[-1]).refusals)


@pytest.mark.parametrize("skipped", [0, 1, 15, 16, 20, 39])
def test_a_check_of_inputs_that_forgets_one_element_is_noticed(skipped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last vector, what is left behind it, and the middle."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 40), -5, 5)
    verified = verify(builder.build([Output("y", builder.add("negative", [x])[0])]))

    def forgetful(code: Any, array: V, count: int, *rest: Any) -> V:
        before = _outside(code, array, skipped, *rest)
        behind = _outside(code, code.at(array, 4 * (skipped + 1)), count - skipped - 1, *rest)
        return code.binary("or", before, behind)

    monkeypatch.setattr(calls, "_outside", forgetful)
    native = NativeExecutor(verified, 1, available()[-1])
    assert "beyond its interval" in " ".join(native.refusals)
    feed = np.zeros((1, 40), np.int32)
    feed[0, skipped] = 6
    with pytest.raises(Invalid):
        native.run({"x": feed}, {})


def test_a_run_that_only_the_next_one_trips_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that were claimed in an earlier run count as claimed and done: only the first run does anything."""

    def stale(module: Any) -> None:
        _claim(module)
        right = "select i1 %same, i64 %low, i64 0"
        assert right in module.functions["claim"]
        module.functions["claim"] = module.functions["claim"].replace(right, "select i1 %same, i64 %low, i64 %low")

    def hasty(module: Any, machine: Machine) -> None:
        module.functions["await"] = "define void @await(ptr %counter, i64 %goal) nounwind {\n  ret void\n}"

    monkeypatch.setattr(calls, "emit_claim", stale)
    monkeypatch.setattr(calls, "emit_wait", hasty)
    # A worker would still write when the caller, who does not wait, has freed the memory.
    monkeypatch.setattr(threads.Workers, "rouse", lambda self, count: None)
    monkeypatch.setattr(rehearsal, "QUICK", -1)  # as a long run: one feed
    verified = sampler()
    native = NativeExecutor(verified, 2, available()[-1])
    assert "when the code was tried" in " ".join(native.refusals)
    require_numpys_bytes(verified, native)


def test_writing_beside_an_array_of_the_caller_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def beyond(self: Any, value: V, copies: int = 1) -> None:
        _write(self, value, copies)
        format_, stride, pointer = self._tensor(len(self.pointers) - 1)
        if format_.bits == 32 and stride == 1:  # the next elements are written later, all but those behind the last
            self.code.store(typed("i32", 0), self.code.at(pointer, 4 * self.count))

    monkeypatch.setattr(nest.Reading, "write", beyond)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 40), -5, 5)
    verified = verify(builder.build([Output("y", builder.add("negative", [x])[0])]))
    native = NativeExecutor(verified, 1, available()[-1])
    assert "memory beside a tensor" in " ".join(native.refusals)
    require_numpys_bytes(verified, native)


def test_a_constant_may_be_the_next_state() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), -9, 9)
    state = builder.state("kept", builder.constant(np.zeros((1, 3), np.int32)), -9, 9)
    (total,) = builder.add("broadcast_add", [x, state])
    builder.update(state, builder.constant(np.array([[4, 5, -6]])))
    verified = verify(builder.build([Output("y", total)]))
    native = NativeExecutor(verified, 1, available()[-1])
    after = native.run({"x": np.ones((1, 3), np.int32)}, initial_state(verified.program)).state
    np.testing.assert_array_equal(after[state], [[4, 5, -6]])
    assert native.refusals == []


def _later(function: Any) -> Any:
    """Sums of ``high`` that are one more."""

    def sums(code: Any, rule: Requantization, *rest: Any) -> tuple[V, V]:
        even, odd = function(code, rule, *rest)
        return (code.binary("add", even, 1), odd) if rule.arithmetic == "high" else (even, odd)

    return sums


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "wrong"),
    [
        ("requantize at the ends of its results, half_up", requantize, "_sums", _later(requantize._sums)),
        (
            "requantize at the ends of its results, toward_zero",
            requantize,
            "_rounded",
            lambda code, v, s, rounding: _rounded(code, code.binary("sub", v, 1), s, rounding),
        ),
        (
            "residual sum of small numbers",
            epilogue,
            "results",
            lambda code, joint, *rest: _results(code, replace(joint, offset=joint.offset + 1), *rest),
        ),
        (
            "detections",
            vision,
            "_overlaps",
            lambda code, kernel, a, b: _overlaps(code, replace(kernel, bits=64), a, b),
        ),
        (
            "requantize, half_even",
            requantize,
            "clipped",
            lambda code, rule, value: code.intrinsic("smin", value, rule.hi),
        ),
    ],
)
def test_what_random_numbers_seldom_show_is_noticed_by_the_trial(
    name: str, owner: object, attribute: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit of numerators of 40 bits; areas beyond 64 bits; results below their interval."""
    if attribute == "results" and not available()[0].packs:
        pytest.skip("only where words can be packed")
    monkeypatch.setattr(trial, "CLASSES", [one for one in trial.CLASSES if one.name == name])
    assert trial.failure(available()[0]) is None
    monkeypatch.setattr(owner, attribute, wrong)
    assert trial.failure(available()[0]) == name
