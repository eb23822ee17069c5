"""Simpler attributes of nodes: windows towards plain ones, and extents that follow the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cvm.reduction.network import Network, Node

__all__ = ["changed", "less", "plain", "with_extent"]


def changed(network: Network, number: int, node: Node) -> Network:
    """The network with another node at a place, and without constants and inputs that are not read any more."""
    nodes = (*network.nodes[:number], node, *network.nodes[number + 1 :])
    kept = replace(network, nodes=nodes)
    if len(node.inputs) < len(network.nodes[number].inputs):
        read = {name for other in nodes for name in other.inputs}
        read |= {name for store in network.state.values() for name in (store.initial, store.update)}
        inputs = tuple(name for name in network.inputs if name in read)
        constants = {name: array for name, array in network.constants.items() if name in read}
        runs = tuple({name: run[name] for name in inputs} for run in network.runs)
        kept = replace(kept, inputs=inputs, constants=constants, runs=runs)
    return kept


def less(value: Any, goal: int) -> int:
    """How far the numbers of an attribute are from the simplest one."""
    if isinstance(value, (tuple, list)):
        return sum(less(item, goal) for item in value)
    return abs(int(value) - goal)


def plain(node: Node, goals: Mapping[str, int]) -> Iterator[Node]:
    """The node with simpler attributes: all of them plain, one of them, one number of one."""
    changes: list[dict[str, Any]] = []
    if len(goals) > 1:
        changes.append({key: _set(node.attributes[key], goal) for key, goal in goals.items()})
    for key, goal in goals.items():
        changes.append({key: _set(node.attributes[key], goal)})
        changes += [{key: value} for value in _nearer(node.attributes[key], goal)]
    for change in changes:
        if any(node.attributes[key] != value for key, value in change.items()):
            yield replace(node, attributes={**node.attributes, **change})


def _set(value: Any, goal: int) -> Any:
    return tuple(_set(item, goal) for item in value) if isinstance(value, tuple) else goal


def _nearer(value: Any, goal: int) -> Iterator[Any]:
    """Values with one number made plain, or one less."""
    if isinstance(value, tuple):
        for place, item in enumerate(value):
            for other in dict.fromkeys((_set(item, goal), *_nearer(item, goal))):
                yield (*value[:place], other, *value[place + 1 :])
    elif value > goal:
        yield value - 1


def with_extent(node: Node, keys: Sequence[str], before: int, after: int) -> Node:
    """The node with an extent replaced in its attributes; the node itself if none says it."""
    new = {key: _replaced(node.attributes[key], before, after) for key in keys if key in node.attributes}
    if all(node.attributes[key] == value for key, value in new.items()):
        return node
    return replace(node, attributes={**node.attributes, **new})


def _replaced(value: Any, before: int, after: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_replaced(item, before, after) for item in value)
    return after if value == before and before > 1 else value
