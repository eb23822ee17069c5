"""Recurrent networks, step by step: LSTM and GRU, for one direction at a time.

Calibration finds quantisers for sums before an activation, results of activations, products that are added to others,
and states; everything between them is exact.

A weight stacks the rows of all gates; ``order`` names the gates by one letter each. Inputs x have the shape
[batch, inputs], states [batch, hidden]. Sources: WebNN 8.9.25 to 8.9.34; ONNX LSTM and GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from cvm.frontends.common.decompositions.movement import part
from cvm.frontends.common.emission import Emission
from cvm.records import dataclass

__all__ = ["Activation", "Cell", "States", "gru_step", "lstm_step", "unrolled"]

Activation: TypeAlias = Callable[[Emission, str], str]
"""An activation: it emits a function of one number, and returns the name of the result."""

States: TypeAlias = tuple[str, ...]
"""The hidden state and, for an LSTM, the cell state."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The weights and biases of one direction of a network, as tensors of the graph.

    ``weight`` is [gates * hidden, inputs], ``recurrent`` [gates * hidden, hidden], the biases [gates * hidden];
    ``peephole`` is [3 * hidden], in the order of ``peephole_order``.
    """

    hidden: int
    order: str
    """The gates in the order of their rows in all weights, such as "iofg" or "zrn"."""
    weight: str
    recurrent: str
    bias: str | None = None
    recurrent_bias: str | None = None
    peephole: str | None = None
    peephole_order: str = "iof"
    """The order of the peephole weights of the input, output and forget gate."""

    def rows(self, graph: Emission, name: str, gate: str) -> str:
        """The rows of a weight or bias that belong to one gate."""
        begin = self.order.index(gate) * self.hidden
        return part(graph, name, 0, begin, begin + self.hidden)

    def of_input(self, graph: Emission, gate: str, x: str) -> str:
        """The product of the input with the weight of a gate, plus its bias."""
        return self._product(graph, gate, x, self.weight, self.bias)

    def of_hidden(self, graph: Emission, gate: str, hidden: str) -> str:
        """The product of the hidden state with the recurrent weight of a gate, plus its bias."""
        return self._product(graph, gate, hidden, self.recurrent, self.recurrent_bias)

    def _product(self, graph: Emission, gate: str, x: str, weight: str, bias: str | None) -> str:
        name = graph.emit("matmul", x, self.rows(graph, weight, gate), transposeA=False, transposeB=True)
        if bias is None:
            return name
        return graph.emit("add", name, graph.reshape(self.rows(graph, bias, gate), (1, self.hidden)))

    def gate(self, graph: Emission, gate: str, x: str, hidden: str, function: Activation, seen: str = "") -> str:
        """A gate: the activation of the sum of both products, and of the peephole of the cell state ``seen`` where
        there is one.
        """
        total = graph.emit("add", self.of_input(graph, gate, x), self.of_hidden(graph, gate, hidden))
        return activated(graph, function, self._with_peephole(graph, gate, total, seen) if seen else total)

    def _with_peephole(self, graph: Emission, gate: str, total: str, state: str) -> str:
        if self.peephole is None:
            return total
        begin = self.peephole_order.index(gate) * self.hidden
        weight = graph.reshape(part(graph, self.peephole, 0, begin, begin + self.hidden), (1, self.hidden))
        return graph.emit("add", total, graph.emit("mul", state, weight))


def activated(graph: Emission, function: Activation, total: str) -> str:
    """An activation of a sum; calibration finds quantisers for the sum and for the result."""
    return graph.left_open(function(graph, graph.left_open(total)))


def lstm_step(
    graph: Emission,
    cell: Cell,
    x: str,
    states: States,
    activations: Sequence[Activation],
    output_sees: Literal["old", "new"] = "new",
) -> States:
    """One step of long short-term memory; gates are i, o, f and g (the cell gate).

    ``activations`` are those of the gates i, o and f, of the cell gate g, and of the cell state in h'. The peephole of
    the output gate reads the old cell state in WebNN and the new one in ONNX.

        c' = f * c + i * g        h' = o * activation(c')
    """
    hidden, old = states
    of_gates, of_cell, of_state = activations
    kept = graph.emit("mul", cell.gate(graph, "f", x, hidden, of_gates, old), old)
    entering = cell.gate(graph, "i", x, hidden, of_gates, old)
    added = graph.emit("mul", entering, cell.gate(graph, "g", x, hidden, of_cell))
    new = graph.left_open(graph.emit("add", kept, added))
    output = cell.gate(graph, "o", x, hidden, of_gates, old if output_sees == "old" else new)
    shown = graph.left_open(of_state(graph, new))
    return graph.left_open(graph.emit("mul", output, shown)), new


def gru_step(
    graph: Emission, cell: Cell, x: str, states: States, activations: Sequence[Activation], reset_after: bool
) -> States:
    """One step of gated recurrent units; gates are z (update), r (reset) and n (new).

    ``activations`` are that of z and r, and that of n. With ``reset_after`` the reset gate multiplies the product of
    the hidden state with the recurrent weight (and its bias), else the hidden state itself.

        h' = z * h + (1 - z) * n
    """
    (hidden,) = states
    of_gates, of_new = activations
    update = cell.gate(graph, "z", x, hidden, of_gates)
    reset = cell.gate(graph, "r", x, hidden, of_gates)
    if reset_after:
        recurrent = graph.emit("mul", reset, graph.left_open(cell.of_hidden(graph, "n", hidden)))
    else:
        recurrent = cell.of_hidden(graph, "n", graph.left_open(graph.emit("mul", reset, hidden)))
    new = activated(graph, of_new, graph.emit("add", cell.of_input(graph, "n", x), recurrent))
    kept = graph.emit("mul", update, hidden)
    added = graph.emit("mul", graph.emit("sub", Fraction(1), update), new)
    return (graph.left_open(graph.emit("add", kept, added)),)


def unrolled(
    inputs: Sequence[str], states: States, step: Callable[[str, States], States], backward: bool
) -> tuple[list[str], States]:
    """The hidden state at every time, and the states at the end; ``inputs`` holds the input of each time, in order.

    A ``backward`` network begins at the last time and ends at the first; hidden state k belongs to input k either way.
    """
    hidden: dict[int, str] = {}
    for time in reversed(range(len(inputs))) if backward else range(len(inputs)):
        states = step(inputs[time], states)
        hidden[time] = states[0]
    return [hidden[time] for time in range(len(inputs))], states
