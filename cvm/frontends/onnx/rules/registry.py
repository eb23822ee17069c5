"""The table of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from cvm.frontends.common.registry import entering

if TYPE_CHECKING:
    from cvm.frontends.onnx.call import Made, OnnxCall
    from cvm.frontends.onnx.translation import OnnxTranslation

__all__ = ["RULES", "Rule", "rule"]

Rule: TypeAlias = "Callable[[OnnxTranslation, OnnxCall], Made | list[Made]]"
"""Checks a node, says the shape of its result, and emits its operations; returns its result, or each of them."""

RULES: dict[str, Rule] = {}

rule = entering(RULES)
"""Enter the rule of the named operators."""
