"""The fuzzers: short runs of each, and that they find, keep and make small what is wrong."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from cvm.errors import Invalid
from cvm.frontends.nnef.checker import Findings
from cvm.frontends.nnef.faults import exhaustion
from cvm.frontends.nnef.parser import parse_document
from cvm.frontends.nnef.propagation import propagate
from cvm.frontends.nnef.provisional import check_text
from tools.fuzz import (
    archives,
    arguments,
    documents,
    models,
    onnx_models,
    programs,
    quantization,
    receipt_tool,
    receipts,
    steps,
    tensors,
    tflite_models,
    vector_consumer,
)
from tools.fuzz.grammar import document
from tools.fuzz.harness import ADDRESS_SPACE, Fuzzer, examine, minimise, run
from tools.fuzz.mutation import enlarged_tree, packed_tree

FUZZERS = [
    documents.FUZZER, arguments.FUZZER, tensors.FUZZER, archives.FUZZER, quantization.FUZZER, programs.FUZZER,
    receipts.FUZZER, receipt_tool.FUZZER, steps.FUZZER, models.FUZZER, onnx_models.FUZZER,
    tflite_models.FUZZER,
    vector_consumer.FUZZER,
]  # fmt: skip
ROOT = Path(__file__).parents[2]
COUNT = 100
"""Cases of a short run; a long one has 20,000."""


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.module.rpartition(".")[2])
def test_a_short_run_finds_nothing_and_reaches_valid_cases(fuzzer: Fuzzer, tmp_path: Path) -> None:
    outcome = run(fuzzer, seed=1, count=COUNT, failures=tmp_path)
    assert outcome.failures == []
    assert outcome.cases == COUNT
    assert sum(count for word, count in outcome.counters.items() if word.startswith("valid")) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.module.rpartition(".")[2])
def test_a_long_run_finds_nothing(fuzzer: Fuzzer) -> None:
    assert run(fuzzer, seed=2, count=20_000).failures == []


@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.module.rpartition(".")[2])
def test_a_case_is_made_from_its_seed_and_number_alone(fuzzer: Fuzzer) -> None:
    cases = [fuzzer.case(7, number) for number in range(20)]
    assert cases == [fuzzer.case(7, number) for number in range(20)]
    assert len(set(cases)) > 10
    assert cases != [fuzzer.case(8, number) for number in range(20)]


def test_most_generated_documents_are_valid_before_they_are_damaged() -> None:
    valid = 0
    for seed in range(100):
        findings = Findings()
        propagate(parse_document(document(random.Random(seed))), findings)
        valid += not findings
    assert valid > 60


def test_most_generated_provisional_documents_are_valid() -> None:
    valid = 0
    for seed in range(100):
        try:
            valid += bool(check_text(document(random.Random(seed), provisional=True)))
        except Invalid:
            continue
    assert valid > 60


def test_documents_that_are_not_the_same_are_told_apart() -> None:
    first, second = (f"version 1.0; graph g(x)->(y) {{ x = external(shape = [{n}]); y = relu(x); }}" for n in (1, 2))
    assert documents.same(parse_document(first), parse_document(first.replace(" ", "\n ")))
    assert not documents.same(parse_document(first), parse_document(second))
    assert not documents.same(parse_document(first), parse_document(first.replace("relu", "neg")))


def bug(case: bytes) -> str:
    """What the fuzzer of these tests examines: there is one case of each kind of failure."""
    if case.startswith(b"large"):
        return str(len(bytearray(2 * ADDRESS_SPACE)))
    if b"needle" in case:
        return {}[case]  # type: ignore[return-value]
    if case.startswith(b"refused"):
        raise Invalid("test.rule", "no")
    if case.startswith(b"full"):
        with exhaustion("file"):
            raise MemoryError
    if case.startswith(b"deep"):
        with exhaustion("file"):
            raise RecursionError
    return "fine"


def test_exceptions_outside_of_the_hierarchy_are_failures_and_others_are_not() -> None:
    fuzzer = Fuzzer("none", lambda random_: b"", bug)
    assert examine(fuzzer, b"refused") == ("Invalid", None)
    assert examine(fuzzer, b"fine") == ("fine", None)
    assert examine(fuzzer, b"full")[0] == "failure: limit.memory"
    assert examine(fuzzer, b"deep")[0] == "failure: limit.stack"
    word, report = examine(fuzzer, b"a needle")
    assert word == "failure: KeyError in test_fuzz.py:bug"
    assert report is not None
    assert "KeyError" in report


SLOW = """
from itertools import count
from tools.fuzz import harness
harness.SECONDS = 0.05
endless = harness.Fuzzer("none", lambda random_: b"", lambda case: str(next(n for n in count() if n < 0)))
print(harness.examine(endless, b"")[0])
"""


def test_a_case_that_takes_too_long_is_a_failure() -> None:
    """In a process of its own: the signal may go to any thread, and some libraries make threads with small stacks."""
    found = subprocess.run([sys.executable, "-c", SLOW], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("failure: more than")


def test_a_failure_is_made_small() -> None:
    case = b"\n".join(b"line %d" % number for number in range(50)) + b" hay needle hay\n" + b"more\n" * 50
    assert minimise(case, lambda shorter: b"needle" in shorter) == b"needle"
    assert minimise(case, lambda shorter: b"needle" in shorter, tries=0) == case


WORKER = """
import itertools
import sys
from tools.fuzz import harness
from tools.fuzz.harness import Fuzzer, main
from tests.tools.test_fuzz import bug
CASES = (b"fine", b"refused", b"hay needle hay", b"large", b"fine")
def examine(case):
    import os
    if case == b"loop":
        harness.SECONDS, harness._GRACE = 0.0, 0
        harness._allow_time()
        sum(itertools.count())
    return os._exit(3) if case == b"die" else bug(case)
class Numbered(Fuzzer):
    def case(self, seed, number):
        return (*CASES, b"die", b"fine", b"loop", b"fine")[number]
sys.exit(main(Numbered("fuzz_of_bugs", lambda random_: b"", examine)))
"""


def test_a_run_keeps_its_failures_and_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "fuzz_of_bugs.py").write_text(WORKER)
    command = [sys.executable, "-m", "fuzz_of_bugs", "--count", "9", "--failures", str(tmp_path / "failures")]
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert result.returncode == 1, result.stderr
    assert "9 cases" in result.stdout
    assert "fine 4" in result.stdout
    assert "failure: KeyError in test_fuzz.py:bug 1" in result.stdout
    assert "failure: MemoryError" in result.stdout
    assert "failure: the worker ended with 3 1" in result.stdout
    assert "failure: the worker ended with -24 1" in result.stdout, "no signal handler runs within a loop of C"
    kept = {path.name for path in (tmp_path / "failures").iterdir()}
    assert {"fuzz_of_bugs-0-2", "fuzz_of_bugs-0-2.small", "fuzz_of_bugs-0-2.txt", "fuzz_of_bugs-0-5.txt"} <= kept
    assert (tmp_path / "failures" / "fuzz_of_bugs-0-2.small").read_bytes() == b"needle"


def test_a_tree_that_is_made_large_stays_within_bounds() -> None:
    random_, tree = random.Random(5), [[b"x" * 1000] * 1000]
    sizes = [len(packed_tree(enlarged_tree(random_, enlarged_tree(random_, tree)))) for _ in range(60)]
    assert len(packed_tree(tree)) < max(sizes) < 2**25
