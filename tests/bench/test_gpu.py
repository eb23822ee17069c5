"""The benchmark on GPUs, as far as it needs none."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from cvm.audit.costs import macs
from cvm.executors.cuda import opened, ptx
from cvm.executors.cuda.emit import registry
from cvm.executors.native.runtime.trial import CLASSES
from cvm.executors.numpy import NumpyExecutor
from cvm.program.verifier import verify
from tests.executors.cuda.executing import driver
from tests.executors.cuda.fake_driver import FakeDriver
from tools.bench import gpu, gpu_process
from tools.bench.gpu import Found, Row, main, measured, peak, table
from tools.bench.gpu_layers import Layer
from tools.bench.gpu_layers import table as layer_table
from tools.bench.gpu_peers import product_pairs, products
from tools.bench.gpu_process import Failure, Opened
from tools.bench.networks import NETWORKS
from tools.bench.transformer import BASE, Sizes, encoder


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


class Asked:
    """An engine that is asked, and notes it. torch is not there, onnxruntime breaks when it is timed."""

    order: ClassVar[list[str]] = []
    macs = 1000

    def __init__(self, engine: str, *others: Any) -> None:
        self.engine = engine

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *others: object) -> None:
        self.order.append(f"end {self.engine}")

    def ready(self, limit: float) -> None:
        if self.engine == "torch":
            raise Failure("not there: no module")

    def timed(self, seconds: float, limit: float) -> tuple[list[float], float]:
        self.order.append(self.engine)
        if self.engine == "onnxruntime":
            raise Failure("it broke")
        return [0.004, 0.002, 0.003], 8.0

    def layers(self, limit: float) -> tuple[list[dict[str, Any]], float]:
        return [{"what": "y", "kernel": "k", "note": "n", "grid": [1, 1, 1], "block": 32, "shared": 0,
                 "seconds": 0.001, "macs": 500}], 0.0015  # fmt: skip


def test_engines_run_by_turns_and_one_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "Opened", Asked)
    Asked.order.clear()
    options = gpu._options(["--rounds", "2", "--layers"])
    found = Found()
    rows = list(measured("small", 4, ["cvm", "tensorrt", "onnxruntime", "torch"], 8e6, options, found))
    assert [(row.engine, row.failure) for row in rows] == [
        ("cvm", ""), ("tensorrt", ""), ("onnxruntime", "it broke"), ("torch", "not there: no module")
    ]  # fmt: skip
    assert rows[0] == Row("small", "cvm", 4, 0.003, 0.002, 4000 / 0.003 / 8e6, 2.0)
    assert Asked.order[:5] == ["cvm", "tensorrt", "onnxruntime", "cvm", "tensorrt"]
    assert {"end torch", "end cvm", "end tensorrt", "end onnxruntime"} == {*Asked.order[5:]}
    lines = table(rows).splitlines()
    assert lines[-1] == "| small | 4 | torch | not there: no module | | | | | |"
    assert lines[3].endswith("| 1.00 |")
    assert len({line.count("|") for line in lines}) == 1
    ((name, (launches, whole)),) = found.layers.items()
    assert name == "small, batch 4"
    assert layer_table(launches, whole, 1e6).splitlines()[-1] == (
        "| 1000.0 | 100.0 | 50.0 | k | 1 x 1 x 1 | 32 | 0 | y | n |"
    )
    found.rows += rows
    found.write(tmp_path / "gpu.json", "a GPU")
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["rows"][0]["median"] == 0.003
    assert document["layers"]["small, batch 4"]["launches"][0]["macs"] == 500


class Tiring(Asked):
    """torch is there, but answers once only."""

    def ready(self, limit: float) -> None:
        assert limit <= 30.0, "an engine gets half of the time that is left"

    def timed(self, seconds: float, limit: float) -> tuple[list[float], float]:
        if self.engine in self.order:
            raise Failure("it had not answered after 1 s")
        return super().timed(seconds, limit)


def test_what_an_engine_has_answered_stands_though_it_hangs_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "Opened", Tiring)
    Asked.order.clear()
    options = gpu._options(["--rounds", "3"])
    (row,) = measured("small", 4, ["cvm"], None, options, Found(), time.monotonic() + 60)
    assert row == Row("small", "cvm", 4, 0.003, 0.002, None, 2.0, "it had not answered after 1 s")
    lines = table([row]).splitlines()
    assert lines[2].startswith("| small | 4 | cvm, until: it had not answered after 1 s | 3.000 |")
    assert lines[2].count("|") == lines[0].count("|")


def test_the_longest_launches_are_printed() -> None:
    found = [Layer(f"y{number}", "k", "", (1, 1, 1), 32, 0, number * 1e-6, 0) for number in range(1, 9)]
    lines = layer_table(found, 1e-3, None, 3).splitlines()
    assert lines[0].startswith("8 launches of 0.036 ms")
    assert [line.split(" | ")[-2] for line in lines[4:]] == ["y8", "y7", "y6"]


ANSWERS = """
import sys
print("an engine's own words")
print('@answer {"macs": 7}', flush=True)
for line in sys.stdin:
    print('@answer {"times": [%s], "joules": null}' % line.strip(), flush=True)
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (ANSWERS, ""),
        ("import time; time.sleep(60)", "it had not answered after 1 s"),
        ("import os; print('last words', flush=True); os.abort()", "its process ended with -6: last words"),
        ("""print('@answer {"failure": "not there: x"}')""", "not there: x"),
    ],
)
def test_an_engine_answers_from_a_process_of_its_own(script: str, said: str) -> None:
    with Opened("cvm", "lenet", 1, 0, [], [sys.executable, "-c", script]) as one:
        if said:
            with pytest.raises(Failure, match=said):
                one.ready(1 if "not answered" in said else 30)
        else:
            one.ready(30)
            assert one.macs == 7
            assert one.timed(2.5, 30) == ([2.5], None)
            assert one.timed(0.5, 30) == ([0.5], None)
    assert one._process.returncode is not None


def test_the_process_of_cvm_checks_its_bytes_and_times_runs_and_launches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake = driver(monkeypatch)
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "FAST", {})
    monkeypatch.setattr(ptx, "assembled", lambda ir, capability: ir.encode())
    monkeypatch.setattr(gpu_process, "energy", lambda index: None)
    verified = next(one for one in CLASSES if one.name == "matrix product").program()
    (tmp_path / "p.cvm").write_bytes(verified.program.to_bytes())
    monkeypatch.setattr(sys, "stdin", io.StringIO("0\nlayers\n"))
    arguments = ["cvm", "p", "3", "0", f"p={tmp_path / 'p.cvm'}"]
    assert gpu_process.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    ready, times, launches = (json.loads(line.removeprefix(gpu_process.MARK)) for line in lines)
    assert ready == {"macs": sum(macs(verified))}
    assert len(times["times"]) == 1
    assert times["joules"] is None
    assert sum(one["macs"] for one in launches["launches"]) == 3 * ready["macs"]
    assert all(one["seconds"] == 0.00025 / 20 for one in launches["launches"])
    assert launches["run"] == 0.00025
    monkeypatch.setattr(fake, "execute", lambda image, one: None)
    monkeypatch.setenv("CVM_CACHE", "")
    opened._used.cache_clear()
    gpu_process.main(arguments)
    assert "failure" in capsys.readouterr().out
    opened._used.cache_clear()


def test_the_transformer_has_the_sizes_that_were_published() -> None:
    assert BASE.macs == 12 * (128 * 768 * 768 * 12 + 2 * 12 * 128 * 128 * 64)
    small = Sizes(2, 32, 2, 8)
    verified = verify(encoder(small))
    assert sum(macs(verified)) == small.macs
    codes = np.random.default_rng(1).normal(0, 40, (8, 32)).clip(-127, 127).astype(np.int32)
    (y,) = NumpyExecutor(verified).run({"x": codes}, {}).values.values()
    assert 30 < y.std() < 50, "its codes are spread like those of a trained network"


class Library:
    """The functions of torch that make operands: a matrix is its shape."""

    int8, half, _int_mm, bmm = "int8", "half", "int_mm", "bmm"

    class Shaped(tuple[int, ...]):
        def t(self) -> Library.Shaped:
            return Library.Shaped(self[::-1])

    def zeros(self, *shape: int, dtype: str, device: str) -> Shaped:
        return self.Shaped(shape)


def test_the_products_of_a_transformer_are_those_of_its_blocks() -> None:
    found = product_pairs(Library(), Sizes(2, 64, 4, 32), 3, "here")
    assert len(found) == 2 * 8
    assert found[:8] == [
        *[("int_mm", (96, 64), (64, 64))] * 4,
        ("int_mm", (96, 64), (64, 256)),
        ("int_mm", (96, 256), (256, 64)),
        ("bmm", (12, 32, 16), (12, 16, 32)),
        ("bmm", (12, 32, 32), (12, 32, 16)),
    ]
    assert [one[0] for one in product_pairs(Library(), NETWORKS["lenet"](), 3, "here")] == ["int_mm"] * 4


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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(gpu, "measured", lambda *arguments: iter([Row("lenet", "cvm", 1, failure="none")]))
    monkeypatch.setattr(gpu, "_peak_of", lambda device: None)
    file = tmp_path / "gpu.json"
    assert main(["lenet", "--batches", "1", "-o", str(file)]) == 0
    assert "| lenet | 1 | cvm | none |" in capsys.readouterr().out
    assert json.loads(file.read_text())["rows"][0]["failure"] == "none"
    assert main(["lenet", "--batches", "1,8", "--within", "-1"]) == 0
    assert "left out: lenet, batch 8" in capsys.readouterr().out
    assert not fake.left
