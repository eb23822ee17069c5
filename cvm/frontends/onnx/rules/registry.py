"""The table of rules, by operator."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.onnx.translation import Rule

__all__ = ["RULES", "rule"]

RULES: dict[str, Rule] = {}

rule = entering(RULES)
"""Register a function as the rule of the named operators."""
