"""The cases of ../shared/openvx: equal to ``expected`` by the specification, to ``sample`` where that is integers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm import openvx as vx
from tests.frontends.openvx.cases import Case, Compat

FOLDER = Path(__file__).parents[4] / "shared" / "openvx"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/openvx is not there")

KERNELS = (
    "convolution", "fully_connected", "pooling", "softmax", "activation", "normalization", "roi_pooling",
    "deconvolution",
)  # fmt: skip
COMPATIBLE = ("convolution", "fully_connected", "pooling", "roi_pooling", "deconvolution")
OUTPUTS = {"expected", "expected_tz", "expected_ignore_pad", "sample", "cts"}


def cases(kernel: str) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    description = json.loads((FOLDER / f"{kernel}_layer.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / f"{kernel}_layer.npz") as stored:
        for case in description["cases"]:
            yield case, {name: stored[item["key"]] for name, item in case["arrays"].items()}


def built(kernel: str, case: dict[str, Any], arrays: dict[str, np.ndarray], compat: Compat = "spec") -> Case:
    operands = {name: items for name, items in arrays.items() if name not in OUTPUTS}
    found = Case(kernel, case["fmt"], case["params"], operands, arrays["expected"].shape, compat)
    for name, value in case.get("derived", {}).items():
        assert found.node.derived[name.removesuffix("_vx")] == value
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_case_is_equal_to_what_the_specification_gives(kernel: str) -> None:
    wrong = []
    for case, arrays in cases(kernel):
        found = built(kernel, case, arrays).result()
        if found.dtype != arrays["expected"].dtype or not np.array_equal(found, arrays["expected"]):
            wrong.append(case["id"])
    assert wrong == []


@pytest.mark.parametrize("kernel", COMPATIBLE)
def test_every_case_is_equal_to_what_the_sample_implementation_gives(kernel: str) -> None:
    wrong = []
    for case, arrays in cases(kernel):
        if not np.array_equal(built(kernel, case, arrays, "khronos-sample-1.3").result(), arrays["sample"]):
            wrong.append(case["id"])
    assert wrong == []


def test_relu_of_the_sample_implementation_is_equal_and_its_other_functions_are_refused() -> None:
    for case, arrays in cases("activation"):
        if case["params"]["function"] == "RELU":
            assert np.array_equal(built("activation", case, arrays, "khronos-sample-1.3").result(), arrays["sample"])
        else:
            with pytest.raises(vx.NotSupported):
                built("activation", case, arrays, "khronos-sample-1.3")


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "normalization"])
def test_all_executors_agree_on_every_case(kernel: str) -> None:
    for case, arrays in cases(kernel):
        built(kernel, case, arrays).agree()


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", COMPATIBLE)
def test_all_executors_agree_on_every_case_of_the_sample_implementation(kernel: str) -> None:
    for case, arrays in cases(kernel):
        built(kernel, case, arrays, "khronos-sample-1.3").agree()


def test_all_executors_agree_on_some_normalisations() -> None:
    """Programs of some hundred nodes: the long test has them all."""
    for case, arrays in list(cases("normalization"))[::7]:
        built("normalization", case, arrays).agree()


@pytest.mark.long
def test_all_executors_agree_on_every_normalisation() -> None:
    for case, arrays in cases("normalization"):
        built("normalization", case, arrays).agree()


def test_skips_follow_from_sizes() -> None:
    table = json.loads((FOLDER / "skip_from_output_size.json").read_text(encoding="utf-8"))
    assert len(table) > 100
    for row in table:
        rounding = getattr(vx, f"NN_DS_SIZE_ROUNDING_{row['rounding']}")
        found = vx.skip_of(row["input"], row["output"], row["kernel"], row["padding"], rounding, row["dilation"])
        assert found == row["skip"] == row["sample"], row
