"""The table of operators that are written out as others, and the type of what writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cvm.frontends.onnx.model import STANDARD
from cvm.frontends.onnx.writing import Writer

__all__ = ["EXPANDED", "Expansion", "expansion"]

Expansion: TypeAlias = Callable[[Writer], None]
"""Adds the nodes that one node consists of; they give its results by the names that it has for them."""

EXPANDED: dict[tuple[str, str], Expansion] = {}
"""How each operator is written out, by domain and name."""


def expansion(*names: str, domain: str = STANDARD) -> Callable[[Expansion], Expansion]:
    """Enter how the named operators of a domain are written out."""

    def enter(function: Expansion) -> Expansion:
        EXPANDED.update(dict.fromkeys(((domain, name) for name in names), function))
        return function

    return enter
