"""`ML` and `MLContext`: the owner of tensors and graphs, which runs the graphs (WebNN 8.2, 8.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar
from weakref import WeakSet

import numpy.typing as npt

from cvm.frontends.webnn.arguments import in_snake_case, snake_case
from cvm.frontends.webnn.declarations import MAX_RANK, OPERATORS, Tensor
from cvm.frontends.webnn.errors import type_error
from cvm.frontends.webnn.operand import Descriptor, MLOperand, MLOperandDescriptor, describe_tensor
from cvm.limits import DEFAULT
from cvm.webnn.calibrated import checked
from cvm.webnn.graph import MLGraph, compile_graph
from cvm.webnn.lost import Lost, MLContextLostInfo
from cvm.webnn.owner import Owner
from cvm.webnn.tensor import MLTensor, fill, state_error

__all__ = ["ML", "MLContext"]

_METHODS = (
    "createTensor", "createConstantTensor", "readTensor", "writeTensor", "opSupportLimits", "createContext"
)  # fmt: skip
_Owned = TypeVar("_Owned", MLTensor, MLGraph)
_POWER = ("default", "high-performance", "low-power")


class _CamelCase:
    """Access to methods by the specification's camelCase names, besides the Python names."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _METHODS or snake_case(name) not in dir(type(self)):
            raise AttributeError(f"{type(self).__name__} has no member {name!r}")
        return in_snake_case(getattr(self, snake_case(name)))


class ML(_CamelCase):
    """The entry to the interface (WebNN 8.2)."""

    def create_context(
        self,
        options: Mapping[str, Any] = MappingProxyType({}),
        *,
        strict_scale_rank: bool = True,
        allow_negative_scale: bool = False,
        integer_overflow: Literal["wrap", "error"] = "wrap",
        executor: str | None = None,
    ) -> MLContext:
        """Create a context. There is no choice of a device: the result is the same on all of them.

        ``options`` is an MLContextOptions, whose preferences (powerPreference, accelerated) are checked and have no
        effect. ``strict_scale_rank=False`` admits scales and zero points of a lower rank than the tensor that they
        scale, as older graphs have them; they are aligned at the last axis. ``allow_negative_scale`` admits scales
        below 0. ``integer_overflow="error"`` refuses a graph whose 8-bit results are not proven to fit; "wrap" wraps
        them. ``executor`` is one of cvm's executors; None chooses the default.
        """
        _require_preferences(options)
        if integer_overflow not in ("wrap", "error"):
            raise type_error("createContext", "options", f"integer_overflow is {integer_overflow!r}, not wrap or error")
        return MLContext(strict_scale_rank, allow_negative_scale, integer_overflow, executor)


def _require_preferences(options: Any) -> None:
    """Raise `MLTypeError` for anything that is not an MLContextOptions (8.2.1)."""
    if not isinstance(options, Mapping):
        raise type_error("MLContextOptions", "type", f"options must be a dictionary, found {type(options).__name__}")
    for name, value in options.items():
        wanted = {"power_preference": f"one of {', '.join(_POWER)}", "accelerated": "a boolean"}
        key = snake_case(str(name))
        if key not in wanted:
            raise type_error("MLContextOptions", "member", f"there is no option {name!r}; there are powerPreference "
                             "and accelerated, and keywords of create_context")  # fmt: skip
        if value not in _POWER if key == "power_preference" else not isinstance(value, bool):
            raise type_error("MLContextOptions", key, f"{name} must be {wanted[key]}, found {value!r}")


class MLContext(_CamelCase, Owner):
    """Owns tensors and runs graphs (WebNN 8.3). Made by `ML.create_context`."""

    def __init__(
        self,
        strict_scale_rank: bool,
        allow_negative_scale: bool,
        integer_overflow: Literal["wrap", "error"],
        executor: str | None,
    ) -> None:
        super().__init__(strict_scale_rank, allow_negative_scale, integer_overflow, executor)
        self._lost = Lost()
        self._owns: WeakSet[MLTensor | MLGraph] = WeakSet()

    @property
    def lost(self) -> Lost:
        """A future of the `MLContextLostInfo` that `destroy` sets: await it, or call its ``add_done_callback``.

        Nothing but `destroy` loses a context.
        """
        return self._lost

    @property
    def accelerated(self) -> bool:
        """Whether graphs run on an accelerator: never."""
        return False

    # Tensors (8.3.2 to 8.3.6)

    def create_tensor(self, descriptor: Descriptor, *, readable: bool = False, writable: bool = False) -> MLTensor:
        """Create a tensor of zeros. The descriptor may be an `MLTensorDescriptor` or its dictionary; keywords are
        defaults.
        """
        self._require_alive("createTensor")
        return self._owning(MLTensor(self, describe_tensor(descriptor, readable, writable), constant=False))

    def create_constant_tensor(self, descriptor: Descriptor, data: Any) -> MLTensor:
        """Create a constant tensor, which `MLGraphBuilder.constant` takes. ``data`` is an array, or bytes."""
        self._require_alive("createConstantTensor")
        tensor = MLTensor(self, describe_tensor(descriptor, False, False), constant=True)
        tensor.store(data, "createConstantTensor")
        return self._owning(tensor)

    def read_tensor(self, tensor: MLTensor, output: Any = None) -> npt.NDArray[Any]:
        """A copy of the elements of a readable tensor, also written into ``output``, an array or a buffer, if given."""
        self._owned(tensor, "readTensor")
        if not tensor.readable:
            message = "the tensor was not created as readable: create it with readable=True"
            raise type_error("readTensor", "readable", message)
        found = tensor.contents("readTensor").copy()
        if output is not None:
            fill(output, found)
        return found

    def write_tensor(self, tensor: MLTensor, data: Any) -> None:
        """Replace the elements of a writable tensor by an array of its data type and shape, or by bytes."""
        self._owned(tensor, "writeTensor")
        if not tensor.writable:
            message = "the tensor was not created as writable: create it with writable=True"
            raise type_error("writeTensor", "writable", message)
        tensor.store(data, "writeTensor")

    def contents_of(self, tensor: Any) -> tuple[MLOperandDescriptor, npt.NDArray[Any]] | None:
        """The descriptor and the elements of a constant tensor, for a builder; None for anything
        that is not a tensor.
        """
        if not isinstance(tensor, MLTensor):
            return None
        self._owned(tensor, "constant")
        if not tensor.constant:
            raise type_error("constant", "constant", "the tensor is not constant")
        return tensor.descriptor, tensor.contents("constant")

    # Graphs

    def compile(
        self,
        outputs: Mapping[str, MLOperand],
        inputs: Mapping[str, MLOperand],
        calibration: Any,
        settings: Mapping[str, Any],
    ) -> MLGraph:
        """Compile the graph of these operands, for `MLGraphBuilder.build`."""
        self._require_alive("build")
        return self._owning(compile_graph(self, outputs, inputs, calibration, settings))

    def dispatch(self, graph: MLGraph, inputs: Mapping[str, MLTensor], outputs: Mapping[str, MLTensor]) -> None:
        """Run a graph from tensors into tensors (8.3.1).

        Raises `MLTypeError` for tensors that do not fit the graph, are used twice, destroyed or owned by another
        context, `InvalidStateError` for a destroyed graph.
        """
        self._require_graph(graph)
        tensors = [*inputs.values(), *outputs.values()]
        for tensor in tensors:
            self._owned(tensor, "dispatch")
            if tensor.constant:
                raise type_error("dispatch", "constant", "a constant tensor cannot be dispatched")
        if len({id(tensor) for tensor in tensors}) != len(tensors):
            raise type_error("dispatch", "twice", "a tensor is given twice")
        _require_names(inputs, graph.inputs, "inputs")
        _require_names(outputs, graph.outputs, "outputs")
        result = graph.run({name: tensor.contents("dispatch") for name, tensor in inputs.items()})
        for name, tensor in outputs.items():
            tensor.store(result[name], "dispatch")

    def compute(self, graph: MLGraph, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
        """Run a graph on arrays of its inputs' data types and shapes. This is a convenience beyond
        the specification.
        """
        self._require_graph(graph)
        return graph.run(checked(inputs, graph.inputs, "dispatch"))

    def destroy(self) -> None:
        """Destroy the graphs and tensors of the context and set `lost`; the context cannot be used any more.

        The programs of its graphs stay usable. A second call does nothing.
        """
        for owned in list(self._owns):
            owned.destroy()
        if not self._lost.done():
            self._lost.set_result(MLContextLostInfo("the context was destroyed"))

    # Limits (8.3.7)

    def op_support_limits(self) -> dict[str, Any]:
        """The data types and ranks that every operator takes, as the specification's dictionary with its spelling.

        Float data types are listed where an operator runs on real numbers between dequantizeLinear and quantizeLinear;
        operators that are refused at build are not listed.
        """
        anything = _limits(Tensor())
        found: dict[str, Any] = {
            "preferredInputLayout": "nchw",
            "maxTensorByteLength": 4 * DEFAULT.elements,
            "input": anything,
            "constant": anything,
            "output": anything,
        }
        for name, operator in OPERATORS.items():
            if operator.kind == "refused":
                continue
            members = {operand: _limits(tensor) for operand, tensor in operator.operands.items()}
            found[name] = {**members, operator.results: _limits(operator.output)}
        return found

    # Checks

    def _owning(self, owned: _Owned) -> _Owned:
        """Record a tensor or graph that is destroyed with the context; returns it."""
        self._owns.add(owned)
        return owned

    def _require_alive(self, op: str) -> None:
        if self._lost.done():
            raise state_error(op, "the context was destroyed")

    def _require_graph(self, graph: MLGraph) -> None:
        self._require_alive("dispatch")
        if not isinstance(graph, MLGraph) or graph.context is not self:
            raise type_error("dispatch", "graph", "the graph must be one that this context built")

    def _owned(self, tensor: Any, op: str) -> None:
        self._require_alive(op)
        if not isinstance(tensor, MLTensor) or tensor.context is not self:
            raise type_error(op, "tensor", "the tensor must be one that this context created")
        tensor.contents(op)


def _limits(tensor: Tensor) -> dict[str, Any]:
    ranks = {"min": tensor.least, "max": min(tensor.most, MAX_RANK)}
    return {"dataTypes": list(tensor.data_types), "rankRange": ranks}


def _require_names(tensors: Mapping[str, MLTensor], described: Mapping[str, MLOperandDescriptor], what: str) -> None:
    if tensors.keys() != described.keys():
        raise type_error("dispatch", "names", f"{what} are {sorted(described)}, found {sorted(tensors)}")
    for name, tensor in tensors.items():
        if tensor.descriptor != described[name]:
            wanted, found = described[name], tensor.descriptor
            message = f"{found.data_type}{list(found.shape)} is not {wanted.data_type}{list(wanted.shape)}"
            raise type_error("dispatch", "descriptor", message, operand=name)
