"""The oracle agrees with recorded float64 evaluations of trained networks but for near ties, and with real networks."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from .exact import Codes, Evaluation, Model, load, model
from .files import read_tensor
from .harness import NEAR, shared
from .quantization import Grid, Powers
from .reader import Reference, parse_document

NETWORKS = ["lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mobilenet_digits", "mlp_cancer", "rnn_digits"]
WITHOUT_STATE = NETWORKS[:-1]


def folder(name: str) -> Path:
    return shared("models", "digits", name)


def samples(name: str, first: int, last: int) -> list[list[npt.NDArray[np.float32]]]:
    """The feeds, cycle by cycle, of some samples."""
    inputs = np.load(folder(name) / "test_inputs.npy")[first:last]
    if name == "rnn_digits":
        return [[row[None] for row in sample] for sample in inputs]
    return [[sample[None]] for sample in inputs]


def last_cycle(network: Model, feeds: list[npt.NDArray[np.float32]]) -> Evaluation:
    return network.run_cycles(feeds)[-1]


def recorded_ranges(name: str) -> Model:
    """The model with min and max rounded to float32: the ranges with which the recorded arrays were computed.

    The recorded values lie on that grid up to 1e-13 steps, and on the grid of the decimal text up to 1e-6 steps only.
    """

    def rounded(match: re.Match[str]) -> str:
        return f"{match[1]} = {format(Decimal(float(np.float32(match[2]))), 'f')}"

    path = folder(name)
    text = re.sub(r"(min|max) = (-?[0-9.e-]+)", rounded, (path / "graph.quant").read_text())
    return model((path / "graph.nnef").read_text(), text, lambda label: read_tensor(path / f"{label}.dat"))


def recorded_codes(values: npt.NDArray[np.float64], network: Model, name: str) -> Codes:
    """The codes that recorded pseudo-quantised values stand for; they must lie on the grid of the recorded ranges."""
    (channel,) = network.quantisers[name].channels
    if isinstance(channel, Powers):
        exponents = np.log2(np.abs(np.where(values == 0, 1, values)))
        positions = np.sign(values) * (exponents - channel.highest + channel.hi)
    else:
        assert isinstance(channel, Grid)
        positions = (values - float(channel.offset)) / float(channel.step)
    codes: Codes = np.rint(positions).astype(np.int64)
    assert np.abs(positions - codes).max() < 1e-9
    return codes


def recorded_trace(name: str, network: Model) -> dict[str, Codes]:
    """The codes of every quantised tensor of sample 0, in the last cycle."""
    with np.load(folder(name) / "trace_sample0_pseudoquant.npz") as file:
        return {tensor: recorded_codes(file[tensor], network, tensor) for tensor in network.quantisers}


def differences(left: Codes, right: Codes) -> set[tuple[int, ...]]:
    return {tuple(int(i) for i in index) for index in np.argwhere(left != right)}


@pytest.mark.parametrize("name", WITHOUT_STATE)
def test_each_operation_on_the_trace_s_operands_and_ranges_differs_from_it_at_near_ties_only(name: str) -> None:
    network = recorded_ranges(name)
    trace = recorded_trace(name, network)
    exact = network.run(samples(name, 0, 1)[0][0], near=NEAR, continue_with=trace)
    for tensor, codes in trace.items():
        assert differences(exact.codes[tensor], codes) <= set(exact.near_ties[tensor]), tensor


def test_each_operation_of_the_last_cycle_on_the_trace_s_operands_differs_from_it_at_near_ties_only() -> None:
    name = "rnn_digits"
    network = recorded_ranges(name)
    trace = recorded_trace(name, network)
    exact = network.run(samples(name, 0, 1)[0][-1], near=NEAR, continue_with=trace)
    assert network.document.assignments[1].target == "h"
    for tensor, codes in trace.items():
        if tensor != "h":  # of which the stored content is that of the first cycle
            assert differences(exact.codes[tensor], codes) <= set(exact.near_ties[tensor]), tensor


@pytest.mark.sweep
@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_of_sample_0_has_the_codes_of_the_trace(name: str) -> None:
    exact = evaluations(name)[0]
    trace = recorded_trace(name, recorded_ranges(name))
    assert {tensor: differences(exact.codes[tensor], codes) for tensor, codes in trace.items()} == {
        tensor: set() for tensor in exact.codes
    }


@cache
def evaluations(name: str) -> list[Evaluation]:
    """The last cycles of samples 0 to 19."""
    network = load(folder(name))
    return [last_cycle(network, feeds) for feeds in samples(name, 0, 20)]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_outputs_of_samples_0_to_19_have_the_recorded_codes(name: str) -> None:
    recorded = recorded_ranges(name)
    for file, tensor in (("probs", "probs"), ("logits", "z3" if name == "mlp_cancer" else "logits")):
        wanted = recorded_codes(np.load(folder(name) / f"pseudoquant_{file}.npy")[:20], recorded, tensor)
        assert differences(np.concatenate([one.codes[tensor] for one in evaluations(name)]), wanted) == set()


@pytest.mark.parametrize("name", ["lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mobilenet_digits"])
def test_only_input_pixels_of_one_half_are_exact_ties_in_samples_0_to_19(name: str) -> None:
    for (image,), evaluation in zip(samples(name, 0, 20), evaluations(name), strict=True):
        ties = dict(evaluation.ties)  # of 255 * k / 16, k = 0..16, only k = 8 gives half an odd integer
        assert set(ties.pop("image")) == {tuple(index) for index in np.argwhere(image == 0.5).tolist()}
        assert not any(ties.values())


def test_the_stored_codes_of_lenet_digits_qdat_are_those_of_lenet_digits() -> None:
    for stored, computed in zip(evaluations("lenet_digits_qdat"), evaluations("lenet_digits"), strict=True):
        assert all(np.array_equal(codes, computed.codes[tensor]) for tensor, codes in stored.codes.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_tensors_hold_python_integers_which_cannot_overflow(name: str) -> None:
    for tensor, value in evaluations(name)[0].values.items():
        assert all(type(item) is int for item in value.items.flat), tensor


def test_the_state_of_a_sample_starts_from_the_stored_variables_and_each_cycle_from_the_last() -> None:
    network, feeds = load(folder("rnn_digits")), samples("rnn_digits", 0, 1)[0]
    cycles = network.run_cycles(feeds)
    assert set(cycles[0].codes["h"].ravel().tolist()) == {127}  # 0.9998189 / 1.9998007 * 255 = 127.49
    for before, after in pairwise(cycles):
        np.testing.assert_array_equal(after.codes["h"], before.codes["hnew"])  # one range for both
    np.testing.assert_array_equal(network.run_cycles(feeds)[-1].codes["probs"], cycles[-1].codes["probs"])


# --- networks of other tools, with quantisers of the Khronos dialect --------------------------------------------------


def transposed_axes(graph: str) -> dict[str, int]:
    """The axis of per-channel quantisers: the one that a transposition brings to the front (filters are (c, C, *f))."""
    axes: dict[str, int] = {}
    for assignment in parse_document(graph).assignments:
        if assignment.operation == "transpose" and isinstance(source := assignment.positional[0], Reference):
            order = assignment.named["axes"]
            assert isinstance(order, list)
            assert isinstance(order[0], int)
            assert isinstance(assignment.target, str)
            axes |= {source.name: order[0], assignment.target: 0}
    return axes


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("hello_world", 64),
        ("micro_speech", 8),
        ("person_detect", 1),
        pytest.param("person_detect", 4, marks=pytest.mark.long),
        pytest.param("mobilenet_v2", 2, marks=pytest.mark.long),
    ],
)
def test_real_networks_have_the_codes_of_an_integer_evaluation(name: str, count: int) -> None:
    path = shared("models", "real", name)
    network = load(path, transposed_axes((path / "graph.nnef").read_text()))
    (output,) = network.document.outputs
    with np.load(path / "expected.npz") as expected:
        assert len(expected["input"]) >= count
        for codes, wanted in zip(expected["input"][:count], expected["nnef_exact"], strict=False):
            np.testing.assert_array_equal(network.run(codes).codes[output].reshape(wanted.shape), wanted)
