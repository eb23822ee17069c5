"""The float64 reference: what a graph means, operation by operation, for verification and calibration.

* `Reference` evaluates a `QuantizedGraph`, with or without rounding to the values of its quantisers.
* Within `sharing`, references share what they make of stored tensors.
* `statistics` gives the range, mean and deviation of every tensor over inputs.

Its results are float64 and depend on the order of summation; no executor may use them.
"""

from cvm.reference.constants import sharing
from cvm.reference.evaluator import Capture, Reference, Watching, run_count, sample_count
from cvm.reference.registry import OPERATIONS
from cvm.reference.statistics import Statistics, statistics

__all__ = [
    "OPERATIONS",
    "Capture",
    "Reference",
    "Statistics",
    "Watching",
    "run_count",
    "sample_count",
    "sharing",
    "statistics",
]
