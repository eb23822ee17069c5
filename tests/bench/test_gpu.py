"""The benchmark on GPUs, as far as it needs none."""

import math
import sys
from typing import Any

import numpy as np
import pytest

from cvm.executors.native.runtime.trial import CLASSES
from tests.executors.cuda.fake_driver import FakeDriver
from tools.bench import gpu
from tools.bench.gpu import Entry, Row, main, measured, peak, table
from tools.bench.gpu_peers import products
from tools.bench.networks import NETWORKS


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert main(["lenet"]) == 3
    assert capsys.readouterr().err.startswith("no device: the CUDA executor needs the package cuda-bindings")


def test_peaks_are_those_that_are_stated() -> None:
    stated = {(8, 0): (108, 1_410_000, 624e12), (8, 6): (82, 1_695_000, 284e12), (8, 9): (128, 2_520_000, 661e12),
              (9, 0): (132, 1_830_000, 1979e12)}  # fmt: skip
    assert stated.keys() == gpu.RATES.keys()
    for capability, (processors, clock, operations) in stated.items():
        found = peak(capability, processors, clock)
        assert found is not None
        assert math.isclose(2 * found, operations, rel_tol=0.01)
    assert peak((7, 5), 40, 1) is None


class Device:
    """What is asked of a device besides runs."""

    capability = (9, 0)
    found = type("Found", (), {"index": 0})

    def attribute(self, name: str) -> int:
        return {"MULTIPROCESSOR_COUNT": 2, "CLOCK_RATE": 1000}[name]


def test_engines_run_by_turns_and_one_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def opened(entry: Entry, engine: str, batch: int, device: Any) -> Any:
        if engine == "torch":
            raise ImportError("no module")
        if engine == "onnxruntime":
            raise RuntimeError("it broke\nhere")
        return lambda: order.append(engine)

    monkeypatch.setattr(gpu, "opened", opened)
    monkeypatch.setattr(gpu, "energy", lambda index: iter(range(100)).__next__)
    entry = Entry("small", CLASSES[0].program(), None)
    rows = list(measured(entry, 4, ["cvm", "tensorrt", "onnxruntime", "torch"], Device(), 2, 0))  # type: ignore[arg-type]
    assert [(row.engine, row.failure) for row in rows[:2]] == [
        ("onnxruntime", "RuntimeError: it broke"), ("torch", "not there: no module")
    ]  # fmt: skip
    assert [row.engine for row in rows[2:]] == ["cvm", "tensorrt"]
    assert all(row.median and row.share and row.joules == 1 / 16 for row in rows[2:])
    assert order == ["cvm", "tensorrt", *["cvm"] * 4, *["tensorrt"] * 4, *["cvm"] * 4, *["tensorrt"] * 4]
    lines = table(rows).splitlines()
    assert lines[2] == "| small | 4 | onnxruntime | RuntimeError: it broke | | | | | |"
    assert lines[-1].endswith("| 1.00 |")
    assert len({line.count("|") for line in lines}) == 1


def test_times_become_rates_and_shares() -> None:
    line = table([Row("a", "cvm", 32, 0.002, 0.001, 0.5, 0.25), Row("a", "tensorrt", 32, 0.001, 0.001)]).splitlines()[2]
    assert line == "| a | 32 | cvm | 2.000 | 1.000 | 16000 | 50.0 | 0.2500 | 2.00 |"


def test_the_products_of_a_network_are_those_of_its_layers() -> None:
    network = NETWORKS["lenet"]()
    assert list(products(network, 3)) == [(3 * 24 * 24, 32, 24), (3 * 8 * 8, 504, 56), (32, 800, 504), (32, 504, 16)]


@pytest.mark.parametrize("name", ["lenet", pytest.param("mobilenet_v2", marks=pytest.mark.long)])
def test_the_form_for_tensorrt_is_valid_and_has_a_quantiser_for_every_tensor(name: str) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed (the extra onnx)")
    from tools.bench.onnx_models import symmetric_model

    network = NETWORKS[name]()
    model = symmetric_model(network, 2)
    onnx.checker.check_model(model, full_check=True)
    quantised = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantised) == 1 + len(network.layers)
    zeros = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer if "zero" in item.name}
    used = [zeros[node.input[2]] for node in quantised]
    assert all(zero.dtype == np.int8 and zero == 0 for zero in used)


def test_the_fake_driver_serves_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine that fails on a device, here cvm on kernels that the driver does not know, is a line of the table."""
    fake = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(gpu, "measured", lambda *arguments: iter([Row("lenet", "cvm", 1, failure="none")]))
    assert main(["lenet", "--batches", "1"]) == 0
    assert "| lenet | 1 | cvm | none |" in capsys.readouterr().out
