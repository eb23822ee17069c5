"""The table of rules."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.onnx.translation import Rule

__all__ = ["RULES", "rule"]

RULES: dict[str, Rule] = {}

rule = entering(RULES)
"""Enter the rule of the named operators."""
