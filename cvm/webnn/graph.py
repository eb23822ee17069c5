"""A compiled graph: an ordinary program, with the conversion of the builder's arrays to its codes and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.calibration import Settings
from cvm.errors import CvmError
from cvm.frontends.webnn.errors import NotSupportedError, type_error
from cvm.frontends.webnn.operand import MLOperand, MLOperandDescriptor
from cvm.frontends.webnn.rules import RULES
from cvm.frontends.webnn.translation import Translated, WebnnTranslation, refusal
from cvm.graph import QuantizedGraph
from cvm.limits import INT32_MAX
from cvm.lowering import lower
from cvm.program import Program
from cvm.quantization import LinearQuantizer
from cvm.reference import Reference
from cvm.session import Session
from cvm.webnn.boundaries import Border
from cvm.webnn.calibrated import (
    Arrays,
    QuantizationError,
    checked_samples,
    checked_settings,
    measured,
    with_quantizers,
)
from cvm.webnn.explanation import explained
from cvm.webnn.owner import Owner
from cvm.webnn.tensor import state_error

__all__ = ["MLGraph", "compile_graph"]


class MLGraph:
    """A graph that `MLGraphBuilder.build` compiled (WebNN 8.4)."""

    def __init__(
        self,
        context: Owner,
        program: Program,
        translated: Translated,
        inputs: Mapping[str, MLOperand],
        executor: str | None,
    ) -> None:
        self._context = context
        self._program = program
        self._translated = translated
        self._operands = dict(inputs)
        self._border = Border(translated)
        self._errors: dict[str, QuantizationError] = {}
        self._session: Session | None = Session(program, executor=executor)
        self._outputs = {item.name: MLOperandDescriptor(item.data_type, item.shape) for item in translated.outputs}

    @property
    def program(self) -> Program:
        """The integer program: it can be saved, run, checked and receipted like any other.

        Its integer inputs and outputs are those of the graph, unsigned outputs of more than 8 bits modulo 2^N. A float
        input stands for the codes of the quantizeLinear that reads it, a float output for the codes of the
        dequantizeLinear that gives it.
        """
        return self._program

    @property
    def quantized_graph(self) -> QuantizedGraph:
        """The graph of real numbers that the program computes, for `cvm.report.compare` and `cvm.reference.Reference`.

        Its inputs and outputs have the names that they have in the program.
        """
        return self._translated.graph

    @property
    def quantization_errors(self) -> dict[str, QuantizationError]:
        """The error of each output of a calibrated graph against float64 on the samples; {} for any other graph."""
        return dict(self._errors)

    @property
    def context(self) -> Owner:
        """The context that it runs in."""
        return self._context

    @property
    def inputs(self) -> dict[str, MLOperandDescriptor]:
        """Data type and shape of every input."""
        return {name: MLOperandDescriptor(item.data_type, item.shape) for name, item in self._operands.items()}

    @property
    def outputs(self) -> dict[str, MLOperandDescriptor]:
        """Data type and shape of every output."""
        return dict(self._outputs)

    def destroy(self) -> None:
        """Free the memory that runs need; the graph cannot be dispatched any more."""
        self._session = None

    def explain(self) -> str:
        """A report with one line per call: its operations and program ops, and what is proven of the tensor that it
        rounds.

        ``merged`` says that a call is part of the computation of the next rounded tensor, and costs nothing by itself.
        """
        found = {item.tensor: item for item in self._program.provenance.exactness}
        nodes: dict[str, list[str]] = {}
        for node in self._program.nodes:
            nodes.setdefault(node.outputs[0].name.split(".")[0], []).append(node.op)
        lines = []
        for item in self._translated.inputs:
            how = "quantised on the host" if item.grid or item.calibrated else "integers"
            lines.append(f"input {item.name} ({item.data_type}): {how}, value {item.value!r} of the program")
        for call in self._translated.calls:
            label = f" [{call.label}]" if call.label else ""
            ops = ", ".join(nodes.get(call.operand, ())) or "merged"
            exactness = found.get(call.operand)
            note = f" ({exactness.note})" if exactness and exactness.note else ""
            note += f", off by at most {exactness.bound}" if exactness and exactness.bound else ""
            lines.append(f"{call.op}{label} {call.operand}: {' '.join(call.operations) or 'nothing'} -> {ops}{note}")
        for item in self._translated.outputs:
            how = "dequantised on the host" if item.grid or item.calibrated else "integers"
            cost = f"; {self._errors[item.name]}" if item.name in self._errors else ""
            lines.append(f"output {item.name} ({item.data_type}): {how}{cost}")
        return "\n".join(lines)

    def run(self, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """All outputs for arrays of the inputs' data types and shapes. Raises `Invalid` for values out of range."""
        if self._session is None:
            raise state_error("dispatch", "the graph was destroyed")
        return self._border.results(self._session.run(self._border.feeds(arrays), codes=True))

    def measure(self, real: QuantizedGraph, samples: Sequence[Arrays]) -> None:
        """Record the errors of the outputs against ``real``, the graph before calibration."""
        assert self._session is not None
        reference, border, session = Reference(real, pseudo_quantize=True), self._border, self._session
        results = [session.run(border.feeds(arrays), codes=True) for arrays in samples]
        pairs = [
            (reference.run(border.numbers(arrays)), border.exact_results(result))
            for arrays, result in zip(samples, results, strict=True)
        ]
        for item in self._translated.outputs:
            expected = [floats[item.value].astype(np.float64) for floats, _ in pairs]
            given = [found[item.name].reshape(expected[0].shape) for _, found in pairs]
            self._errors[item.name] = measured(item.name, expected, given, border.step(item))


def compile_graph(
    context: Owner,
    outputs: Mapping[str, MLOperand],
    inputs: Mapping[str, MLOperand],
    samples: Any = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> MLGraph:
    """Translate and lower a graph; with ``samples``, calibrate in between.

    Raises `NotSupportedError` with label and operand for a graph that does not run on integers.
    """
    if samples is not None:
        return _calibrated_graph(context, outputs, inputs, checked_samples(samples, inputs), checked_settings(settings))
    if settings:
        message = f"{sorted(settings)[0]} is a setting of the calibration: give calibration, a list of samples"
        raise type_error("build", "settings", message)
    translated = WebnnTranslation(outputs, context.integer_overflow, RULES).run(inputs)
    return MLGraph(context, _lowered(translated), translated, inputs, context.executor)


def _calibrated_graph(
    context: Owner,
    outputs: Mapping[str, MLOperand],
    inputs: Mapping[str, MLOperand],
    samples: Sequence[Arrays],
    settings: Settings,
) -> MLGraph:
    """The graph with unrounded sums where lowering has an exact form for them, or else with all sums rounded."""
    refused: NotSupportedError | None = None
    exact: QuantizedGraph | None = None
    for accumulates in (True, False):
        translation = WebnnTranslation(outputs, context.integer_overflow, RULES, True, accumulates)
        real = translation.run(inputs)
        exact = exact or real.graph  # this graph has unrounded constants
        border = Border(real)
        translated = with_quantizers(real, [border.numbers(arrays) for arrays in samples], settings)
        try:
            program = _lowered(translated)
        except NotSupportedError as error:
            refused = refused or error
            continue
        graph = MLGraph(context, program, translated, inputs, context.executor)
        graph.measure(exact, samples)
        return graph
    assert refused is not None
    raise refused


def _lowered(translated: Translated) -> Program:
    try:
        program = lower(translated.graph)
    except CvmError as error:
        raise explained(error, translated) from error
    _require_no_clipping(program, translated)
    return program


def _require_no_clipping(program: Program, translated: Translated) -> None:
    """Raise `NotSupportedError` unless a quantizeLinear to 32 bits is proven not to reach the ends of the machine."""
    ranges = {value.name: (value.lo, value.hi) for node in program.nodes for value in node.outputs}
    values = {item.tensor: item.value for item in program.provenance.exactness}
    for tensor, operand in translated.saturated.items():
        quantizer = translated.graph.tensors[tensor].quantizer
        low, high = ranges.get(values.get(tensor, ""), (0, 0))
        assert isinstance(quantizer, LinearQuantizer)
        if low <= -INT32_MAX == quantizer.lo or high >= INT32_MAX == quantizer.hi:
            message = f"it may saturate before or at an end of {operand.data_type}, at +-(2^31 - 1)"
            raise refusal(operand, message, "choose a larger scale")
