"""The float64 evaluation of a graph, operation by operation.

It serves verification and calibration. Nothing that it computes is exact, so no executor may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

import cvm.reference.operations  # noqa: F401  (fills the table)
from cvm.blas import one_thread
from cvm.blocks import finite
from cvm.errors import CvmError, Invalid, Unsupported
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData, names_in
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass
from cvm.reference.constants import Made, made
from cvm.reference.layout import Feed, Layout, arranged
from cvm.reference.registry import OPERATIONS, Array
from cvm.reference.values import (
    Compact,
    Values,
    clipped,
    converted,
    external,
    operand,
    plain,
    pseudo_quantized,
    stored,
)

__all__ = ["Capture", "Reference", "Watching", "run_count", "sample_count"]

_WIDE_BYTES = 2**27
"""Constants that would take more bytes than this together as float64 are kept as the graph has them, and are converted
where an operation reads them.
"""

Capture: TypeAlias = "Literal['all'] | str | Iterable[str] | None"
"""Tensors to return besides the outputs: names, or "all"."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Tensors to show to a function as soon as they are known, by name: unlike captured ones, they are freed then."""

    names: frozenset[str]
    show: Callable[[str, Array], None]

    def see(self, name: str, value: Array | Compact) -> None:
        """Show a tensor if it is one of them."""
        if name in self.names:
            self.show(name, _widened(value))


@dataclass(frozen=True, eq=False, slots=True)
class _PlannedOperation:
    """One operation, ready to compute: its function, its attributes, and the values that no later operation reads."""

    operation: GraphOperation
    function: Callable[..., Array | tuple[Array, ...]]
    attributes: Mapping[str, Any]
    last_reads: frozenset[str]


class Reference:
    """A graph evaluated in float64 (logical tensors: bool, integer tensors: int64), one run per cycle.

    With ``pseudo_quantize``, every tensor that carries a quantiser is rounded to a value of the quantiser right after
    it is computed (variables and constants on load), and no other tensor is rounded (section 7.1). With ``clip``, such
    tensors are clipped to the range of their quantiser and not rounded: tools that write quantised ONNX models omit a
    Relu where the range of the next QuantizeLinear clips anyway. The state holds the values of the variables that
    `update` writes; it changes after all operations of a cycle (section 4.8).

    Raises `Invalid` for a graph whose variables have no data, `Unsupported` for an operation that the reference lacks.
    """

    def __init__(self, graph: QuantizedGraph, pseudo_quantize: bool = False, *, clip: bool = False) -> None:
        self.graph = graph
        self._round = pseudo_quantized if pseudo_quantize else clipped if clip else None
        self._steps = _plan(graph)
        contents: dict[str, Array] = {}
        self._keeps_narrow = _real_items(graph) * 8 > _WIDE_BYTES
        self._made = [self._constant(tensor) for tensor in graph.tensors.values() if tensor.kind == "constant"]
        constants = [tensor.name for tensor in graph.tensors.values() if tensor.kind == "constant"]
        self._fixed: Values = {name: item.value for name, item in zip(constants, self._made, strict=True)}
        for tensor in graph.tensors.values():
            if tensor.kind == "variable":
                real = self._stored(tensor, _data_of(tensor))
                real.flags.writeable = False
                self._fixed[tensor.name] = self._quantized(real, tensor)
                contents.setdefault(_cell(tensor), real)
        updated = {_cell(graph.tensors[_updated(step.operation)]) for step in self._steps if _updates(step.operation)}
        self._initial = {cell: contents[cell] for cell in updated}
        self._stateful = [
            tensor for tensor in graph.tensors.values() if tensor.kind == "variable" and _cell(tensor) in updated
        ]
        self._state = self._initial

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the variables that `update` writes, by name, with the contents that the next cycle will read."""
        return {tensor.name: self._read(tensor, self._state).copy() for tensor in self._stateful}

    def reset(self) -> None:
        """Restore the contents with which the variables were loaded."""
        self._state = self._initial

    def run(self, inputs: Mapping[str, npt.ArrayLike], capture: Capture = None) -> dict[str, Array]:
        """One cycle: the outputs, then the captured tensors, by name.

        Inputs are arrays of the externals' shapes, integers being codes where an external has a quantiser. The cycle
        begins with the state that the last one left and leaves its own. With a leading batch axis, or N in place of a
        leading 1, every sample begins with the initial state, results are stacked alike, and the state stays as it is.
        Raises `Invalid`.
        """
        return self._joined(inputs, capture, cycles=False)

    def run_cycles(self, inputs: Mapping[str, npt.ArrayLike], capture: Capture = None) -> dict[str, Array]:
        """Run cycle after cycle: inputs and results have a cycle axis before the external's axes
        (after a batch axis).
        """
        return self._joined(inputs, capture, cycles=True)

    def runs(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        capture: Capture = None,
        cycles: bool = False,
        samples: slice = slice(None),
        watching: Watching | None = None,
    ) -> Iterator[dict[str, Array]]:
        """The results of `run` or `run_cycles`, run by run; only one run is in memory. The arrays must not be written
        to.

        ``samples`` selects samples of a batch; each sample has one run, or one per cycle. ``watching`` is shown its
        tensors during each run.
        """
        layout, every = self._arranged(inputs, cycles)
        return self._runs(layout, every[samples], self._captured(capture), watching)

    def side_by_side(
        self, inputs: Mapping[str, npt.ArrayLike], samples: slice, change: Callable[[str, list[Array]], list[Array]]
    ) -> None:
        """Run a batch operation by operation: each operation is computed for all chosen samples before the next one.

        ``change`` receives the name of every result and its unrounded values, one per sample, and returns the values to
        continue with. The values of all samples are in memory. No operation of the graph may be an `update`.
        """
        assert not self._initial
        _, every = self._arranged(inputs, cycles=False)
        batch: list[Values] = [{**self._fixed, **self._fed(feed)} for (feed,) in every[samples]]
        with np.errstate(all="ignore"), one_thread():
            for step in self._steps:
                results = [self._computed(step, values) for values in batch]
                for name, *arrays in zip(step.operation.outputs, *results, strict=True):
                    for values, array in zip(batch, change(name, arrays), strict=True):
                        values[name] = self._quantized(array, self.graph.tensors[name])
                for values in batch:
                    for name in step.last_reads:
                        del values[name]

    def _joined(self, inputs: Mapping[str, npt.ArrayLike], capture: Capture, cycles: bool) -> dict[str, Array]:
        names = self._captured(capture)
        layout, samples = self._arranged(inputs, cycles)
        runs = list(self._runs(layout, samples, names))
        return {name: layout.join([run[name] for run in runs]) for name in runs[0]}

    def _arranged(self, inputs: Mapping[str, npt.ArrayLike], cycles: bool) -> tuple[Layout, list[list[Feed]]]:
        return _samples(self.graph, inputs, cycles)

    def _captured(self, capture: Capture) -> list[str]:
        """The names of all results, with the outputs first."""
        if capture is None:
            wanted: Iterable[str] = ()
        elif isinstance(capture, str):
            wanted = self.graph.tensors if capture == "all" else (capture,)
        else:
            wanted = capture
        names = list(dict.fromkeys([*self.graph.outputs, *wanted]))
        for name in names:
            if name not in self.graph.tensors:
                raise Invalid("reference.capture", f"there is no tensor {name!r}")
        return names

    def _runs(
        self, layout: Layout, samples: list[list[Feed]], names: list[str], watching: Watching | None = None
    ) -> Iterator[dict[str, Array]]:
        for feeds in samples:
            contents = self._state if layout.samples is None else self._initial
            for feed in feeds:
                results, contents = self._cycle(feed, contents, names, watching or _NOBODY)
                if layout.samples is None:
                    self._state = contents
                yield results

    def _cycle(
        self, feed: Feed, contents: Mapping[str, Array], names: list[str], watching: Watching
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The named tensors of one cycle, and the contents of the updated variables after it."""
        state = {tensor.name: self._read(tensor, contents) for tensor in self._stateful}
        values: Values = {**self._fixed, **state, **self._fed(feed)}
        written = dict(contents)
        results = {name: _widened(values[name]) for name in names if name in values}
        wanted = frozenset(names)
        with np.errstate(all="ignore"), one_thread():
            for name in watching.names.intersection(values):
                watching.see(name, values[name])
            for step in self._steps:
                for name, array in zip(step.operation.outputs, self._computed(step, values), strict=True):
                    values[name] = self._quantized(array, self.graph.tensors[name])
                    watching.see(name, values[name])
                    if name in wanted:
                        results[name] = _widened(values[name])
                if _updates(step.operation):
                    value = _widened(operand(step.operation.inputs["value"], values))
                    variable = self.graph.tensors[_updated(step.operation)]
                    written[_cell(variable)] = converted(value, variable.dtype)
                for name in step.last_reads:
                    del values[name]
        return {name: results[name] for name in names}, written

    def _fed(self, feed: Feed) -> dict[str, Array]:
        """The inputs of one run as real numbers, rounded."""
        tensors = self.graph.tensors
        return {name: self._quantized(external(found, tensors[name]), tensors[name]) for name, found in feed.items()}

    def _computed(self, step: _PlannedOperation, values: Values) -> list[Array]:
        """The results of one operation, before they are rounded."""
        operation = step.operation
        given = {name: operand(value, values) for name, value in operation.inputs.items()}
        try:
            found = _in_parts(step, given)
            arrays = found if isinstance(found, tuple) else (found,)
            results = []
            for name, array in zip(operation.outputs, arrays, strict=True):
                tensor = self.graph.tensors[name]
                if array.shape != tensor.shape:
                    message = f"the shape of {name!r} is {list(tensor.shape)}, computed {list(array.shape)}"
                    raise Invalid("reference.shape", message)
                results.append(converted(array, tensor.dtype))
            return results
        except CvmError as error:
            where = operation.location
            raise error.at(file=where.file, line=where.line, column=where.column, op=operation.name) from None

    def _constant(self, tensor: GraphTensor) -> Made:
        """A constant as it is read: rounded, and in few bytes where constants take many."""
        data = _data_of(tensor)

        def make() -> Array | Compact:
            compact = self._compact(tensor, data) if self._keeps_narrow else None
            if compact is not None:
                return compact
            real = self._stored(tensor, data)
            real.flags.writeable = False
            return self._quantized(real, tensor)

        quantizer = None if self._round is None else tensor.quantizer
        return made((data.values, data.quantizer, quantizer), (self._keeps_narrow, self._round, tensor.dtype), make)

    def _compact(self, tensor: GraphTensor, data: TensorData) -> Compact | None:
        """A real constant in as few bytes as it is stored in, or rounded to; None where it takes float64."""
        if tensor.kind != "constant" or tensor.dtype != "scalar" or data.quantizer is not None:
            return None
        quantizer = tensor.quantizer if self._round is not None else None
        if quantizer is None:
            return Compact(data.values)
        if self._round is pseudo_quantized and isinstance(quantizer, LinearQuantizer) and finite(data.values):
            return Compact.rounded(data.values, quantizer)
        return None

    def _stored(self, tensor: GraphTensor, data: TensorData) -> Array:
        """The contents of a variable or constant; floats that are rounded at once are not copied as float64 first."""
        rounded = self._round is pseudo_quantized and isinstance(tensor.quantizer, LinearQuantizer)
        if rounded and tensor.kind == "constant" and tensor.dtype == "scalar" and _is_float(data):
            return data.values.view()
        return stored(data, tensor).view()

    def _read(self, tensor: GraphTensor, contents: Mapping[str, Array]) -> Array:
        """The contents of an updated variable, rounded by the quantiser of ``tensor``."""
        return self._quantized(contents[_cell(tensor)], tensor)

    def _quantized(self, x: Array, tensor: GraphTensor) -> Array:
        if self._round is None or tensor.quantizer is None:
            return x
        return self._round(x, tensor.quantizer)


_NOBODY = Watching(frozenset(), lambda name, array: None)


def _data_of(tensor: GraphTensor) -> TensorData:
    if tensor.data is None:
        message = f"the {tensor.kind} has no data: the model comes without its tensor files"
        raise Invalid("reference.data", message, tensor.location).at(tensor=tensor.name)
    return tensor.data


def run_count(graph: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool = False) -> int:
    """The number of runs that `Reference.runs` makes of these inputs. Raises the `Invalid` of that method."""
    return sum(map(len, _samples(graph, inputs, cycles)[1]))


def sample_count(graph: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool = False) -> int:
    """The number of samples in these inputs, each of one run or of several cycles. Raises the `Invalid` of
    `Reference.runs`.
    """
    return len(_samples(graph, inputs, cycles)[1])


def _samples(
    graph: QuantizedGraph, inputs: Mapping[str, npt.ArrayLike], cycles: bool
) -> tuple[Layout, list[list[Feed]]]:
    if cycles and not any(map(_updates, graph.operations)):
        raise Invalid("input.cycles", "the graph keeps no state from cycle to cycle")
    shapes = {name: graph.tensors[name].shape for name in graph.inputs}
    return arranged(shapes, {name: np.asarray(found) for name, found in inputs.items()}, cycles)


def _is_float(data: TensorData) -> bool:
    return data.quantizer is None and data.values.dtype.kind == "f"


def _real_items(graph: QuantizedGraph) -> int:
    """The number of items of the real constants of a graph."""
    constants = [item for item in graph.tensors.values() if item.kind == "constant" and item.dtype == "scalar"]
    return sum(item.data.values.size for item in constants if item.data is not None)


def _widened(value: Any) -> Any:
    """An operand, or the operands of an array of operands, with real numbers in float64."""
    if isinstance(value, tuple):
        return tuple(map(_widened, value))
    return value.real() if isinstance(value, Compact) else value


_LARGE = 2**20
"""The items of a matrix that is converted to float64 at a time."""
_COLUMNS = 64
"""The parts begin at multiples of this many columns of the product, which keeps the order in which BLAS adds."""


def _in_parts(step: _PlannedOperation, given: Mapping[str, Any]) -> Array | tuple[Array, ...]:
    """The results of an operation. A product with one large stored matrix is computed some columns at a time, so that
    only a part of the matrix is in memory as float64.
    """
    large = given.get("B")
    if step.operation.name != "matmul" or not isinstance(large, Compact) or not _is_large(large):
        return step.function(**{name: _widened(value) for name, value in given.items()}, **step.attributes)
    axis = 0 if step.attributes.get("transposeB") else 1
    columns = max(_COLUMNS, _LARGE // large.shape[1 - axis] // _COLUMNS * _COLUMNS)
    left, parts = _widened(given["A"]), []
    for start in range(0, large.shape[axis], columns):
        right = large.part(axis, slice(start, start + columns)).real()
        parts.append(step.function(A=left, B=right, **step.attributes))
    return np.concatenate(parts, axis=-1)


def _is_large(value: Compact) -> bool:
    return len(value.shape) == 2 and value.shape[0] * value.shape[1] > _LARGE


def _updates(operation: GraphOperation) -> bool:
    return operation.name == "update"


def _updated(operation: GraphOperation) -> str:
    """The variable that an `update` writes."""
    variable = operation.inputs["variable"]
    assert isinstance(variable, str)
    return variable


def _cell(tensor: GraphTensor) -> str:
    """The key of the storage that variables with one label share: the label in lower case (section 4.1.3)."""
    return tensor.name if tensor.label is None else f"label {tensor.label.lower()}"


def _plan(graph: QuantizedGraph) -> tuple[_PlannedOperation, ...]:
    """All operations in order, each with the values that no later operation reads."""
    seen: set[str] = set()
    steps: list[_PlannedOperation] = []
    for operation in reversed(graph.operations):
        found = OPERATIONS.get(operation.name)
        if found is None:
            message = f"the reference does not know the operation {operation.name}"
            raise Unsupported("reference.operation", message, operation.location).at(op=operation.name)
        touched = {name for value in operation.inputs.values() for name in names_in(value)} | set(operation.outputs)
        attributes = {name: plain(value) for name, value in operation.attributes.items()}
        if operation.name == "reshape":  # formats other than NNEF state the extents in the result alone
            attributes.setdefault("shape", graph.tensors[operation.outputs[0]].shape)
        steps.append(_PlannedOperation(operation, found.function, attributes, frozenset(touched - seen)))
        seen |= touched
    return tuple(reversed(steps))
