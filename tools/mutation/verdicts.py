"""The verdicts on mutants: the log, the table of accepted mutants, and the printed summary.

The log has a JSON object per line and mutant, so a run can be interrupted and continued. An entry is valid while
the module's text is the one that was changed. The table of accepted mutants (`accepted.toml`) names mutants that
no test can kill because they compute the same, each with its reason; an entry that is killed, or that names no mutant,
is an error.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tools.mutation.changes import Change, Key, mutated

__all__ = ["Entry", "Log", "Verdict", "accepted", "difference", "problems", "table"]

Verdict: TypeAlias = Literal["killed", "timeout", "survived", "not covered"]
"""A test failed; the tests took too long, which counts as killed; all tests passed; no test runs the lines."""


@dataclass(frozen=True)
class Entry:
    """The verdict on one mutant. ``by`` is the test that failed, ``tests`` how many were planned."""

    key: Key
    source: str
    """The digest of the module that was changed."""
    verdict: Verdict
    line: int
    tests: int
    seconds: float
    by: str = ""

    @property
    def killed(self) -> bool:
        """Whether the tests noticed the mutant."""
        return self.verdict in ("killed", "timeout")


class Log:
    """The entries of a file; for each mutant the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[tuple[Key, str], Entry] = {}
        for line in path.read_text("utf-8").splitlines() if path.is_file() else []:
            try:
                fields = json.loads(line)
            except json.JSONDecodeError:
                continue  # the end of a run that was interrupted while it wrote
            entry = Entry(**{**fields, "key": Key(**fields["key"])})
            self._entries[entry.key, entry.source] = entry

    def find(self, key: Key, source: str) -> Entry | None:
        """The verdict on a mutant of a module with this digest."""
        return self._entries.get((key, source))

    def add(self, entry: Entry) -> None:
        """Append an entry to the file at once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        torn = self._path.is_file() and not self._path.read_bytes().endswith(b"\n") and self._path.stat().st_size > 0
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(asdict(entry), ensure_ascii=False) + "\n")
        self._entries[entry.key, entry.source] = entry


def accepted(path: Path) -> dict[Key, str]:
    """The accepted mutants of a table, with the reason of each. Raises ValueError for one that has none."""
    reasons: dict[Key, str] = {}
    for fields in tomllib.loads(path.read_text("utf-8")).get("equivalent", []) if path.is_file() else []:
        reason = str(fields.pop("reason", "")).strip()
        key = Key(**fields)
        if not reason or key in reasons:
            raise ValueError(f"{path.name}: {key}: {'is there twice' if key in reasons else 'has no reason'}")
        reasons[key] = reason
    return reasons


def problems(entries: Iterable[Entry], reasons: Mapping[Key, str], existing: Mapping[str, set[Key]]) -> list[str]:
    """The reasons why a run fails: unaccepted survivors, and accepted mutants that are killed or do not exist.

    ``existing`` holds all mutants of each examined module; a module that no longer exists has none.
    """
    found = [f"survived: {entry.key}" for entry in entries if entry.verdict == "survived" and entry.key not in reasons]
    found += [
        f"accepted as equivalent, but {entry.verdict} by {entry.by or 'its time'}: {entry.key}"
        for entry in entries
        if entry.killed and entry.key in reasons
    ]
    found += [
        f"accepted as equivalent, but there is no such mutant: {key}"
        for key in reasons
        if key.module in existing and key not in existing[key.module]
    ]
    return found


def table(rows: Mapping[str, Sequence[Entry]], reasons: Mapping[Key, str]) -> str:
    """A row per package, and one for all. Equivalent mutants are counted separately, since no test can kill them.

    The rate is the share of killed mutants among those that are not equivalent, uncovered ones included.
    """
    titles = ("mutants", "killed", "timeout", "equivalent", "survived", "uncovered", "rate")
    lines = [_row("package", titles)]
    everything = [entry for entries in rows.values() for entry in entries]
    for name, entries in [*rows.items(), ("all", everything)]:
        judged = [entry for entry in entries if entry.killed or entry.key not in reasons]
        count = Counter(entry.verdict for entry in judged)
        rate = f"{100 * sum(entry.killed for entry in judged) / len(judged):.0f} %" if judged else "-"
        killed, timeout, survived = count["killed"], count["timeout"], count["survived"]
        numbers = (len(entries), killed, timeout, len(entries) - len(judged), survived, count["not covered"], rate)
        lines.append(_row(name, numbers))
    return "\n".join(lines)


def _row(name: str, cells: Sequence[object]) -> str:
    return f"{name:<24}" + "".join(f"{cell!s:>11}" for cell in cells)


def difference(change: Change, source: bytes) -> str:
    """The change as a diff, with its location."""
    before, after = (text.decode("utf-8").splitlines() for text in (source, mutated(source, change)))
    name = f"{change.key.module}:{change.line} ({change.key.function})"
    return "\n".join(difflib.unified_diff(before, after, name, "mutant", n=1, lineterm=""))
