"""What each operator becomes in a `QuantizedGraph`: one function per operator, by its name in the specification."""

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
