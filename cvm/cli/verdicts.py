"""The answers of `cvm receipt verify`, as documents and for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cvm.cli.output import say, table

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.audit import Judged
    from cvm.audit.batch import Finished
    from cvm.audit.verdict import Verdict

__all__ = ["EXIT_CODES", "PRINTED", "render_folder", "render_verdict", "result_document"]

EXIT_CODES = {"REPRODUCED": 0, "DIVERGED": 1, "CANNOT_RECOMPUTE": 5}
PRINTED = 10
"""How many runs of a receipt, and receipts of a folder, are printed for people; a document has all."""


def render_verdict(console: Console, verdict: Verdict, document: dict[str, Any]) -> None:
    """Print the answer for one receipt, and the evidence for it."""
    if verdict.words == verdict.answer:
        step = "; give them with -i" if verdict.reason == "no inputs are given" else ""
        say(console, f"{verdict.answer} at level {verdict.level}: {verdict.reason}{step}")
    else:
        say(console, f"{verdict.words}, nothing was executed: {verdict.reason}")
    if verdict.executor is not None:
        say(console, f"executor  {verdict.executor}")
        say(console, f"judged    {_judged_words(verdict.executor, verdict.judged)}")
    say(console, f"receipt   {document['receipt']}")
    say(console, f"program   {document['program']}")
    for key in document["signers"]:
        say(console, f"signed by {key}")


def _judged_words(executor: str | None, judged: Judged | None) -> str:
    """FORMAL's judgement of the executor, in words."""
    if judged is not None:
        return str(judged)
    return "every element was computed by FORMAL" if executor == "formal" else "nothing was judged by FORMAL"


def result_document(item: Finished) -> dict[str, Any]:
    """The answer for one receipt of a folder."""
    return {
        "path": item.path,
        "answer": item.answer,
        "level": item.level,
        "reason": item.reason,
        "executor": item.executor,
        "judged": None if item.judged is None else item.judged.document(),
    }


def render_folder(console: Console, document: dict[str, Any]) -> None:
    """Print the answers for a folder of receipts, and the evidence for them."""
    others = [item for item in document["results"] if item["answer"] != "REPRODUCED"]
    rows = ((item["path"], item["answer"], item["level"], item["reason"]) for item in others[:PRINTED])
    if others:
        table(console, ("receipt", "answer", "level", "reason"), rows)
    if len(others) > PRINTED:
        say(console, f"... and {len(others) - PRINTED} more; --json shows every one")
    counts = ", ".join(f"{count} {answer}" for answer, count in _counted(document["results"]).items())
    say(console, f"{document['receipts']} receipts: {counts}; {document['resumed']} known from before")
    if document["executed"] == 0:
        say(console, "nothing was executed")
        return
    by = Counter[str](item["executor"] for item in document["results"] if item["executor"] is not None)
    executors = ", ".join(f"{count} on {name}" for name, count in sorted(by.items()))
    salts = {item["judged"]["salt"] for item in document["results"] if item["judged"] is not None}
    salt = f"salt {min(salts)}" if len(salts) == 1 else f"{len(salts)} salts, which --json shows"
    judged = f"FORMAL judged {document['judged']} elements, {salt}" if document["judged"] else "FORMAL judged nothing"
    say(console, f"executed: {executors}; {judged}")


def _counted(results: list[dict[str, Any]]) -> dict[str, int]:
    """The number of receipts with each answer, by the answer's name for people."""
    from cvm.audit.verdict import answer_words

    answers = Counter[str](item["answer"] for item in results)
    true = Counter[str](answer_words("REPRODUCED", item["level"]) for item in results if item["answer"] == "REPRODUCED")
    others = {answer: answers[answer] for answer in EXIT_CODES if answer != "REPRODUCED"}
    return (dict(true) or {"REPRODUCED": 0}) | others
