"""The front end for ONNX: it reads quantised models (QDQ and QLinear) and integer models as quantised graphs.

`load` reads a file, `loads` the bytes of a file. docs/onnx.md lists the operators that are read and their meaning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from cvm.errors import CvmError, Unsupported
from cvm.frontends.common.files import Buffer, regular
from cvm.frontends.common.places import Place
from cvm.frontends.onnx.embedding import embedded
from cvm.frontends.onnx.inputs import Settings
from cvm.frontends.onnx.model import Model, OnnxNode, Shape, refusal
from cvm.frontends.onnx.reading import read_model
from cvm.frontends.onnx.rules import RULES
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.graph import QuantizedGraph
from cvm.limits import DEFAULT, Limits, require
from cvm.records import dataclass

__all__ = ["Loaded", "Settings", "embedded", "load", "loads"]


@dataclass(frozen=True, eq=False, slots=True)
class Loaded:
    """The graph of a model, and the node of the model that each tensor of the graph belongs to."""

    graph: QuantizedGraph
    nodes: Mapping[str, OnnxNode]
    places: tuple[Place, ...] = ()
    """Where the quantised tensors of the file are in the graph."""

    def explained(self, error: CvmError) -> CvmError:
        """Rewrite an error of lowering in the terms of the model: it names the node and says what to do."""
        node = self.nodes.get(error.location.tensor or "")
        message = error.message.split("; `cvm quantize")[0].replace(" in graph.quant", "")
        if not isinstance(error, Unsupported):
            return error
        advice = _ADVICE.get(error.code, "")
        operator = "" if node is None else (node.origin or node).op
        if node is not None and operator in _RECURRENT and error.code == _UNQUANTIZED:
            message = f"the file has no quantiser for a tensor that this reads, and {operator} cannot have one in ONNX"
            return refusal(node, message, _CALIBRATED + "; what the file quantises stays as it is", error.code)
        if node is None:
            return Unsupported(error.code, f"{message}; {advice}" if advice else message, error.location)
        return refusal(node, message, advice, error.code)


_RECURRENT = ("LSTM", "GRU", "RNN")
_UNQUANTIZED = "lowering.unquantized"
_CALIBRATED = "let `cvm quantize MODEL.onnx -i DATA -o model.cvm` find scales for it"
_ADVICE = {
    _UNQUANTIZED: "a float value stays inside of the graph: put QuantizeLinear and DequantizeLinear "
    f"after it, or {_CALIBRATED}",
    "lowering.operation": f"put QuantizeLinear and DequantizeLinear after it, or {_CALIBRATED}",
    "lowering.overflow": "promise the range of the inputs with --input-range NAME=LO,HI, or cast to a wider type first",
    "lowering.range": "quantise its operands to fewer bits, or promise the range of the inputs with --input-range",
    "lowering.unprovable": "quantise its operands",
    "lowering.rounding": "quantise its operands",
}


_DEFAULT = Settings()


def loads(
    data: Buffer,
    settings: Settings = _DEFAULT,
    folder: str | None = None,
    limits: Limits = DEFAULT,
) -> Loaded:
    """The graph of a model, from the bytes of its file; external data is read from files within ``folder`` alone.

    Raises `Malformed` for bytes that are not a model, `Invalid` for a model that breaks a rule, `Unsupported` for a
    model that the integer machine cannot run, and `LimitExceeded`.
    """
    return _translated(read_model(data, folder, limits), settings, limits)


def _translated(model: Model, settings: Settings, limits: Limits) -> Loaded:
    translated = OnnxTranslation(model, settings, limits, RULES).run()
    return Loaded(translated.graph, translated.nodes, translated.places)


def load(
    path: str | os.PathLike[str],
    shapes: Mapping[str, Shape] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    overflow: Literal["wrap", "error"] = "wrap",
    limits: Limits = DEFAULT,
    *,
    floats: bool = False,
    states: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
) -> Loaded:
    """The graph of a model, from its file. Raises what `loads` raises, with the path in the location.

    ``shapes`` gives the shapes of inputs that the model leaves open (an open leading extent is 1 otherwise); ``ranges``
    promises that an integer input stays within [lo, hi], which every run checks. With ``floats``, real inputs and
    outputs need no QuantizeLinear (`cvm.calibration.complete` finds quantisers for them). ``states`` maps inputs to
    outputs: the program keeps such an input as state, which is zero before the first run and becomes the named output
    after each run. ``outputs`` are those that the graph has, by default all.
    """
    file = os.fspath(path)
    try:
        data = regular(file, limits.archive_bytes + 1, "onnx")
        require("onnx_bytes", len(data), limits.archive_bytes, "bytes of a model of ONNX")
        settings = Settings(shapes or {}, ranges or {}, overflow, floats, states or {}, tuple(outputs))
        model = read_model(data, os.path.dirname(file) or ".", limits)
        del data  # the model holds its contents
        return _translated(model, settings, limits)
    except CvmError as error:
        raise error.at(file=file) from None
