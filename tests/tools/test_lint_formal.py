from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LINT = Path(__file__).parents[2] / "tools" / "lint_formal.py"


def lint(*arguments: str) -> tuple[int, list[str]]:
    result = subprocess.run([sys.executable, LINT, *arguments], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import numpy", "import of numpy"),
        ("import numpy.typing as npt", "import of numpy.typing"),
        ("import math", "import of math"),
        ("from math import floor", "import of floor from math"),
        ("from operator import truediv", "import of truediv from operator"),
        ("from random import random", "import of random from random"),
        ("from fractions import Fraction", "import of Fraction from fractions"),
        ("from cvm.program import model", "import of model from cvm.program"),
        ("from cvm.errors import Mismatch", "import of Mismatch from cvm.errors"),
        ("from cvm.program.model_codec import decode", "import of decode from cvm.program.model_codec"),
        ("from .tensor import Tensor", "relative import"),
        ("x = 1 / 2", "true division (use //)"),
        ("x = 1\nx /= 2", "true division (use //)"),
        ("x = 0.5", "literal 0.5"),
        ("x = 1e9", "literal 1000000000.0"),
        ("x = 1j", "literal 1j"),
        ("x = 2 ** -1", "negative exponent"),
        ("x = float('1')", "float: makes floats"),
        ("def f(x: float) -> None: ...", "float: makes floats"),
        ("x = round(3)", "round: rounds by a rule of its own"),
        ("x = hash(3)", "hash: depends on the process"),
        ("x = sorted([], key=id)", "id: depends on the process"),
        ("for x in {1, 2}: pass", "set: has no order"),
        ("x = {i for i in range(3)}", "set: has no order"),
        ("x = set([1])", "set: has no order"),
        ("x = frozenset([1])", "frozenset: has no order"),
        ("x = eval('1/2')", "eval: escapes this check"),
        ("x = __import__('numpy')", "__import__: escapes this check"),
        ("x = (1).__truediv__(2)", "__truediv__: a way round this check"),
    ],
)
def test_a_violation_is_reported_with_file_and_line(tmp_path: Path, source: str, what: str) -> None:
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "bad.py"
    file.write_text(f'"""Text with a / and 0.5 is fine."""\n\n{source}\n')
    code, lines = lint(str(tmp_path))
    assert code == 1
    assert len(lines) == 1
    location, _, message = lines[0].partition(": ")
    assert location in (f"{file}:3", f"{file}:4")
    assert message == what


def test_integers_and_the_allowed_imports_pass(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "from __future__ import annotations\n"
        "from collections.abc import Callable\n"
        "from itertools import product\n"
        "from math import prod\n"
        "from operator import index\n"
        "from cvm.program.model import Node\n"
        "from formal.tensor import Tensor\n"
        "x = 7 // 2 % 2 + 2**3 - (-1)\n"
        "x //= 2\n"
        "y = {'a': 1}\n"
    )
    assert lint(str(tmp_path)) == (0, [])


def test_a_folder_without_sources_fails(tmp_path: Path) -> None:
    assert lint(str(tmp_path))[0] == 1


def test_formal_is_clean() -> None:
    assert lint() == (0, [])
