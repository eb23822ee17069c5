"""Code for AArch64, under emulation: every tensor is NumPy's. Needs a cross compiler and QEMU; `make test-long`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cvm.errors import Unsupported
from cvm.executors.native.emit.ir import Code, V
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.runtime.trial_programs import programs
from cvm.program import ProgramBuilder, verify
from cvm.program.build import Output
from cvm.program.verifier import VerifiedProgram
from tools import run_elsewhere
from tools.feeds import feeds
from tools.planted.networks import AIMS, network
from tools.run_elsewhere import CPUS, Elsewhere, differences, missing

ROOT = Path(__file__).parents[3]
HERE = [machine for machine in MACHINES if machine.name in CPUS]
IDS = [machine.name for machine in HERE]

MISSING = missing()
with_emulator = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
emulated = [pytest.mark.long, with_emulator]


def on(machine: Machine) -> Elsewhere:
    return Elsewhere(machine, CPUS[machine.name])


def convolution() -> VerifiedProgram:
    return next(programs())[1]


@with_emulator
@pytest.mark.sweep
@pytest.mark.parametrize("threads", [2, 3, 11])
@pytest.mark.parametrize("aim", AIMS)
def test_threads_share_the_work(aim: str, threads: int) -> None:
    """The workers' code, too; QEMU on x86 orders memory more strongly than AArch64 must."""
    verified = verify(network(aim, 200))
    found = differences(verified, feeds(verified.program, 4), on(HERE[-1]), threads, everything=threads == 2)
    assert found == []


class TestEmulated:
    pytestmark = emulated

    @pytest.mark.parametrize("machine", HERE, ids=IDS)
    def test_the_trial_passes(self, machine: Machine) -> None:
        for what, verified in programs():
            assert differences(verified, feeds(verified.program, 4), on(machine)) == [], what

    @pytest.mark.parametrize("machine", HERE, ids=IDS)
    @pytest.mark.parametrize("aim", AIMS)
    def test_networks_agree(self, machine: Machine, aim: str) -> None:
        for seed in range(100, 105):
            verified = verify(network(aim, seed))
            assert differences(verified, feeds(verified.program, 3, seed), on(machine)) == [], (aim, seed)

    def test_state_goes_from_run_to_run(self) -> None:
        builder = ProgramBuilder()
        x = builder.input("x", (3, 5), -100, 100)
        kept = builder.state("kept", builder.constant(np.arange(15).reshape(3, 5)), -1000, 1000)
        total = builder.add("clip", [builder.add("elemwise_add", [x, kept])[0]], {"a_min": -1000, "a_max": 1000})[0]
        builder.update(kept, total)
        verified = verify(builder.build([Output("y", total)]))
        assert differences(verified, feeds(verified.program, 4), on(HERE[-1])) == []

    def test_more_arrays_than_arguments(self) -> None:
        builder = ProgramBuilder()
        values = [builder.input(f"x{k}", (2,), -k, k) for k in range(300)]
        outputs = [Output(f"y{k}", builder.add("negative", [value])[0]) for k, value in enumerate(values)]
        verified = verify(builder.build(outputs))
        assert differences(verified, feeds(verified.program, 2), on(HERE[-1])) == []

    def test_an_input_outside_its_interval_is_refused(self) -> None:
        verified = convolution()
        (feed,) = feeds(verified.program, 1)
        subject = run_elsewhere.Subject.of(verified, HERE[-1], 1, everything=False)
        outside = {name: tensor.copy() for name, tensor in feed.items()}
        outside["x"][0, -1, -1, -1] = 256
        assert [status for status, _ in run_elsewhere.executed(subject, [feed, outside], on(HERE[-1]))] == [-1, 0]

    @pytest.mark.parametrize("machine", HERE, ids=IDS)
    def test_a_wrong_product_is_found(self, machine: Machine) -> None:
        def dropped(code: Code, total: V, a: V, w: V) -> V:
            return machine.dot4(code, total, code.binary("and", a, 0xFFFFFF), w)

        found = differences(convolution(), feeds(convolution().program, 1), on(replace(machine, dot4=dropped)))
        assert found
        assert all(" instead of " in line for line in found)

    def test_a_fault_is_reported(self) -> None:
        """A subject that says that less memory is needed than its kernels use runs into the pages around it."""
        subject = run_elsewhere.Subject.of(convolution(), HERE[-1], 1, everything=False)
        small = replace(subject, plan=replace(subject.plan, arena=-run_elsewhere.SLACK))
        with pytest.raises(Unsupported, match="ended with") as caught:
            list(run_elsewhere.executed(small, feeds(convolution().program, 1), on(HERE[-1])))
        assert caught.value.code == "elsewhere.run"

    def test_the_tool_says_what_is_the_same(self) -> None:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "run_elsewhere.py"), "lenet", "--runs", "1", "--threads", "2"],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        assert done.stdout.splitlines() == [
            "lenet: the same",
            "1 of 1 the same: generic, aarch64-linux-gnu, cortex-a72",
        ]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert "aarch64-linux-gnu-gcc is not installed" in str(missing())
    assert run_elsewhere.main(["lenet"]) == 2
    assert "elsewhere.compiler" in capsys.readouterr().err
    assert run_elsewhere.main(["lenet", "--triple", "abacus-none"]) == 2
    assert "elsewhere.triple" in capsys.readouterr().err


@pytest.mark.sweep
@pytest.mark.parametrize("machine", HERE, ids=IDS)
def test_assembly_has_the_instructions_of_the_machine(machine: Machine) -> None:
    text = run_elsewhere.assembly(convolution(), on(machine))
    mixed = {"usdot", "sudot"}  # the two orders of the operands
    wanted = {"neon_i8mm": mixed, "neon_dot": {"sdot"}, "generic": {"mla"}}[machine.name]
    words = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert words & wanted
    assert not words & mixed or machine.name == "neon_i8mm"
