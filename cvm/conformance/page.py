"""A statement as a page in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["markdown"]

_LONGEST = 160


def markdown(document: Mapping[str, Any]) -> str:
    """Tables: verdicts of each engine, of each operator, each case that is not exact, and the refusals."""
    engines = document["engines"]
    parts = ["## Engines\n", *_summary(engines)]
    for form in ("QDQ", "QOperator", "integers", "TFLite"):
        parts += _operators(engines, form)
    for engine in engines:
        parts += _rules(engine)
    for engine in engines:
        parts += _worst(engine)
    for engine in engines:
        parts += _refusals(engine)
    return "\n".join(parts) + "\n"


def _summary(engines: list[Any]) -> Iterator[str]:
    yield "| engine | package | cases | exact | within one | wrong | refused | crashed |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for engine in engines:
        counts = engine["counts"]
        yield f"| {engine['setting']} | {engine['package']} | {len(engine['cases'])} | " + (
            " | ".join(str(count) for count in counts.values()) + " |"
        )


_FORMS = {
    "QDQ": "ONNX, between DequantizeLinear and QuantizeLinear",
    "QOperator": "ONNX, operators on codes",
    "integers": "ONNX, operators on integers",
    "TFLite": "TFLite",
}


def _operators(engines: list[Any], form: str) -> Iterator[str]:
    """One row for each operator and choice of types: how many cases are exact, and what the others are."""
    shown = [engine for engine in engines if any(row["form"] == form for row in engine["cases"])]
    if not shown:
        return
    yield f"\n## {_FORMS[form]}\n"
    yield f"| operator | types | {' | '.join(engine['setting'] for engine in shown)} |"
    yield f"|---|---|{'---|' * len(shown)}"
    rows: dict[tuple[str, str], list[list[Any]]] = {}
    for number, engine in enumerate(shown):
        for row in engine["cases"]:
            if row["form"] == form:
                cells = rows.setdefault((row["op"], row["types"]), [[] for _ in shown])
                cells[number].append(row)
    for (op, types), cells in rows.items():
        yield f"| {op} | {types} | {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(rows: list[Any]) -> str:
    counts = Counter(row["verdict"] for row in rows)
    farthest = max((row.get("farthest", 0) for row in rows), default=0)
    words = {"wrong": f"wrong, by up to {farthest}"}
    return ", ".join(f"{count} {words.get(verdict, verdict)}" for verdict, count in counts.items())


def _rules(engine: Mapping[str, Any]) -> Iterator[str]:
    """Which rules give the codes that differ, and how many cases and codes each of them gives."""
    differing = [row for row in engine["cases"] if "differ" in row]
    if not differing:
        return
    total, given = sum(row["differ"] for row in differing), sum(row["explained"] for row in differing)
    yield f"\n## Rules of {engine['setting']}\n"
    yield f"{given:,} of {total:,} differing codes, in {len(differing)} cases, follow from a rule.\n"
    yield "| operators | rule | cases | codes that differ | given by the rule |"
    yield "|---|---|---:|---:|---:|"
    groups: dict[str, list[Any]] = {}
    for row in differing:
        groups.setdefault(row["rule"] or "none", []).append(row)
    for rule, rows in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        ops = list(dict.fromkeys(row["op"].rpartition(".")[2] for row in rows))
        explained = sum(row["explained"] for row in rows)
        yield f"| {', '.join(ops)} | {rule} | {len(rows)} | {sum(row['differ'] for row in rows)} | {explained} |"


def _worst(engine: Mapping[str, Any]) -> Iterator[str]:
    """The cases with a code that is off by more than one."""
    wrong = [row for row in engine["cases"] if row["verdict"] in ("wrong", "crashed")]
    if not wrong:
        return
    yield f"\n## {engine['setting']}: off by more than one\n"
    yield "| operator | form | types | attributes | numbers | differ | of | by at most | rule |"
    yield "|---|---|---|---|---|---:|---:|---:|---|"
    for row in wrong:
        words = [row[key] for key in ("op", "form", "types", "attributes", "numbers")]
        if row["verdict"] == "crashed":
            yield f"| {' | '.join([*words, 'crashed', '', '', ''])} |"
            continue
        rule = row["rule"] or "none"
        if row["rule"] and row["explained"] < row["differ"]:
            rule = f"{rule}: {row['explained']}"
        yield f"| {' | '.join([*words, str(row['differ']), str(row['of']), str(row['farthest']), rule])} |"


def _refusals(engine: Mapping[str, Any]) -> Iterator[str]:
    refused: dict[str, list[str]] = {}
    for row in engine["cases"]:
        if row["verdict"] == "refused":
            refused.setdefault(_plain(row["message"]), []).append(f"{row['op']} ({row['form']}, {row['types']})")
    if not refused:
        return
    yield f"\n## {engine['setting']}: refused\n"
    for message, names in refused.items():
        counts = Counter(names)
        yield f"* {', '.join(f'{count} of {name}' for name, count in counts.items())}: {message}"


def _plain(message: str) -> str:
    """A message in one line, without the characters that Markdown reads."""
    text = " ".join(message.split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} .."
    return "`" + text.replace("`", "'").replace("|", "/") + "`"
