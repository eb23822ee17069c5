"""Decision-tree ensembles as checked tables, from the attributes of a node; leaf weights are split into exact digits.

Source: ONNX-ML, TreeEnsemble (version 5), TreeEnsembleRegressor and TreeEnsembleClassifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.onnx.call import OnnxCall
from cvm.records import dataclass

__all__ = ["MODES", "Ensemble", "digits_of", "features_of", "newer_ensemble", "older_ensemble"]

Integers = npt.NDArray[np.int64]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEAF = "LEAF"
_MOST_NODES = 2**20


@dataclass(frozen=True, eq=False, slots=True)
class Ensemble:
    """Trees whose branches have the indices 0 to M - 1 and whose leaves have the indices from M on.

    ``features``, ``thresholds``, ``modes`` and the children ``yes`` and ``no`` have one item per branch; ``roots``
    holds the index of the root of each tree, ``leaves`` a row per leaf with one weight for each target.
    """

    features: Integers
    thresholds: npt.NDArray[np.float64]
    modes: tuple[str, ...]
    yes: Integers
    no: Integers
    roots: Integers
    leaves: npt.NDArray[np.float64]
    depth: int


def features_of(call: OnnxCall) -> int:
    """The extent of the last axis of the input, which must have one or two axes. Raises `Invalid`."""
    shape = call.operand().shape
    if len(shape) not in (1, 2):
        raise call.invalid("shape", f"the input must have one or two axes, found {list(shape)}")
    return shape[-1]


def _numbers(call: OnnxCall, name: str) -> npt.NDArray[np.float64] | None:
    """A list of floats, given as an attribute of floats or as a tensor."""
    tensor = call.tensor(f"{name}_as_tensor")
    plain = call.numbers(name)
    found = tensor.values.astype(np.float64).ravel() if tensor is not None else plain
    if found is None:
        return None
    items = np.asarray(found, np.float64)
    if not np.isfinite(items).all():
        raise call.refuse(f"attribute {name} holds a NaN or an infinity, which is no real number")
    return items


def _integers(call: OnnxCall, name: str, count: int | None = None) -> Integers:
    found = call.integers(name)
    if found is None or (count is not None and len(found) != count):
        wanted = "" if count is None else f" with {count} items"
        raise call.invalid("attribute", f"attribute {name} must be a list of integers{wanted}")
    if any(not -(2**31) <= item < 2**31 for item in found):
        raise call.invalid("attribute", f"attribute {name} holds an integer beyond 32 bits")
    return np.array(found, np.int64)


def older_ensemble(call: OnnxCall, what: str, targets: int) -> Ensemble:
    """The ensemble of a TreeEnsembleRegressor (``what`` is "target") or a TreeEnsembleClassifier ("class")."""
    tree = _integers(call, "nodes_treeids")
    count = len(tree)
    node = _integers(call, "nodes_nodeids", count)
    texts = call.texts("nodes_modes")
    values = _numbers(call, "nodes_values")
    call.ignore("nodes_hitrates", "nodes_hitrates_as_tensor", "nodes_missing_value_tracks_true")
    if not 1 <= count <= _MOST_NODES or texts is None or len(texts) != count or values is None or len(values) != count:
        raise call.invalid(
            "attribute", "the attributes nodes_... must have one item for each node, and there must be one"
        )
    keys = list(zip(tree.tolist(), node.tolist(), strict=True))
    number: dict[tuple[int, int], int] = {}
    branches = [i for i in range(count) if texts[i] != _LEAF]
    leaves = [i for i in range(count) if texts[i] == _LEAF]
    for order, i in enumerate([*branches, *leaves]):
        if number.setdefault(keys[i], order) != order:
            raise call.invalid("attribute", f"node {keys[i][1]} of tree {keys[i][0]} is given twice")
    children = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        ids = _integers(call, name, count)
        found = [number.get((int(tree[i]), int(ids[i]))) for i in branches]
        if None in found:
            raise call.invalid("attribute", f"attribute {name} names a node that its tree does not have")
        children.append(np.array(found, np.int64))
    weights = np.zeros((len(leaves), targets))
    others = [_integers(call, f"{what}_{name}") for name in ("treeids", "nodeids", "ids")]
    factors = _numbers(call, f"{what}_weights")
    if factors is None or len({len(factors), *map(len, others)}) != 1:
        raise call.invalid("attribute", f"the attributes {what}_... must have equal numbers of items")
    for (one, two, target), weight in zip(zip(*(item.tolist() for item in others), strict=True), factors, strict=True):
        row = number.get((one, two), -1) - len(branches)
        if row < 0 or not 0 <= target < targets:
            raise call.invalid("attribute", f"node {two} of tree {one} is no leaf, or {target} is none of {targets}")
        weights[row, target] += weight
    inner = set(children[0].tolist()) | set(children[1].tolist())
    roots = [number[keys[i]] for i in range(count) if number[keys[i]] not in inner]
    if len(roots) != len(set(tree.tolist())):
        raise call.invalid("attribute", "every tree must have exactly one root")
    features = _integers(call, "nodes_featureids", count)[branches]
    return _checked(
        call, features, values[branches], tuple(texts[i] for i in branches), children, sorted(roots), weights
    )  # fmt: skip


def newer_ensemble(call: OnnxCall, targets: int) -> Ensemble:
    """The ensemble of a TreeEnsemble of version 5."""
    features = _integers(call, "nodes_featureids")
    count = len(features)
    splits, modes, weights = (call.tensor(name) for name in ("nodes_splits", "nodes_modes", "leaf_weights"))
    call.ignore("nodes_hitrates", "nodes_missing_value_tracks_true")
    if splits is None or modes is None or weights is None or not 1 <= count <= _MOST_NODES:
        raise call.invalid("attribute", "the attributes nodes_splits, nodes_modes and leaf_weights must be given")
    if splits.values.size != count or modes.values.size != count:
        raise call.invalid("attribute", "the attributes nodes_... must have one item for each node")
    numbers = [int(item) for item in modes.values.ravel()]
    if any(not 0 <= item < len(MODES) for item in numbers):
        raise call.refuse("a node tests for a member of a set", "write it as several nodes that compare")
    ids = _integers(call, "leaf_targetids", weights.values.size)
    factors = weights.values.astype(np.float64).ravel()
    if not np.isfinite(splits.values).all() or not np.isfinite(factors).all():
        raise call.refuse("a threshold or a weight is a NaN or an infinity, which is no real number")
    if ids.size and not 0 <= ids.min() <= ids.max() < targets:
        raise call.invalid("attribute", f"leaf_targetids names a target that is none of {targets}")
    leaves = np.zeros((len(ids), targets))
    leaves[np.arange(len(ids)), ids] = factors
    children = []
    for side in ("true", "false"):
        where = _integers(call, f"nodes_{side}nodeids", count).tolist()
        flags = _integers(call, f"nodes_{side}leafs", count).tolist()
        if any(not 0 <= i < (len(leaves) if leaf else count) for i, leaf in zip(where, flags, strict=True)):
            raise call.invalid("attribute", f"nodes_{side}nodeids names a node or a leaf that does not exist")
        ends = [i + count if leaf else i for i, leaf in zip(where, flags, strict=True)]
        children.append(np.array(ends, np.int64))
    roots = _integers(call, "tree_roots")
    if roots.size == 0 or not 0 <= roots.min() <= roots.max() < count:
        raise call.invalid("attribute", "tree_roots names a node that does not exist")
    values = splits.values.astype(np.float64).ravel()
    return _checked(call, features, values, tuple(MODES[i] for i in numbers), children, roots.tolist(), leaves)


def _checked(
    call: OnnxCall,
    features: Integers,
    thresholds: npt.NDArray[np.float64],
    modes: tuple[str, ...],
    children: Sequence[Integers],
    roots: Sequence[int],
    leaves: npt.NDArray[np.float64],
) -> Ensemble:
    """The ensemble, after a check that every tree ends. Raises `Invalid`, and `Unsupported` for an unknown mode."""
    width = features_of(call)
    unknown = sorted(set(modes) - set(MODES))
    if unknown:
        raise call.refuse(f"a node has the mode {unknown[0]}, which is not computed", "write it as nodes that compare")
    if features.size and not 0 <= features.min() <= features.max() < width:
        raise call.invalid("attribute", f"nodes_featureids names a feature that is none of {width}")
    branches, depth = len(features), 0
    level = np.unique(np.array(roots, np.int64))
    while (level := level[level < branches]).size:
        depth += 1
        if depth > branches:
            raise call.invalid("attribute", "a branch of a tree leads back to a node above it")
        level = np.unique(np.concatenate([children[0][level], children[1][level]]))
    return Ensemble(features, thresholds, modes, children[0], children[1], np.array(roots, np.int64), leaves, depth)


def digits_of(items: npt.NDArray[Any], bits: int) -> tuple[list[Integers], int]:
    """Floats as sums of digit * 2^(bits * k - shift), digits in -2^(bits - 1) .. 2^(bits - 1); returns digits and
    shift.
    """
    numbers = [Fraction(item) for item in items.ravel().tolist()]
    shift = max([item.denominator.bit_length() - 1 for item in numbers], default=0)
    rest = [int(item * 2**shift) for item in numbers]
    found: list[Integers] = []
    while any(rest) or not found:
        low = [(item + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for item in rest]
        found.append(np.array(low, np.int64).reshape(items.shape))
        rest = [(item - digit) >> bits for item, digit in zip(rest, low, strict=True)]
    return found, shift
