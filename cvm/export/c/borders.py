"""What a conv2d reads instead of an operand that need not be stored: the tensor inside a border or a subtraction.

Formats whose zero point is not 0 pad with the zero point, which a program writes as `concatenate` with constants around
a tensor; the padded tensor would be the largest of many networks. With f the number of the border,

    sum w x  =  sum w (x - f)  +  f sum w,

and x - f is 0 in the border, so the first sum runs over the tensor inside, and the second one belongs to the bias.
Where the zero point f is subtracted before the border, which is then 0, the sum is sum w (x - f) as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cvm.ops.axes import normal
from cvm.program.model import Constant, Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Border", "border"]


@dataclass(frozen=True, slots=True)
class Border:
    """The tensor that a conv2d reads, and how."""

    inside: str
    """The tensor inside the border."""
    subtracted: int
    """What is subtracted from each of its elements."""
    before: tuple[int, int]
    """Rows above the tensor, and columns to its left, that count as 0 after the subtraction."""
    hidden: tuple[str, ...]
    """The tensors between it and the convolution, which are not stored."""
    bias: tuple[int, ...] | None
    """For each output channel, what the sum begins with; None if it is what the node says."""


def border(
    verified: VerifiedProgram,
    number: int,
    producer: Mapping[str, int],
    uses: Counter[str],
    aliases: Mapping[str, str],
) -> Border | None:
    """What the conv2d with this number reads instead of its operand, if that need not be stored.

    ``producer`` has the number of the node that makes a value, ``uses`` how often it is read, and ``aliases`` the
    value that it is under another shape.
    """
    node = verified.program.nodes[number]
    padding: tuple[int, int] = verified.calls[number].attributes.padding
    constants = {item.name: item for item in verified.program.constants}
    name, fill, (rows, columns), hidden = _peeled(verified, node.inputs[0], constants, producer, uses)
    if not fill:
        name, fill, more = _subtraction(verified, name, constants, producer, uses, aliases)
        if not hidden and not more:
            return None
        return Border(name, fill, (rows + padding[0], columns + padding[1]), (*hidden, *more), None)
    bias = _bias(verified, node, name, fill, constants) if padding == (0, 0) else None
    return None if bias is None else Border(name, fill, (rows, columns), hidden, bias)


def _bias(
    verified: VerifiedProgram, node: Node, inside: str, fill: int, constants: Mapping[str, Constant]
) -> tuple[int, ...] | None:
    """The bias with the part of the border in it, if it is constant and no partial sum can leave 32 bits."""
    weights = constants.get(node.inputs[1])
    given = [constants.get(name) for name in node.inputs[2:]]
    if weights is None or None in given:
        return None
    channels = verified.shapes[node.outputs[0].name][1]
    items = list(weights.integers())
    size = len(items) // channels
    biases = [list(item.integers()) for item in given if item is not None] or [[0] * channels]
    bias = tuple(biases[0][c] + fill * sum(items[c * size : (c + 1) * size]) for c in range(channels))
    lo, hi = verified.ranges[inside].hull()
    bound = max(map(abs, bias)) + size * max(abs(lo - fill), abs(hi - fill)) * max(1, *map(abs, items))
    return bias if bound < 2**31 else None


def _subtraction(
    verified: VerifiedProgram,
    name: str,
    constants: Mapping[str, Constant],
    producer: Mapping[str, int],
    uses: Counter[str],
    aliases: Mapping[str, str],
) -> tuple[str, int, tuple[str, ...]]:
    """The tensor from which a number is subtracted, the number, and the tensors that are not stored then.

    A subtraction at the end of a loop nest that is stored anyway stays there.
    """
    if name in producer and uses[name] == 1:
        node = verified.program.nodes[producer[name]]
        if node.op == "broadcast_sub" and node.inputs[1] in constants and node.inputs[0] not in constants:
            x, fills = node.inputs[0], set(constants[node.inputs[1]].integers())
            whole = verified.shapes[x] == verified.shapes[name]
            if len(fills) == 1 and whole and (x not in producer or x in aliases or uses[x] > 1):
                return x, fills.pop(), (name,)
    return name, 0, ()


def _peeled(
    verified: VerifiedProgram,
    name: str,
    constants: Mapping[str, Constant],
    producer: Mapping[str, int],
    uses: Counter[str],
) -> tuple[str, int | None, tuple[int, int], tuple[str, ...]]:
    """The tensor inside all borders, their number, the rows and columns before it, and the tensors with borders."""
    fill: int | None = None
    before = [0, 0]
    hidden: list[str] = []
    while name in producer and uses[name] == 1:
        number = producer[name]
        node = verified.program.nodes[number]
        layer = _layer(verified, node, number, constants)
        if layer is None or fill not in (None, layer[1]):
            break
        inner, fill, axis, count = layer
        before[axis - 2] += count
        hidden.append(name)
        name = inner
    return name, fill, (before[0], before[1]), tuple(hidden)


def _layer(
    verified: VerifiedProgram, node: Node, number: int, constants: Mapping[str, Constant]
) -> tuple[str, int, int, int] | None:
    """Of a concatenate along rows or columns: operand, number of the border, axis, and how many come before.

    None if the node is no such concatenate of one tensor with constants of one number.
    """
    if node.op != "concatenate" or len(verified.shapes[node.outputs[0].name]) != 4:
        return None
    (axis,) = normal((verified.calls[number].attributes.axis,), 4)
    others = [name for name in node.inputs if name not in constants]
    fills = {item for name in node.inputs if name in constants for item in constants[name].integers()}
    if axis < 2 or len(others) != 1 or len(fills) != 1:
        return None
    place = node.inputs.index(others[0])
    return others[0], fills.pop(), axis, sum(verified.shapes[name][axis] for name in node.inputs[:place])
