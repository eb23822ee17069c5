"""The front end for TFLite: quantised models with tensors of 8 and 16 bits and filters of 4 and 8, as quantised graphs.

`load` reads a file, `loads` the bytes of a file. docs/tflite.md lists the operators that are read and their meaning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeAlias

from cvm.errors import CvmError, Unsupported
from cvm.frontends.common.files import Buffer, regular
from cvm.frontends.common.places import Place
from cvm.frontends.tflite.compat import REFERENCE
from cvm.frontends.tflite.model import TfliteOperator, refusal
from cvm.frontends.tflite.reading import IDENTIFIER, read_model
from cvm.frontends.tflite.rules import RULES
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.graph import QuantizedGraph
from cvm.limits import DEFAULT, Limits, require
from cvm.records import dataclass

__all__ = ["IDENTIFIER", "Compat", "Loaded", "load", "loads"]


@dataclass(frozen=True, eq=False, slots=True)
class Loaded:
    """The graph of a model, and the operator of the model that each tensor of the graph belongs to."""

    graph: QuantizedGraph
    operators: Mapping[str, TfliteOperator]
    places: tuple[Place, ...] = ()
    """Where the quantised tensors of the file are in the graph."""

    def explained(self, error: CvmError) -> CvmError:
        """Rewrite an error of lowering in the terms of the model: it names the operator and says what to do."""
        if not isinstance(error, Unsupported):
            return error
        message = error.message.split("; `cvm quantize")[0].replace(" in graph.quant", "")
        operator = self.operators.get(error.location.tensor or "")
        if operator is None:
            return Unsupported(error.code, message, error.location)
        return refusal(operator, message, _ADVICE.get(error.code, ""), error.code)


_ADVICE = {"lowering.unquantized": "convert the model so that its result has a scale"}


Compat: TypeAlias = Literal["correct", "tflite-reference"]
"""The meaning of quantised operators: "correct" (exact, rounded once) or that of TFLite's reference kernels."""


def loads(data: Buffer, limits: Limits = DEFAULT, *, floats: bool = False, compat: Compat = "correct") -> Loaded:
    """The graph of a model, from the bytes of its file; ``floats`` and ``compat`` as for `load`.

    Raises `Malformed` for bytes that are not a model, `Invalid` for a model that breaks a rule, `Unsupported` for a
    model that the integer machine cannot run, and `LimitExceeded`.
    """
    rules = RULES if compat == "correct" else REFERENCE
    translated = TfliteTranslation(read_model(data, limits), limits, rules, floats, compat).run()
    return Loaded(translated.graph, translated.operators, translated.places)


def load(
    path: str | os.PathLike[str], limits: Limits = DEFAULT, *, floats: bool = False, compat: Compat = "correct"
) -> Loaded:
    """The graph of a model, from its file. Raises what `loads` raises, with the path in the location.

    With ``floats``, real inputs and outputs need no scale (`cvm.calibration.Completer` finds quantisers for them). With
    ``compat`` "tflite-reference", integers are computed as TFLite's reference kernels do (docs/tflite.md).
    """
    file = os.fspath(path)
    try:
        data = regular(file, limits.archive_bytes + 1, "tflite")
        require("tflite_bytes", len(data), limits.archive_bytes, "bytes of a model of TFLite")
        return loads(data, limits, floats=floats, compat=compat)
    except CvmError as error:
        raise error.at(file=file) from None
