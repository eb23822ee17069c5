from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).parents[2] / "tools" / "lint_arithmetic.py"

HEAD = """
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import holding, require_fits
from cvm.executors.native.exact import Exact, exact
from cvm.ops.ranges import Range

Integers = npt.NDArray[Any]
Reals = npt.NDArray[np.float64]
"""
RANGES = "import numpy.typing as npt\n\nclass Range:\n    lo: npt.NDArray\n"
EXACT = "class Exact:\n    pass\n\ndef exact(values: object) -> Exact:\n    return Exact()\n"


def lint(*arguments: str) -> tuple[int, list[str]]:
    result = subprocess.run([sys.executable, LINT, *arguments], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


def lint_one(root: Path, source: str, path: str = "cvm/part.py") -> list[str]:
    """What is found in a module, each with the number of its line after the head."""
    for name, text in (("cvm/ops/ranges.py", RANGES), ("cvm/executors/native/exact.py", EXACT), (path, HEAD + source)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    code, lines = lint(str(root))
    assert code == (1 if lines else 0)
    location, skipped = f"{root / path}:", HEAD.count("\n")
    # The tables list functions of `ranges` that this one does not have.
    found = [line.removeprefix(location).partition(": ") for line in lines if line.startswith(location)]
    return [f"{int(number) - skipped}: {what.partition(',')[0]}" for number, _, what in found]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("a + 1", "+"),
        ("1 - a", "-"),
        ("2 * a", "*"),
        ("a << 3", "<<"),
        ("a // 3", "//"),
        ("a % 3", "%"),
        ("2 ** a", "**"),
        ("a @ a", "@"),
        ("-a", "-"),
        ("abs(a)", "abs"),
        ("sum(a)", "sum"),
        ("np.abs(a)", "np.abs"),
        ("np.negative(a)", "np.negative"),
        ("np.multiply(a, 3)", "np.multiply"),
        ("np.add.reduce(a)", "np.add"),
        ("np.matmul(a, a)", "np.matmul"),
        ("np.einsum('i,i', a, a)", "np.einsum"),
        ("np.cumsum([a, a])", "np.cumsum"),
        ("a.sum(axis=0)", ".sum"),
        ("a.cumsum()", ".cumsum"),
        ("a.prod(dtype=np.int64)", ".prod"),
        ("a.dot(a)", ".dot"),
        ("a.astype(np.int8)", ".astype(np.int8)"),
        ("a.astype('<i4')", ".astype('<i4')"),
        ("np.asarray(a, np.int32)", "np.asarray as np.int32"),
        ("np.ascontiguousarray(a, dtype=np.uint8)", "np.ascontiguousarray as np.uint8"),
        ("a[0] + 1", "+"),
        ("a.T.reshape(-1)[::2] + 1", "+"),
        ("a.astype(np.int64) + 1", "+"),
        ("np.arange(4) * 3", "*"),
        ("np.zeros(4, np.int64) + 1", "+"),
        ("np.full((2, 2), 7) + 1", "+"),
        ("np.minimum(a, 3) + 1", "+"),
        ("np.where(a > 0, a, 0) + 1", "+"),
        ("(a if a.size else a) + 1", "+"),
        ("[item + 1 for item in a]", "+"),
        ("[item + 1 for item, _ in zip([a], [1])]", "+"),
        ("r.lo + 1", "+"),
        ("[one.lo + 1 for one in call.ranges]", "+"),
        ("r.monotone(lambda bounds: bounds * 2)", "*"),
        ("constant.array() + 1", "+"),
        ("constant.stored() + 1", "+"),
        ("given() + 1", "+"),
        ("holder.items + 1", "+"),
        ("exact(a).int64() + 1", "+"),
    ],
)
def test_arithmetic_of_fixed_width_is_reported_with_its_location(tmp_path: Path, expression: str, what: str) -> None:
    source = (
        "def given() -> Integers: ...\n"
        "class Holder:\n    items: Integers\n"
        "def f(a: Integers, r: Range, call: Any, constant: Any, holder: Holder) -> object:\n"
        f"    return {expression}\n"
    )
    assert lint_one(tmp_path, source) == [f"5: {what} of fixed width in f"]


@pytest.mark.parametrize(
    "statement",
    [
        "b = a\n    b += 1",
        "for b in [a]:\n        b -= 1",
        "b, c = a, 1\n    b *= c",
        "if (b := a).size:\n        b <<= 1",
    ],
)
def test_names_are_followed(tmp_path: Path, statement: str) -> None:
    (line,) = lint_one(tmp_path, f"def f(a: Integers) -> None:\n    {statement}\n")
    assert line.endswith("= of fixed width in f")


@pytest.mark.parametrize(
    "expression",
    [
        "n + 1",
        "int(a[0]) * n",
        "a.size * n",
        "a / 3",
        "a >> 3",
        "a & 255",
        "(a > 3).sum()",
        "a.astype(object) * n",
        "a.astype(np.float64) * 3",
        "np.zeros(4) + 1",
        "x * 2.0",
        "a.tolist() + [1]",
        "e * 2 + a",
        "exact(a) << 3",
        "'-' + ', '.join(map(str, a))",
        "a.astype(np.int64)",
        "np.asarray(a, object) + 1",
    ],
)
def test_what_cannot_wrap_is_not_reported(tmp_path: Path, expression: str) -> None:
    source = f"def f(a: Integers, n: int, x: Reals, e: Exact) -> object:\n    return {expression}\n"
    assert lint_one(tmp_path, source) == []


@pytest.mark.parametrize("guard", ["require_fits(9, 63, 'a')", "b = holding(a, 9)"])
def test_a_bound_must_be_checked_before(tmp_path: Path, guard: str) -> None:
    before = f"def f(a: Integers) -> object:\n    {guard}\n    return a + 1\n"
    assert lint_one(tmp_path, before) == []
    after = f"def f(a: Integers) -> object:\n    b = a + 1\n    {guard}\n    return b\n"
    assert lint_one(tmp_path, after) == ["2: + of fixed width in f"]


def test_a_bound_may_be_checked_where_a_kernel_is_planned(tmp_path: Path) -> None:
    source = (
        "def plan(n: int) -> object:\n"
        "    require_fits(n, 31, 'a')\n"
        "    def run(a: Integers) -> object:\n"
        "        return a + 1\n"
        "    return run\n"
        "def other(a: Integers) -> object:\n"
        "    return a + 1\n"
    )
    assert lint_one(tmp_path, source) == ["7: + of fixed width in other"]


def test_what_the_tables_list_stands_as_long_as_it_is_needed(tmp_path: Path) -> None:
    path = "cvm/executors/numpy/blocks.py"
    listed = "cvm/executors/native/plan/view.py"
    source = "class View:\n    def positions(self, a: Integers) -> object:\n        return {}\n"
    assert lint_one(tmp_path, source.format("a + 1"), path) == ["3: + of fixed width in View.positions"]
    (tmp_path / path).unlink()
    assert lint_one(tmp_path, source.format("a + 1"), listed) == []
    (line,) = lint_one(tmp_path, source.format("a"), listed)
    assert line.endswith("tools/arithmetic_places.py lists View.positions")


def test_the_module_that_computes_exactly_is_trusted(tmp_path: Path) -> None:
    assert lint_one(tmp_path, "def f(a: Integers) -> object:\n    return a + 1\n", "cvm/bounds.py") == []


def test_a_folder_without_sources_fails(tmp_path: Path) -> None:
    assert lint(str(tmp_path))[0] == 1
