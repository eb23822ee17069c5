"""The table of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from cvm.frontends.common.registry import entering

if TYPE_CHECKING:
    from cvm.frontends.webnn.operand import WebnnNode
    from cvm.frontends.webnn.translation import WebnnTranslation

__all__ = ["RULES", "Rule", "rule"]

Rule: TypeAlias = "Callable[[WebnnTranslation, WebnnNode], str | list[str]]"
"""Emits the operations of a call; returns the tensor of its result, or of each of them."""

RULES: dict[str, Rule] = {}

rule = entering(RULES)
"""Enter the rule of the named operators."""
