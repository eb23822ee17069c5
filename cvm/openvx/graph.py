"""Graphs that are verified and processed: each is an ordinary program that reads and writes tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.errors import CvmError, LimitExceeded, Location
from cvm.frontends.openvx.constants import Attribute, GraphState
from cvm.frontends.openvx.errors import (
    Error,
    InvalidGraph,
    InvalidReference,
    NotAllocated,
    NotSupported,
)
from cvm.frontends.openvx.graph import Compat, RecordedGraph
from cvm.frontends.openvx.objects import EXTENSIONS, Context, Reference, Tensor, require
from cvm.frontends.openvx.reader import translate
from cvm.frontends.openvx.translation import Translated
from cvm.lowering import lower
from cvm.program import Program
from cvm.session import Session

__all__ = [
    "Graph",
    "create_context",
    "create_graph",
    "is_graph_verified",
    "process_graph",
    "query_context",
    "query_graph",
    "query_tensor",
    "release",
    "set_reference_name",
    "verify_graph",
]


class Graph(RecordedGraph):
    """A graph (vx_graph), made by `create_graph`; as a context manager it releases itself."""

    def __init__(self, context: Context, compat: Compat = "spec", name: str | None = None) -> None:
        super().__init__(context, compat, name)
        self._translated: Translated | None = None
        self._program: Program | None = None
        self._session: Session | None = None

    def changed(self) -> None:
        """Invalidate the verification."""
        super().changed()
        self._session = None

    @property
    def program(self) -> Program:
        """The integer program of a verified graph: it can be saved, run, checked and receipted like any other.

        Its inputs and outputs are the tensors outside of the graph, by their names, in NumPy's order; codes are raw
        integers. Raises `InvalidGraph` before the graph is verified.
        """
        self._of_verified()
        assert self._program is not None
        return self._program

    def _of_verified(self) -> Translated:
        if self._session is None or self._translated is None:
            raise InvalidGraph("graph.unverified", "the graph has not been verified", node=self.name or "")
        return self._translated

    def verify(self) -> Graph:
        """`verify_graph` as a method; returns the graph."""
        verify_graph(self)
        return self

    def process(self) -> None:
        """`process_graph` as a method."""
        process_graph(self)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors outside of the graph that nodes read, in the order of the program's inputs."""
        return tuple(item.tensor for item in self._of_verified().inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors outside of the graph that nodes write, in the order of the program's outputs."""
        return tuple(item.tensor for item in self._of_verified().outputs)

    def _verify(self) -> None:
        self._session = None
        self.state = GraphState.VX_GRAPH_STATE_UNVERIFIED
        translated = translate(self)
        try:
            program = lower(translated.graph)
            session = Session(program, executor=self.context.executor)
        except CvmError as error:
            raise _explained(error, translated) from error
        self._translated, self._program, self._session = translated, program, session
        self.state = GraphState.VX_GRAPH_STATE_VERIFIED

    def _process(self) -> None:
        session, translated = self._session, self._translated
        if session is None or translated is None:
            message = "the graph has not been verified, or has changed since"
            raise InvalidGraph("graph.unverified", message, node=self.name or "")
        for tensor, version in translated.static.items():
            if tensor.version != version:
                message = f"{tensor!r} is [static] and was set after the graph was verified: verify it again"
                raise InvalidGraph("graph.static", message, Location(tensor=tensor.name))
        for item in (*translated.inputs, *translated.outputs):
            if item.tensor.released:
                raise InvalidReference("reference.released", f"{item.tensor!r} was released")
        feeds: dict[str, Any] = {}
        for item in translated.inputs:
            if not item.tensor.initialised:
                message = f"{item.tensor!r} is an input of the graph and has no data"
                raise NotAllocated("tensor.input", message, Location(tensor=item.tensor.name))
            feeds[item.value] = item.tensor.contents().astype(np.int32)
        result = session.run(feeds, codes=True)
        for item in translated.outputs:
            item.tensor.store(result[item.value], static=False)
        self.state = GraphState.VX_GRAPH_STATE_COMPLETED


def _explained(error: CvmError, translated: Translated) -> Error:
    """Rewrite an error of lowering as an error of OpenVX that names the node."""
    node = translated.nodes.get(error.location.tensor or "")
    location = node.location() if node else error.location
    kind = "limit" if isinstance(error, LimitExceeded) else "machine"
    return NotSupported(f"graph.{kind}", f"{error.message} [{error.code}]", location, node.label if node else "")


def create_context(executor: str | None = None) -> Context:
    """VxCreateContext. ``executor`` is one of cvm's executors; None chooses the default."""
    return Context(executor)


def create_graph(context: Context, compat: Compat = "spec", name: str | None = None) -> Graph:
    """VxCreateGraph. ``compat="khronos-sample-1.3"`` computes as the sample implementation of OpenVX 1.3 does."""
    require(context, Context, "context")
    return Graph(context, compat, name)


def verify_graph(graph: Graph) -> None:
    """vxVerifyGraph: check that tensors fit each other, fix [static] parameters, and make the program.

    Raises `InvalidFormat`, `InvalidDimension`, `InvalidValue`, `NotSufficient`, `NotAllocated`, `InvalidGraph` (cycles,
    no node), `MultipleWriters`, `InvalidScope`, and `NotSupported` for what the machine cannot compute exactly.
    """
    require(graph, Graph, "graph")
    graph._verify()


def process_graph(graph: Graph) -> None:
    """vxProcessGraph: run a verified graph from its input tensors into its output tensors.

    Raises `InvalidGraph` where the graph, or a [static] tensor of it, has changed since it was verified, or was never
    verified, and `NotAllocated` for an input that has no data.
    """
    require(graph, Graph, "graph")
    graph._process()


def is_graph_verified(graph: Graph) -> bool:
    """VxIsGraphVerified."""
    require(graph, Graph, "graph")
    return graph._session is not None


def query_context(context: Context, attribute: int) -> str:
    """VxQueryContext of VX_CONTEXT_EXTENSIONS: the extension strings."""
    require(context, Context, "context")
    if attribute != Attribute.VX_CONTEXT_EXTENSIONS:
        raise NotSupported("query.attribute", f"{attribute!r} is no context attribute that is supported")
    return EXTENSIONS


def query_graph(graph: Graph, attribute: int) -> int:
    """VxQueryGraph of VX_GRAPH_NUMNODES and VX_GRAPH_STATE."""
    require(graph, Graph, "graph")
    found = {Attribute.VX_GRAPH_NUMNODES: len(graph.nodes), Attribute.VX_GRAPH_STATE: int(graph.state)}
    if attribute not in found:
        raise NotSupported("query.attribute", f"{attribute!r} is no graph attribute that is supported")
    return found[Attribute(attribute)]


def query_tensor(tensor: Tensor, attribute: int) -> Any:
    """vxQueryTensor: the number of dimensions, the dimensions, the data type or the fixed-point position."""
    require(tensor, Tensor, "tensor")
    found = {
        Attribute.VX_TENSOR_NUMBER_OF_DIMS: len(tensor.dims),
        Attribute.VX_TENSOR_DIMS: tensor.dims,
        Attribute.VX_TENSOR_DATA_TYPE: tensor.data_type,
        Attribute.VX_TENSOR_FIXED_POINT_POSITION: tensor.fixed_point_position,
    }
    if attribute not in found:
        raise NotSupported("query.attribute", f"{attribute!r} is no tensor attribute that is supported")
    return found[Attribute(attribute)]


def set_reference_name(reference: Reference, name: str) -> None:
    """VxSetReferenceName. The inputs and outputs of a program are named after their tensors."""
    require(reference, Reference, "the reference")
    reference.rename(name)


def release(reference: Reference) -> None:
    """vxReleaseTensor, vxReleaseNode, vxReleaseGraph, ..: release an object; no function accepts it any more."""
    require(reference, Reference, "the reference")
    reference.release()
