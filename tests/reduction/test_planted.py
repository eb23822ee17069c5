"""Failures planted in engines: every one ends in at most three operations, with at most 64 elements in each tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from cvm.reduction import Bound, opened, reduced, stacked
from cvm.reduction.network import Network
from tests.reduction.networks import FAULTS, differs, subject
from tests.selection import mostly_long

SIZES = (("cvm", 50), ("cvm", 110), ("nnef", 60), ("nnef", 190), ("onnx", 100))
CASES = [(kind, operations, fault) for fault in FAULTS for kind, operations in SIZES]
ALWAYS = [("cvm", 50, "rounding"), ("cvm", 50, "crash"), ("nnef", 60, "sign"), ("onnx", 100, "sign")]


def test_there_are_forty() -> None:
    assert len(CASES) == 40


@pytest.mark.parametrize("case", mostly_long(CASES, ALWAYS), ids=lambda case: "-".join(map(str, case)))
def test_a_planted_failure_ends_small(case: tuple[str, int, str], tmp_path: Path) -> None:
    kind, operations, name = case
    if kind == "onnx":
        pytest.importorskip("onnx")
    started = process_time()
    found = subject(kind, 3, operations, tmp_path)
    form, whole = found.form, found.drawn(2, seed=3)
    assert 50 <= sum(map(form.counts, whole.nodes)) <= 200
    every = tuple(made for node in whole.nodes for made in node.outputs if form.may_cut(made))
    whole = replace(whole, outputs=every)
    how = differs(form, whole, FAULTS[name])
    assert how == ("crash" if name == "crash" else "differs")

    def fails(smaller: Network) -> bool:
        return differs(form, smaller, FAULTS[name]) == how

    small = reduced(whole, form, fails, Bound(seconds=60), clock=process_time)
    assert small.complete
    assert fails(small.network)
    assert sum(map(form.counts, small.network.nodes)) <= 3
    form.check(small.network)
    tensors = [*form.tensors(small.network)[0].values(), *small.network.constants.values()]
    assert max(array.size for array in tensors) <= 64
    assert process_time() - started < 60
    path = tmp_path / f"small{form.suffix}"
    form.save(small.network, path)
    again = opened(path)
    assert differs(again.form, again.with_data(stacked(small.network), codes=True), FAULTS[name]) == how
