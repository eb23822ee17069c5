"""Resource variables and variable tensors: the state that the program keeps from run to run.

VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE use it, and CALL_ONCE runs a subgraph before the first
run, which assigns constants. A read returns what an earlier operator of the same run assigned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.emission import Emission
from cvm.frontends.tflite.call import Operand, TfliteCall
from cvm.frontends.tflite.model import TfliteModel, TfliteTensor
from cvm.frontends.tflite.tensors import contents_of, quantizer_of
from cvm.limits import Limits

__all__ = ["Variables"]

_Key = tuple[str, str]
"""The key of a resource variable: its container and its name."""


class Variables:
    """The state of one model: its initial contents, its tensors in the graph, and its current values within a run."""

    def __init__(self, model: TfliteModel, limits: Limits, floats: bool) -> None:
        """With ``floats``, state may have no scale: calibration finds one."""
        self._model, self._limits, self._floats = model, limits, floats
        self._handles: dict[int, _Key] = {}
        self._initial: dict[_Key, TfliteTensor] = {}
        self._state: dict[_Key | int, str] = {}
        """The state tensor of the graph, by the key of a resource or the index of a variable tensor."""
        self._current: dict[_Key | int, str] = {}

    def initialise(self, call: TfliteCall) -> None:
        """CALL_ONCE: record the constants that a subgraph assigns. Raises `Unsupported` where it does anything else."""
        number = call.integer("InitSubgraphIndex")
        if not 0 < number < len(self._model.subgraphs):
            raise call.invalid("option", f"subgraph {number} is none of the {len(self._model.subgraphs)}")
        graph, handles = self._model.subgraphs[number], dict[int, _Key]()
        for operator in graph.operators:
            inner = TfliteCall(operator, (), ())
            if operator.op == "VAR_HANDLE" and operator.outputs:
                handles[operator.outputs[0]] = inner.text("Container"), inner.text("SharedName")
                continue
            value = graph.tensors[operator.inputs[1]] if len(operator.inputs) == 2 else None
            if operator.op != "ASSIGN_VARIABLE" or value is None or value.contents is None:
                raise call.refuse(f"{operator.label} of the subgraph that it runs does not assign a constant")
            if operator.inputs[0] in handles:
                self._initial[handles[operator.inputs[0]]] = value

    def handle(self, call: TfliteCall) -> None:
        """VAR_HANDLE: record that the result refers to a variable."""
        self._handles[call.result.index] = call.text("Container"), call.text("SharedName")

    def read(self, graph: Emission, call: TfliteCall) -> str:
        """READ_VARIABLE: the tensor that was last assigned in this run, else the state tensor."""
        key = self._key(call)
        if key not in self._state:
            initial = self._initial.get(key)
            if initial is None or call.result.shape != initial.shape:
                raise call.refuse(
                    f"the variable {key[1]!r} is not assigned a constant of its shape before the first run"
                )
            values = contents_of(initial, self._limits)
            self._enter(graph, call, key, f"state {key[1]}", call.result, values)
        return self._current[key]

    def assign(self, graph: Emission, call: TfliteCall, name: str) -> None:
        """ASSIGN_VARIABLE: ``name`` becomes the value of the state at the end of the run."""
        key, value = self._key(call), call.operand(1)
        if key not in self._state:
            values = np.zeros(value.shape, np.int64)
            if key in self._initial:
                values = contents_of(self._initial[key], self._limits)
            self._enter(graph, call, key, f"state {key[1]}", value.tensor, values)
        self._current[key] = name

    def tensor(self, graph: Emission, call: TfliteCall, operand: Operand) -> str:
        """The current value of a variable tensor, which is zero before the first run."""
        tensor = operand.tensor
        if not tensor.is_variable:
            raise call.invalid("state", f"{operand.label} must be a variable tensor")
        if tensor.index not in self._state:
            zero = tensor.quantization.zero_points[0] if tensor.quantization else 0
            name = f"state {tensor.name or tensor.index}"
            self._enter(graph, call, tensor.index, name, tensor, np.full(tensor.shape, zero, np.int64))
        return self._current[tensor.index]

    def become(self, operand: Operand, name: str) -> None:
        """Record the value that a variable tensor gets."""
        self._current[operand.tensor.index] = name

    def update(self, graph: Emission) -> None:
        """Emit the update of every state, at the end of the run."""
        for key, name in self._state.items():
            graph.emit("update", name, self._current[key], wish=f"{name} next")

    def _key(self, call: TfliteCall) -> _Key:
        index = call.operator.inputs[0] if call.operator.inputs else -1
        if index not in self._handles:
            raise call.invalid("inputs", "its first input must be the result of a VAR_HANDLE")
        return self._handles[index]

    def _enter(
        self,
        graph: Emission,
        call: TfliteCall,
        key: _Key | int,
        name: str,
        tensor: TfliteTensor,
        values: npt.NDArray[Any],
    ) -> None:
        quantizer = quantizer_of(tensor)
        if quantizer is None and not self._floats:
            raise call.refuse(f"{tensor.label} is state without a scale", "quantise it: state is kept as codes")
        if quantizer is None:
            values = values.astype(np.float64)
        self._state[key] = self._current[key] = graph.variable(name, values, quantizer)
