"""The table of expansions, and their type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cvm.frontends.onnx.model import STANDARD
from cvm.frontends.onnx.writing import Writer

__all__ = ["EXPANDED", "Expansion", "expansion"]

Expansion: TypeAlias = Callable[[Writer], None]
"""A function that adds the nodes of an expansion; they give the results of the node under the names of the node."""

EXPANDED: dict[tuple[str, str], Expansion] = {}
"""The expansion of each operator that has one, by domain and name."""


def expansion(*names: str, domain: str = STANDARD) -> Callable[[Expansion], Expansion]:
    """Register a function as the expansion of the named operators of a domain."""

    def enter(function: Expansion) -> Expansion:
        EXPANDED.update(dict.fromkeys(((domain, name) for name in names), function))
        return function

    return enter
