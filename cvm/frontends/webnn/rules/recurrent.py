"""Recurrent networks, unrolled: each step is emitted as the specification decomposes it."""

from __future__ import annotations

from functools import partial

import numpy as np

from cvm.frontends.common.decompositions.movement import part
from cvm.frontends.common.decompositions.recurrent import Activation, Cell, States, gru_step, lstm_step, unrolled
from cvm.frontends.common.emission import Emission
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation

__all__: list[str] = []

_WEIGHTS = (
    ("weight", "weight"), ("recurrentWeight", "recurrent"), ("bias", "bias"), ("recurrentBias", "recurrent_bias"),
    ("peepholeWeight", "peephole"),
)  # fmt: skip
"""The operands of the operator, and the fields of a cell that hold them."""


def _function(op: str) -> Activation:
    def activation(graph: Emission, name: str) -> str:
        return graph.emit(op, name)

    return activation


def _cell(translation: WebnnTranslation, node: WebnnNode, direction: int | None) -> Cell:
    """The weights of a cell operator, or of one direction of a network."""
    found = {}
    for operand, field in _WEIGHTS:
        if operand in node.operands:
            name = translation.name(node.operands[operand])
            found[field] = (
                name if direction is None else part(translation, name, 0, direction, direction + 1, drop=True)
            )
    return Cell(node.attributes["hidden"], node.attributes["layout"], **found)


def _step(translation: WebnnTranslation, node: WebnnNode, cell: Cell, x: str, states: States) -> States:
    activations = [_function(op) for op in node.attributes["activations"]]
    if node.op.startswith("lstm"):
        return lstm_step(translation, cell, x, states, activations, output_sees="old")
    return gru_step(translation, cell, x, states, activations, node.attributes["reset_after"])


@rule("lstmCell", "gruCell")
def step(translation: WebnnTranslation, node: WebnnNode) -> list[str]:
    """One step of gruCell or lstmCell."""
    names = ("hiddenState", "cellState") if node.op == "lstmCell" else ("hiddenState",)
    states = tuple(translation.name(node.operands[name]) for name in names)
    x = translation.name(node.operands["input"])
    return list(_step(translation, node, _cell(translation, node, None), x, states))


@rule("lstm", "gru")
def network(translation: WebnnTranslation, node: WebnnNode) -> list[str]:
    """All steps of gru or lstm, in one direction or in both; states that are not given begin at zero."""
    source, attributes = node.operands["input"], node.attributes
    inputs = [part(translation, translation.name(source), 0, t, t + 1, drop=True) for t in range(source.shape[0])]
    names = ("initialHiddenState", "initialCellState") if node.op == "lstm" else ("initialHiddenState",)
    shape = (source.shape[1], attributes["hidden"])
    sequences, ends = [], []
    for direction in range(2 if attributes["direction"] == "both" else 1):
        states = []
        for name in names:
            if name in node.operands:
                given = translation.name(node.operands[name])
                states.append(part(translation, given, 0, direction, direction + 1, drop=True))
            else:
                states.append(translation.constant(np.zeros(shape, np.int64), shape))
        backward = attributes["direction"] == "backward" or direction == 1
        cell = _cell(translation, node, direction)
        hidden, end = unrolled(inputs, tuple(states), partial(_step, translation, node, cell), backward)
        sequences.append(hidden)
        ends.append(end)
    results = [_side_by_side(translation, [end[i] for end in ends], shape) for i in range(len(names))]
    if attributes["sequence"]:
        times = [_side_by_side(translation, list(parts), (1, *shape), 1) for parts in zip(*sequences, strict=True)]
        results.append(times[0] if len(times) == 1 else translation.emit("concat", tuple(times), axis=0))
    return results


def _side_by_side(translation: WebnnTranslation, names: list[str], shape: tuple[int, ...], axis: int = 0) -> str:
    """The results of the directions, joined along a new axis."""
    extents = (*shape[:axis], 1, *shape[axis:])
    parts = tuple(translation.reshape(name, extents) for name in names)
    return parts[0] if len(parts) == 1 else translation.emit("concat", parts, axis=axis)
