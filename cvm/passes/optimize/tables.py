"""Composition of tables: pointwise ops on one tensor that has few different integers become one table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cvm.ops.extension import terms
from cvm.passes.optimize.draft import Draft, rewritten
from cvm.passes.optimize.pointwise import CODES, POINTWISE, Integers, tried
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["composed_tables"]

NODES = 32
"""The largest number of ops that become one table at a time."""


def composed_tables(verified: VerifiedProgram) -> Program:
    """The program in which pointwise ops that start from one tensor are one table, if that costs less gas.

    The table is computed by applying the ops to every integer of the tensor's proven interval
    (`cvm.passes.optimize.pointwise`), including all roundings and clips. If the tensor is only read as the index of
    tables, which is clipped to the extent of the table, all indices are tried instead, and the interval does not
    matter; so a table of a table is one table. Only the last of the ops may have readers outside of them.
    """
    return rewritten(verified, _rule)


@dataclass(frozen=True)
class _Region:
    """Pointwise nodes that compute the result of the last one from the tensor ``source``."""

    source: str
    nodes: tuple[Node, ...]
    """In execution order."""


def _rule(draft: Draft, node: Node) -> bool:
    region = _region(draft, node)
    if region is None:
        return False
    (output,) = node.outputs
    positions = _positions(draft, region)
    first, last = (0, positions - 1) if positions else draft.range(draft.current(region.source)).hull()
    if last - first >= CODES:
        return False
    table = _table(draft, region, np.arange(first, last + 1))
    if table is None:
        return False
    x = draft.current(region.source)
    gas = sum(draft.facts.gas(item.outputs[0].name) for item in region.nodes)
    if 0 <= first <= last - first:
        table = np.concatenate([np.full(first, table[0]), table])
    elif first:
        if len(region.nodes) < 3:
            return False
        x = draft.emit(output.name, "broadcast_sub", [x, draft.constant(np.array([first]), output.name)])
        gas -= 2 + 2 * int(np.prod(output.shape))
    draft.redefine(output.name, "cvm_lut", [draft.constant(table, output.name), x], gas=gas - 1)
    return True


def _region(draft: Draft, node: Node) -> _Region | None:
    """The largest set of at least two nodes that compute the node's result from one tensor of its shape; else None."""
    if not _pointwise(draft, node):
        return None
    nodes, indices, best = [node], {draft.facts.indices[node.outputs[0].name]}, None
    sources = set(_tensors(draft, node))
    while sources and len(nodes) <= NODES:
        if len(sources) == 1 and len(nodes) > 1:
            (source,) = sources
            if draft.facts.verified.shapes[source] == node.outputs[0].shape:
                best = _Region(source, tuple(reversed(nodes)))
        latest = max(sources, key=lambda name: draft.facts.indices.get(name, -1))
        inner = draft.unchanged(latest)
        fits = inner is not None and _pointwise(draft, inner) and inner.outputs[0].shape == node.outputs[0].shape
        if inner is None or not fits or not draft.facts.dies_with(latest, frozenset(indices)):
            break
        nodes.append(inner)
        indices.add(draft.facts.indices[latest])
        sources = (sources - {latest}) | set(_tensors(draft, inner))
    return best


def _pointwise(draft: Draft, node: Node) -> bool:
    """Whether each element of the result depends only on elements at its own index. A table must be constant."""
    return node.op in POINTWISE and (node.op != "cvm_lut" or draft.is_constant(draft.current(node.inputs[0])))


def _tensors(draft: Draft, node: Node) -> list[str]:
    """The operands of a node that are not constants."""
    return [name for name in node.inputs if not draft.is_constant(draft.current(name))]


def _positions(draft: Draft, region: _Region) -> int:
    """The size of the tables that the source is an index of.

    It is 0 if the source is read in another way too, or if the tables have different sizes.
    """
    sizes = set()
    for node in region.nodes:
        if region.source in node.inputs:
            table = draft.array(draft.current(node.inputs[0])) if node.op == "cvm_lut" else None
            sizes.add(0 if table is None else table.size)  # 0: it is not read as an index
    return sizes.pop() if len(sizes) == 1 else 0


def _table(draft: Draft, region: _Region, codes: Integers) -> Integers | None:
    """The results for all codes of the source; None if an op cannot be tried, or a constant varies by element."""
    values: dict[str, Integers] = {region.source: codes}
    for node in region.nodes:
        operands = _operands(draft, node, values, codes)
        results = None if operands is None else tried(node.op, node.attributes, operands)
        if results is None:
            return None
        values[node.outputs[0].name] = results
    return values[region.nodes[-1].outputs[0].name]


def _operands(draft: Draft, node: Node, values: Mapping[str, Integers], codes: Integers) -> list[Integers] | None:
    """The operands of a node for all codes. Other constants than tables must be one number; None if one is not."""
    found = []
    for index, name in enumerate(node.inputs):
        array = draft.array(draft.current(name))
        if array is None:
            found.append(values[name])
        elif node.op == "cvm_lut" and index == 0:
            found.append(array.ravel())
        elif (array != array.flat[0]).any():
            return None
        else:
            parameter = node.op == "requantize" and index >= terms(len(node.inputs))
            found.append(np.full(1 if parameter else len(codes), array.flat[0]))
    return found
