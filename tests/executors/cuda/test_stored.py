"""Networks for a device on disk: what is restored is what was written, proven and tried; the planner is needed once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.executors.base import Int32Array, returned
from cvm.executors.cuda import executor as executors
from cvm.executors.cuda.device import bindings
from cvm.executors.cuda.emit import registry
from cvm.executors.cuda.emit.registry import PLAIN
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.launch import CROWD, Launch
from cvm.executors.cuda.network import Memory
from cvm.executors.cuda.stored import entry, restore, store
from cvm.executors.cuda.trial import Trial
from cvm.executors.cuda.written import Written, written
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime import cache, stored
from cvm.executors.native.runtime.trial_programs import CLASSES
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder
from cvm.program.verifier import VerifiedProgram, verify
from tests.executors.cuda.fake_driver import FakeDriver
from tests.selection import mostly_long
from tools.cuda_emulator import EmulatedDevice
from tools.serial_device import SerialDevice

BY_NAME = {one.name: one for one in CLASSES}
MANY = "convolution of many channels"
"""A class with launches that are others for many samples."""
FEW = {"8-bit convolution", MANY, "detections", "ops that move elements", "windows"}
NAME = "0" * 64


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    where = cache.folder()
    assert where is not None
    return where


@pytest.fixture
def plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serial device knows no fast forms."""
    monkeypatch.setattr(registry, "FAST", {})


def large(seed: int = 5) -> VerifiedProgram:
    """A product whose weights are a file of their own, and a sum behind it."""
    random = np.random.default_rng(seed)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 300), -128, 127)
    (y,) = builder.add("dense", [x, builder.constant(random.integers(-128, 128, (260, 300)))])
    (z,) = builder.add("relu", [y])
    return verify(builder.build([Output("z", z)]))


def feed(verified: VerifiedProgram, seed: int = 7) -> dict[str, Int32Array]:
    random = np.random.default_rng(seed)
    return {
        item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
        for item in verified.program.inputs
    }


def require_numpy(executor: CudaExecutor, verified: VerifiedProgram) -> None:
    given = feed(verified)
    assert executor.refusals == []
    for name, tensor in NumpyExecutor(verified).run(given, {}).values.items():
        np.testing.assert_array_equal(executor.run(given, {}).values[name], tensor, strict=True)


def forbidden(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("it was done before")


def addresses(one: Launch, plan: Plan) -> list[Any]:
    """A launch, and the one for many samples, with every address as a number."""
    places = [(buffer.kind, buffer.index, plan.offsets.get(buffer, 0) + at) for buffer, at in one.arguments]
    others = [] if one.crowded is None else addresses(one.crowded, plan)
    return [one.function, one.grid, one.block, one.shared, places, *others]


def require_equal(one: Written, other: Written) -> None:
    assert one.kernels.ir == other.kernels.ir
    assert one.kernels.calls == other.kernels.calls
    for found, expected in zip(one.kernels.launches, other.kernels.launches, strict=True):
        assert addresses(found, one.plan) == addresses(expected, other.plan)
    assert bytes(one.plan.constants) == bytes(other.plan.constants)
    for part in ("arena", "arrays", "written", "joined", "kept"):
        assert getattr(one.plan, part) == getattr(other.plan, part)
    for call, same in zip(one.plan.calls, other.plan.calls, strict=True):
        assert replace(call, arguments=()) == replace(same, arguments=())


@pytest.mark.parametrize("name", mostly_long(BY_NAME, FEW))
def test_what_is_restored_is_what_was_written(name: str) -> None:
    verified = BY_NAME[name].program()
    for plain in (frozenset[type](), frozenset[type](PLAIN)):
        made = written(verified, returned(verified.program, "all"), plain)
        store(NAME, made)
        found = restore(NAME)
        assert found is not None
        require_equal(found, made)


def test_launches_for_many_samples_are_restored() -> None:
    verified = BY_NAME[MANY].program()
    store(NAME, written(verified, returned(verified.program, frozenset()), frozenset()))
    found = restore(NAME)
    assert found is not None
    assert any(one.of(CROWD) is not one.of(1) for one in found.kernels.launches)


def made_twice(
    verified: VerifiedProgram, monkeypatch: pytest.MonkeyPatch, device: Callable[[], Any] = SerialDevice
) -> CudaExecutor:
    """An executor that restores what another one has stored: it plans, writes and tries nothing."""
    first = device()
    CudaExecutor(verified, device=first, trial=Trial(first, ())).close()
    second = device()
    with monkeypatch.context() as patch:
        patch.setattr("cvm.executors.cuda.network.written", forbidden)
        patch.setattr(Trial, "failed", forbidden)
        patch.setattr(Trial, "rehearse", forbidden)
        return CudaExecutor(verified, device=second, trial=Trial(second, ()))


@pytest.mark.usefixtures("plain_forms")
@pytest.mark.parametrize("name", sorted(FEW))
def test_a_restored_network_gives_the_bytes_of_numpy_and_the_same_words(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = BY_NAME[name].program()
    second = made_twice(verified, monkeypatch)
    require_numpy(second, verified)
    batch = second.run_samples([feed(verified, seed) for seed in range(5)])
    assert batch is not None
    for seed, values in enumerate(batch):
        for value, tensor in NumpyExecutor(verified).run(feed(verified, seed), {}).values.items():
            np.testing.assert_array_equal(values[value], tensor)
    assert second.explain() == CudaExecutor(verified, device=SerialDevice()).explain()


def test_a_restored_network_runs_its_fast_kernels_in_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sample and a batch, which has kernels of its own."""
    verified = BY_NAME["8-bit convolution"].program()
    second = made_twice(verified, monkeypatch, EmulatedDevice)
    require_numpy(second, verified)
    batch = second.run_samples([feed(verified)] * (2 * CROWD))
    assert batch is not None
    for name, tensor in NumpyExecutor(verified).run(feed(verified), {}).values.items():
        assert all(np.array_equal(values[name], tensor) for values in batch)


def test_an_entry_is_about_one_network_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SerialDevice()
    plain = frozenset[type]({Nest})
    x, y = frozenset({"x"}), frozenset({"y"})
    names = [entry(device, "00", *sets) for sets in ((x, y, plain), (y, x, plain), (x | y, frozenset(), plain))]
    names += [entry(device, "00", x, y, frozenset()), entry(device, "01", x, y, plain)]
    for attribute, value in (("name", "another device"), ("capability", (8, 0))):
        other = SerialDevice()
        monkeypatch.setattr(other, attribute, value, raising=False)
        names.append(entry(other, "00", x, y, plain))
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_sources", lambda: b"another checker")
        names.append(entry(device, "00", x, y, plain))
    assert len({*names}) == 8
    assert entry(SerialDevice(), "00", x, y, plain) == names[0]


def test_an_entry_depends_on_the_checker_and_on_the_programs_of_the_trial() -> None:
    assert {"executors/native/checker", "executors/native/runtime/trial_programs", "executors/cuda"} <= {*cache.PARTS}


def test_the_build_of_the_driver_is_part_of_what_verdicts_depend_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two builds for the same version of CUDA have other translators of PTX."""
    file = tmp_path / "version"
    monkeypatch.setattr(bindings, "BUILD", file)
    found = []
    for text in (None, "NVRM version: 580.65\nGCC version: 13\n", "NVRM version: 580.95\nGCC version: 13\n"):
        if text is not None:
            file.write_text(text)
        driver = FakeDriver()
        driver.cuInit(0)
        found.append(bindings.chosen(driver, 0))
    assert [one.build for one in found] == [
        "", "NVRM version: 580.65 GCC version: 13", "NVRM version: 580.95 GCC version: 13",
    ]  # fmt: skip
    assert len({one.words for one in found}) == 1


# What is not stored, and what is not restored -----------------------------------------------------------------------


class Wrong(SerialDevice):
    """A device on which the kernels of pools do nothing."""

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        return super().prepare(code, [one for one in launches if not one.function.startswith("pool")], *others)


@pytest.mark.usefixtures("plain_forms")
def test_only_networks_that_have_passed_are_stored(folder: Path) -> None:
    verified = BY_NAME["windows"].program()
    CudaExecutor(verified, device=SerialDevice())
    device = SerialDevice()
    CudaExecutor(verified, device=device, trial=Trial(device, ()), apart=True)
    wrong = Wrong()
    assert CudaExecutor(verified, device=wrong, trial=Trial(wrong, ())).refusals
    assert not folder.exists()
    CudaExecutor(verified, device=device, trial=Trial(device, ()))
    assert len([*folder.iterdir()]) == 1


@pytest.mark.usefixtures("plain_forms")
def test_tensors_that_are_shown_are_compared_before_they_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Memory.fetched

    def misread(memory: Memory, name: str) -> Int32Array:
        found = fetched(memory, name)
        found.reshape(-1)[0] ^= 1
        return found

    monkeypatch.setattr(Memory, "fetched", misread)
    verified = BY_NAME["windows"].program()
    device = SerialDevice()
    executor = CudaExecutor(verified, device=device, trial=Trial(device, ()))
    assert executor.refusals == []
    seen: dict[str, Int32Array] = {}
    executor.run(feed(verified), {}, watch=seen.update)
    assert "came out otherwise" in executor.refusals[0]
    expected = NumpyExecutor(verified).run(feed(verified), {}, "all").values
    assert all(np.array_equal(seen[name], tensor) for name, tensor in expected.items())


@pytest.mark.usefixtures("plain_forms")
def test_fast_kernels_that_have_failed_since_are_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = BY_NAME["ops that move elements"].program()
    made_twice(verified, monkeypatch)
    device = SerialDevice()
    trial = Trial(device, ())
    trial._slow[Nest] = "another program"
    executor = CudaExecutor(verified, device=device, trial=trial)
    assert executor._plain == {Nest}
    assert any("kind Nest are plain" in line for line in executor.explain())
    require_numpy(executor, verified)


def _missing(path: Path) -> None:
    path.unlink()


def _one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 4
    path.write_bytes(data)


def _short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _writable(path: Path) -> None:
    path.chmod(0o666)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    """A whole file, but in a folder where somebody else may have put it."""
    other = path.parent.parent / "download"
    path.rename(other)
    path.symlink_to(other)


def _hard_link(path: Path) -> None:
    os.link(path, path.parent.parent / "other name")


def _another(path: Path) -> None:
    """A whole file of another name in the place of this one."""
    cache.write("1" * 64, path.read_bytes()[cache.DIGEST :])
    path.with_name("1" * 64).replace(path)


HARMS = [_missing, _one_bit, _short, _empty, _writable, _pipe, _link, _hard_link, _another]


@pytest.mark.usefixtures("plain_forms")
@pytest.mark.parametrize("harmed", ["entry", "constants"])
@pytest.mark.parametrize("harm", HARMS)
def test_files_that_are_not_whole_and_ours_are_not_restored(
    harm: Callable[[Path], None], harmed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = large()
    device = SerialDevice()
    CudaExecutor(verified, device=device, trial=Trial(device, ())).close()
    stored._in_use.clear()  # as in a new process
    (path,) = (path for path in folder.iterdir() if path.name.startswith("constants-") == (harmed == "constants"))
    harm(path)
    found: list[Written | None] = []

    def noted(name: str) -> Written | None:
        found.append(restore(name))
        return found[-1]

    monkeypatch.setattr(executors, "restore", noted)
    for again in (False, True):
        executor = CudaExecutor(verified, device=device, trial=Trial(device, ()))
        assert (found[-1] is not None) == again
        require_numpy(executor, verified)
        executor.close()


@pytest.mark.usefixtures("plain_forms")
def test_few_constants_lie_behind_the_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MANY", 2**30)
    require_numpy(made_twice(large(), monkeypatch), large())
    assert len([*folder.iterdir()]) == 1


@pytest.mark.usefixtures("plain_forms")
def test_without_a_folder_every_session_plans_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    with pytest.raises(AssertionError, match="done before"):
        made_twice(large(), monkeypatch)
