"""The rules of the reference kernels, by the name of the operator in the schema."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.tflite.translation import Rule

__all__ = ["REFERENCE", "rule"]

REFERENCE: dict[str, Rule] = {}
rule = entering(REFERENCE)
