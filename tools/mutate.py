"""Change one token of the product at a time and see whether the tests notice.

    python tools/mutate.py [PACKAGE ...] --sample N [--seed S] [--workers W] [--only-tests PATH] [--list]

PACKAGE is a folder such as cvm/quantization; by default those of `PACKAGES`. From each package ``--sample`` mutants are
drawn by ``--seed`` (all if it is not given), together with the mutants that `mutation/accepted.toml` names.
`mutation.changes` says what is changed (comparisons, arithmetic, numbers, conditions, bounds, min and max, results),
and what is not, since no result depends on it (texts, annotations, messages, notes, estimates).

1. The tests of every file are run once with the package coverage, which records the lines that each test runs. The
   record is kept in ``.mutation/`` until the test file or a module that it runs changes.
2. Each mutant is applied in a copy of the tree, never in the tree itself. The tests that run its lines are run
   there, the fastest first, until one fails: at most ``--tests`` tests, and ``--seconds`` seconds of tests. A failure
   counts if the test passes without the change. A run that takes much longer than expected counts as killed, and is
   recorded as a timeout. Native code is cached for one run only.
3. Every verdict is appended to ``.mutation/log.jsonl`` at once. A mutant of an unchanged module is not tried again,
   so a run may be interrupted; ``--again`` tries survivors once more, after tests were added.

A mutant that survives a few tests might not survive all: the budget says how hard it was tried. Prints survivors as
diffs and a table per package. Exits 1 if a mutant survives, or an accepted one is killed or does not exist. Exits 2 if
there is no such package or test, or if coverage is missing (the extra ``mutation`` installs it).
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.mutation.changes import Change, Key, changes, is_program, modules, mutated  # noqa: E402
from tools.mutation.planner import Budget, planned  # noqa: E402
from tools.mutation.recordings import digest, recordings, test_files  # noqa: E402
from tools.mutation.runner import Copy, Finished  # noqa: E402
from tools.mutation.verdicts import Entry, Log, Verdict, accepted, difference, problems, table  # noqa: E402

PACKAGES = (
    "cvm/executors/native",
    "cvm/executors/numpy",
    "cvm/ops",
    "cvm/program",
    "cvm/passes",
    "cvm/lowering",
    "cvm/quantization",
)
MEMORY = 8 * 2**30
"""The bytes of address space of a run, since a mutant may ask for any amount."""


def drawn(
    root: Path, package: str, sample: int | None, seed: int, reasons: Mapping[Key, str]
) -> tuple[list[Change], dict[str, set[Key]]]:
    """The mutants of a package to try, in the order of its text; and all mutants of each module."""
    sources = {module: (root / module).read_bytes() for module in modules(root, package)}
    every = [change for module, source in sources.items() for change in changes(module, source)]
    existing: dict[str, set[Key]] = {key.module: set() for key in reasons if key.module.startswith(f"{package}/")}
    for change in every:
        existing.setdefault(change.key.module, set()).add(change.key)
    order = list(range(len(every)))
    random.Random(f"{package} {seed}").shuffle(order)
    chosen = {index for index, change in enumerate(every) if change.key in reasons}
    count = 0
    for index in order:
        if count == sample:
            break
        if is_program(mutated(sources[every[index].key.module], every[index])):
            chosen.add(index)
            count += 1
    return [every[index] for index in sorted(chosen)], existing


class Trying:
    """Tries mutants in copies of the tree, as many at once as there are copies."""

    def __init__(self, root: Path, copies: Sequence[Copy], memory: int | None, grace: float) -> None:
        self._root = root
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            self._free.put(copy)
        self._workers = len(copies)
        self._memory = memory
        self._grace = grace
        self._good: set[str] = set()
        self.unusable: set[str] = set()
        """Tests that fail in a copy without a change."""

    def verdicts(self, plans: Sequence[tuple[Change, Mapping[str, float]]]) -> Iterator[Entry]:
        """The verdicts on mutants, each with its tests and their seconds, as they arrive."""
        with ThreadPoolExecutor(self._workers) as pool:
            futures = [pool.submit(self._verdict, change, tests) for change, tests in plans]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _verdict(self, change: Change, planned_tests: Mapping[str, float]) -> Entry:
        """The verdict on one mutant. A test that also fails on the unchanged tree is left out from then on."""
        source = (self._root / change.key.module).read_bytes()

        def entry(verdict: Verdict, seconds: float, by: str = "") -> Entry:
            return Entry(change.key, digest(source), verdict, change.line, len(tests), round(seconds, 2), by)

        while tests := [name for name in planned_tests if name not in self.unusable]:
            limit = self._grace + 3 * sum(planned_tests.values())
            finished = self._run(tests, limit, (change.key.module, mutated(source, change)))
            if finished.code == 0:
                return entry("survived", finished.seconds)
            if self._pass_unchanged(finished.failed or tests, limit):
                by = next(iter(finished.failed), "" if finished.code is None else f"exit code {finished.code}")
                return entry("timeout" if finished.code is None else "killed", finished.seconds, by)
        return entry("not covered", 0.0)

    def _pass_unchanged(self, tests: Sequence[str], limit: float) -> bool:
        """Whether tests pass on the unchanged tree; those that fail are recorded."""
        unknown = [name for name in tests if name not in self._good]
        while unknown:
            finished = self._run(unknown, limit)
            lost = [line for line in finished.output.splitlines() if line.startswith("ERROR: not found: ")]
            # A test that no longer exists must not keep the others from running.
            missing = {name for name in unknown if any(line.endswith(f"/{name}") for line in lost)}
            self.unusable |= missing or set(unknown) - set(finished.passed)
            self._good |= set(finished.passed)
            unknown = [name for name in unknown if name not in missing] if missing else []
        return self.unusable.isdisjoint(tests)

    def _run(self, tests: Sequence[str], limit: float, changed: tuple[str, bytes] | None = None) -> Finished:
        copy = self._free.get()
        try:
            return copy.run(tests, limit, self._memory, changed)
        finally:
            self._free.put(copy)


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_intermixed_args(arguments)
    root: Path = given.root.resolve()
    folder = root / ".mutation"
    reasons = accepted(given.accepted)
    budget = Budget(given.tests, given.seconds)
    packages: list[str] = [package.rstrip("/") for package in given.packages or PACKAGES]
    files_of_tests = test_files(root, given.only_tests or ["tests"])
    for name, found in [("test files", files_of_tests), *((p, modules(root, p)) for p in packages)]:
        if not found:
            print(f"{name}: there are none below {root}", file=sys.stderr)
            return 2
    chosen: dict[str, list[Change]] = {}
    existing: dict[str, set[Key]] = {}
    for package in packages:
        chosen[package], all_keys = drawn(root, package, given.sample, given.seed, reasons)
        existing |= all_keys
    if given.list:
        for change in (change for some in chosen.values() for change in some):
            print(difference(change, (root / change.key.module).read_bytes()))
        return 0

    log = Log(folder / "log.jsonl")
    files = {change.key.module for some in chosen.values() for change in some}
    sources = {module: digest((root / module).read_bytes()) for module in files}
    waiting = [
        change
        for some in chosen.values()
        for change in some
        if (known := log.find(change.key, sources[change.key.module])) is None or (given.again and not known.killed)
    ]
    if waiting:
        try:
            recorded = recordings(
                root,
                PACKAGES if set(packages) <= set(PACKAGES) else packages,
                files_of_tests,
                folder / "recordings",
                given.workers,
                given.record_seconds,
                lambda text: print(text, flush=True),
            )
        except RuntimeError as error:
            print(f"skipped: {error}", file=sys.stderr)
            return 2
        with ExitStack() as stack:
            copies = [stack.enter_context(Copy(root)) for _ in range(given.workers)]
            trying = Trying(root, copies, given.memory or None, given.grace)
            for entry in trying.verdicts([(change, planned(change, recorded, budget)) for change in waiting]):
                log.add(entry)
                by = f" by {entry.by}" if entry.by else ""
                print(f"{entry.verdict}{by} ({entry.seconds} s of {entry.tests} tests): {entry.key}", flush=True)
        for name in sorted(trying.unusable):
            print(f"left out, since it fails without a change in a copy of the tree: {name}")

    rows: dict[str, list[Entry]] = {}
    for package, some in chosen.items():
        entries = (log.find(change.key, sources[change.key.module]) for change in some)
        rows[package] = [entry for entry in entries if entry is not None]
    return _reported(root, chosen, rows, reasons, existing)


def _reported(
    root: Path,
    chosen: Mapping[str, Sequence[Change]],
    rows: Mapping[str, Sequence[Entry]],
    reasons: Mapping[Key, str],
    existing: Mapping[str, set[Key]],
) -> int:
    """Print the results of all mutants; returns the exit status."""
    entries = [entry for some in rows.values() for entry in some]
    lived = {entry.key: entry.verdict for entry in entries if not entry.killed and entry.key not in reasons}
    for change in (change for some in chosen.values() for change in some if change.key in lived):
        print(f"\n{lived[change.key]}:\n{difference(change, (root / change.key.module).read_bytes())}")
    print(f"\n{table(rows, reasons)}")
    taken = [entry.seconds for entry in entries if entry.tests]
    if taken:
        print(f"{sum(taken) / len(taken):.1f} seconds per mutant with tests")
    found = problems(entries, reasons, existing)
    print("\n".join(found))
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", help="folders of packages")
    parser.add_argument("--sample", type=int, help="mutants of each package; all by default")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--workers", type=int, default=1, help="mutants that are tried at once")
    parser.add_argument("--tests", type=int, default=200, help="tests of a mutant, at most")
    parser.add_argument("--seconds", type=float, default=30, help="seconds of the tests of a mutant, at most")
    parser.add_argument("--grace", type=float, default=30, help="seconds that a run may take beyond 3 times its time")
    parser.add_argument("--record-seconds", type=float, default=1800, help="seconds to record one test file, at most")
    parser.add_argument("--memory", type=int, default=MEMORY, help="bytes of address space of a run; 0: any")
    parser.add_argument("--only-tests", action="append", metavar="PATH", help="a folder or file of tests; repeatable")
    parser.add_argument("--again", action="store_true", help="try those that survived or were not covered once more")
    parser.add_argument("--list", action="store_true", help="print the mutants that are drawn, and try none")
    parser.add_argument("--accepted", type=Path, default=ROOT / "tools" / "mutation" / "accepted.toml")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree")
    return parser


if __name__ == "__main__":
    sys.exit(main())
