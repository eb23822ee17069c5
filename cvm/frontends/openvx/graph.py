"""Recorded graphs: their nodes, kernels by name, and generic nodes whose parameters are set one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cvm.errors import Location
from cvm.frontends.openvx.constants import GraphState, Kernels, Type
from cvm.frontends.openvx.declarations import KERNELS, KernelDeclaration, Parameter
from cvm.frontends.openvx.errors import (
    Error,
    InvalidParameters,
    InvalidScope,
    InvalidValue,
    NotImplementedKernel,
    NotSufficient,
)
from cvm.frontends.openvx.objects import Context, Reference, Tensor, require

__all__ = [
    "COMPAT",
    "Compat",
    "Kernel",
    "OpenvxNode",
    "RecordedGraph",
    "add_node",
    "create_generic_node",
    "get_kernel_by_enum",
    "get_kernel_by_name",
    "set_parameter_by_index",
]

Compat = Literal["spec", "khronos-sample-1.3"]
COMPAT: tuple[Compat, ...] = ("spec", "khronos-sample-1.3")


class RecordedGraph(Reference):
    """A graph (vx_graph) before it is verified: its nodes in the order of their creation."""

    kind = Type.VX_TYPE_GRAPH

    def __init__(self, context: Context, compat: Compat = "spec", name: str | None = None) -> None:
        super().__init__(context, name)
        if compat not in COMPAT:
            raise InvalidValue("graph.compat", f"compat is one of {', '.join(COMPAT)}, found {compat!r}")
        self.compat: Compat = compat
        self.nodes: list[OpenvxNode] = []
        self.state = GraphState.VX_GRAPH_STATE_UNVERIFIED

    def changed(self) -> None:
        """Record that something was added or set, so that the graph must be verified again."""
        self.state = GraphState.VX_GRAPH_STATE_UNVERIFIED


class Kernel(Reference):
    """A kernel (vx_kernel) of the extension."""

    kind = Type.VX_TYPE_KERNEL

    def __init__(self, context: Context, declaration: KernelDeclaration) -> None:
        super().__init__(context, declaration.name)
        self.declaration = declaration


class OpenvxNode(Reference):
    """A node (vx_node): a kernel and its parameters.

    Once the graph is verified, ``derived`` holds the attributes that follow from sizes: ``skip_x``, ``skip_y``,
    ``upscale_x``, ..; they are attributes of the node, too.
    """

    kind = Type.VX_TYPE_NODE

    def __init__(self, graph: RecordedGraph, declaration: KernelDeclaration, name: str | None) -> None:
        super().__init__(graph.context, name)
        self.graph = graph
        self.declaration = declaration
        self.number = len(graph.nodes)
        self.derived: Mapping[str, int] = {}
        self._values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> int:
        derived: Mapping[str, int] = self.__dict__.get("derived", {})
        if name not in derived:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}: derived sizes exist once the graph is verified"
            )
        return derived[name]

    @property
    def label(self) -> str:
        """The name of the node; for a node without one, its kernel and number."""
        return self.name or f"{self.declaration.function}_{self.number}"

    def __getitem__(self, parameter: str) -> Any:
        """The argument of a parameter; None where an optional one is missing."""
        return self._values.get(parameter)

    def tensors(self) -> list[tuple[Parameter, Tensor]]:
        """The arguments that are tensors, with their parameters."""
        named = ((item, self._values.get(item.name)) for item in self.declaration.parameters if item.kind == "tensor")
        return [(parameter, value) for parameter, value in named if value is not None]

    def set(self, index: int, value: Any) -> None:
        """Set the parameter at an index. Raises what `Parameter.accept` raises."""
        parameters = self.declaration.parameters
        if not 0 <= index < len(parameters):
            raise InvalidValue(
                "parameter.index", f"{self.declaration.function} has {len(parameters)} parameters, not {index}"
            )
        parameter = parameters[index]
        try:
            found = parameter.accept(value, self.context)
            if isinstance(found, Tensor) and found.virtual and found.root.graph is not self.graph:
                raise InvalidScope("tensor.virtual", f"{parameter.name} is a virtual tensor of another graph")
        except Error as error:
            raise self.fault(error, parameter.name) from None
        self._values[parameter.name] = found
        self.graph.changed()

    def require_complete(self) -> None:
        """Raise `NotSufficient` where a required parameter has not been set."""
        for parameter in self.declaration.parameters:
            if parameter.name not in self._values and not parameter.optional:
                raise NotSufficient("parameter.missing", f"{parameter.name} is not set", self.location(parameter.name),
                                    self.label)  # fmt: skip

    def location(self, parameter: str | None = None) -> Location:
        """The location of errors of this node, optionally of one parameter."""
        return Location(tensor=parameter, op=self.declaration.function)

    def fault(self, error: Error, parameter: str | None = None) -> Error:
        """The same error, attributed to this node."""
        message = error.message.rsplit(" (VX_", 1)[0]
        return type(error)(error.code.removeprefix("openvx."), message, self.location(parameter), self.label)


def add_node(graph: RecordedGraph, kernel: Kernels, arguments: tuple[Any, ...], name: str | None) -> OpenvxNode:
    """Create a node of a kernel with all its arguments in order, and add it to the graph if all are valid."""
    require(graph, RecordedGraph, "graph")
    node = OpenvxNode(graph, KERNELS[kernel], name)
    for index, value in enumerate(arguments):
        node.set(index, value)
    node.require_complete()
    graph.nodes.append(node)
    return node


def get_kernel_by_name(context: Context, name: str) -> Kernel:
    """VxGetKernelByName (section 1.5). Raises `NotImplementedKernel`."""
    require(context, Context, "context")
    for declaration in KERNELS.values():
        if declaration.name == name:
            return Kernel(context, declaration)
    raise NotImplementedKernel("kernel.name", f"there is no kernel {name!r}")


def get_kernel_by_enum(context: Context, kernel: int) -> Kernel:
    """VxGetKernelByEnum. Raises `NotImplementedKernel`."""
    require(context, Context, "context")
    if kernel not in list(Kernels):
        raise NotImplementedKernel("kernel.enum", f"there is no kernel {kernel!r}")
    return Kernel(context, KERNELS[Kernels(kernel)])


def create_generic_node(graph: RecordedGraph, kernel: Kernel, name: str | None = None) -> OpenvxNode:
    """vxCreateGenericNode: a node whose parameters are then set by `set_parameter_by_index`."""
    require(graph, RecordedGraph, "graph")
    require(kernel, Kernel, "kernel", graph.context)
    node = OpenvxNode(graph, kernel.declaration, name)
    graph.nodes.append(node)
    graph.changed()
    return node


def set_parameter_by_index(node: OpenvxNode, index: int, value: Any) -> None:
    """VxSetParameterByIndex: a tensor, a scalar or a plain number, or a structure of the extension."""
    require(node, OpenvxNode, "node")
    if isinstance(index, bool) or not isinstance(index, int):
        raise InvalidParameters("parameter.index", f"index must be an integer, found {index!r}")
    node.set(index, value)
