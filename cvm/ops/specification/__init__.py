"""What each op requires of a verifier, in words: shape of the result, interval, gas, and a worked example.

The declarations beside this package compute all that; here it is stated, for authors of another verifier. The page
``docs/ops.md`` is made of both. Nothing that decides reads this package: tests evaluate what is stated here
and compare it with the declarations.
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
"""What is stated of every op, by its name."""
