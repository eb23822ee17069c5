"""Ops that can be used without knowing more of them: on one tensor of any shape, without attributes."""

from __future__ import annotations

from cvm.ops import REGISTRY

__all__ = ["PLAIN"]

PLAIN = tuple(
    op.name
    for op in REGISTRY.values()
    if len(op.inputs) == 1 and not (op.inputs[0].many or op.constraints or op.Attributes.declared)
)
"""Their names, in the order of the declarations."""
