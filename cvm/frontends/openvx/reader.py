"""From recorded nodes to a `cvm.graph.QuantizedGraph`: everything is checked before anything is translated."""

from __future__ import annotations

from cvm.frontends.openvx.checks import check_node
from cvm.frontends.openvx.dataflow import ordered, require_static, writes
from cvm.frontends.openvx.errors import InvalidGraph
from cvm.frontends.openvx.graph import RecordedGraph
from cvm.frontends.openvx.rules import RULES, SAMPLE_RULES
from cvm.frontends.openvx.translation import OpenvxTranslation, Translated

__all__ = ["translate"]


def translate(graph: RecordedGraph) -> Translated:
    """Check the whole graph, then translate it. Raises the errors of vxVerifyGraph."""
    if not graph.nodes:
        raise InvalidGraph("graph.empty", "the graph has no node")
    for node in graph.nodes:
        node.derived = check_node(node)
    written = writes(graph)
    require_static(graph, written)
    order = ordered(graph, written)
    if all(tensor.virtual for tensor in written):
        raise InvalidGraph("graph.empty", "all tensors that nodes write are virtual, so the graph has no output")
    return OpenvxTranslation(graph, written, RULES if graph.compat == "spec" else SAMPLE_RULES).run(order)
