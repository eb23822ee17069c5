"""The rules of operators, by the name of the operator in the schema."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.tflite.translation import Rule

__all__ = ["RULES", "rule"]

RULES: dict[str, Rule] = {}
rule = entering(RULES)
