"""Shape rules and argument validity, one function per operation that a graph can have."""

from __future__ import annotations

from cvm.errors import Invalid, Unsupported
from cvm.graph.shapes import (  # noqa: F401  (imported for their rules)
    elementwise,
    further,
    introducing,
    khronos,
    linear,
    reduce,
    reshaping,
    roi,
    sliding,
)
from cvm.graph.shapes.introducing import label_path
from cvm.graph.shapes.shape_call import RULES, Results, Rule, Shape, ShapeCall, rule
from cvm.limits import DEFAULT, Limits, elements

__all__ = ["RULES", "Results", "Rule", "Shape", "ShapeCall", "infer_shapes", "label_path", "rule"]


def infer_shapes(call: ShapeCall, limits: Limits = DEFAULT) -> Results:
    """The shapes of the results of one invocation, after all checks of its arguments.

    Raises `Invalid` with the argument or shape rule that is broken, `Unsupported` for an operation without a rule,
    `LimitExceeded` for a result larger than ``limits``.
    """
    found = RULES.get(call.name)
    if found is None:
        raise Unsupported("nnef.shapes.operation", f"the shape of {call.name} is not known")
    results = found.function(call)
    for result in results:
        for shape in result if isinstance(result, list) else [result]:
            if any(extent < 1 for extent in shape):
                raise Invalid("nnef.shapes.empty", f"a result would have the shape {list(shape)}")
            elements(shape, limits, f"a result of {call.name}")
    return results
