"""How values lie in memory: the order of their axes, and the borders of zeros around maps.

Maps that convolutions and pools read or write, and values that elementwise ops and transposes connect with such maps,
are stored with channels last. Codes of heads that a product of computed matrices reads are stored in the order in which
they are computed, although a transpose stands before them. All other values are stored row-major.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from cvm.executors.native.plan.groups import POINTWISE
from cvm.program import Program
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["borders", "orders", "words"]

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
    found = _untransposed(program)
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


def _untransposed(program: Program) -> dict[str, tuple[int, ...]]:
    """The orders of values that elementwise ops compute from a transpose, and that a `matmul` alone reads.

    They are stored as if they had been computed before the transpose: then elements that lie side by side are read and
    written, and the product packs its operands anyway.
    """
    producer = {value.name: node for node in program.nodes for value in node.outputs}
    uses = Counter(name for node in program.nodes for name in node.inputs)
    found: dict[str, tuple[int, ...]] = {}
    for name in (name for node in program.nodes if node.op == "matmul" for name in node.inputs):
        chain: list[str] = []
        node = producer.get(name)
        while node is not None and uses[node.outputs[0].name] == 1:
            if node.op in POINTWISE - {"take", "cvm_lut"}:
                chain.append(node.outputs[0].name)
            elif node.op != "transpose" or chain:
                break
            node = producer.get(node.inputs[0])
        if node is not None and node.op == "transpose" and chain:
            rank = len(node.outputs[0].shape)
            axes = _permutation(node)
            order = tuple(axes.index(axis) for axis in range(rank))
            same = {value for value in chain if producer[value].outputs[0].shape == node.outputs[0].shape}
            found |= dict.fromkeys(same, order)
    return found


def _permutation(node: Node) -> tuple[int, ...]:
    """The axis of its operand that each axis of a transpose is."""
    rank = len(node.outputs[0].shape)
    axes = node.attributes.get("axes") or tuple(reversed(range(rank)))
    assert isinstance(axes, tuple)
    return tuple(axis % rank for axis in axes)


def _pass_on(node: Node, shapes: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> None:
    result = node.outputs[0]
    if node.op == "transpose":
        axes, source = _permutation(node), node.inputs[0]
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


def words(program: Program, contracts: Callable[[Node], bool], by_words: Callable[[Node], bool]) -> frozenset[str]:
    """The values that contractions multiply as 16-bit integers (``by_words``), and besides them only ops by element
    read.
    """
    computed = {
        node.outputs[0].name
        for node in program.nodes
        if node.op in POINTWISE or node.op == "max_pool2d" or contracts(node)
    }
    wanted: set[str] = set()
    others: set[str] = set()
    for node in program.nodes:
        if by_words(node):
            wanted.add(node.inputs[0])
        elif node.op not in POINTWISE:
            others.update(node.inputs)
    return frozenset(computed & wanted - others)
