"""How values lie in memory: the order of their axes, and the borders of zeros around maps.

Maps that convolutions and pools read or write, and values that elementwise ops and transposes connect with such maps,
are stored with channels last. All other values are stored row-major.
"""

from __future__ import annotations

from collections.abc import Iterable

from cvm.executors.native.plan.groups import POINTWISE
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["borders", "orders"]

CHANNELS_LAST = (0, 2, 3, 1)
_MAPS = frozenset({"conv2d", "max_pool2d", "upsampling"})


def orders(program: Program) -> dict[str, tuple[int, ...]]:
    """Return the order of the axes, outermost first, of every value that is not stored row-major.

    Maps of convolutions and pools are stored with channels last. Elementwise ops give the order of an operand to their
    result and that of the result to operands; transposes do so with permuted axes. This is repeated until no value
    gets a new order.
    """
    shapes = {value.name: value.shape for node in program.nodes for value in node.outputs}
    fed = [*(source.value for source in program.inputs), *(kept.value for kept in program.state)]
    shapes |= {value.name: value.shape for value in fed}
    found: dict[str, tuple[int, ...]] = {}
    for node in program.nodes:
        if node.op in _MAPS:
            for name in (node.inputs[0], node.outputs[0].name):
                if name in shapes:
                    found.setdefault(name, CHANNELS_LAST)
    while True:
        before = len(found)
        for node in (*program.nodes, *reversed(program.nodes)):
            _pass_on(node, shapes, found)
        if len(found) == before:
            return found


def _pass_on(node: Node, shapes: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> None:
    result = node.outputs[0]
    if node.op == "transpose":
        axes = node.attributes.get("axes") or tuple(reversed(range(len(result.shape))))
        assert isinstance(axes, tuple)
        source = node.inputs[0]
        rank = len(result.shape)
        axes = tuple(axis % rank for axis in axes)
        if source in found:
            found.setdefault(result.name, tuple(axes.index(axis) for axis in found[source]))
        elif result.name in found and source in shapes:
            found[source] = tuple(axes[axis] for axis in found[result.name])
    elif node.op in POINTWISE or node.op == "concatenate":
        alike = [name for name in (result.name, *node.inputs) if _same(shapes.get(name), result.shape, node.op)]
        known = next((found[name] for name in alike if name in found), None)
        if known is not None:
            for name in alike:
                found.setdefault(name, known)


def _same(shape: tuple[int, ...] | None, result: Iterable[int], op: str) -> bool:
    if shape is None:
        return False
    return len(shape) == len(tuple(result)) if op == "concatenate" else shape == result


def borders(verified: VerifiedProgram) -> dict[str, tuple[int, int]]:
    """Return the border (rows, columns) of each map that convolutions read: the largest padding of these."""
    found: dict[str, tuple[int, int]] = {}
    for node, call in zip(verified.program.nodes, verified.calls, strict=True):
        if node.op == "conv2d" and call.attributes.padding != (0, 0):
            name, (rows, columns) = node.inputs[0], call.attributes.padding
            before = found.get(name, (0, 0))
            found[name] = (max(before[0], rows), max(before[1], columns))
    return found
