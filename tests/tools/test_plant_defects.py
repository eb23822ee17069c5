"""Planted defects: the table fits the sources, mutants are programs, and each verdict is given for its reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cvm.executors.native.runtime.select import available
from cvm.program import Output, ProgramBuilder, verify
from tools.plant_defects import CHECKER, CRASHED, NOTHING, REHEARSAL, TRIAL, WRONG, events, table, verdict

from tools.planted.defect import MODULES, Defect, source  # isort: skip - after the paths that plant_defects sets
from tools.planted.drawn import drawn, mutants  # isort: skip
from tools.planted.samples import kept, sample  # isort: skip
from tools.planted.table import KINDS, scripted  # isort: skip

DONE = ("done", "", "")


def test_every_scripted_defect_stands_in_the_sources() -> None:
    found = scripted()
    assert len(found) == len({defect.name for defect in found}) >= 60
    counts = Counter(defect.kind for defect in found)
    assert counts.keys() == set(KINDS)
    assert min(counts.values()) >= 6
    for defect in found:
        assert defect.module in MODULES
        assert defect.text != source(defect.module)
        compile(defect.text, defect.name, "exec")


@pytest.mark.parametrize("old", ["there is no such snippet", "return"])
def test_a_snippet_must_stand_there_once(old: str) -> None:
    with pytest.raises(ValueError, match="occurrences instead of one"):
        Defect.scripted("wrap", "requantize", old, "other")


def test_drawn_defects_are_programs_and_the_same_for_a_seed() -> None:
    found = drawn(12, 7, "generic")
    assert found == drawn(12, 7, "generic")
    assert {defect.name for defect in found} != {defect.name for defect in drawn(12, 8, "generic")}
    for defect in found:
        assert defect.module != "tiles"
        compile(defect.text, defect.name, "exec")
        assert defect.text != Defect("", "", defect.module, source(defect.module)).text


def test_words_and_costs_are_not_mutated() -> None:
    names = [name for module in ("contractions", "planner", "reductions") for name, _, _ in mutants(module)]
    assert len(names) > 500
    assert not [name for name in names if "0.14" in name or "math.prod(a.pool_size)" in name or "1e" in name]
    assert any(name.startswith("contractions._calls: ") for name in names)
    assert not any("len(shifts) > 1" in name for name in names)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([DONE], NOTHING),
        ([], CRASHED),
        ([("passed", "the trial", "")], CRASHED),
        ([("trial", "matrix product", "why"), DONE], TRIAL),
        ([("refused", "p", "the plan is not proven: x"), DONE], CHECKER),
        ([("refused", "p", "x came out otherwise when the code was tried"), DONE], REHEARSAL),
        ([("refused", "p", "the plan is not proven: x"), ("wrong", "q", "y")], WRONG),
        ([("crashed", "p", "KeyError"), DONE], CRASHED),
    ],
)
def test_the_verdict_is_that_of_the_first_who_noticed(found: list[tuple[str, str, str]], expected: str) -> None:
    assert verdict(found)[0] == expected


def test_the_table_counts_by_class() -> None:
    lines = [{"kind": "wrap", "verdict": TRIAL, "unguarded": "changed"}, {"kind": "drawn", "verdict": NOTHING}]
    head, *rows = table(lines).splitlines()
    assert head.split("  ")[0] == "class"
    assert [row.split()[0] for row in rows] == ["wrap", "drawn", "all"]
    assert rows[-1].split()[1:3] == ["2", "1"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small network: a convolution, its codes and a clip of something else."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 5, 3, 3), -100, 100)
    (sums,) = builder.add("conv2d", [x, builder.constant(np.arange(90).reshape(2, 5, 3, 3) - 40)])
    parameters = [builder.parameter(np.full(1, n)) for n in (2**20 + 1, 5, 30)]
    (codes,) = builder.add("requantize", [sums, *parameters], {"lo": -128, "hi": 127, "rounding": "half_up"})
    (clipped,) = builder.add("clip", [x], {"a_min": -3, "a_max": 50})
    path = tmp_path_factory.mktemp("samples") / "tiny"
    kept(path, [sample("tiny", verify(builder.build([Output("y", codes), Output("z", clipped)])), 3)])
    return path


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        ("homes", "FIRST = 2**16", "FIRST = 2**17", NOTHING),
        ("contractions", "bias - total * stored, below", "bias - total * stored + 1, below", CHECKER),
        ("homes", '"""Record that a step uses the buffer."""', "raise RuntimeError(step)", CRASHED),
        ("formula", 'code.intrinsic("smax", values[0], lo), hi)', "values[0], hi)", REHEARSAL),
        (
            "executor",
            "return RunResult(results, {})",
            "return RunResult({k: -v for k, v in results.items()}, {})",
            WRONG,
        ),
    ],
)
def test_each_verdict(tiny: Path, module: str, old: str, new: str, expected: str) -> None:
    found = events(Defect.scripted("", module, old, new), tiny, available()[-1].name, ["--no-trial"], 100)
    assert verdict(found)[0] == expected


@pytest.mark.long
def test_the_trial_refuses_and_without_the_guards_a_byte_changes(tiny: Path) -> None:
    defect = Defect.scripted("clip", "formula", 'code.intrinsic("smax", values[0], lo), hi)', "values[0], hi)")
    machine = available()[-1].name
    assert verdict(events(defect, tiny, machine, [], 100))[0] == TRIAL
    assert "changed" in {event[0] for event in events(defect, tiny, machine, ["--unguarded"], 100)}
