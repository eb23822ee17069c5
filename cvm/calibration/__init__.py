"""Calibration: quantisers for a graph with float weights, from the numbers that it computes on data.

* `calibrate` gives a `Calibration`: a quantiser for every tensor that needs one, the text of graph.quant, the model.
* `chosen_settings` tries the choices that settings leave open: range method, equalised channels, corrected biases.
* `Settings` holds the choices: bits, the range method, the form of the quantisers.
* `Recalibrator` is the class behind `calibrate`. `Completer` gives quantisers only to tensors that lack one where
  lowering needs one. Both are subclasses of `Chooser`.
* `Sensitivity` measures which tensors cost the outputs most.
* `plan` decides which tensors get a quantiser and which share one; its module states the rules.
"""

from cvm.calibration.chooser import Chooser
from cvm.calibration.choosing import Trial, chosen_settings
from cvm.calibration.completion import Completer
from cvm.calibration.correction import Corrected
from cvm.calibration.driver import CalibratedTensor, Calibration, bare
from cvm.calibration.equalization import Rescaled
from cvm.calibration.observing import Run
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
    "Run",
    "Sensitivity",
    "Settings",
    "Trial",
    "Widened",
    "bare",
    "calibrate",
    "chosen_settings",
    "plan",
]
