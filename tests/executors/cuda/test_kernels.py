"""CUDA kernels of every kind give NumPy's tensors: in the emulator, thread after thread, and as PTX that assembles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest

import cvm
from cvm.demo import LANGUAGE_MODEL, MODEL
from cvm.executors.base import returned
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.emit.fills import together
from cvm.executors.cuda.emit.registry import PLAIN, kernels_of
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.launch import TRIPLE
from cvm.executors.native.checker import unproven
from cvm.executors.native.descriptions.expressions import Formula, FormulaStep
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.homes import Buffer
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.trial import _feeds
from cvm.executors.native.runtime.trial_programs import CLASSES
from cvm.executors.numpy import NumpyExecutor
from cvm.program.verifier import VerifiedProgram
from cvm.vectors import ExecutorRunner, check
from tests.selection import mostly_long
from tests.spec_vectors.shipped import FOLDER, files
from tools.cuda_emulator import EmulatedDevice
from tools.feeds import feeds
from tools.fuzz.c_programs import case, covering
from tools.fuzz.cuda_programs import differences
from tools.serial_device import SerialDevice

BY_NAME = {one.name: one for one in CLASSES}
TARGETS = ("sm_80", "sm_90", "sm_100")
PROGRAMS = 2000
SHARED = Path(__file__).parents[4] / "shared" / "models"
DIGITS = ("lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mlp_cancer", "mobilenet_digits", "rnn_digits")
REAL = ("hello_world", "micro_speech", "person_detect")
MODELS = (
    MODEL,
    LANGUAGE_MODEL,
    *(SHARED / "digits" / name for name in DIGITS),
    *(SHARED / "real" / name for name in REAL),
)


@cache
def planned(name: str) -> tuple[VerifiedProgram, Plan]:
    verified = BY_NAME[name].program()
    return verified, plan(verified, CUDA, returned(verified.program, "all"))


@cache
def few() -> tuple[str, ...]:
    """Classes of the trial that have kernels of every kind together, the quick ones of op-set 2 first."""
    found: dict[type, str] = {}
    for name in reversed(BY_NAME):
        for kernel in planned(name)[1].functions.values():
            found.setdefault(type(kernel), name)
    return tuple(dict.fromkeys(found.values()))


def require_numpy(verified: VerifiedProgram, device: Device, runs: int, plain: frozenset[type] = frozenset()) -> None:
    executor, numpy = CudaExecutor(verified, device=device, plain=plain, apart=True), NumpyExecutor(verified)
    for feed in list(_feeds(verified))[:runs]:
        expected = numpy.run(feed, {}, "all").values
        found = executor.run(feed, {}, "all").values
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found[name], tensor, err_msg=name, strict=True)
    assert executor.refusals == []
    executor.close()


def test_the_classes_of_the_trial_have_kernels_of_every_kind() -> None:
    assert {type(kernel) for name in few() for kernel in planned(name)[1].functions.values()} == PLAIN.keys()


@pytest.mark.parametrize("name", mostly_long(BY_NAME, set(few())))
def test_every_class_of_the_trial_agrees_in_the_emulator(name: str) -> None:
    require_numpy(planned(name)[0], EmulatedDevice(), 1 if name in few() else 4)


@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
def test_every_class_agrees_in_plain_form(name: str) -> None:
    require_numpy(planned(name)[0], EmulatedDevice(), 4, frozenset(PLAIN))


@pytest.mark.parametrize("grid", [(1, 1), (3, 5)])
def test_the_number_of_threads_changes_nothing(grid: tuple[int, int]) -> None:
    """Elements are shared among any number of threads: see `cvm.executors.cuda.emit.threads`."""
    for name in few():
        require_numpy(planned(name)[0], SerialDevice(grid), 1, frozenset(PLAIN))


@pytest.mark.parametrize("name", mostly_long(BY_NAME, set(few())))
def test_plans_for_gpus_are_proven(name: str) -> None:
    verified, made = planned(name)
    assert unproven(verified, made, CUDA) == {}


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_are_ptx_without_calls_and_with_every_rounding_stated(target: str) -> None:
    """An addition in float64 without a stated rounding may be fused with a product when PTX is assembled."""
    rounded = 0
    for name in few():
        for plain in (frozenset[type](), frozenset(PLAIN))[: 2 if target == TARGETS[0] else 1]:
            text = ptx(kernels_of(planned(name)[1], plain).ir, target)
            found = re.findall(r"\b(?:add|sub|mul|fma|mad|div|sqrt)\.[\w.]*f64", text)
            assert all(".rn." in op for op in found), found
            assert not any(op.startswith(("fma", "mad")) for op in found), found
            assert re.search(r"\bcall\b|__local_depot", text) is None
            rounded += len(found)
    assert rounded > 20


def ptx(ir: str, target: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=target, opt=3)
    return str(machine.emit_assembly(module))


def test_the_borders_of_a_tensor_are_filled_by_one_launch() -> None:
    _, made = planned("8-bit convolution")
    fills = [call for call in made.calls if len(call.arguments) == 1]
    assert len(fills) == 4
    for plain, expected in ((frozenset[type](), 1), (frozenset[type](PLAIN), 4)):
        launches = [
            one for one in kernels_of(made, plain).launches if set(one.arguments) <= {c.arguments[0] for c in fills}
        ]
        assert len(launches) == expected
        assert [place for one in launches for place in one.arguments] == [call.arguments[0] for call in fills]


def test_fills_of_other_buffers_or_numbers_are_launches_of_their_own() -> None:
    def nest(number: int) -> Nest:
        step = FormulaStep("immediate", (), (number,))
        return Nest((Loop(4, (1,)),), (Format(8),), Formula(0, (step,)))

    first, second = (Buffer("arena", index, 64) for index in range(2))
    functions = {"zero": nest(0), "one": nest(1)}
    calls = [("zero", first, 0), ("zero", first, 8), ("one", first, 16), ("one", second, 0), ("zero", second, 8)]
    made = SimpleNamespace(functions=functions, calls=[
        SimpleNamespace(function=name, arguments=((buffer, offset),)) for name, buffer, offset in calls
    ])  # fmt: skip
    assert [len(run) for run in together(made, False)] == [2, 1, 1, 1]
    assert [len(run) for run in together(made, True)] == [1] * 5


def test_every_op_agrees_in_the_emulator() -> None:
    for op, program, runs in covering():
        assert differences(program, runs[:2], EmulatedDevice()) == [], op


@pytest.mark.long
def test_every_op_agrees_on_one_thread() -> None:
    for op, program, runs in covering():
        assert differences(program, runs[:2], SerialDevice(), frozenset(PLAIN)) == [], op


@pytest.mark.parametrize("model", mostly_long(MODELS, {MODEL}))
def test_small_models_agree_in_the_emulator(model: Path) -> None:
    if not model.exists():
        pytest.skip(f"needs {model}")
    program = cvm.load(model) if model.suffix == ".cvm" else cvm.compile(model)
    assert differences(program, feeds(program, 2), EmulatedDevice()) == []


def cases(first: int, count: int) -> Iterator[int]:
    """The numbers of cases that hold so many programs together."""
    done, number = 0, first
    while done < count:
        yield number
        done += case(1, number)[2]
        number += 1


@pytest.mark.long
def test_two_thousand_random_programs_agree_in_the_emulator() -> None:
    for number in cases(0, PROGRAMS):
        program, runs, _ = case(1, number)
        assert differences(program, runs, EmulatedDevice()) == [], f"case {number}"


@pytest.mark.long
def test_all_vectors_agree_in_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(name: str, verified: VerifiedProgram, threads: int | None = None) -> CudaExecutor:
        return CudaExecutor(verified, device=EmulatedDevice(), apart=True)

    monkeypatch.setattr("cvm.vectors.own.create", create)
    report = check(FOLDER, ExecutorRunner("cuda"))
    assert report.first is None
    assert report.ok
    assert sum(tally.passed for tally in report.tallies) == sum(len(file.cases) for file in files().values())
