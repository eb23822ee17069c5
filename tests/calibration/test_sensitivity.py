"""More bits go to what costs the outputs most, and to no more tensors than a goal needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.calibration import Sensitivity, Settings
from cvm.calibration.chooser import WIDE, WIDE_FILTER
from cvm.calibration.completion import Completer
from cvm.calibration.sensitivity import decibels_of, least_count
from cvm.errors import Invalid
from cvm.quantizing import Goal, Quantized, decibels, quantize_completed
from cvm.reference import Reference
from tests.calibration.test_completion import FLOAT, IMAGE, gated, loaded, node
from tests.frontends.onnx.making import made as model_of

SETTINGS = Settings(per_channel=True)
DATA = {"x": np.random.default_rng(5).normal(size=(6, 2, 6, 6)).astype(np.float32)}


def _network() -> Any:
    """Three products, the first of which has one channel with weights that are far greater than the others."""
    random = np.random.default_rng(8)
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Conv", "r w2", "d", pads=[1, 1, 1, 1], group=3),
        node("Relu", "d", "s"),
        node("Flatten", "s", "f"),
        node("Gemm", "f w3", "y", transB=1),
    ]
    shapes = {"w": (3, 2, 3, 3), "w2": (3, 1, 3, 3), "w3": (4, 108)}
    constants = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    constants["w"][1] *= 20
    return model_of(nodes, IMAGE, FLOAT, constants)


NETWORK = _network()


def reached(goal: Goal | None, data: Mapping[str, Any] = DATA, settings: Settings = SETTINGS) -> Quantized:
    return quantize_completed("m.onnx", loaded(NETWORK), data, settings, goal=goal)


def ratio(made: Quantized) -> float:
    found = min(value for value in decibels(made, DATA).values() if value is not None)
    assert isinstance(found, float)
    return found


@given(st.integers(0, 40), st.integers(0, 41))
def test_the_least_count_is_found(most: int, first: int) -> None:
    assert least_count(most, lambda count: count >= first) == min(first, most)


def test_a_goal_is_reached_with_as_few_tensors_as_it_takes() -> None:
    plain = reached(None)
    before = ratio(plain)
    goals = [before - 1, before + 3, before + 12]
    counts = []
    for goal in goals:
        made = reached(Goal(sqnr=goal))
        assert ratio(made) >= goal
        assert all(item.bound == 0 for item in made.program.provenance.exactness if item.tensor != "y")
        counts.append(len(made.widened))
        costs = [item.alone_db for item in made.widened]
        assert costs == sorted(costs)
    assert counts[0] == 0
    assert counts[0] < counts[1] < counts[2]
    assert reached(Goal(sqnr=goals[0])).program.digest == plain.program.digest


def test_the_wider_tensors_have_the_bits_that_are_said() -> None:
    made = reached(Goal(sqnr=ratio(reached(None)) + 12))
    wide = {name for item in made.widened for name in item.tensors}
    roles = {item.name: item for item in made.calibration.tensors}
    assert wide <= set(roles)
    for name, item in roles.items():
        if item.role in ("activation", "filter"):
            more = WIDE_FILTER if item.role == "filter" else WIDE
            bits = (item.quantizer.hi - item.quantizer.lo).bit_length()
            assert bits == (more if name in wide else 8), name


def test_what_cannot_be_reached_is_refused_with_what_can() -> None:
    with pytest.raises(Invalid, match=r"with more bits everywhere the outputs have [0-9.]+ dB, and 200 are") as caught:
        reached(Goal(sqnr=200.0))
    assert caught.value.code == "calibration.goal"


def test_a_size_is_filled_and_not_exceeded() -> None:
    plain = len(reached(None).program.to_bytes())
    best = reached(Goal(sqnr=ratio(reached(None)) + 12))
    most = len(best.program.to_bytes())
    made = reached(Goal(most_bytes=most))
    assert plain < len(made.program.to_bytes()) <= most
    assert len(made.widened) >= len(best.widened)
    assert reached(Goal(most_bytes=plain)).program.to_bytes() == reached(None).program.to_bytes()
    with pytest.raises(
        Invalid, match=f"the program has {plain} bytes, {plain - 1} are wanted: give weights fewer bits"
    ):
        reached(Goal(most_bytes=plain - 1))
    with pytest.raises(Invalid, match="are wanted: give weights fewer bits"):
        reached(Goal(sqnr=ratio(best), most_bytes=plain))


def test_all_that_fits_is_everything_where_there_is_room() -> None:
    made = reached(Goal(most_bytes=10**9))
    completer = Completer(loaded(NETWORK).graph, DATA, SETTINGS)
    assert sorted(item.tensors for item in made.widened) == sorted(completer.groups())


def test_what_has_the_bits_already_gets_no_more() -> None:
    completer = Completer(loaded(gated()).graph, {"x": np.zeros((1, 2, 6))}, Settings(bits=16, weight_bits=12))
    assert completer.groups() == []


def test_the_noise_of_a_group_is_what_its_rounding_changes() -> None:
    source = loaded(NETWORK).graph
    completer = Completer(source, DATA, SETTINGS)
    calibrated = completer.calibration().graph
    sensitivity = Sensitivity(source, DATA, cycles=False)
    assert sensitivity.noise(source) == 0.0
    assert decibels_of(0.0) == float("inf")
    order = sensitivity.ordered(calibrated, completer.groups())
    assert 0 < decibels_of(sensitivity.noise(calibrated)) < order[0].alone_db
    (done,) = ([],)
    sensitivity.ordered(calibrated, completer.groups()[:2], done.append)
    assert done == [1, 2]


def test_a_group_is_run_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("MatMul", "x w", "y"), node("Relu", "y", "z"), node("Tanh", "y", "v")]
    model = model_of(
        nodes, {"x": ("float32", (2, 6))}, dict.fromkeys("yzv", "float32"), {"w": np.eye(6, 3, dtype="f4")}
    )
    source, data = loaded(model).graph, {"x": np.random.default_rng(2).normal(size=(3, 2, 6))}
    completer = Completer(source, data, SETTINGS)
    calibrated, groups = completer.calibration().graph, completer.groups()
    sensitivity, count = Sensitivity(source, data, cycles=False), []
    cycle = Reference._cycle
    monkeypatch.setattr(Reference, "_cycle", lambda self, *given: (count.append(0), cycle(self, *given))[1])
    sensitivity.ordered(calibrated, groups)
    assert len(source.outputs) == 3
    assert len(count) == 3 * len(groups)


def test_the_steps_are_told() -> None:
    said: list[str] = []
    reached(Goal(sqnr=ratio(reached(None)) + 3, on_step=said.append))
    assert said[0].startswith("measuring what ")
    assert any(words.startswith("trying more bits for ") for words in said)
