"""Calibration: quantisers for a graph with float weights, from the numbers that it computes on data.

* `calibrate` gives a `Calibration`: a quantiser for every tensor that needs one, the text of graph.quant, the model.
* `Settings` is what may be chosen: bits, the method for ranges, the form of the quantisers.
* `Completer` gives them to tensors of a graph that lack one, and only where lowering needs it.
* `Sensitivity` says which tensors cost the outputs most.
* `plan` says which tensors get one and which share it; see there for the rules.
"""

from cvm.calibration.completion import Completer
from cvm.calibration.driver import CalibratedTensor, Calibration, bare, calibrate
from cvm.calibration.planning import Plan, plan
from cvm.calibration.sensitivity import Sensitivity, Widened
from cvm.calibration.settings import FORMS, Form, Settings

__all__ = [
    "FORMS",
    "CalibratedTensor",
    "Calibration",
    "Completer",
    "Form",
    "Plan",
    "Sensitivity",
    "Settings",
    "Widened",
    "bare",
    "calibrate",
    "plan",
]
