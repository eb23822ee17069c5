"""The claim of each operation: exact or bounded, how it is computed, and what is refused. It is declared with the rule.

``cvm ops --nnef`` and ``docs/nnef-operations.md`` show these records. Tests check them with many random documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from cvm.records import dataclass

__all__ = ["CLAIMS", "REFUSALS", "Claim", "bounded", "exact", "with_accuracy"]


@dataclass(frozen=True, slots=True)
class Claim:
    """The promise of a lowering rule.

    ``exact``: every code is that of the meaning in real numbers. ``bounded``: the report of each tensor gives a bound
    of the difference in codes, and ``reason`` says why it is not proven to be zero. ``how`` says how the operation is
    computed. ``refuses`` are the conditions, besides those of `REFUSALS`, under which a document does not compile.
    """

    kind: Literal["exact", "bounded"]
    how: str
    reason: str
    refuses: tuple[str, ...]


def exact(how: str, *refuses: str) -> Claim:
    """The claim that every code is exact."""
    return Claim("exact", how, "", refuses)


def bounded(how: str, reason: str, *refuses: str) -> Claim:
    """The claim that the report of each tensor bounds the difference; ``reason`` says why exactness is not proven."""
    return Claim("bounded", how, reason, refuses)


CLAIMS: dict[str, Claim] = {
    "external": exact("an input of codes; integers and truth values as they are"),
    "variable": exact("codes of its quantiser, computed in rationals from the stored items; state if it is updated"),
    "constant": exact("the rationals of the decimal text, or the codes of its quantiser"),
}
"""The claim of each operation, by its name in the graph; `cvm.lowering.context.rule` enters the others.

An operation for which a graph may ask more accuracy has a second claim, under the name that `with_accuracy` gives.
"""


def with_accuracy(operation: str, accuracy: object) -> str:
    """The name of a claim and of its rule: the operation, followed by the accuracy unless that is the default."""
    return operation if accuracy == "default" else f"{operation}(accuracy = {accuracy!r})"


REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        "lowering.unquantized": "a tensor without a quantiser must consist of integers here, and does not: an input, "
        "an updated variable or an output of real numbers; a sum that does not fit; a function of more than 2^18 "
        "combinations of codes",
        "lowering.range": "integers between operations are not proven to fit 32 bits",
        "lowering.overflow": "integers are not proven to fit their data type, whose arithmetic does not wrap",
        "lowering.unprovable": "sums of integers times their scales do not fit 64 bits, or a function of them "
        "has too many thresholds",
        "lowering.undefined": "a function has no value and no limit at a number that a code stands for: 1 / 0, "
        "log(-1), (-1) ^ 0.5",
        "lowering.undecided": "a composed function is so near to the middle of two codes, or to another number, that "
        "3,200 digits do not decide on which side it lies",
        "lowering.rounding": "a quantiser rounds toward zero, or half to even, but the rule has a rounding of its own; "
        "a quantiser rounds toward zero numbers that contain roots; sums whose ties, or whose positive and negative "
        "parts, do not fit 64 bits; a quantiser that wraps has a step that is no power of two",
        "lowering.bits": "codes of more than 16 bits, where each step between codes has a threshold of its own",
        "lowering.logarithmic": "logarithmic codes of more than 12 bits on a tensor that is computed or given; powers "
        "of two that are too far apart where integers are needed; softmax of many items with a logarithmic result",
        "lowering.variance": "the variance plus epsilon of a batch normalisation is not positive",
        "lowering.contents": "a variable has no stored items",
        "quantization.range": "min is not less than max among constant parameters of a quantisation",
    }
)
"""Every error code of lowering, and when it is raised."""

# Conditions that several operations share

ALONG_THE_SUM = "an operand has more than 16 scales along the axis that is summed over, or scales along others too"
APART = "items with several scales, which have no simple ratio, are added up"
BEYOND_REFLECTION = "a border reflects beyond the data more than once"
COMPUTED_FILTER = "the filter is computed, and it or the input has no single quantiser for the whole tensor"
INDICES = "an index is not proven to lie within its window"
NOTHING_INSIDE = "border 'ignore' leaves a window without any item"
NO_RATIO = "items with more than 16 scales, or scales along several axes, which have no simple ratio, are added up"
PARTS = "the parts are not alike, have too many values for a table, and the result has no quantiser"
SCATTERED = "scales of items differ along an axis that is summed over, and along another"
SEVERAL_AXES = "constant parameters vary along several axes"
SHARED_LABEL = "another variable shares the label of the updated one"
TOO_WIDE = "the quotient has sums that do not fit 64 bits"
TOO_FINE = "the weights of interpolation do not fit 32 bits: the scale of rois is no simple fraction"
WHOLE_TENSOR = "the result has no quantiser for the whole tensor"
WIDE_BETWEEN = "scales of the input without a simple ratio leave integers of more than 32 bits between the two"
ZERO_BY_ZERO = "items that are all zero would be divided by zero: neither bias nor epsilon is above 0"
