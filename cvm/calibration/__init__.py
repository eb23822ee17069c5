"""Calibration: quantisers for a graph with float weights, from the numbers that it computes on data.

* `calibrate` gives a `Calibration`: a quantiser for every tensor that needs one, the text of graph.quant, the model.
* `chosen_settings` tries what settings leave open: the method for ranges, equalised channels, corrected biases.
* `Settings` is what may be chosen: bits, the method for ranges, the form of the quantisers.
* `Recalibrator` is what that runs; `Completer` gives them to tensors of a graph that lack one, and only where lowering
  needs it. Both are a `Chooser`.
* `Sensitivity` says which tensors cost the outputs most.
* `plan` says which tensors get one and which share it; see there for the rules.
"""

from cvm.calibration.chooser import Chooser
from cvm.calibration.choosing import Trial, chosen_settings
from cvm.calibration.completion import Completer
from cvm.calibration.correction import Corrected
from cvm.calibration.driver import CalibratedTensor, Calibration, bare
from cvm.calibration.equalization import Rescaled
from cvm.calibration.planning import Plan, plan
from cvm.calibration.recalibration import Recalibrator, calibrate
from cvm.calibration.sensitivity import Sensitivity, Widened
from cvm.calibration.settings import CHOICES, FORMS, Choice, Form, RangeMethod, Settings

__all__ = [
    "CHOICES",
    "FORMS",
    "CalibratedTensor",
    "Calibration",
    "Choice",
    "Chooser",
    "Completer",
    "Corrected",
    "Form",
    "Plan",
    "RangeMethod",
    "Recalibrator",
    "Rescaled",
    "Sensitivity",
    "Settings",
    "Trial",
    "Widened",
    "bare",
    "calibrate",
    "chosen_settings",
    "plan",
]
