"""A case before FORMAL has answered it, and the collector that a family module fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

__all__ = ["Case", "Cases", "Tensor", "arange", "filled", "parameter", "tensor"]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a case: its shape and its elements in row-major order."""

    shape: tuple[int, ...]
    elements: tuple[int, ...]
    kind: Literal["tensor", "parameter"] = "tensor"

    def __post_init__(self) -> None:
        if prod(self.shape) != len(self.elements):
            raise ValueError(f"{len(self.elements)} elements for the shape {self.shape}")


def tensor(shape: Sequence[int], elements: Sequence[int]) -> Tensor:
    """An int32 tensor."""
    return Tensor(tuple(shape), tuple(elements))


def parameter(shape: Sequence[int], elements: Sequence[int]) -> Tensor:
    """An int64 parameter."""
    return Tensor(tuple(shape), tuple(elements), "parameter")


def filled(shape: Sequence[int], element: int) -> Tensor:
    """A tensor of one element, repeated."""
    return tensor(shape, [element] * prod(shape))


def arange(shape: Sequence[int], start: int = 0) -> Tensor:
    """A tensor of consecutive integers."""
    return tensor(shape, range(start, start + prod(shape)))


@dataclass(frozen=True)
class Case:
    """One application of an op. ``code`` is the error with which it must be refused; None: it has a value."""

    name: str
    aim: str
    inputs: tuple[Tensor, ...]
    attributes: dict[str, Any]
    code: str | None = None


class Cases:
    """The cases of one op, in the order they were added."""

    def __init__(self, op: str) -> None:
        self.op = op
        self.items: list[Case] = []

    def value(self, name: str, aim: str, *inputs: Tensor, **attributes: Any) -> None:
        """Add a case that FORMAL answers."""
        self._add(Case(name, aim, inputs, attributes))

    def refused(self, rule: str, aim: str, *inputs: Tensor, **attributes: Any) -> None:
        """Add a case that breaks a rule: a code, or (without a dot before it) the last part of ``ops.<op>.<rule>``."""
        number = sum(case.code is not None for case in self.items)
        code = rule if rule.startswith(("program.", "limit.")) else f"ops.{self.op}.{rule}"
        self._add(Case(f"refused_{number:02}_{code.rsplit('.', 1)[1]}", aim, inputs, attributes, code))

    def _add(self, case: Case) -> None:
        if any(other.name == case.name for other in self.items):
            raise ValueError(f"{self.op}: two cases are called {case.name}")
        self.items.append(case)
