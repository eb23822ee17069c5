"""The node tests of the package onnx on the float reference: within a tolerance, or refused with a reason.

    python -m tools.onnx_networks.float_cases [--json]

Every node test is read as `cvm quantize` reads a model, with floats, and evaluated by `cvm.reference.Reference` in
float64. The package's expectations are float32 or coarser. A result agrees if its distance from them is at most atol +
rtol * |expected|, by `TOLERANCES` of its operator; integers and truth values must be equal. Inputs that
the reader requires to be constant are made constant.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.reference import Reference
from tools.onnx_networks.node_cases import array_of, every_case, loaded_case

PLAIN = (1e-5, 1e-6)
"""rtol and atol of float32; half precision has `HALF`."""
HALF = (2e-3, 1e-3)

TOLERANCES: Mapping[str, tuple[float, float]] = MappingProxyType({"AveragePool": (1e-5, 1e-4)})
"""rtol and atol of operators whose expectations are coarser, because they are written out with four digits."""

EXCLUDED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "test_bitshift_left_int32_negative_shift",
            "test_bitshift_left_int32_overflow",
            "test_bitshift_left_int32_shift_ge_width",
        ),
        "bits that leave the type: lowering refuses them, and the reference knows no width",
    )
    | dict.fromkeys(
        ("test_resize_downsample_scales_cubic_align_corners", "test_resize_downsample_scales_linear_align_corners"),
        "the test takes the extent of the result before it is rounded down; ONNX Runtime takes the extent, as we do",
    )
    | dict.fromkeys(
        (
            f"test_attention_{name}_bf16{expanded}"
            for name in ("3d_causal", "4d_attn_mask_causal", "4d_causal", "4d_causal_padded_kv", "4d_padded_kv")
            for expanded in ("", "_expanded")
        ),
        "the test rounds to bfloat16, of 8 bits, after every step",
    )
    | dict.fromkeys(
        (f"test_attention_4d_with_past_and_present_qk_matmul_bias_{rank}d_mask_causal_expanded" for rank in (3, 4)),
        "the test expects an infinity, for which the reference has a number below all others",
    )
)
"""Tests that are not run, and why."""


@dataclass(frozen=True, slots=True)
class FloatOutcome:
    """The outcome of a test: "near", "far", "error", "sequence", "excluded", or the code of the refusal.

    ``difference`` says by how much a result exceeds its tolerance.
    """

    name: str
    op: str
    verdict: str
    message: str = ""
    difference: float = 0.0


def examine_floats(case: Any) -> FloatOutcome:
    """Read one test, evaluate it, and compare."""
    graph = case.model.graph
    op = graph.node[0].op_type if graph.node else ""
    if case.name in EXCLUDED:
        return FloatOutcome(case.name, op, "excluded", EXCLUDED[case.name])
    if any(isinstance(value, list) for inputs, outputs in case.data_sets for value in (*inputs, *outputs)):
        return FloatOutcome(case.name, op, "sequence", "its values are sequences of tensors")
    for inputs, outputs in case.data_sets:
        data = dict(zip((value.name for value in graph.input), inputs, strict=False))
        constant: set[str] = set()
        while True:
            try:
                found = _evaluated(case.model, data, constant)
                break
            except CvmError as error:
                more = {name for name in data if f"({name!r})" in error.message} - constant
                if not more:
                    return FloatOutcome(case.name, op, error.code, error.message)
                constant |= more
            except Exception as error:  # any other exception is no refusal
                return FloatOutcome(case.name, op, "error", f"{type(error).__name__}: {error}")
        for value, given, wanted in zip(graph.output, found, outputs, strict=True):
            far = _distance(op, given, array_of(wanted))
            if far > 0:
                return FloatOutcome(case.name, op, "far", value.name, far)
    return FloatOutcome(case.name, op, "near")


def _evaluated(model: Any, data: Mapping[str, Any], constant: set[str]) -> list[npt.NDArray[Any]]:
    loaded, arrays = loaded_case(model, data, constant, floats=True)
    tensors = loaded.graph.tensors
    feeds = {name: _numbers(arrays[name]).reshape(tensors[name].shape) for name in loaded.graph.inputs}
    results = Reference(loaded.graph, pseudo_quantize=True).run(feeds)
    return [results[name] for name in loaded.graph.outputs]


def _numbers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Types of other packages (4 bits, bfloat16) and truth values, as types of NumPy."""
    if array.dtype.kind == "b" or array.dtype.name in ("int2", "uint2", "int4", "uint4"):
        return array.astype(np.int64)
    return array if array.dtype.kind in "iuf" else array.astype(np.float64)


def _distance(op: str, given: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> float:
    """The most by which a result exceeds its tolerance; 0 if no element does."""
    given = given.reshape(wanted.shape).astype(np.float64)
    expected = wanted.astype(np.float64)
    if wanted.dtype.kind in "iub":
        return float(np.abs(given - expected).max(initial=0.0))
    rtol, atol = TOLERANCES.get(op, HALF if wanted.dtype.itemsize < 4 else PLAIN)
    same = (given == expected) | (np.isnan(given) & np.isnan(expected))
    with np.errstate(all="ignore"):
        beyond = np.where(same, 0.0, np.abs(given - expected) - (atol + rtol * np.abs(expected)))
    beyond = np.where(np.isnan(beyond), np.inf, beyond)
    return max(float(beyond.max(initial=0.0)), 0.0)


def main() -> int:
    """Examine all tests and print their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line for each test")
    arguments = parser.parse_args()
    outcomes = [examine_floats(case) for case in every_case()]
    if arguments.json:
        for item in outcomes:
            print(json.dumps([item.name, item.op, item.verdict, item.message, item.difference]))
    counts = Counter(item.verdict for item in outcomes)
    for verdict, count in counts.most_common():
        print(f"{count:5} {verdict}", file=sys.stderr)
    return 1 if counts["far"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
