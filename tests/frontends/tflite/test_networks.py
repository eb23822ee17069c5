"""Networks of others: that they compile, and the exact codes where these are known."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.errors import CvmError

SHARED = Path(__file__).resolve().parents[4] / "shared"
GALLERY = SHARED / "gallery"
REAL = SHARED / "models" / "real"

NETWORKS = [
    "mlperf_tiny/resnet8_quant", "mlperf_tiny/vww_96_int8", "mlperf_tiny/kws_ref_model", "mlperf_tiny/ad01_int8",
    "tflite_micro/conv10", "tflite_micro/keyword_scrambled_8bit", "coral/mobilenet_v1_0.25_128_quant",
    "coral/movenet_single_pose_lightning_ptq", "wakeword/models_v2_hey_jarvis", "wakeword/models_v2_vad",
    "wakeword/models_okay_nabu",
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_gallery_compile_and_run(name: str) -> None:
    file = GALLERY / f"{name}.tflite"
    if not file.is_file():
        pytest.skip(f"../shared/gallery/{name}.tflite is not there")
    start = time.process_time()
    program = cvm.compile(file)
    assert time.process_time() - start < 60
    random = np.random.default_rng(7)
    codes = {
        item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
        for item in program.inputs
    }
    results = [cvm.Session(program, executor=executor).run(codes, codes=True) for executor in ("numpy", "native")]
    for output in program.outputs:
        np.testing.assert_array_equal(results[0][output.name], results[1][output.name])


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["hello_world", "micro_speech", "person_detect", "mobilenet_v2"])
def test_codes_are_those_of_the_same_network_in_nnef(name: str) -> None:
    folder = REAL / name
    if not (folder / "original.tflite").is_file():
        pytest.skip(f"../shared/models/real/{name}/original.tflite is not there")
    expected = np.load(folder / "expected.npz")
    program = cvm.compile(folder / "original.tflite")
    session = cvm.Session(program)
    (given,) = program.inputs
    for codes, exact in zip(expected["input"][:4], expected["nnef_exact"][:4], strict=True):
        found = session.run({given.value.name: codes.reshape(given.value.shape).astype(np.int32)}, codes=True)
        np.testing.assert_array_equal(found[program.outputs[0].name].ravel(), exact.ravel())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models_v2_vad", "models_v2_hey_jarvis", "models_okay_nabu"])
def test_wake_words_keep_their_state_for_500_cycles(name: str) -> None:
    file = GALLERY / "wakeword" / f"{name}.tflite"
    if not file.is_file():
        pytest.skip(f"../shared/gallery/wakeword/{name}.tflite is not there")
    program = cvm.compile(file)
    sessions = [cvm.Session(program, executor=executor) for executor in ("native", "numpy")]
    (given,) = program.inputs
    random = np.random.default_rng(11)
    first, results = sessions[0].state, []
    for cycle in range(500):
        codes = np.clip(random.normal(-20 + 60 * np.sin(cycle / 9), 50, given.value.shape), -128, 127).astype(np.int32)
        found = [next(iter(session.run({given.value.name: codes}, codes=True).values())) for session in sessions]
        np.testing.assert_array_equal(*found)
        results.append(int(found[0].ravel()[0]))
    assert len(set(results)) > 1
    for key, codes in sessions[0].state.items():
        np.testing.assert_array_equal(codes, sessions[1].state[key])
        assert (codes != first[key]).any()
    sessions[0].reset()
    for key, codes in sessions[0].state.items():
        np.testing.assert_array_equal(codes, first[key])


def test_a_network_of_floats_becomes_a_program() -> None:
    file = GALLERY / "mlperf_tiny" / "kws_ref_model_float32.tflite"
    if not file.is_file():
        pytest.skip("../shared/gallery/mlperf_tiny/kws_ref_model_float32.tflite is not there")
    random = np.random.default_rng(0)
    with pytest.raises(CvmError, match="cvm quantize"):
        cvm.compile(file)
    samples = random.uniform(0, 1, (8, 49, 10, 1)).astype(np.float32)
    found = cvm.quantize_program(file, {"input_1": samples})
    (given,) = found.program.inputs
    result = cvm.Session(found.program).run({given.value.name: samples[0].reshape(given.value.shape)})
    probabilities = result.real(found.program.outputs[0].name)
    assert probabilities.shape == (1, 12)
    assert abs(probabilities.sum() - 1) < 0.05
