"""Ensembles of decision trees, expanded to comparisons, look-ups and sums of integers.

Each branch compares an input feature with a constant, which is exact on codes. The expansion descends all trees at
once, level by level, from the roots. Leaf weights are integer digits times a power of two, so that sums over trees are
sums of integers: only the result is rounded, once. Labels are decided on these integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.model import LEARNING
from cvm.frontends.onnx.trees import MODES, Ensemble, digits_of, newer_ensemble, older_ensemble
from cvm.frontends.onnx.writing import Writer
from cvm.records import dataclass

__all__ = ["transformed"]

_COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual", "BRANCH_LT": "Less", "BRANCH_GTE": "GreaterOrEqual", "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal", "BRANCH_NEQ": "Equal",
}  # fmt: skip
_SUM_BITS = 30
"""Sums of digits stay below 2^30."""
_LEAST_SHIFT = 120
"""The exponent of the smallest normal float32."""


@dataclass(frozen=True, slots=True)
class _Score:
    """Scores [N, K] as integers: score = sum over k of digits[k] * 2^(bits * k - shift)."""

    digits: list[str]
    bits: int
    shift: int


@expansion("TreeEnsembleRegressor", domain=LEARNING)
def regressor(w: Writer) -> None:
    """TreeEnsembleRegressor: one score for each target."""
    targets = max(w.call.integer("n_targets", 1), 1)
    score = _score(w, older_ensemble(w.call, "target", targets), w.call.numbers("base_values") or ())
    function = w.call.text("aggregate_function", "SUM", "SUM", "AVERAGE", "MIN", "MAX")
    _aggregated(w, score, function, len(set(w.call.integers("nodes_treeids") or ())))


@expansion("TreeEnsemble", domain=LEARNING)
def ensemble(w: Writer) -> None:
    """TreeEnsemble: one score for each target."""
    targets = max(w.call.integer("n_targets", 1), 1)
    score = _score(w, newer_ensemble(w.call, targets), ())
    functions = ("AVERAGE", "SUM", "MIN", "MAX")
    number = w.call.integer("aggregate_function", 1)
    trees = len(w.call.integers("tree_roots") or ())
    _aggregated(w, score, functions[number] if 0 <= number < 4 else "", trees)


def _aggregated(w: Writer, score: _Score, function: str, trees: int) -> None:
    if function not in ("SUM", "AVERAGE"):
        raise w.call.refuse(f"trees are aggregated by {function or 'an unknown rule'}", "use SUM or AVERAGE")
    total = _number(w, score)
    if function == "AVERAGE":
        total = w.add("Div", [total, w.constant(np.float32(trees), "float32")])
    w.add("Identity", [_transformed(w, total)], w.node.outputs[0])


@expansion("TreeEnsembleClassifier", domain=LEARNING)
def classifier(w: Writer) -> None:
    """TreeEnsembleClassifier: the label of the greatest score, and the scores."""
    labels, texts = w.call.integers("classlabels_int64s"), w.call.texts("classlabels_strings")
    count = len(labels or texts or ())
    if count == 0:
        raise w.call.invalid("attribute", "classlabels_int64s or classlabels_strings must be given")
    ids = w.call.integers("class_ids") or ()
    ensemble = older_ensemble(w.call, "class", count)
    base = w.call.numbers("base_values") or ()
    single = count == 2 and len(set(ids)) == 1
    if single:
        (column,) = set(ids)
        positive = bool((ensemble.leaves >= 0).all())
        ensemble = replace(ensemble, leaves=ensemble.leaves[:, column : column + 1])
        score = _score(w, ensemble, base[-1:])
        _two_classes(w, score, positive, column, labels)
        return
    score = _score(w, ensemble, base)
    if w.wants(0):
        _label(w, _greatest(w, score), labels)
    if w.wants(1):
        w.add("Identity", [_transformed(w, _number(w, score))], w.node.outputs[1])
    else:
        w.call.ignore("post_transform")


def _two_classes(w: Writer, score: _Score, positive: bool, column: int, labels: Sequence[int] | None) -> None:
    """The label and the two scores of a classifier with a single score s, as ONNX Runtime computes them.

    The second class wins where s is above 1/2 if no leaf is negative, or above 0 if one is. The scores are 1 - s and s,
    or -s and s; where the leaves name the second class they are 0 and s.
    """
    number = _number(w, score)
    if w.wants(0):
        limit = 2 ** (score.shift - 1) if positive and score.shift else 0
        _label(w, w.reshape(_above(w, score, limit), (-1,)), labels)
    transform = w.call.text("post_transform", "NONE", *_TRANSFORMS)
    if not w.wants(1):
        return
    if column == 1:
        other = w.add("Mul", [number, w.constant(np.float32(0), "float32")])
    elif positive and transform != "LOGISTIC":
        other = w.add("Sub", [w.constant(np.float32(1), "float32"), number])
    else:
        other = w.add("Neg", [number])
    joined = w.add("Concat", [other, number], axis=1)
    w.add("Identity", [transformed(w, joined, transform if column == 1 or transform != "SOFTMAX" else "NONE")],
          w.node.outputs[1])  # fmt: skip


_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _transformed(w: Writer, name: str) -> str:
    return transformed(w, name, w.call.text("post_transform", "NONE", *_TRANSFORMS))


def transformed(w: Writer, name: str, transform: str) -> str:
    """Scores after the function that ``transform`` names."""
    if transform == "NONE":
        return name
    if transform == "SOFTMAX":
        return w.add("Softmax", [name], axis=1)
    if transform == "LOGISTIC":
        return w.add("Sigmoid", [name])
    raise w.call.refuse(f"scores are transformed by {transform}", "use NONE, SOFTMAX or LOGISTIC")


# From the input to the leaves


def _score(w: Writer, ensemble: Ensemble, base: Sequence[float]) -> _Score:
    """The sum of the leaves that the input reaches, plus the constants ``base``."""
    source, targets = w.call.operand(), ensemble.leaves.shape[1]
    if source.rank not in (1, 2):
        raise w.call.invalid("shape", f"the input must have one or two axes, found {list(source.shape)}")
    if base and len(base) != targets:
        raise w.call.invalid("attribute", f"base_values must have {targets} items, found {len(base)}")
    w.require_expansion(8 * ensemble.depth + 64)
    x = w.reshape(w.required(0)[0], (-1, source.shape[-1]))
    if not source.real:
        x = w.add("Cast", [x], to=1)
    count, trees = (source.shape[0] if source.rank == 2 else 1), len(ensemble.roots)
    at = w.constant(np.repeat(ensemble.roots[None], count, axis=0), "int64")
    if ensemble.depth:
        at = _descended(w, ensemble, x, at, count)
    bits = _SUM_BITS - (trees + 1).bit_length()
    parts, shift = digits_of(np.vstack([ensemble.leaves, np.reshape(base or (0.0,) * targets, (1, -1))]), bits)
    if shift > _LEAST_SHIFT:
        raise w.call.refuse("a leaf has a weight below 2^-96", "round the weights of leaves")
    branches, digits = len(ensemble.features), []
    for part in parts:
        table = np.vstack([np.zeros((branches, targets), np.int64), part[:-1]])
        chosen = w.add("Gather", [w.constant(table, "int64"), at], axis=0)
        total = w.add("ReduceSum", [chosen, w.integers([1])], keepdims=0)
        digits.append(w.add("Add", [total, w.constant(part[-1:], "int64")]))
    return _Score(digits, bits, shift)


def _descended(w: Writer, ensemble: Ensemble, x: str, at: str, count: int) -> str:
    """Descend ``ensemble.depth`` levels from the nodes ``at``: the indices of the leaves that are
    reached, [N, trees].
    """
    order = np.argsort([MODES.index(mode) for mode in ensemble.modes], kind="stable")
    position = np.argsort(order)
    found = []
    for mode in dict.fromkeys(ensemble.modes[i] for i in order):
        nodes = [int(i) for i in order if ensemble.modes[int(i)] == mode]
        features = w.add("Gather", [x, w.integers([int(ensemble.features[i]) for i in nodes])], axis=1)
        data_type = "float32" if (ensemble.thresholds == ensemble.thresholds.astype(np.float32)).all() else "float64"
        if data_type == "float64" or w.call.operand().data_type == "float64":
            features, data_type = w.add("Cast", [features], to=11), "float64"
        else:
            features = w.add("Cast", [features], to=1)
        limits = w.constant(ensemble.thresholds[nodes][None].astype(data_type), data_type)
        reached = w.add(_COMPARISONS[mode], [features, limits])
        found.append(w.add("Not", [reached]) if mode == "BRANCH_NEQ" else reached)
    flags = found[0] if len(found) == 1 else w.add("Concat", found, axis=1)
    flags = w.add("Cast", [flags], to=7)
    branches, leaves = len(ensemble.features), len(ensemble.leaves)
    last = np.arange(branches, branches + leaves)
    yes, no = (w.integers([*side.tolist(), *last.tolist()]) for side in (ensemble.yes, ensemble.no))
    place = w.integers([*position.tolist(), *[0] * leaves])
    for _ in range(ensemble.depth):
        flag = w.add("GatherElements", [flags, w.add("Gather", [place, at], axis=0)], axis=1)
        both = [w.add("Gather", [side, at], axis=0) for side in (yes, no)]
        at = w.add("Where", [w.add("Cast", [flag], to=9), *both])
    return at


# From digits to scores and labels


def _number(w: Writer, score: _Score) -> str:
    """The scores as real numbers."""
    total = ""
    for k, digit in enumerate(score.digits):
        factor = w.constant(np.float32(2.0 ** (score.bits * k - score.shift)), "float32")
        part = w.add("Mul", [w.add("Cast", [digit], to=1), factor])
        total = part if not total else w.add("Add", [total, part])
    return total


def _carried(w: Writer, score: _Score, less: int = 0) -> list[str]:
    """The digits of score - less * 2^-shift after carrying: all but the highest lie in 0 .. 2^bits - 1."""
    found, carry = [], ""
    for k, digit in enumerate(score.digits):
        own = (
            (less >> (score.bits * k)) & (2**score.bits - 1) if k < len(score.digits) - 1 else less >> (score.bits * k)
        )
        if own:
            digit = w.add("Sub", [digit, w.integers([own])])
        if carry:
            digit = w.add("Add", [digit, carry])
        if k == len(score.digits) - 1:
            found.append(digit)
            continue
        # This division must round down, so the dividend is made positive first.
        moved = w.add("Add", [digit, w.integers([2**_SUM_BITS])])
        carry = w.add("Div", [moved, w.integers([2**score.bits])])
        low = w.add("Sub", [moved, w.add("Mul", [carry, w.integers([2**score.bits])])])
        carry = w.add("Sub", [carry, w.integers([2 ** (_SUM_BITS - score.bits)])])
        found.append(low)
    return found


def _above(w: Writer, score: _Score, limit: int) -> str:
    """Whether scores are above limit * 2^-shift: integers 0 and 1 of shape [N, 1]."""
    digits = _carried(w, score, limit)
    zero = w.integers([0])
    found = w.add("Greater", [digits[-1], zero])
    for digit in digits[:-1]:
        whole = w.add("Equal", [digits[-1], zero])
        found = w.add("Or", [found, w.add("And", [whole, w.add("Greater", [digit, zero])])])
    return w.add("Cast", [found], to=7)


def _greatest(w: Writer, score: _Score) -> str:
    """The index of the greatest score, the first of equal scores: [N]."""
    kept = ""
    for digit in reversed(_carried(w, score)):
        if kept:
            digit = w.add("Where", [kept, digit, w.integers([-1])])
        most = w.add("ReduceMax", [digit, w.integers([1])], keepdims=1)
        same = w.add("Equal", [digit, most])
        kept = w.add("And", [kept, same]) if kept else same
    return w.add("ArgMax", [w.add("Cast", [kept], to=6)], axis=1, keepdims=0)


def _label(w: Writer, number: str, labels: Sequence[int] | None) -> None:
    """Write the first result: the label at index ``number``."""
    if labels is None:
        raise w.call.refuse("its labels are strings", "end the model at its scores")
    w.add("Gather", [w.integers(labels), number], w.node.outputs[0], axis=0)
