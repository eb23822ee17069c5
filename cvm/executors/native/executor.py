"""The native executor: a program compiled to one function of machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Capture, Int32Array, RunResult, feeds, returned
from cvm.executors.native.ir import Code, Module, V
from cvm.executors.native.jit import Loaded, compiled
from cvm.executors.native.machine import MACHINES, Machine
from cvm.executors.native.plan import plan
from cvm.executors.native.steps import Plan

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["NativeExecutor"]


class Network:
    """A plan, compiled and with its memory."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan = plan
        text = written(plan)
        self.text = text
        self._loaded = Loaded(compiled(text, machine), machine)
        self._constants = _aligned(len(plan.constants) + 64)
        self._constants[: len(plan.constants)] = np.frombuffer(plan.constants, np.uint8)
        self._arena = _aligned(plan.arena + 64)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._function = function(self._loaded.address("network"))

    def run(self, arrays: list[Int32Array]) -> None:
        """Run on the arrays of the plan."""
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        self._function(self._arena.ctypes.data, self._constants.ctypes.data, ctypes.addressof(pointers))


def written(plan: Plan) -> str:
    """The IR of a plan: its kernels, and the function that calls them in order."""
    module = Module()
    for name, emit in plan.functions.items():
        emit(module, name)
    memory, constants, arrays = (V("ptr", f"%{name}") for name in ("arena", "constants", "arrays"))
    code = Code(module, "network", [memory, constants, arrays])
    given = [code.load("ptr", code.at(arrays, 8 * place)) for place in range(len(plan.arrays))]
    for call in plan.calls:
        arguments = []
        for buffer, offset in call.arguments:
            if buffer.kind == "arena":
                arguments.append(code.at(memory, plan.offsets[buffer] + offset))
            elif buffer.kind == "constants":
                arguments.append(code.at(constants, offset))
            else:
                arguments.append(code.at(given[buffer.place], offset))
        text = ", ".join(map(str, (*arguments, V("i64", "0"), V("i64", str(call.units)))))
        code.line(f"call void @{call.function}({text})")
    code.finish()
    return str(module)


class NativeExecutor:
    """A verified program as machine code."""

    name = "native"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None, machine: Machine = MACHINES[0]) -> None:
        self._verified, self._machine = verified, machine
        self._program = verified.program
        self._updates = {kept.value.name: kept.update for kept in self._program.state}
        self._networks: dict[frozenset[str], Network] = {}
        self._network(returned(self._program, frozenset()))

    def _network(self, names: frozenset[str]) -> Network:
        wanted = names | set(self._updates.values())
        if wanted not in self._networks:
            self._networks[wanted] = Network(plan(self._verified, self._machine, wanted), self._machine)
        return self._networks[wanted]

    def run(
        self, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array], capture: Capture = frozenset()
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        fed = feeds(self._program, inputs, state)
        names = returned(self._program, capture)
        network = self._network(names)
        shapes = self._verified.shapes
        given, left = network.plan.arrays[: network.plan.written], network.plan.arrays[network.plan.written :]
        results = {name: np.empty(shapes[name], np.int32) for name in left}
        network.run([*(fed[name] for name in given), *(results[name] for name in left)])
        values = {name: results[name] for name in sorted(names)}
        return RunResult(values, {name: results[update].copy() for name, update in self._updates.items()})

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        network = self._network(returned(self._program, frozenset()))
        return tuple(f"{call.what}: {call.function}: {call.note}" for call in network.plan.calls)


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Bytes from a multiple of 64 on."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]
