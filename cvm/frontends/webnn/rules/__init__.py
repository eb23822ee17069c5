"""The rules of the operators: one function per operator emits its operations to a `QuantizedGraph`."""

from cvm.frontends.webnn.rules import (  # noqa: F401  (enter the rules)
    arithmetic,
    movement,
    quantization,
    recurrent,
    sums,
    windows,
)
from cvm.frontends.webnn.rules.registry import RULES

__all__ = ["RULES"]
