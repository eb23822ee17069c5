"""A comparison as plain data: ``cvm report --json`` prints it, and the page is made from it.

Decibels and other measures are rounded to a few digits, so that the last bits of a float64 sum, which differ between
machines, do not show. JSON has no infinity: it is the text "inf" or "-inf"; an undefined measure is null. Shares are
between 0 and 1. ``tensors`` stand worst first; ``number`` is the index of a tensor among all tensors of the model,
``order`` its index among the measured ones.
"""

from __future__ import annotations

import math
from typing import Any

from cvm.graph import GraphTensor
from cvm.ops.ranges import precision
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.report.classes import Classes
from cvm.report.comparison import Comparison, Measured
from cvm.report.constants import Stored
from cvm.report.measures import Histogram, Measures

__all__ = ["document"]


def document(comparison: Comparison) -> dict[str, Any]:
    """The report as a JSON object, without its version."""
    program, graph = comparison.verified.program, comparison.graph
    makers = {name: operation.name for operation in graph.operations for name in operation.outputs}
    orders = {item.number: order for order, item in enumerate(comparison.tensors)}
    return {
        "program": {"digest": program.digest, "nodes": len(program.nodes), "executor": comparison.executor},
        "model": {
            "name": graph.name,
            "operations": len(graph.operations),
            "document": graph.source_digest,
            "same_document": comparison.source.document,
            "compiles_to_program": comparison.source.compiled,
        },
        "samples": comparison.samples,
        "cycles": comparison.cycles,
        "outputs": list(graph.outputs),
        "tensors": [_measured(item, orders[item.number], makers) for item in comparison.worst_first()],
        "variables": [_stored(item) for item in sorted(comparison.stored, key=_stored_badness)],
        "not_materialised": _absent(comparison),
        "classes": None if comparison.classes is None else _classes(comparison.classes),
    }


def number(value: float | None, digits: int = 6) -> float | str | None:
    """A measure with ``digits`` significant digits, in the form of the JSON document."""
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.{digits}g}")


def decibel(value: float | None) -> float | str | None:
    """Decibels with three decimals, in the form of the JSON document."""
    return round(value, 3) + 0.0 if value is not None and math.isfinite(value) else number(value)


def _stored_badness(item: Stored) -> tuple[float, int]:
    return (-math.inf if item.measures.sqnr is None else item.measures.sqnr, item.number)


def _absent(comparison: Comparison) -> list[dict[str, Any]]:
    numbers = {name: number for number, name in enumerate(comparison.graph.tensors)}
    return [
        {**_tensor(item.tensor), "number": numbers[item.tensor.name], "reason": item.reason}
        for item in comparison.absent
    ]


def _tensor(tensor: GraphTensor) -> dict[str, Any]:
    return {"tensor": tensor.name, "kind": tensor.kind, "type": tensor.dtype, "shape": list(tensor.shape)}


def _measured(item: Measured, order: int, makers: dict[str, str]) -> dict[str, Any]:
    tensor, exactness = item.pair.tensor, item.pair.exactness
    lo, hi = item.pair.interval
    accumulator = None if exactness is None else exactness.accumulator
    return {
        **_tensor(tensor),
        "number": item.number,
        "order": order,
        "operation": makers.get(tensor.name),
        "value": item.pair.value,
        "sqnr_db": decibel(item.measures.sqnr),
        "drop_db": decibel(item.drop),
        "exact": None if exactness is None else exactness.bound == 0,
        "bound": None if exactness is None else str(exactness.bound),
        "interval": [lo, hi],
        "headroom": 32 - precision(lo, hi),
        "accumulator": None if accumulator is None else list(accumulator),
        "accumulator_headroom": None if accumulator is None else 64 - precision(*accumulator),
        "note": "" if exactness is None else exactness.note,
        "used": number(item.used),
        **_measures(item.measures, tensor.quantizer),
    }


def _stored(item: Stored) -> dict[str, Any]:
    return {
        **_tensor(item.tensor),
        "number": item.number,
        "sqnr_db": decibel(item.measures.sqnr),
        **_measures(item.measures, item.tensor.quantizer),
    }


def _measures(found: Measures, quantizer: Quantizer | None) -> dict[str, Any]:
    saturation = {"least": found.at_least, "greatest": found.at_greatest}
    return {
        "elements": found.elements,
        "undefined": found.undefined,
        "differing": found.differing,
        "mean_error": number(found.mean_error),
        "max_error": number(found.max_error),
        "max_error_sample": found.max_error_sample,
        "float_range": [number(end) for end in found.float_range],
        "codes": list(found.code_range),
        "saturation": None
        if quantizer is None
        else {end: number(count / found.elements) for end, count in saturation.items()},
        "clipped": None if quantizer is None else {"below": number(found.below), "above": number(found.above)},
        "quantizer": _quantizer(quantizer),
        "histogram": _histogram(found.histogram),
    }


def _quantizer(quantizer: Quantizer | None) -> dict[str, Any] | None:
    """The meaning of codes, for people; the program has the exact rationals."""
    match quantizer:
        case LinearQuantizer():
            scales = [number(float(scale)) for scale in quantizer.scale]
            offsets = [number(float(offset)) for offset in quantizer.offset]
            codes = {"lo": quantizer.lo, "hi": quantizer.hi}
            return {"kind": "linear", **codes, "axis": quantizer.axis, "scale": scales, "offset": offsets}
        case LogarithmicQuantizer():
            return {"kind": "logarithmic", "lo": quantizer.lo, "hi": quantizer.hi, "top": quantizer.top}
    return None


def _histogram(found: Histogram) -> dict[str, Any]:
    """The bins from the first nonempty one to the last."""
    filled = [i for i, pair in enumerate(zip(found.float, found.program, strict=True)) if any(pair)]
    first, last = (filled[0], filled[-1] + 1) if filled else (0, 0)
    return {
        "first": found.first + first * found.width,
        "width": found.width,
        "float": list(found.float[first:last]),
        "program": list(found.program[first:last]),
        "below": found.below,
        "above": found.above,
    }


def _classes(found: Classes) -> dict[str, Any]:
    right = found.correctness
    return {
        "output": found.output,
        "classes": found.classes,
        "runs": found.runs,
        "agreeing": found.agreeing,
        "ties": found.ties,
        "labels": None
        if right is None
        else {
            "runs": right.runs,
            "float_right": right.float_right,
            "program_right": right.program_right,
            "both": right.both,
            "float_only": right.float_only,
            "program_only": right.program_only,
            "neither": right.neither,
        },
        "confusion": [
            {"label": label, "float": float_class, "program": program_class, "runs": runs}
            for label, float_class, program_class, runs in found.confusion
        ],
        "changed": [
            {
                "sample": item.sample,
                "cycle": item.cycle,
                "label": item.label,
                "float": item.float_class,
                "program": item.program_class,
                "float_scores": [number(score) for score in item.float_scores],
                "program_scores": [number(score) for score in item.program_scores],
            }
            for item in found.changed
        ],
    }
