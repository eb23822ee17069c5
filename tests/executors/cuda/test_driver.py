"""The driver of GPUs, against a driver that checks how it is used."""

import importlib
import inspect
import os
import re
import sys
import types
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.executors.cuda.device.bindings import found
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.device.protocol import Prepared
from tests.executors.cuda.fake_driver import CUresult, FakeDriver, Launched

LATER = ("cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncSetAttribute",
         "cuStreamCreate", "cuStreamBeginCapture", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuLaunchKernel",
         "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch", "cuStreamSynchronize", "cuCtxPushCurrent",
         "cuMemGetInfo")  # fmt: skip
"""The calls after a device was chosen whose failures are reported."""


EARLIER = ("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem",
           "cuDevicePrimaryCtxRetain", "cuDriverGetVersion")  # fmt: skip
"""Those while it is chosen."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver({"first": 4, "second": 2})
    package, bindings = types.ModuleType("cuda"), types.ModuleType("cuda.bindings")
    for name, module in (("cuda", package), ("cuda.bindings", bindings), ("cuda.bindings.driver", made)):
        monkeypatch.setitem(sys.modules, name, module)
    return made


def device(index: int = 0) -> Driver:
    return Driver(index, lambda ir, capability: f"{ir} for {capability}".encode())


def used(one: Driver) -> np.ndarray:
    """A whole use of a device: memory, code, and two starts of one run. Returns what came back."""
    address, other = one.allocate(64), one.allocate(32)
    host = one.host(64)
    one.upload(other, np.arange(8, dtype=np.int32), constant=True)
    code = one.load("first second")
    launches = [
        Prepared("first", (3, 2, 5), 128, 0, (address, other), (64, 0)),
        Prepared("second", (1, 1, 1), 256, 60_000, (address,)),
    ]
    run = one.prepare(code, launches, [(address, host[:32])], [(other, host[32:])])
    assert one.available
    for _ in range(2):
        host[:32] = 7
        run.start()
        run.wait()
    result = host[32:].view(np.int32).copy()
    back = np.zeros(8, np.int32)
    one.download(address, back)
    assert (back.view(np.uint8) == 7).all()
    run.close()
    one.unload(code)
    for one_address in (address, other):
        one.free(one_address)
    one.free_host(host)
    return result


def test_a_run_is_one_graph_of_copies_and_launches_in_their_order(fake: FakeDriver) -> None:
    one = device()
    assert used(one).tolist() == list(range(8))
    first, second = fake.launched[:2]
    address, other = first.parameters[:2]
    assert first == Launched("first", (3, 2, 5), (128, 1, 1), 0, (address, other, 64, 0))
    assert second == Launched("second", (1, 1, 1), (256, 1, 1), 60_000, (address, 0))
    assert fake.launched[2:] == fake.launched[:2]
    assert fake.calls.count("cuStreamBeginCapture") == fake.calls.count("cuGraphInstantiate") == 1
    assert fake.calls.count("cuGraphLaunch") == 2
    assert fake.calls.count("cuLaunchKernel") == 2
    one.close()
    assert not fake.left


def test_closing_gives_back_what_is_left_and_later_calls_are_refused(fake: FakeDriver) -> None:
    one = device()
    address = one.allocate(100)
    host = one.host(10)
    one.prepare(one.load("first"), [Prepared("first", (1, 1, 1), 32, 0, (address, address))], [(address, host)]).start()
    one.close()
    assert not fake.left
    with pytest.raises(Unsupported, match="was ended"):
        one.allocate(1)
    one.close()
    assert not fake.left


def test_the_garbage_collector_closes_a_device(fake: FakeDriver) -> None:
    one = device()
    one.allocate(100)
    del one
    assert not fake.left


@pytest.mark.parametrize("function", LATER)
@pytest.mark.parametrize("error", [CUresult.CUDA_ERROR_LAUNCH_FAILED, CUresult.CUDA_ERROR_OUT_OF_MEMORY])
def test_every_failure_of_a_call_is_an_error_that_names_it(fake: FakeDriver, function: str, error: CUresult) -> None:
    one = device()
    fake.failures[function] = error
    memory = error == CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(LimitExceeded if memory else Unsupported) as raised:
        used(one)
    code = "cuda.code" if function == "cuModuleLoadDataEx" else "cuda.call"
    assert raised.value.code == ("cuda.memory" if memory else code)
    assert function in raised.value.message
    assert error.name in raised.value.message
    assert "Fake 0" in raised.value.message
    fake.failures.clear()
    one.close()
    assert not fake.left


@pytest.mark.parametrize("function", EARLIER)
def test_failures_while_a_device_is_chosen_are_errors(fake: FakeDriver, function: str) -> None:
    fake.failures[function] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(Unsupported, match=function):
        device()
    assert not fake.allocations


def test_code_that_the_driver_refuses_comes_with_its_log(fake: FakeDriver) -> None:
    fake.failures["cuModuleLoadDataEx"] = CUresult.CUDA_ERROR_INVALID_PTX
    fake.log = b"ptxas application ptx input, line 7; error: Unknown symbol"
    with pytest.raises(Unsupported, match="line 7; error: Unknown symbol") as raised:
        device().load("text")
    assert raised.value.code == "cuda.code"


def test_a_function_that_the_driver_lacks_is_an_error(fake: FakeDriver) -> None:
    one = device()
    fake.missing = frozenset({"cuMemAlloc"})
    with pytest.raises(Unsupported, match='Function "cuMemAlloc" not found; install a version of cuda-bind') as raised:
        one.allocate(1)
    assert raised.value.code == "cuda.package"


def test_an_error_that_the_package_does_not_know_is_an_error(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    one = device()

    def unknown(size: int) -> None:
        raise ValueError("12345 is not a valid CUresult")

    monkeypatch.setattr(fake, "cuMemAlloc", unknown, raising=False)
    with pytest.raises(Unsupported, match=r"cuMemAlloc failed .* 12345 is not a valid CUresult") as raised:
        one.allocate(1)
    assert raised.value.code == "cuda.call"


def test_memory_may_be_freed_while_a_run_is_prepared(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector frees memory at any moment."""
    one = device()
    spare, address = one.allocate(64), one.allocate(64)
    launch = fake.cuLaunchKernel

    def collected(*arguments: Any) -> Any:
        one.free(spare)
        return launch(*arguments)

    monkeypatch.setattr(fake, "cuLaunchKernel", collected, raising=False)
    run = one.prepare(one.load("first"), [Prepared("first", (1, 1, 1), 32, 0, (address, address))])
    run.start()
    run.wait()
    assert len(fake.launched) == 1
    one.close()
    assert not fake.left


def test_shared_memory_is_requested_beside_what_a_kernel_declares_and_never_lowered(fake: FakeDriver) -> None:
    fake.static["first"] = 40_000
    one = device()
    address = one.allocate(64)
    code = one.load("first")
    for size in (10_000, 90_000, 10_000):
        one.prepare(code, [Prepared("first", (1, 1, 1), 32, size, (address, address))])
    assert [*fake.attributes.values()] == [90_000]
    one.close()


def test_a_run_is_timed_by_the_gpu(fake: FakeDriver) -> None:
    one = device()
    address = one.allocate(64)
    run = one.prepare(one.load("first"), [Prepared("first", (1, 1, 1), 32, 0, (address, address))])
    assert run.timed() == 0.00025
    assert len(fake.launched) == 1
    for function in ("cuEventCreate", "cuEventRecord", "cuEventElapsedTime"):
        fake.failures = {function: CUresult.CUDA_ERROR_INVALID_VALUE}
        with pytest.raises(Unsupported, match=function):
            run.timed()
    fake.failures = {}
    run.wait()
    assert not fake.events
    one.close()
    assert not fake.left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_was_forked_is_told_so_and_leaves_the_gpu_alone(fake: FakeDriver) -> None:
    one = device()
    child = os.fork()
    if not child:  # whatever happens here, the process must not go on with the tests
        try:
            with pytest.raises(Unsupported, match="was forked"):
                one.allocate(1)
            one.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    one.allocate(1)


def test_code_is_made_for_the_device(fake: FakeDriver) -> None:
    fake.capability = (8, 6)
    one = device()
    one.load("text")
    assert [*fake.modules.values()] == [b"text for (8, 6)"]


def test_no_gpu_an_index_of_none_and_an_old_driver_are_errors(fake: FakeDriver) -> None:
    with pytest.raises(Invalid, match="there is no GPU 1: the driver numbers them 0") as wrong:
        device(1)
    assert wrong.value.code == "cuda.device"
    fake.gpus = 0
    for make in (device, found):
        with pytest.raises(Unsupported, match="no GPU") as without:
            make()
        assert without.value.code == "cuda.device"
    fake.failures["cuInit"] = CUresult.CUDA_ERROR_NO_DEVICE
    with pytest.raises(Unsupported, match="finds no GPU"):
        device()
    fake.failures["cuInit"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(Unsupported, match="CUDA_ERROR_INVALID_VALUE") as broken:
        device()
    assert broken.value.code == "cuda.driver"
    fake.failures.clear()
    fake.version = 11_040
    with pytest.raises(Unsupported, match=r"supports CUDA 11\.4") as old:
        device()
    assert old.value.code == "cuda.driver"


def test_all_gpus_are_found(fake: FakeDriver) -> None:
    fake.gpus = 2
    assert [one.words for one in found()] == [
        f"Fake {index} (device {index}, compute capability 9.0, driver for CUDA 12.8)" for index in range(2)
    ]
    assert device(1).name == found()[1].words


def test_without_the_package_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(Unsupported, match=r"pip install 'cvm\[cuda\]'") as raised:
        found()
    assert raised.value.code == "cuda.package"


def real_driver() -> types.ModuleType:
    return pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed (the extra cuda)")


def test_the_functions_have_the_parameters_of_the_package() -> None:
    real = real_driver()
    for name, function in inspect.getmembers(FakeDriver, inspect.isfunction):
        if name.startswith("cu"):
            ours = [*inspect.signature(function).parameters][1:]
            text = re.match(r"\w+\((.*)\)", (getattr(real, name).__doc__ or "").strip().splitlines()[0])
            assert text is not None, name
            theirs = re.sub(r"\[[^\[\]]*(\[[^\[\]]*\][^\[\]]*)*\]", "", text[1])
            names = [part.split(":")[0].strip().split(" ")[-1].lstrip("*") for part in theirs.split(",") if part]
            assert names == ours, name


@pytest.mark.parametrize("ours", FakeDriver.ENUMS, ids=lambda one: one.__name__)
def test_the_constants_are_those_of_the_package(ours: type[IntEnum]) -> None:
    real = getattr(real_driver(), ours.__name__)
    for one in ours:
        assert int(getattr(real, one.name)) == int(one), one.name


def test_a_machine_without_a_driver_is_told_so() -> None:
    real_driver()
    try:
        importlib.import_module("cuda.bindings.driver").cuInit(0)
    except RuntimeError:
        with pytest.raises(CvmError) as raised:
            found()
        assert raised.value.code == "cuda.driver"
    else:
        pytest.skip("this machine has a driver")
