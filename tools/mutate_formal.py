"""Mutate FORMAL and check that the shipped vectors notice.

    python tools/mutate_formal.py [--ops conv2d,sum] [--every N] [--verbose]

Every function that contributes to an op's meaning is changed in one spot at a time: a comparison, an operation, a
number, a branch, a bound, an axis, a result. Each mutant must fail at least one vector of that op in
``spec_vectors/ops``; no other test is used. The tree is not touched: mutants are made and run in memory. Mutants that
no valid program can tell from FORMAL are named, with the reason, in `mutation.equivalent`; an entry there
that is killed or names no mutant is an error too. ``--every N`` tries only every N-th mutant.
Prints a table per op, and exits 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cvm.vectors import OpCase, decode  # noqa: E402 - after the paths are set
from formal.registry import OPS  # noqa: E402
from tools.mutation.equivalent import EQUIVALENT  # noqa: E402
from tools.mutation.mutants import mutants, sources  # noqa: E402
from tools.mutation.trial import compiled, killer  # noqa: E402

LEAST = 5
"""The least number of mutants that an op must have, without equivalent ones."""


@dataclass
class Outcome:
    """The results of the mutants of one op."""

    op: str
    killed: int = 0
    equivalent: list[str] = field(default_factory=list)
    survived: list[str] = field(default_factory=list)
    wrongly_excused: list[str] = field(default_factory=list)


def valued_cases(op: str) -> list[OpCase]:
    """The shipped cases of an op that have a value."""
    (path,) = (ROOT / "spec_vectors" / "ops").glob(f"*/{op}.msgpack")
    cases = decode(path.read_bytes()).cases
    return [case for case in cases if isinstance(case, OpCase) and case.verdict == "value"]


def tried(op: str, every: int = 1, verbose: bool = False) -> Outcome:
    """The outcome for every N-th mutant of an op."""
    modules = sources(ROOT / "formal")
    codes = compiled(modules)
    cases = valued_cases(op)
    unchanged = killer(codes, cases)
    if unchanged is not None:
        raise SystemExit(f"{op}: FORMAL itself fails {unchanged}; are the vectors stale?")
    outcome = Outcome(op)
    for index, mutant in enumerate(mutants(op, modules)):
        excused = (op, mutant.name) in EQUIVALENT or ("*", mutant.name) in EQUIVALENT
        if index % every and not excused:
            continue
        by = killer({**codes, mutant.module: compile(mutant.tree, f"<{mutant.module}>", "exec")}, cases)
        if verbose:
            print(f"{op}: {mutant.name}: {by or 'survived'}")
        if excused:
            (outcome.equivalent if by is None else outcome.wrongly_excused).append(mutant.name)
        elif by is None:
            outcome.survived.append(mutant.name)
        else:
            outcome.killed += 1
    return outcome


def unused(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    """Entries of the table of equivalent mutants that name no mutant of the tried ops."""
    used = {(outcome.op, name) for outcome in outcomes for name in outcome.equivalent + outcome.wrongly_excused}
    anywhere = {name for _, name in used}
    ops = {outcome.op for outcome in outcomes}
    return [
        (op, name)
        for op, name in EQUIVALENT
        if ((op in ops and (op, name) not in used) or (op == "*" and ops == set(OPS) and name not in anywhere))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ops", help="ops, separated by commas; all of them by default")
    parser.add_argument("--every", type=int, default=1, help="try every N-th mutant only")
    parser.add_argument("--verbose", action="store_true", help="print what killed each mutant")
    arguments = parser.parse_args()
    ops = arguments.ops.split(",") if arguments.ops else list(OPS)
    outcomes = []
    print(f"{'op':<22}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'survived':>10}")
    for op in ops:
        outcome = tried(op, arguments.every, arguments.verbose)
        outcomes.append(outcome)
        count = outcome.killed + len(outcome.survived)
        print(
            f"{op:<22}{count:>8}{outcome.killed:>8}{len(outcome.equivalent):>12}{len(outcome.survived):>10}", flush=True
        )
    problems = [f"survived: {o.op}: {name}" for o in outcomes for name in o.survived]
    problems += [f"called equivalent, but killed: {o.op}: {name}" for o in outcomes for name in o.wrongly_excused]
    if arguments.every == 1:
        problems += [f"fewer than {LEAST} mutants: {o.op}" for o in outcomes if o.killed + len(o.survived) < LEAST]
        problems += [f"called equivalent, but no mutant: {op}: {name}" for op, name in unused(outcomes)]
    killed = sum(outcome.killed for outcome in outcomes)
    total = killed + sum(len(outcome.survived) for outcome in outcomes)
    print(f"{'all':<22}{total:>8}{killed:>8}{sum(len(o.equivalent) for o in outcomes):>12}{total - killed:>10}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
