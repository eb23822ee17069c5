"""The CUDA executor around its kernels: batches, watched tensors, roots on the device, the trial, errors."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cvm
from cvm.audit.record import Observation, Observer
from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.executors import DEVICES, Executor, Int32Array, create
from cvm.executors.batching import Batching
from cvm.executors.cuda import executor as executors
from cvm.executors.cuda.emit import registry
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.hashing import Hashing
from cvm.executors.cuda.launch import MOST_ARGUMENTS
from cvm.executors.cuda.network import Network
from cvm.executors.cuda.shown import Shown
from cvm.executors.cuda.trial import Trial
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.runtime.trial_programs import CLASSES, Class
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder
from cvm.program.commitments import tensor_root
from cvm.program.verifier import VerifiedProgram, verify
from tests.executors.stateful import cache
from tools.cuda_emulator import EmulatedDevice
from tools.serial_device import SerialDevice

BY_NAME = {one.name: one for one in CLASSES}
PROGRAM = "8-bit convolution"


@pytest.fixture(autouse=True)
def plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serial device knows no fast forms; these tests are about what surrounds kernels."""
    monkeypatch.setattr(registry, "FAST", {})


def feeds(verified: VerifiedProgram, count: int) -> list[dict[str, Int32Array]]:
    random = np.random.default_rng(7)
    return [
        {
            item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
            for item in verified.program.inputs
        }
        for _ in range(count)
    ]


def stacked(fed: list[dict[str, Int32Array]]) -> dict[str, Int32Array]:
    return {name: np.stack([feed[name] for feed in fed]) for name in fed[0]}


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_batches_are_the_runs_of_their_samples(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "GROUP", 3)
    verified = BY_NAME[PROGRAM].program()
    device = SerialDevice()
    executor, numpy = CudaExecutor(verified, device=device), NumpyExecutor(verified)
    assert isinstance(executor, Batching)
    fed = feeds(verified, count)
    expected = [numpy.run(feed, {}, "all").values for feed in fed]
    batch = executor.run_batch(count, stacked(fed), "all")
    samples = executor.run_samples(fed, "all")
    assert batch is not None
    assert samples is not None
    for number, tensors in enumerate(expected):
        assert batch.keys() == samples[number].keys() == tensors.keys()
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(batch[name][number], tensor)
            np.testing.assert_array_equal(samples[number][name], tensor)
    executor.close()
    assert executor.device_bytes == 0


def test_batches_agree_in_the_emulator() -> None:
    """Blocks of different samples write different memory: the emulator would name a race."""
    verified = BY_NAME["windows"].program()
    fed = feeds(verified, 3)
    executor, numpy = CudaExecutor(verified, device=EmulatedDevice(), apart=True), NumpyExecutor(verified)
    found = executor.run_batch(3, stacked(fed))
    assert found is not None
    for number, feed in enumerate(fed):
        for name, tensor in numpy.run(feed, {}).values.items():
            np.testing.assert_array_equal(found[name][number], tensor)


def test_a_batch_writes_into_given_arrays_and_refuses_codes_beyond_their_interval() -> None:
    verified = BY_NAME[PROGRAM].program()
    executor = CudaExecutor(verified, device=SerialDevice())
    fed = stacked(feeds(verified, 3))
    expected = executor.run_batch(3, fed)
    assert expected is not None
    into = {name: np.zeros_like(array) for name, array in expected.items()}
    found = executor.run_batch(3, fed, into=into)
    assert found is not None
    for name, array in expected.items():
        assert found[name] is into[name]
        np.testing.assert_array_equal(into[name], array)
    value = verified.program.inputs[0].value
    fed[value.name].reshape(-1)[-1] = value.hi + 1
    with pytest.raises(Invalid) as raised:
        executor.run_batch(3, fed)
    assert raised.value.code == "executors.input.interval"
    with pytest.raises(Invalid, match="a batch needs int32 of shape"):
        executor.run_batch(2, fed)


def test_a_device_with_little_memory_computes_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = BY_NAME[PROGRAM].program()
    device = SerialDevice()
    executor = CudaExecutor(verified, device=device)
    fed = feeds(verified, 6)
    expected = executor.run_samples(fed)
    with executor._used(frozenset()) as used:
        assert used is not None
        network = used[0]
    monkeypatch.setattr(device, "available", 9 * network.sample_bytes, raising=False)
    assert executor._group(network, 6) == 1
    found = executor.run_samples(fed)
    assert found is not None
    assert expected is not None
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one.keys() | other.keys())
    monkeypatch.setattr(device, "available", 100, raising=False)
    with pytest.raises(LimitExceeded) as raised:
        Network(verified, device, network.wanted)
    assert raised.value.code == "limit.device_memory"


def observed(executor: Executor, verified: VerifiedProgram, feed: Mapping[str, Int32Array]) -> Observation:
    observer = Observer(verified.program, feed, {}, True)
    return observer.end(executor.run(feed, {}, watch=observer.watch))


def test_a_trace_is_hashed_on_the_device() -> None:
    verified = BY_NAME["ops by element"].program()
    device = SerialDevice()
    executor = CudaExecutor(verified, device=device, hashing=Hashing(device))
    (feed,) = feeds(verified, 1)
    assert observed(executor, verified, feed) == observed(NumpyExecutor(verified), verified, feed)
    seen: list[Any] = []

    def watch(tensors: Mapping[str, Int32Array]) -> None:
        if isinstance(tensors, Shown):
            seen.append(tensors)
            roots = tensors.roots()
            assert roots is not None
            assert not tensors._fetched
            assert roots == {name: tensor_root(np.ascontiguousarray(tensors[name])) for name in tensors}

    executor.run(feed, {}, watch=watch)
    assert {name for tensors in seen for name in tensors} == {
        value.name for node in verified.program.nodes for value in node.outputs
    }


def test_a_device_that_hashes_wrongly_is_not_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Hashing(SerialDevice()).right
    monkeypatch.setattr("cvm.executors.cuda.emit.sha256.LEAF", 255)
    assert not Hashing(SerialDevice()).right


def test_digests_of_the_emulator_are_those_of_hashlib() -> None:
    device = EmulatedDevice()
    data = np.arange(3 * 1024 + 52, dtype=np.uint32).astype(np.uint8)
    hashing = Hashing(device)
    assert hashing.right
    address = device.allocate(data.size)
    device.upload(address, data)
    (digests,) = hashing._digests([address], [data.size])
    leaves = [data[start : start + 1024].tobytes() for start in range(0, data.size, 1024)]
    assert digests.tobytes() == b"".join(hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves)


class Wrong(SerialDevice):
    """A device on which kernels whose names begin with one of ``wrong`` do nothing."""

    name = "a wrong device"

    def __init__(self, *wrong: str) -> None:
        super().__init__()
        self.wrong = wrong

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        kept = [one for one in launches if not one.function.startswith(self.wrong)]
        return super().prepare(code, kept, *others)


def classes(*names: str) -> tuple[Class, ...]:
    return tuple(BY_NAME[name] for name in names)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")


@pytest.mark.usefixtures("no_cache")
def test_kernels_that_fail_their_trial_become_plain_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ops that move elements"
    verified = BY_NAME[name].program()

    def fast(module: Any, function: str, kernel: Any, alignments: Any) -> Any:
        return registry.PLAIN[Nest](module, f"fast_{function}", kernel, alignments)

    monkeypatch.setattr(registry, "FAST", {Nest: (fast,)})
    (feed,) = feeds(verified, 1)
    for device, failed in ((Wrong("none"), False), (Wrong("fast_"), True)):
        executor = CudaExecutor(verified, device=device, trial=Trial(device, classes(name)))
        assert not executor.refusals
        assert any("kind Nest are plain" in line and name in line for line in executor.explain()) == failed
        for key, tensor in NumpyExecutor(verified).run(feed, {}).values.items():
            np.testing.assert_array_equal(executor.run(feed, {}).values[key], tensor)


@pytest.mark.usefixtures("no_cache")
def test_a_device_whose_plain_kernels_fail_runs_nothing() -> None:
    name = "windows"
    verified = BY_NAME[name].program()
    device = Wrong("pool")
    executor = CudaExecutor(verified, device=device, trial=Trial(device, classes(name)))
    assert "FAILED its trial (windows)" in executor.explain()[0]
    (feed,) = feeds(verified, 1)
    for key, tensor in NumpyExecutor(verified).run(feed, {}).values.items():
        np.testing.assert_array_equal(executor.run(feed, {}).values[key], tensor)


@pytest.mark.usefixtures("no_cache")
def test_a_network_that_gives_other_values_when_it_is_tried_is_not_used() -> None:
    verified = BY_NAME["windows"].program()
    device = Wrong("pool")
    executor = CudaExecutor(verified, device=device, trial=Trial(device, ()))
    assert any("FAILED" in line or "came out otherwise" in line for line in executor.refusals)


class Crowded(SerialDevice):
    """A device on which kernels do nothing for the sample with the number 5 and those behind it."""

    name = "a device for few"

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        few = [replace(one, grid=(*one.grid[:2], min(5, one.grid[2]))) for one in launches]
        return super().prepare(code, few, *others)


@pytest.mark.usefixtures("no_cache")
def test_kernels_are_tried_on_batches_too() -> None:
    verified = BY_NAME["windows"].program()
    device = Crowded()
    tried = CudaExecutor(verified, device=device, trial=Trial(device, classes("windows")))
    assert tried.refusals == ["a device for few FAILED its trial (windows), in plain kernels too"]
    rehearsed = CudaExecutor(verified, device=device, trial=Trial(device, ()))
    assert len(rehearsed.refusals) == 1
    assert "came out otherwise in a batch" in rehearsed.refusals[0]


class Refusing(SerialDevice):
    """A device whose driver refuses modules with a kernel whose name begins with ``refused``."""

    name = "a refusing device"

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    def load(self, ir: str) -> Any:
        if f"@{self.refused}" in ir:
            raise Unsupported("cuda.code", "cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX")
        return super().load(ir)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("tried", [True, False])
def test_fast_kernels_that_the_driver_refuses_become_plain(tried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ops that move elements"
    verified = BY_NAME[name].program()

    def fast(module: Any, function: str, kernel: Any, alignments: Any) -> Any:
        return registry.PLAIN[Nest](module, f"fast_{function}", kernel, alignments)

    monkeypatch.setattr(registry, "FAST", {Nest: (fast,)})
    device = Refusing("fast_")
    executor = CudaExecutor(verified, device=device, trial=Trial(device, classes(name) if tried else ()))
    assert not executor.refusals
    assert any("kind Nest are plain" in line and "CUDA_ERROR_INVALID_PTX" in line for line in executor.explain())
    (feed,) = feeds(verified, 1)
    for key, tensor in NumpyExecutor(verified).run(feed, {}).values.items():
        np.testing.assert_array_equal(executor.run(feed, {}).values[key], tensor)


@pytest.mark.usefixtures("no_cache")
def test_a_driver_that_refuses_plain_kernels_runs_nothing() -> None:
    verified = BY_NAME["windows"].program()
    device = Refusing("pool")
    executor = CudaExecutor(verified, device=device, trial=Trial(device, classes("windows")))
    assert "takes no code, of plain kernels either" in executor.refusals[0]
    (feed,) = feeds(verified, 1)
    for key, tensor in NumpyExecutor(verified).run(feed, {}).values.items():
        np.testing.assert_array_equal(executor.run(feed, {}).values[key], tensor)


def test_a_network_is_not_closed_while_a_run_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code would be unloaded under a run of another thread."""
    monkeypatch.setattr(executors, "KEPT", 1)
    verified = BY_NAME[PROGRAM].program()
    executor = CudaExecutor(verified, device=SerialDevice())
    (feed,) = feeds(verified, 1)
    with executor._used("all") as used:
        assert used is not None
        network, memory = used
        executor.run(feed, {})  # another set of values, so another network takes the place of this one
        executor.close()
        assert network.close.alive
        assert memory.close.alive
        memory.put("x", 0, feed["x"][None])
        memory.start()
        memory.wait()
    assert not network.close.alive
    assert not memory.close.alive
    executor.run(feed, {})
    executor.close()
    assert executor.device_bytes == 0


def test_a_batch_pins_a_bounded_part_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = BY_NAME[PROGRAM].program()
    executor = CudaExecutor(verified, device=SerialDevice())
    with executor._used(frozenset()) as used:
        assert used is not None
        network = used[0]
    assert executor._group(network, 100) == 50
    monkeypatch.setattr(executors, "PINNED", 13 * network.copied_bytes)
    assert executor._group(network, 100) == 12


def added(count: int, pairs: bool) -> VerifiedProgram:
    """The sum of so many inputs, added up in pairs or one after the other."""
    builder = ProgramBuilder()
    left = [builder.input(f"x{number}", (1, 3), -100, 100) for number in range(count)]
    while len(left) > 1:
        first = builder.add("elemwise_add", left[:2])[0]
        left = [*left[2:], first] if pairs else [first, *left[2:]]
    return verify(builder.build([Output("y", left[0])]))


@pytest.mark.parametrize(("count", "pairs"), [(90, True), (90, False), (300, True)])
def test_kernels_take_a_bounded_number_of_parameters(count: int, pairs: bool) -> None:
    """The driver refuses kernels with more than 4352 bytes of them."""
    verified = added(count, pairs)
    executor = CudaExecutor(verified, device=SerialDevice())
    with executor._used(frozenset()) as used:
        assert used is not None
        launches = used[0].kernels.launches
    assert max(len(one.arguments) for one in launches) <= MOST_ARGUMENTS
    (feed,) = feeds(verified, 1)
    (y,) = executor.run(feed, {}).values.values()
    np.testing.assert_array_equal(y, sum(feed.values()))


def test_a_program_that_the_planner_cannot_plan_is_run_by_numpy() -> None:
    verified = added(300, False)
    executor = CudaExecutor(verified, device=SerialDevice())
    assert "the planner failed: RecursionError" in executor.refusals[0]
    (feed,) = feeds(verified, 1)
    (y,) = executor.run(feed, {}).values.values()
    np.testing.assert_array_equal(y, sum(feed.values()))


def test_two_devices_do_not_wait_for_each_other() -> None:
    verified = BY_NAME[PROGRAM].program()
    one, other = SerialDevice(), SerialDevice()
    first, second, third = (CudaExecutor(verified, device=device) for device in (one, one, other))
    assert first._lock is second._lock
    assert first._lock is not third._lock


def test_what_has_passed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    verified = BY_NAME["windows"].program()
    for device, good in ((SerialDevice(), True), (Wrong("pool"), False)):
        device.name = "one device"
        executor = CudaExecutor(verified, device=device, trial=Trial(device, classes("windows")))
        assert not executor.refusals, good  # the second one is believed, since its name has passed


def test_state_goes_on_from_run_to_run() -> None:
    verified = verify(cache())
    results = []
    for executor in (CudaExecutor(verified, device=SerialDevice()), NumpyExecutor(verified)):
        state = cvm.executors.initial_state(verified.program)
        for feed in feeds(verified, 3):
            result = executor.run(feed, state)
            state = result.state
        results.append((result.values, state))
    for one, other in zip(*results, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
def test_without_the_package_every_use_of_the_executor_is_one_clear_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    verified = BY_NAME["windows"].program()
    for use in (lambda: create(name, verified), lambda: cvm.Session(verified.program, name)):
        with pytest.raises(CvmError, match="pip install") as raised:
            use()
        assert raised.value.code == "cuda.package"


def test_devices_are_named_once_and_for_executors_that_have_some() -> None:
    verified = BY_NAME["windows"].program()
    for name, device in (("numpy", 0), ("cuda:1", 1), ("cuda:x", None), ("cuda:-1", None), ("cuda:99999", None)):
        with pytest.raises(Invalid) as raised:
            create(name, verified, device=device)
        assert raised.value.code == "executors.device"
    with pytest.raises(Invalid) as typed:
        cvm.Session(verified.program, "cuda", device="first")  # type: ignore[arg-type]
    assert typed.value.code == "argument.device"
    assert [*DEVICES] == ["cuda"]


def test_a_session_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SerialDevice()
    made: list[int] = []

    def used(index: int) -> tuple[Any, None, Hashing]:
        made.append(index)
        return device, None, Hashing(device)

    monkeypatch.setattr("cvm.executors.cuda.opened.used", used)
    program = BY_NAME[PROGRAM].program().program
    ours, others = cvm.Session(program, "cuda", device=3), cvm.Session(program, "numpy")
    assert made == [3]
    assert ours.executor == "cuda"
    assert ours.explain()[:2] == ("cuda: asked for", "on a serial device")
    fed = feeds(ours.verified, 5)
    results = [session.run_many(fed, codes=True) for session in (ours, others)]
    for one, other in zip(*results, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in other)
    receipts = [session.run(fed[0], codes=True, receipt="trace").receipt for session in (ours, others)]
    assert receipts[0].claim == receipts[1].claim  # type: ignore[union-attr]
