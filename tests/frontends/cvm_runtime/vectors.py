"""The op vectors of the C++ library in its own terms: one file per op."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from tests.vectors_cvm_runtime.mapping import FOLDER

__all__ = ["OPS", "vectors"]

OPS = sorted(file.stem for file in FOLDER.glob("*.json"))
"""The ops that have vectors; none where they are not there."""

Vector = tuple[dict[str, Any], list[Any], list[Any]]


@cache
def vectors(op: str) -> list[Vector]:
    """The vectors of an op: the record of each, its inputs and outputs."""
    file = FOLDER / f"{op}.json"
    with np.load(file.with_suffix(".npz"), allow_pickle=False) as arrays:
        return [
            (
                case,
                [arrays[f"{case['id']}_in{i}"] for i in range(case["inputs"])],
                [arrays[f"{case['id']}_out{i}"] for i in range(case["outputs"])],
            )
            for case in json.loads(file.read_text("utf-8"))["cases"]
        ]
