"""LSTM, GRU and RNN step by step: products, sums and activations of gates, in the order of time.

Source: ONNX, LSTM, GRU and RNN. One product computes the weights times all elements of the sequence; each step adds
one product with the state.
"""

from __future__ import annotations

from collections.abc import Callable

from cvm.frontends.onnx.call import OnnxCall, Operand
from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import Attribute
from cvm.frontends.onnx.writing import Writer
from cvm.records import dataclass

__all__: list[str] = []

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_TAKES = {
    "Affine": "alpha beta", "ScaledTanh": "alpha beta", "HardSigmoid": "alpha beta", "LeakyRelu": "alpha",
    "ThresholdedRelu": "alpha", "Elu": "alpha",
}  # fmt: skip
"""The parameters that each activation takes, in order."""
_PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")


@dataclass(frozen=True, slots=True)
class _Function:
    """An activation and those of its parameters that the node gives."""

    name: str
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The parameters of one direction: names of tensors, "" for a tensor that is left out."""

    w: Writer
    source: Operand
    """A real operand; constants get its data type."""
    hidden: int
    functions: tuple[_Function, ...]
    clip: float | None
    weights: str
    recurrence: str
    biases: tuple[str, str]
    peepholes: tuple[str, str, str]

    def activated(self, name: str, index: int) -> str:
        """Activation ``index`` of a tensor, which is first clipped where the node has the attribute ``clip``."""
        if self.clip is not None:
            bounds = [self.w.number(sign * self.clip, self.source) for sign in (-1, 1)]
            name = self.w.add("Clip", [name, *bounds])
        function = self.functions[index]
        alpha, beta = function.numbers.get("alpha"), function.numbers.get("beta")
        if function.name in ("Affine", "ScaledTanh"):
            inner, outer = (alpha, None) if function.name == "Affine" else (beta, alpha)
            name = name if inner is None else self.w.add("Mul", [name, self.w.number(inner, self.source)])
            if function.name == "Affine":
                return name if beta is None else self.w.add("Add", [name, self.w.number(beta, self.source)])
            name = self.w.add("Tanh", [name])
            return name if outer is None else self.w.add("Mul", [name, self.w.number(outer, self.source)])
        given: dict[str, Attribute] = dict(function.numbers)
        return self.w.add(function.name, [name], given=given)

    def product(self, state: str, matrix: str, added: str) -> str:
        """A weight matrix times a state, plus ``added``; just ``added`` where the state is 0 (its name is "")."""
        if not state:
            return added
        return self.w.add("Gemm", [state, matrix, *filter(None, [added])], transB=1)

    def parts(self, name: str, axis: int, count: int) -> list[str]:
        """A tensor split into ``count`` equal parts along an axis."""
        if count == 1:
            return [name]
        sizes = self.w.integers([self.hidden] * count)
        return self.w.add_many("Split", [name, sizes], count, {"axis": axis})

    def sum(self, *names: str) -> str:
        """The sum of the tensors whose names are not ""; "" where all are."""
        found = ""
        for name in filter(None, names):
            found = self.w.add("Add", [found, name]) if found else name
        return found

    def scaled(self, factor: str, name: str) -> str:
        """The product of two tensors; "" where one of them is left out (""), which stands for 0."""
        return self.w.add("Mul", [factor, name]) if factor and name else ""


@expansion("LSTM", "GRU", "RNN")
def recurrent(w: Writer) -> None:
    """LSTM, GRU and RNN: expand each direction by itself, and concatenate their results."""
    call, op = w.call, w.node.op
    source, weights, recurrence = (call.operand(index) for index in range(3))
    if source.rank != 3 or weights.rank != 3 or recurrence.rank != 3:
        raise call.invalid(
            "shape", f"X, W and R must have 3 axes, found {source.rank}, {weights.rank}, {recurrence.rank}"
        )
    hidden = recurrence.shape[2]
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}[
        call.text("direction", "forward", "forward", "reverse", "bidirectional")
    ]
    batch_first = call.flag("layout", False)
    rows = hidden * _GATES[op]
    expected = (count, rows, source.shape[2]), (count, rows, hidden)
    if (weights.shape, recurrence.shape) != expected or call.integer("hidden_size", hidden) != hidden:
        raise call.invalid("shape", f"W {list(weights.shape)} and R {list(recurrence.shape)} are not {expected}")
    length, batch = source.shape[:2][:: -1 if batch_first else 1]
    _require_whole(call, length)
    w.require_expansion(length * count * 8)
    name = w.add("Transpose", [source.name], perm=(1, 0, 2)) if batch_first else source.name
    flat = w.reshape(name, (length * batch, source.shape[2]))
    found = []
    for index in range(count):
        layer = _layer(w, index, count, hidden)
        back = call.text("direction", "forward") == "reverse" or index == 1
        found.append(_direction(layer, flat, index, (length, batch), back, batch_first))
    _results(w, found, (length, batch, hidden), batch_first)


def _require_whole(call: OnnxCall, length: int) -> None:
    if call.optional(4) is None:
        return
    lengths = call.constant(4, "sequence_lens")
    if (lengths != length).any():
        message = f"sequences of the lengths {lengths.ravel().tolist()[:8]} in {length} steps are not computed"
        raise call.refuse(message, "slice the input to one length, or leave sequence_lens out")


def _layer(w: Writer, index: int, count: int, hidden: int) -> _Layer:
    call, op = w.call, w.node.op
    rows = hidden * _GATES[op]

    def own(at: int, parts: int, sizes: int) -> list[str]:
        """The part of an operand that belongs to this direction, split into ``parts``."""
        operand = call.optional(at)
        if operand is None:
            return [""] * parts
        if operand.shape != (count, parts * sizes):
            raise call.invalid("shape", f"input {at} has the shape {list(operand.shape)}, not {[count, parts * sizes]}")
        name = _taken(w, operand, index)
        return w.add_many("Split", [name, w.integers([sizes] * parts)], parts, {"axis": 0})

    biases = own(3, 2, rows)
    peepholes = own(7, 3, hidden) if op == "LSTM" else ["", "", ""]
    clip = float(call.number("clip", None)) if call.has("clip") else None
    weights, recurrence = (_taken(w, call.operand(at), index) for at in (1, 2))
    return _Layer(
        w, call.operand(0), hidden, _functions(call, index, count), clip, weights, recurrence, (biases[0], biases[1]),
        (peepholes[0], peepholes[1], peepholes[2]),
    )  # fmt: skip


def _taken(w: Writer, operand: Operand, index: int) -> str:
    """The slice of an operand that belongs to direction ``index``."""
    if operand.shape[0] == 1:
        return w.reshape(operand.name, operand.shape[1:])
    at = w.add("Gather", [operand.name, w.integers([index])], axis=0)
    return w.reshape(at, operand.shape[1:])


def _functions(call: OnnxCall, index: int, count: int) -> tuple[_Function, ...]:
    """The activations of a direction; alpha and beta are lists that the activations which have them
    consume in order.
    """
    defaults = _DEFAULTS[call.node.op]
    names = call.texts("activations") or defaults * count
    given = {key: list(call.numbers(f"activation_{key}") or ()) for key in ("alpha", "beta")}
    if len(names) != len(defaults) * count:
        raise call.invalid("attribute", f"there are {len(names)} activations, not {len(defaults) * count}")
    spelled = {name.lower(): name for name in (*_PLAIN, *_TAKES)}
    found = []
    for name in names:
        function = spelled.get(name.lower())
        if function is None:
            raise call.refuse(f"the activation {name!r} is not computed", f"use one of {', '.join(spelled.values())}")
        taken = {key: given[key].pop(0) for key in _TAKES.get(function, "").split() if given[key]}
        found.append(_Function(function, taken))
    return tuple(found[index * len(defaults) : (index + 1) * len(defaults)])


def _direction(
    layer: _Layer, flat: str, index: int, extents: tuple[int, int], back: bool, batch_first: bool
) -> tuple[list[str], str, str]:
    """The states after each step in the order of time, the last state, and the last cell of an LSTM."""
    w, op = layer.w, layer.w.node.op
    length, batch = extents
    ahead = layer.biases[0] if op == "GRU" else layer.sum(*layer.biases)
    products = w.add("Gemm", [flat, layer.weights, *filter(None, [ahead])], transB=1)
    rows = layer.hidden * _GATES[op]
    steps = w.reshape(products, (length, batch, rows))
    state, cell = (_initial(layer, at, index, batch, batch_first) for at in (5, 6))
    advance = _STEPS[op](layer)
    found = []
    for step in range(length)[:: -1 if back else 1]:
        item = w.reshape(w.add("Gather", [steps, w.integers([step])], axis=0), (batch, rows))
        state, cell = advance(item, state, cell)
        found.append(state)
    return found[::-1] if back else found, state, cell


def _initial(layer: _Layer, at: int, index: int, batch: int, batch_first: bool) -> str:
    """The initial state of a direction; "" where it is 0."""
    operand = layer.w.call.optional(at) if at == 5 or layer.w.node.op == "LSTM" else None
    if operand is None or (operand.values is not None and not operand.values.any()):
        return ""
    count = 2 if layer.w.call.text("direction", "forward") == "bidirectional" else 1
    expected = (batch, count, layer.hidden) if batch_first else (count, batch, layer.hidden)
    if operand.shape != expected:
        message = f"the first state {operand.name!r} has the shape {list(operand.shape)}, not {list(expected)}"
        raise layer.w.call.invalid("shape", message)
    name = operand.name
    if count == 2:
        name = layer.w.add("Gather", [name, layer.w.integers([index])], axis=1 if batch_first else 0)
    return layer.w.reshape(name, (batch, layer.hidden))


_StepFunction = Callable[[str, str, str], tuple[str, str]]
"""A step function: from the product of an element, the state and the cell to the next state and the next cell."""


def _lstm(layer: _Layer) -> _StepFunction:
    coupled = layer.w.call.flag("input_forget", False)
    for_input, for_output, for_forget = layer.peepholes

    def step(item: str, state: str, cell: str) -> tuple[str, str]:
        i, o, f, c = layer.parts(layer.product(state, layer.recurrence, item), 1, 4)
        taken = layer.activated(layer.sum(i, layer.scaled(for_input, cell)), 0)
        fresh = layer.scaled(taken, layer.activated(c, 1))
        kept = ""
        if cell and coupled:
            kept = layer.scaled(_rest(layer, taken), cell)
        elif cell:
            kept = layer.scaled(layer.activated(layer.sum(f, layer.scaled(for_forget, cell)), 0), cell)
        cell = layer.sum(kept, fresh)
        given = layer.activated(layer.sum(o, layer.scaled(for_output, cell)), 0)
        return layer.scaled(given, layer.activated(cell, 2)), cell

    return step


def _rest(layer: _Layer, name: str) -> str:
    """1 - x."""
    return layer.w.add("Sub", [layer.w.number(1.0, layer.source), name])


def _gru(layer: _Layer) -> _StepFunction:
    after = layer.w.call.flag("linear_before_reset", False)
    *matrices, last = layer.parts(layer.recurrence, 0, 3)
    *biases, bias = layer.parts(layer.biases[1], 0, 3) if layer.biases[1] else ["", "", ""]

    def step(item: str, state: str, _: str) -> tuple[str, str]:
        *gates, fresh = layer.parts(item, 1, 3)
        update, reset = (
            layer.activated(layer.sum(layer.product(state, matrix, gate), part), 0)
            for matrix, gate, part in zip(matrices, gates, biases, strict=True)
        )
        if after:
            fresh = layer.sum(fresh, layer.scaled(reset, layer.product(state, last, bias)))
        else:
            fresh = layer.sum(layer.product(layer.scaled(reset, state), last, fresh), bias)
        fresh = layer.activated(fresh, 1)
        return layer.sum(layer.scaled(_rest(layer, update), fresh), layer.scaled(update, state)), ""

    return step


def _rnn(layer: _Layer) -> _StepFunction:
    def step(item: str, state: str, _: str) -> tuple[str, str]:
        return layer.activated(layer.product(state, layer.recurrence, item), 0), ""

    return step


_STEPS: dict[str, Callable[[_Layer], _StepFunction]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _results(
    w: Writer, found: list[tuple[list[str], str, str]], extents: tuple[int, int, int], batch_first: bool
) -> None:
    """Write the results: all states, the last states and the last cells, with the directions concatenated."""
    length, batch, hidden = extents
    count = len(found)
    if w.node.outputs[0]:
        states = [name for step in zip(*(steps for steps, _, _ in found), strict=True) for name in step]
        whole = w.reshape(_beside(w, states), (length, count, batch, hidden))
        w.result("Transpose", [whole], perm=(2, 0, 1, 3) if batch_first else (0, 1, 2, 3))
    for index in range(1, len(w.node.outputs)):
        if w.node.outputs[index] and index <= (2 if w.node.op == "LSTM" else 1):
            ends = [cell if index == 2 else state for _, state, cell in found]
            last = w.reshape(_beside(w, ends), (count, batch, hidden))
            w.result("Transpose", [last], index=index, perm=(1, 0, 2) if batch_first else (0, 1, 2))


def _beside(w: Writer, names: list[str]) -> str:
    """Matrices concatenated along axis 0."""
    return w.add("Concat", names, axis=0) if len(names) > 1 else names[0]
