"""The programs that time the networks: what they count and print. No test judges a duration."""

from __future__ import annotations

import importlib.util
import json
import platform
import warnings

import numpy as np
import pytest

from cvm.audit.costs import macs
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime.select import available
from cvm.ops import REGISTRY
from cvm.program import Output, ProgramBuilder, verify
from tests.selection import mostly_long
from tests.tools.test_bench_networks import small
from tools.bench import chunk_times, compare, first_runs, op_cases, ops, peak, profile_layers, scaling
from tools.bench.layer_bounds import Shares, shares
from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of

x86 = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the counter of x86")


def test_the_peak_of_every_machine_is_a_rate():
    for machine in available():
        assert 1e8 < peak.multiply_add_peak(machine, 0.01) < 1e14
    assert 1e8 < peak.multiply_add_peak(available()[0], 0.01, 2) < 1e14
    assert 1e7 < peak.read_peak(available()[0], 0.0) < 1e13


@pytest.mark.slow
@x86
@pytest.mark.parametrize("machine", mostly_long(available(), available()[:1]), ids=lambda machine: machine.name)
def test_a_profile_has_all_multiply_adds_of_the_network(machine):
    for program in (program_of(small()), program_of(NETWORKS["lenet"]())):
        verified = verify(program)
        found = profile_layers.profile(verified, machine, 0.0, 1e11, 1e10)
        assert sum(row.macs for row in found.rows) == sum(macs(verified))
        assert min(found.whole, found.constants) > 0
        assert all(row.bound for row in found.rows)


@pytest.mark.parametrize(("values", "words"), [
    ((0.9, 0.3, 0, 0, 0, 1e4), "products"), ((0.9, 0.3, 0, 0, 0.3, 1e4), "products, 30 % of the products padding"),
    ((0.5, 0.2, 0, 0, 0, 1e4), "products and codes of sums"), ((0.2, 0.4, 0, 0, 0, 1e4), "codes of sums"),
    ((0.2, 0.1, 0.6, 0, 0, 1e4), "permutations"), ((0.3, 0.3, 0, 0.9, 0, 1e4), "memory"),
    ((0.3, 0.1, 0.2, 0.1, 0, 1e4), "several, none of them alone"), ((0.9, 0, 0, 0, 0, 200), "the call"),
])  # fmt: skip
def test_the_largest_share_says_what_binds_a_call(values, words):
    assert Shares(*values).bound == words


def test_the_dot_products_of_a_kernel_have_room_for_all_multiply_adds():
    """With 64 channels and runs of whole steps, no product is padding; with 63 input channels, one in 64 is."""
    machine = available()[0]
    if machine.width != 16 or machine.tiles:
        pytest.skip(f"{machine.name} has other vectors")
    for inputs, padding in ((64, 0), (63, 1 / 64)):
        builder = ProgramBuilder()
        x = builder.input("x", (1, inputs, 10, 10), 0, 255)
        weights = builder.constant(np.ones((64, inputs, 1, 1), np.int64))
        (sums,) = builder.add("conv2d", [x, weights])
        verified = verify(builder.build([Output("y", sums)]))
        made = plan(verified, machine, frozenset({sums}))
        (call,) = [call for call in made.calls if call.function.startswith("conv2d")]
        work = 100 * 64 * inputs
        found = shares(made.functions[call.function], call, work, 1000.0, machine, 64e12, 1e9)
        assert found.padding == pytest.approx(padding)
        assert found.dots == pytest.approx(100 * 64 * 64 / 64 * 1e-3 / 1000)


@x86
def test_profile_layers_prints_the_calls(capsys):
    assert profile_layers.main(["lenet", "--seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "lenet on" in text
    assert "GMAC/s" in text
    assert profile_layers.main(["lenet", "--seconds", "0", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert sum(call["macs"] for call in document["calls"]) == 2_293_000


def timing(median):
    return {"median": median, "least": median / 2, "cpu": median * 2, "calls": 5, "gmacs": 1.0}


def result(label, median, bound=None, network="net", threads=1, failure=None):
    item = {"network": network, "label": label, "threads": threads, "batch": 1, "failure": failure}
    return item | {"run": timing(median), "bound": None if bound is None else timing(bound)}


def test_ratios_are_those_of_the_best_other_engine():
    results = [
        result("native", 10.0, 8.0),
        result("a", 30.0, 4.0),
        result("b", 20.0),
        result("c", 1.0, failure="broken"),
        result("native", 5.0, threads=2),
        result("a", 4.0, 3.0, threads=2),
    ]
    one, two = compare.ratios(results)
    assert (one["threads"], two["threads"]) == (1, 2)
    assert one["median"] == {"best": "b", "ratio": 2.0}
    assert one["least"] == {"best": "b", "ratio": 2.0}
    assert one["cpu"] == {"best": "b", "ratio": 2.0}
    assert one["bound"] == {"best": "a", "ratio": 0.5}
    assert two["median"] == {"best": "a", "ratio": 0.8}
    assert two["bound"] is None


@pytest.mark.long
def test_compare_writes_tables_and_json_and_a_plot(tmp_path, capsys):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed (extra bench)")
    packages = {"litert": ("ai_edge_litert", "flatbuffers"), "onnxruntime": ("onnxruntime", "onnx")}
    peers = [name for name, needed in packages.items() if all(map(importlib.util.find_spec, needed))]
    arguments = ["lenet", "--threads", "1", "--rounds", "1", "--seconds", "0", "--peers", ",".join(peers)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare.main([*arguments, "-o", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "Time of the best other engine / ours" in text
    document = json.loads((tmp_path / "bench.json").read_text())
    labels = [item["label"] for item in document["results"]]
    assert labels[0] == "native"
    assert len(labels) == 1 + 2 * len(peers)
    assert all(item["failure"] is None for item in document["results"])
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_compare_knows_its_networks(capsys):
    assert compare.main(["lenet", "resnet19"]) == 2
    assert "the networks are resnet18, " in capsys.readouterr().out
    assert compare.main(["lenet", "--peers", "mine"]) == 3
    assert "there is no engine 'mine'" in capsys.readouterr().out


def test_ops_are_measured_beside_their_limits(capsys):
    assert ops.main(["abs, 8", "dense", "--seconds", "0"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| abs", "| dense"))]
    assert len(rows) == 2
    assert "GB/s" in rows[0]
    assert "GMAC/s" in rows[1]


@pytest.mark.slow
@pytest.mark.long
def test_every_op_has_a_case_that_runs():
    for case in op_cases.CASES:
        row = ops.measured(case, available()[0], 1e12, 0.0)
        assert min(row.nanoseconds) > 0
        assert row.read + row.written > 0
    unmeasured = {"reshape", "flatten", "squeeze", "expand_dims"}  # never move an element
    others = {"non_max_suppression", "slice_like"}
    assert {case.op for case in op_cases.CASES} == set(REGISTRY) - unmeasured - others


def test_a_simulated_call_waits_for_claims_and_for_its_longest_chunk():
    free = scaling.Costs(0, 0, 0)
    assert scaling.simulated_call([4.0] * 8, 1, free).elapsed == 32
    assert scaling.simulated_call([4.0] * 8, 4, free).elapsed == 8
    assert scaling.simulated_call([4.0] * 8, 64, free).elapsed == 4
    assert scaling.simulated_call([9.0, 1.0, 1.0], 2, free).elapsed == 9
    assert scaling.simulated_call([1.0, 1.0, 9.0, 1.0], 2, free).elapsed == 9  # the idle thread takes the last one
    # Eight threads share a range: eight claims one after the other, and then as many chunks are counted.
    assert scaling.simulated_call([1.0] * 64, 64, scaling.Costs(10, 0, 0)).elapsed >= 160
    assert scaling.simulated_call([4.0, 4.0], 2, scaling.Costs(1, 5, 0)) == scaling.Spent(1 + 4 + 1 + 5, 8)
    assert scaling.simulated_call([4.0, 4.0, 4.0], 2, scaling.Costs(1, 5, 0)) == scaling.Spent(
        1 + 4 + 1 + 4 + 1 + 5, 12
    )


@x86
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_chunk_is_timed_by_the_thread_in_whose_range_it_is(threads):
    network = chunk_times.Chunked(verify(program_of(NETWORKS["lenet"]())), available()[0], threads)
    splits = network.splits()
    (found,) = chunk_times.measure([network], 0.0)
    assert [len(call) for call in found.chunks] == splits
    assert max(splits) >= threads
    assert sum(map(sum, found.chunks)) > 0
    assert all(chunk >= 0 for call in found.chunks for chunk in call)
    assert (found.run is None) == (threads > 2)
    units = [0] * len(splits)
    for hand in range(2):
        own = chunk_times.Hand.of(network.plan.calls, splits, hand, 2)
        bounds = iter(own.bounds.tolist())
        for at, count in enumerate(own.counts.tolist()):
            for _ in range(count):
                low, high = next(bounds)
                assert low == units[at]  # the chunks follow one another
                units[at] = high
                assert low < high
            if hand == 0:
                assert count == -(-splits[at] // 2)
    assert units == [call.units for call in network.plan.calls]


@x86
def test_scaling_prints_a_row_for_each_number_of_threads(capsys, monkeypatch):
    monkeypatch.setattr(scaling, "EMPTY_CALLS", 20)
    assert scaling.main(["lenet", "--threads", "1,2,64", "--seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "## lenet" in text
    assert "| 64 |" in text


@pytest.mark.parametrize("executor", ["", "numpy"])
def test_first_runs_prints_seconds_of_each_network(capsys, executor):
    pytest.importorskip("resource")  # not on Windows
    assert first_runs.main(["lenet", "--rounds", "1", "--executor", executor]) == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split()[:6] == ["network", "first", "cpu", "second", "cpu", "cached"]
    name, *numbers = row.split()
    first, first_cpu, second, cpu, cached = map(float, numbers)
    assert name == "lenet"
    assert 0 < first <= second
    assert 0 < first_cpu <= cpu
    assert cached > 0
