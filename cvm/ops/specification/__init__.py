"""Statements of what a verifier must derive for each op: shape of the result, interval, gas, and a worked example.

The declarations in `cvm.ops` compute these; here they are stated for authors of other verifiers. The page
``docs/ops.md`` is made of both. No verifier or executor reads this package. Tests evaluate the statements and compare
them with the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cvm.ops.specification import broadcast, computed, elemwise, extension, nn, reduce, transform, vision
from cvm.ops.specification.statement import (
    Each,
    Example,
    ExampleTensor,
    Statement,
    evaluated_gas,
    evaluated_interval,
    evaluated_shapes,
)

__all__ = ["STATEMENTS", "Each", "Example", "ExampleTensor", "Statement", "evaluated_gas", "evaluated_interval",
           "evaluated_shapes"]  # fmt: skip

STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        **reduce.STATEMENTS,
        **broadcast.STATEMENTS,
        **nn.STATEMENTS,
        **elemwise.STATEMENTS,
        **transform.STATEMENTS,
        **vision.STATEMENTS,
        **extension.STATEMENTS,
        **computed.STATEMENTS,
    }
)
"""The statement about every op, by its name."""
