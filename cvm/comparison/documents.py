"""A comparison as a JSON document, which is also what tables and pages are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.comparing import Compared, Disagreement, agreement, disagreements
from cvm.comparison.explaining import Example, Explanation
from cvm.comparison.model import Model
from cvm.comparison.rewriting import Search

__all__ = ["document"]


def document(
    model: Model,
    runs: Sequence[Compared],
    explanations: Sequence[Sequence[Explanation]] | None,
    labels: npt.NDArray[Any] | None,
    searches: Sequence[Search | None] | None = None,
) -> dict[str, Any]:
    """All that was found: the model, each engine, and how the engines differ from each other."""
    found: dict[str, Any] = {
        "model": {"path": str(model.path), "format": model.kind, "tensors": len(model.places)},
        "samples": runs[0].samples,
        "engines": [_engine(run, labels) for run in runs],
    }
    if explanations is not None:
        for engine, items in zip(found["engines"], explanations, strict=True):
            engine["explanations"] = [_explanation(item) for item in items]
            engine["explained"] = sum(item.explained for item in items)
    for engine, search in zip(found["engines"], searches or [], strict=False):
        engine["rewrites"] = None if search is None else _search(search)
    found["disagreements"] = [_disagreement(item) for item in disagreements([run.shown for run in runs])]
    if len(runs) > 1:
        found["between"] = {name: count for name, count in agreement([run.shown for run in runs]).items() if count}
    found["exact"] = not any(engine["total"] for engine in found["engines"])
    return found


def _engine(run: Compared, labels: npt.NDArray[Any] | None) -> dict[str, Any]:
    return {
        "setting": run.shown.setting.label,
        "package": run.shown.package,
        "codes": sum(item.total.of for item in run.tensors),
        "own": sum(item.own.differ for item in run.tensors),
        "total": sum(item.total.differ for item in run.tensors),
        "first": None if run.first is None else run.first.name,
        "changed_by_showing": {name: count for name, count in run.shown.changed.items() if count},
        "hidden": dict(run.shown.hidden),
        "classes": _classes(run, labels),
        "tensors": [
            {
                "tensor": item.name,
                "operators": [operator.label for operator in item.operators],
                "own": item.own.to_json(),
                "total": item.total.to_json(),
            }
            for item in run.tensors
        ],
    }


def _classes(run: Compared, labels: npt.NDArray[Any] | None) -> dict[str, Any]:
    """The classes by the last tensor: how many are not those of the exact codes, and how many are right."""
    engine, exact = np.array(run.classes, np.int64).reshape(-1, 2).T
    found: dict[str, Any] = {"tensor": run.tensors[-1].name, "changed": int((engine != exact).sum())}
    if labels is not None:
        found |= {"right": int((engine == labels).sum()), "right_exactly": int((exact == labels).sum())}
    return found


def _explanation(item: Explanation) -> dict[str, Any]:
    return {
        "tensor": item.name,
        "differ": item.differ,
        "model": item.model or None,
        "source": item.source or None,
        "explained": item.explained,
        "left": item.left,
        "astray": item.astray,
        "example": None if item.example is None else _example(item.example),
    }


def _example(item: Example) -> Mapping[str, Any]:
    return {
        "sample": item.sample,
        "index": list(item.index),
        "engine": item.engine,
        "exact": item.exact,
        "exact_result_in_steps": item.exactly,
        "zero_point": item.zero,
        "stages": [{"what": words, "value": value} for words, value in item.stages],
    }


def _disagreement(item: Disagreement) -> dict[str, Any]:
    return {
        "engine": item.engine,
        "groups": [list(group) for group in item.groups],
        "tensors": dict(item.tensors),
        "outputs": dict(item.outputs),
    }


def _search(search: Search) -> dict[str, Any]:
    return {
        "levels": [
            {
                "level": item.level,
                "own": item.own,
                "outputs": item.outputs,
                "of": item.of,
                "dropped": list(item.dropped),
                "new": list(item.new),
            }
            for item in search.levels
        ],
        "rewritten": [
            {
                "tensor": item.name,
                "exact_at": item.exact_at,
                "level": item.level,
                "differ": item.differ,
                "operator": item.operator or None,
            }
            for item in search.rewritten
        ],
        "drops": [
            {"tensor": item.name, "level": item.level, "before": item.before, "after": item.after}
            for item in search.drops
        ],
    }
