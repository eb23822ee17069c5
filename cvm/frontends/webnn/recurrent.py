"""Recurrent networks (WebNN 8.9.25, 8.9.26, 8.9.33, 8.9.34): the builder records and validates them.

Their states are real numbers that no quantizeLinear rounds between two steps. Calibration finds quantisers for them; a
build without calibration refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cvm.frontends.webnn.operand import MLOperand, Shape
from cvm.frontends.webnn.recorder import RecordedCall, Recorder
from cvm.limits import INT32_MAX
from cvm.records import dataclass

__all__ = ["Recurrent"]

_ACTIVATIONS = ("relu", "sigmoid", "tanh")
_DIRECTIONS = ("forward", "backward", "both")


@dataclass(frozen=True, slots=True)
class _Family:
    """The differences between gru and lstm."""

    gates: int
    layouts: tuple[str, str]
    activations: tuple[str, ...]


_GRU = _Family(3, ("zrn", "rzn"), ("sigmoid", "tanh"))
_LSTM = _Family(4, ("iofg", "ifgo"), ("sigmoid", "tanh", "tanh"))


class Recurrent(Recorder):
    """Recurrent networks, and single steps of them; every method takes ``label``."""

    def gru(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        steps: int,
        hidden_size: int,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        initial_hidden_state: MLOperand | None = None,
        reset_after: bool = True,
        return_sequence: bool = False,
        direction: str = "forward",
        layout: str = "zrn",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """Gated recurrent units over time: the last hidden state, and with ``return_sequence`` all hidden states."""
        operands = {
            "input": input, "weight": weight, "recurrentWeight": recurrent_weight, "bias": bias,
            "recurrentBias": recurrent_bias, "initialHiddenState": initial_hidden_state,
        }  # fmt: skip
        call = RecordedCall(self, "gru", label, operands)
        after = call.flag("resetAfter", reset_after)
        return _network(
            call, _GRU, steps, hidden_size, return_sequence, direction, layout, activations, reset_after=after
        )

    def gru_cell(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        hidden_state: MLOperand,
        hidden_size: int,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        reset_after: bool = True,
        layout: str = "zrn",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> MLOperand:
        """One step of gated recurrent units: the next hidden state."""
        operands = {
            "input": input, "weight": weight, "recurrentWeight": recurrent_weight, "hiddenState": hidden_state,
            "bias": bias, "recurrentBias": recurrent_bias,
        }  # fmt: skip
        call = RecordedCall(self, "gruCell", label, operands)
        after = call.flag("resetAfter", reset_after)
        return _cell(call, _GRU, hidden_size, layout, activations, reset_after=after)[0]

    def lstm(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        steps: int,
        hidden_size: int,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        peephole_weight: MLOperand | None = None,
        initial_hidden_state: MLOperand | None = None,
        initial_cell_state: MLOperand | None = None,
        return_sequence: bool = False,
        direction: str = "forward",
        layout: str = "iofg",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """Long short-term memory over time: the last hidden and cell state, and with ``return_sequence`` all hidden
        states.
        """
        operands = {
            "input": input, "weight": weight, "recurrentWeight": recurrent_weight, "bias": bias,
            "recurrentBias": recurrent_bias, "peepholeWeight": peephole_weight,
            "initialHiddenState": initial_hidden_state, "initialCellState": initial_cell_state,
        }  # fmt: skip
        call = RecordedCall(self, "lstm", label, operands)
        return _network(call, _LSTM, steps, hidden_size, return_sequence, direction, layout, activations)

    def lstm_cell(
        self,
        input: MLOperand,
        weight: MLOperand,
        recurrent_weight: MLOperand,
        hidden_state: MLOperand,
        cell_state: MLOperand,
        hidden_size: int,
        *,
        bias: MLOperand | None = None,
        recurrent_bias: MLOperand | None = None,
        peephole_weight: MLOperand | None = None,
        layout: str = "iofg",
        activations: Sequence[str] | None = None,
        label: str = "",
    ) -> list[MLOperand]:
        """One step of long short-term memory: the next hidden and cell state."""
        operands = {
            "input": input, "weight": weight, "recurrentWeight": recurrent_weight, "hiddenState": hidden_state,
            "cellState": cell_state, "bias": bias, "recurrentBias": recurrent_bias, "peepholeWeight": peephole_weight,
        }  # fmt: skip
        return _cell(RecordedCall(self, "lstmCell", label, operands), _LSTM, hidden_size, layout, activations)


def _network(
    call: RecordedCall,
    family: _Family,
    steps: Any,
    hidden_size: Any,
    return_sequence: Any,
    direction: Any,
    layout: Any,
    activations: Any,
    **attributes: Any,
) -> list[MLOperand]:
    """Check gru and lstm: all operands have an axis of directions, and the input has a time axis."""
    steps = call.unsigned("steps", steps, least=1)
    source = call.operands["input"]
    if source.shape[0] != steps:
        raise call.error("steps", f"has {source.shape[0]} steps along its first axis, not {steps}", "input")
    directions = 2 if call.word("direction", direction, *_DIRECTIONS) == "both" else 1
    hidden, words = _parameters(call, family, hidden_size, layout, activations, (directions,), source.shape[2])
    state = (directions, source.shape[1], hidden)
    states = ["initialHiddenState"] if family is _GRU else ["initialHiddenState", "initialCellState"]
    for name in states:
        call.shaped(name, state)
    shapes: list[Shape] = [state] * len(states)
    sequence = call.flag("returnSequence", return_sequence)
    if sequence:
        shapes.append((steps, *state))
    outputs = [(source.data_type, shape) for shape in shapes]
    return call.results(
        outputs, hidden=hidden, layout=layout, activations=words, direction=direction, sequence=sequence, **attributes
    )


def _cell(
    call: RecordedCall, family: _Family, hidden_size: Any, layout: Any, activations: Any, **attributes: Any
) -> list[MLOperand]:
    """Check gruCell and lstmCell, which have no axes for directions and time."""
    source = call.operands["input"]
    hidden, words = _parameters(call, family, hidden_size, layout, activations, (), source.shape[1])
    states = ["hiddenState"] if family is _GRU else ["hiddenState", "cellState"]
    for name in states:
        call.shaped(name, (source.shape[0], hidden))
    outputs = [(source.data_type, (source.shape[0], hidden))] * len(states)
    return call.results(outputs, hidden=hidden, layout=layout, activations=words, **attributes)


def _parameters(
    call: RecordedCall, family: _Family, hidden_size: Any, layout: Any, activations: Any, directions: Shape, inputs: int
) -> tuple[int, tuple[str, ...]]:
    """Check the operands and options that all four operators share; returns the hidden size and the activations.

    ``directions`` is the axis before the gates, if there is one.
    """
    hidden = call.unsigned("hiddenSize", hidden_size, least=1)
    rows = family.gates * hidden
    # both biases concatenated must be a tensor of a valid extent, too
    if 2 * rows > INT32_MAX:
        raise call.error("hiddenSize", f"{hidden} is too large: 2 * {family.gates} * hiddenSize exceeds 2^31 - 1")
    call.same_type(*call.operands)
    shapes: Mapping[str, Shape] = {
        "weight": (rows, inputs),
        "recurrentWeight": (rows, hidden),
        "bias": (rows,),
        "recurrentBias": (rows,),
        "peepholeWeight": (3 * hidden,),
    }
    for name, shape in shapes.items():
        call.shaped(name, (*directions, *shape))
    call.word("layout", layout, *family.layouts)
    words = family.activations if activations is None else activations
    if isinstance(words, str) or not isinstance(words, Sequence) or len(words) != len(family.activations):
        raise call.error("activations", f"activations must be {len(family.activations)} functions, found {words!r}")
    return hidden, tuple(call.word("activations", item, *_ACTIVATIONS) for item in words)
