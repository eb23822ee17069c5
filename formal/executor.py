"""The FORMAL executor: a whole program, one node, or one element of one tensor.

`run` computes every tensor of a program. `apply` is one node as a function of its operands: the judge of a dispute.
`element` finds one element of one tensor from the program's inputs, computing only what that element depends on.
All three check what the program promises: the shape of every tensor and the interval of every element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index as exact_integer
from typing import TypeAlias

from cvm.program.model import Constant, Node, ProgramParts, Value
from formal.registry import OPS
from formal.tensor import Index, Stored, Tensor, elements, flatten_index, indices, stored

__all__ = ["FormalError", "apply", "element", "next_state", "run"]

Element: TypeAlias = tuple[str, Index]
"""One element of a program: the name of its tensor, and its index."""


class FormalError(ArithmeticError):
    """A tensor is not what the program says: missing, of another shape, or with an element outside its interval."""


def run(
    program: ProgramParts, inputs: Mapping[str, Sequence[int]], state: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Tensor]:
    """Every tensor of the program by name: inputs, constants, state and what the nodes compute, in this order.

    ``inputs`` and ``state`` hold the elements row-major; a state that is not given has its initial value. Raises
    `FormalError`.
    """
    tensors: dict[str, Tensor] = dict(_provided(program, inputs, state))
    tensors.update({constant.name: stored(constant.shape, list(constant.integers())) for constant in program.constants})
    for node in program.nodes:
        outputs = apply(node, [tensors[name] for name in node.inputs])
        for value, output in zip(node.outputs, outputs, strict=True):
            tensors[value.name] = _within(value, elements(output), f"{node.op}: ")
    return {name: tensors[name] for name in program.value_names()}


def next_state(program: ProgramParts, tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """The state for the next run, from all ``tensors`` of this one: each state takes the value of its update."""
    return {state.value.name: elements(tensors[state.update]) for state in program.state}


def apply(node: Node, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of one node for given operands. An element is computed when it is read.

    Raises `FormalError` if an output has not the declared shape.
    """
    result = OPS[node.op](*operands, **node.attributes)
    outputs = result if isinstance(result, tuple) else (result,)
    for value, output in zip(node.outputs, outputs, strict=True):
        if output.shape != value.shape:
            raise FormalError(f"{node.op}: {value.name!r} has the shape {output.shape}, declared is {value.shape}")
    return outputs


def element(
    program: ProgramParts,
    inputs: Mapping[str, Sequence[int]],
    tensor_name: str,
    index: Index,
    state: Mapping[str, Sequence[int]] | None = None,
) -> int:
    """The element at ``index`` of the tensor ``tensor_name``. Raises `FormalError`.

    An element is computed from operands whose unknown elements read as 0 and are recorded when they are read. If the
    computation reads no unknown element, its result is right. Otherwise the recorded elements are computed first, and
    then the computation is repeated: most ops need two passes, and ops that index by data need one more. A stack of
    elements replaces recursion, so that the depth of a program does not matter.
    """
    given: dict[str, Tensor] = dict(_provided(program, inputs, state))
    given.update({constant.name: _encoded(constant) for constant in program.constants})
    if tensor_name in given:
        return given[tensor_name][index]
    makers = {value.name: (node, number) for node in program.nodes for number, value in enumerate(node.outputs)}
    if tensor_name not in makers:
        raise FormalError(f"the program has no tensor {tensor_name!r}")

    known: dict[Element, int] = {}
    stack: list[Element] = [(tensor_name, index)]
    while stack:
        name, d = wanted = stack[-1]
        if wanted in known:
            stack.pop()
            continue
        node, number = makers[name]
        unknown: dict[Element, None] = {}  # in the order of reading, each element once
        operands = [
            given[operand] if operand in given else _asking(makers[operand], known, unknown) for operand in node.inputs
        ]
        result = apply(node, operands)[number][d]
        if unknown:
            stack.extend(unknown)
        else:
            known[wanted] = _checked(node.outputs[number], d, result, f"{node.op}: ")
            stack.pop()
    return known[tensor_name, index]


def _asking(maker: tuple[Node, int], known: Mapping[Element, int], unknown: dict[Element, None]) -> Tensor:
    """A tensor of which some elements are ``known``. The others read as 0, and are entered into ``unknown``."""
    node, index = maker
    value = node.outputs[index]

    def rule(d: Index) -> int:
        if (value.name, d) not in known:
            unknown[value.name, d] = None
            return 0
        return known[value.name, d]

    return Tensor(value.shape, rule)


def _provided(
    program: ProgramParts, inputs: Mapping[str, Sequence[int]], state: Mapping[str, Sequence[int]] | None
) -> dict[str, Stored]:
    """The tensors that no node computes and that are no constants: the inputs, and the state or its initial values."""
    kept = state or {}
    unexpected = [name for name in inputs if name not in [given.value.name for given in program.inputs]]
    unexpected += [name for name in kept if name not in [held.value.name for held in program.state]]
    if unexpected:
        raise FormalError(f"the program has no input or state {unexpected[0]!r}")
    tensors: dict[str, Stored] = {}
    for given in program.inputs:
        if given.value.name not in inputs:
            raise FormalError(f"the input {given.value.name!r} is missing")
        tensors[given.value.name] = _within(given.value, inputs[given.value.name], "input: ")
    constants = {constant.name: constant for constant in program.constants}
    for held in program.state:
        items = kept[held.value.name] if held.value.name in kept else list(constants[held.initial].integers())
        tensors[held.value.name] = _within(held.value, items, "state: ")
    return tensors


def _encoded(constant: Constant) -> Tensor:
    """A constant read from its bytes one element at a time."""
    width = constant.width

    def rule(d: Index) -> int:
        start = width * flatten_index(d, constant.shape)
        return int.from_bytes(constant.data[start : start + width], "little", signed=True)

    return Tensor(constant.shape, rule)


def _within(value: Value, items: Sequence[int], location: str) -> Stored:
    """The tensor with the row-major elements ``items``, all of them inside the value's interval."""
    try:
        tensor = stored(value.shape, [exact_integer(item) for item in items])
    except (TypeError, ValueError) as error:
        raise FormalError(f"{location}{value.name!r}: {error}") from None
    for d, item in zip(indices(value.shape), tensor.elements, strict=True):
        _checked(value, d, item, location)
    return tensor


def _checked(value: Value, d: Index, item: int, location: str) -> int:
    """The element itself, if it lies in the value's interval."""
    if not value.lo <= item <= value.hi:
        raise FormalError(f"{location}{value.name!r} has {item} at {d}, proven is [{value.lo}, {value.hi}]")
    return item
