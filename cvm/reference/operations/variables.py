"""Variable updates: NNEF 1.0.1 section 4.8."""

from __future__ import annotations

from cvm.reference.registry import Array, operation

__all__: list[str] = []


@operation("4.8")
def update(variable: Array, value: Array) -> Array:
    """The new value. The evaluator stores it in the variable after all operations of the cycle."""
    return value
