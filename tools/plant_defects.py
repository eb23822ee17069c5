"""Plant defects in the planner and the emitter of the native executor, and see which guard notices each.

    python tools/plant_defects.py --log FILE [--machine NAME] [--seed N] [--drawn N] [--only TEXT]
                                  [--no-trial] [--long] [--unguarded] [--limit SECONDS]

Every defect replaces the text of one module: the scripted defects of tools/planted/table.py, by class, and ``--drawn``
mutants of one token, by seed. The tree is not touched: each defect runs in a process of its own, where it replaces the
module at import, without a cache. There the machine has its trial (not with ``--no-trial``), and then runs sample
programs: on one thread, then on two with all tensors captured. The results are compared with NumPy. With ``--long``
samples are rehearsed like networks with long runs. ``--unguarded`` runs refused samples once more without
checker, rehearsal and trial, to see whether a byte would have changed. ``--only`` selects defects by a text in
their names or by class. FILE gets a line of JSON for each defect; defects that it already has are not run again.
Prints a table, and exits 1 if a wrong byte left.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.planted.defect import Defect, dotted, source  # noqa: E402 - after the paths are set
from tools.planted.drawn import drawn  # noqa: E402
from tools.planted.judge import Guards, judge, plant  # noqa: E402
from tools.planted.table import KINDS, scripted  # noqa: E402

TRIAL, CHECKER, REHEARSAL = "refused by the trial", "refused by the checker", "refused by the rehearsal"
CRASHED, NOTHING, WRONG = "crashed", "no byte changed", "WRONG BYTES LEFT"
VERDICTS = (TRIAL, CHECKER, REHEARSAL, CRASHED, NOTHING, WRONG)
WAIT = 10
"""How many times the limit of processor time a process may take on a machine that has other work."""
ON = 20
"""The seconds for which samples go on after the first refusal."""

Event = tuple[str, str, str]


def verdict(events: Sequence[Event]) -> tuple[str, str]:
    """The guard that noticed, and its words, from the printed events. The last events may be missing."""
    wrong = [event for event in events if event[0] == "wrong"]
    noticed = [event for event in events if event[0] in ("trial", "refused", "crashed")]
    if wrong:
        return WRONG, ": ".join(wrong[0][1:])
    if not noticed:
        return (NOTHING, "") if events and events[-1][0] == "done" else (CRASHED, "the process ended, or took too long")
    what, where, why = noticed[0]
    said = f"{where}: {why}"
    if what == "crashed":
        return CRASHED, said
    if what == "trial":
        return TRIAL, said
    return (REHEARSAL if "when the code was tried" in why else CHECKER), said


def events(defect: Defect, samples: Path, machine: str, more: Sequence[str], limit: float) -> list[Event]:
    """The events that a process with a defect prints; ``more`` are options like ``--unguarded``."""
    command = [sys.executable, __file__, "--judge", str(samples), "--machine", machine, "--limit", str(limit), *more]
    environment = {**os.environ, "CVM_CACHE": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    given = json.dumps([defect.module, defect.text]).encode()
    with tempfile.TemporaryFile() as printed:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, input=given, stdout=printed, stderr=subprocess.DEVNULL, env=environment,
                timeout=WAIT * limit, check=False,
            )  # fmt: skip
        printed.seek(0)
        lines = printed.read().decode("utf-8", "replace").splitlines()
    return [tuple(json.loads(line)) for line in lines if line.startswith("[") and line.endswith("]")]


def tried(defect: Defect, samples: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The line of a defect for the log."""
    machine, limit = options.machine, options.limit
    wishes = {"--no-trial": options.no_trial, "--long": options.long}
    found = events(defect, samples, machine, [option for option, given in wishes.items() if given], limit)
    who, said = verdict(found)
    line = {"name": defect.name, "kind": defect.kind, "machine": machine, "verdict": who, "said": said}
    if options.unguarded and who not in (NOTHING, WRONG):
        bare = events(defect, samples, machine, ["--unguarded"], limit)
        ends = {event[0] for event in bare}
        line["unguarded"] = "changed" if "changed" in ends else "same" if ends == {"passed", "done"} else "crashed"
    return line


def table(lines: Iterable[dict[str, Any]]) -> str:
    """The verdicts by class, and the results without the guards."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines:
        for kind in (line["kind"], "all"):
            counts[kind, "planted"] += 1
            counts[kind, line["verdict"]] += 1
            if line.get("unguarded") == "changed":
                counts[kind, "would have changed bytes"] += 1
    kinds = [kind for kind in (*KINDS, "drawn", "all") if counts[kind, "planted"]]
    columns = ("planted", "would have changed bytes", *VERDICTS)
    rows = [("class", *columns), *((kind, *(str(counts[kind, column]) for column in columns)) for kind in kinds)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path)
    parser.add_argument("--machine", help="default: the fastest that this processor is")
    parser.add_argument("--seed", type=int, default=1, help="of the mutants and of the inputs")
    parser.add_argument("--drawn", type=int, default=60, help="mutants")
    parser.add_argument("--only", default="", help="a text in a defect's name or class")
    parser.add_argument("--no-trial", action="store_true", help="leave the trial of the machine out")
    parser.add_argument(
        "--long", action="store_true", help="rehearse every sample as a long run: on random inputs alone"
    )
    parser.add_argument("--unguarded", action="store_true", help="try what was refused once more without the guards")
    parser.add_argument("--limit", type=float, default=240,
                        help="seconds of processor time for a defect; what takes longer has crashed")  # fmt: skip
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.judge:
        limit = max(1, int(options.limit))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        module, text = json.loads(sys.stdin.read())
        plant(dotted(module), text)
        from tools.planted.samples import loaded

        guards = Guards(not options.unguarded, not options.no_trial, options.long)
        judge(loaded(options.judge), options.machine, guards, ON)
        return 0
    if options.log is None:
        parser.error("--log FILE is missing")
    return _main(options)


def _main(options: argparse.Namespace) -> int:
    from cvm.executors.native.runtime.select import available
    from tools.planted.samples import kept, samples

    options.machine = machine = options.machine or available()[0].name
    defects = [*scripted(), *drawn(options.drawn, options.seed, machine)]
    defects = [defect for defect in defects if defect.module != "tiles" or machine == "amx"]
    defects = [defect for defect in defects if options.only in defect.name or options.only == defect.kind]
    lines = [json.loads(line) for line in options.log.read_text("utf-8").splitlines()] if options.log.exists() else []
    lines = [line for line in lines if line["machine"] == machine]
    done = {line["name"] for line in lines}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples"
        kept(path, samples(options.seed))
        none = Defect("nothing", "", "homes", source("homes"))
        who, said = verdict(events(none, path, machine, [], options.limit))
        if who != NOTHING:
            raise SystemExit(f"without a defect: {who}: {said}")
        for number, defect in enumerate(defects):
            if defect.name in done:
                continue
            line = tried(defect, path, options)
            lines.append(line)
            with options.log.open("a", encoding="utf-8") as log:
                print(json.dumps(line), file=log)
            print(f"{number + 1} of {len(defects)}: {line['verdict']}: {defect.name}: {line['said']}", flush=True)
    names = {defect.name for defect in defects}
    lines = [line for line in lines if line["name"] in names]
    print(table(lines))
    return 1 if any(line["verdict"] == WRONG for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
