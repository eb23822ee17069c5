"""Inputs for programs: ends of their intervals, any numbers, and numbers where the codes of a `requantize` change."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.program import Program
from cvm.program.model import Node, Value

__all__ = ["Feed", "feeds"]

Feed = Mapping[str, npt.NDArray[np.int32]]
Exact = npt.NDArray[Any]
"""An array of Python integers."""


def feeds(program: Program, count: int, random: Random) -> list[Feed]:
    """First inputs of all ends; then for each input one of several kinds, mostly numbers at which codes change."""
    aims = _Aims(program, random)
    found: list[Feed] = []
    for number in range(count):
        feed = {}
        for one in program.inputs:
            kinds = ("highest",) if number == 0 else ("lowest",) if number == 1 else _KINDS
            feed[one.value.name] = aims.elements(one.value, random.choice(kinds))
        found.append(feed)
    return found


_KINDS = ("ends", "random", "small", "near", "near", "near", "near", "near")
_PASSING = ("relu", "clip", "reshape", "flatten", "max_pool2d")
"""Ops whose results change by the same small amounts as their operands, mostly."""


class _Aims:
    """The readers of each input of a program: the requantizations of it, and of sums of it."""

    def __init__(self, program: Program, random: Random) -> None:
        self.random = random
        self.numbers = np.random.default_rng(random.getrandbits(64))
        self.constants = {constant.name: constant for constant in program.constants}
        self.producer = {value.name: node for node in program.nodes for value in node.outputs}
        self.direct: dict[str, list[Node]] = {}
        self.summed: dict[str, list[tuple[Node, Node]]] = {}
        for node in program.nodes:
            if node.op == "requantize" and len(node.inputs) == 4:
                source = self._behind(node.inputs[0])
                made = self.producer.get(source)
                if made is None:
                    self.direct.setdefault(source, []).append(node)
                elif made.op in ("conv2d", "dense") and all(name in self.constants for name in made.inputs[1:]):
                    self.summed.setdefault(self._behind(made.inputs[0]), []).append((made, node))

    def _behind(self, name: str) -> str:
        while name in self.producer and self.producer[name].op in _PASSING:
            name = self.producer[name].inputs[0]
        return name

    def elements(self, value: Value, kind: str) -> npt.NDArray[np.int32]:
        """Elements of an input, of a given kind."""
        lo, hi, shape = value.lo, value.hi, value.shape
        if kind in ("highest", "lowest"):
            return np.full(shape, hi if kind == "highest" else lo, np.int32)
        if kind == "ends":
            return self.numbers.choice(np.array([lo, hi], np.int32), shape)
        if kind == "small":
            return np.clip(self.numbers.integers(-3, 3, shape, endpoint=True), lo, hi).astype(np.int32)
        anything = self.numbers.integers(lo, hi, shape, np.int32, endpoint=True)
        if kind == "near" and value.name in self.summed:
            return self._near_sums(value, anything)
        if kind == "near" and value.name in self.direct and prod(shape) <= 4096:
            return self._near(value)
        return anything

    def _array(self, name: str) -> Exact:
        return self.constants[name].array().astype(object)

    def _near(self, value: Value) -> npt.NDArray[np.int32]:
        """For each element an integer at which a code begins, or a neighbour of it."""
        node = self.random.choice(self.direct[value.name])
        m, c, s = (self._array(name) for name in node.inputs[1:])
        shape = node.outputs[0].shape
        codes = self._codes(node, shape)
        first = _first(codes, m, c, s) + self.numbers.integers(-1, 0, shape, endpoint=True).astype(object)
        near = np.clip(np.broadcast_to(first, shape), value.lo, value.hi).astype(np.int64)
        # A pool between both has fewer codes than elements.
        codes_near: npt.NDArray[np.int32] = np.resize(near, value.shape).astype(np.int32)
        return codes_near

    def _codes(self, node: Node, shape: tuple[int, ...]) -> Exact:
        lo, hi = node.outputs[0].lo, node.outputs[0].hi
        return self.numbers.integers(min(lo + 1, hi), hi, shape, endpoint=True).astype(object)

    def _near_sums(self, value: Value, anything: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The same operand at all indices, such that the sum of a channel is one at which a code begins."""
        sums, node = self.random.choice(self.summed[value.name])
        weights = self.constants[sums.inputs[1]].array()
        channel = self.random.randrange(weights.shape[0])
        taps = weights[channel].reshape(weights.shape[1], -1).sum(axis=1)
        index = tuple(channel if axis == 1 else 0 for axis in range(len(node.outputs[0].shape)))
        m, c, s = (_at(self._array(name), index) for name in node.inputs[1:])
        lo, hi = node.outputs[0].lo, node.outputs[0].hi
        goal = int(_first(np.array([self.random.randint(min(lo + 1, hi), hi)], object), m, c, s)[0])
        goal -= self.random.choice((0, 0, 1))
        if len(sums.inputs) == 3:
            goal -= int(self.constants[sums.inputs[2]].array()[channel])
        groups = int(sums.attributes.get("groups", 1))  # type: ignore[arg-type]
        first = channel // (weights.shape[0] // groups) * weights.shape[1]
        solution = _solved(goal, taps.tolist(), value.lo, value.hi)
        found = anything.reshape(anything.shape[0], anything.shape[1] if anything.ndim > 1 else 1, -1).copy()
        if first + len(solution) <= found.shape[1]:
            found[:, first : first + len(solution)] = np.array(solution).reshape(1, -1, 1)
            if self.random.random() < 0.5:
                moved = found + self.numbers.integers(-1, 1, found.shape, endpoint=True)
                chosen = self.numbers.random(found.shape) < 0.2
                found = np.clip(np.where(chosen, moved, found), value.lo, value.hi)
        return found.reshape(value.shape).astype(np.int32)


def _at(array: Exact, where: tuple[int, ...]) -> Exact:
    """The element of a parameter at an index of the tensor to which it broadcasts, as an array of one element."""
    spread = array.reshape((1,) * (len(where) - array.ndim) + array.shape)
    index = tuple(min(k, n - 1) for k, n in zip(where, spread.shape, strict=True))
    return np.array([spread[index]], object)


def _first(codes: Exact, m: Exact, c: Exact, s: Exact) -> Exact:
    """Approximately the operand at which each code begins, rounding half up; 0 if the operand has no influence."""
    half = (1 << s) >> 1
    known = np.where(m == 0, 1, m)
    return np.where(m == 0, 0, -((c + half - (codes << s)) // known))


def _solved(goal: int, taps: list[int], lo: int, hi: int) -> list[int]:
    """Operands in [lo, hi] whose weighted sum is the goal, or near it; large weights are solved first."""
    found = [min(max(0, lo), hi)] * len(taps)
    rest = goal - sum(tap * x for tap, x in zip(taps, found, strict=True))
    for index in sorted(range(len(taps)), key=lambda k: -abs(taps[k])):
        if taps[index]:
            x = min(max(found[index] + int(rest / taps[index]), lo), hi)
            rest -= (x - found[index]) * taps[index]
            found[index] = x
    return found
