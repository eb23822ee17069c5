"""Linear models and preprocessing of ``ai.onnx.ml``, expanded to operators of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.frontends.onnx.expansions.ensembles import transformed
from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import LEARNING
from cvm.frontends.onnx.trees import features_of
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []


def _rows(w: Writer) -> str:
    """The input cast to real numbers and reshaped to [N, C]."""
    x = w.reshape(w.required(0)[0], (-1, features_of(w.call)))
    return w.add("Cast", [x], to=1)


def _vector(w: Writer, items: Sequence[float]) -> str:
    return w.constant(np.array(items, np.float32), "float32")


def _linear(w: Writer, targets: int) -> str:
    """X coefficients^T + intercepts: real numbers of shape [N, targets]."""
    width = features_of(w.call)
    factors, offsets = w.call.numbers("coefficients") or (), w.call.numbers("intercepts")
    if len(factors) != targets * width or (offsets is not None and len(offsets) not in (1, targets)):
        message = f"{len(factors)} coefficients and {len(offsets or ())} intercepts do not fit {width} features"
        raise w.call.invalid("attribute", f"{message} and {targets} results")
    matrix = w.constant(np.array(factors, np.float32).reshape(targets, width).T, "float32")
    product = w.add("MatMul", [_rows(w), matrix])
    return product if offsets is None else w.add("Add", [product, _vector(w, offsets)])


@expansion("LinearRegressor", domain=LEARNING)
def linear_regressor(w: Writer) -> None:
    """LinearRegressor: X coefficients^T + intercepts."""
    score = _linear(w, max(w.call.integer("targets", 1), 1))
    score = transformed(w, score, w.call.text("post_transform", "NONE"))
    w.add("Identity", [score], w.node.outputs[0])


@expansion("LinearClassifier", domain=LEARNING)
def linear_classifier(w: Writer) -> None:
    """LinearClassifier: the label of the greatest score (the first of equal scores), and the scores.

    With one row of coefficients there are two classes, whose scores are -s and s.
    """
    labels, texts = w.call.integers("classlabels_ints"), w.call.texts("classlabels_strings")
    w.call.ignore("multi_class")
    width = features_of(w.call)
    rows = len(w.call.numbers("coefficients") or ()) // max(width, 1)
    score = _linear(w, max(rows, 1))
    transform = w.call.text("post_transform", "NONE")
    if rows == 1:
        score = w.add("Concat", [w.add("Neg", [score]), score], axis=1)
    if w.wants(0):
        if labels is None or texts is not None:
            raise w.call.refuse("its labels are strings", "end the model at its scores")
        if len(labels) != max(rows, 2):
            raise w.call.invalid("attribute", f"{len(labels)} labels do not fit {max(rows, 2)} classes")
        number = w.add("ArgMax", [score], axis=1, keepdims=0)
        w.add("Gather", [w.integers(labels), number], w.node.outputs[0], axis=0)
    if w.wants(1):
        w.add("Identity", [transformed(w, score, transform)], w.node.outputs[1])


@expansion("Scaler", domain=LEARNING)
def scaler(w: Writer) -> None:
    """Scaler: (X - offset) * scale."""
    offset, scale = w.call.numbers("offset") or (0.0,), w.call.numbers("scale") or (1.0,)
    width = features_of(w.call)
    if not {len(offset), len(scale)} <= {1, width}:
        raise w.call.invalid("attribute", f"{len(offset)} offsets and {len(scale)} scales do not fit {width} features")
    x = w.add("Cast", w.required(0), to=1)
    w.add("Mul", [w.add("Sub", [x, _vector(w, offset)]), _vector(w, scale)], w.node.outputs[0])


@expansion("Normalizer", domain=LEARNING)
def normalizer(w: Writer) -> None:
    """Normalizer: each row divided by its greatest element, or by its norm; 0 where the divisor is 0."""
    norm, x = w.call.text("norm", "MAX", "MAX", "L1", "L2"), _rows(w)
    if norm == "MAX":
        most = w.add("ReduceMax", [x, w.integers([1])], keepdims=1)
        w.add("Div", [x, most], w.node.outputs[0])
    else:
        w.add("LpNormalization", [x], w.node.outputs[0], axis=1, p=1 if norm == "L1" else 2)


@expansion("Binarizer", domain=LEARNING)
def binarizer(w: Writer) -> None:
    """Binarizer: 1 where X is above the threshold, else 0."""
    limit = w.constant(np.float32(w.call.number("threshold", None) if w.call.has("threshold") else 0), "float32")
    x = w.add("Cast", w.required(0), to=1)
    above = w.add("Greater", [x, limit])
    kind = {"int64": 7, "int32": 6, "float64": 11}.get(w.call.operand().data_type, 1)
    w.add("Cast", [above], w.node.outputs[0], to=kind)


@expansion("ArrayFeatureExtractor", domain=LEARNING)
def array_feature_extractor(w: Writer) -> None:
    """ArrayFeatureExtractor: the features at given indices of the last axis; a vector counts as one row."""
    source = w.call.operand()
    x = w.required(0)[0] if source.rank > 1 else w.reshape(w.required(0)[0], (1, -1))
    indices = w.reshape(w.required(1)[0], (-1,))
    w.add("Gather", [x, indices], w.node.outputs[0], axis=max(source.rank - 1, 1))
