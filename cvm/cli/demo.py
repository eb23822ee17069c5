"""``cvm demo``: compile, run, check and receipt the model that comes with cvm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cvm.cli.check import agreement_document, default_executors, judged_words
from cvm.cli.compile import report
from cvm.cli.declaration import Command
from cvm.cli.options import Json
from cvm.cli.output import meaning, progress, say, show

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.arrays import Array
    from cvm.audit import Receipt, Verdict
    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND"]

_CHECKED = 5
"""The number of images that FORMAL computes as well."""
_SHOWN = 4
_SHADES = " .:-=+*#%@"

_T = TypeVar("_T")


def command(as_json: Json = False) -> int:
    """Compile a digit classifier, run it on 40 test images, check executors against each other, verify a receipt.

    The exit code is 1 if the executors differ on any tensor, or if another executor, which FORMAL judges,
    does not reproduce the receipt.
    """
    import cvm
    from cvm import audit
    from cvm.agreement import compare
    from cvm.arrays import read_npz
    from cvm.demo import IMAGES, MODEL
    from cvm.executors import choose_executor, create
    from cvm.inputs import arrange
    from cvm.program.verifier import verify

    seconds: dict[str, float] = {}
    verified = _timed(seconds, "compile", lambda: verify(cvm.compile(MODEL)))
    session = cvm.Session(verified, choose_executor()[0])  # which is there at once, for the batch
    images, labels = read_npz(IMAGES, "image"), read_npz(IMAGES, "label")
    result = _timed(seconds, "run", lambda: session.run({"image": images}))
    recorder = audit.Recorder(verified, trace=True)
    session.run({"image": images}, witness=recorder)
    receipt = audit.decode_receipt(audit.encode_receipt(recorder.receipt(audit.host_facts(session.executor))))
    other = "formal" if session.executor == "numpy" else "numpy"
    predictions = result["probs"].argmax(axis=1)

    names = default_executors()
    _, samples = arrange(verified.program, {"image": images[:_CHECKED]})
    with progress("checking", _CHECKED) as advance:
        made = [create(name, verified) for name in names]
        agreement = _timed(seconds, "check", lambda: compare(verified.program, made, samples, advance))
    with progress("verifying", len(labels)) as advance:
        verdict = audit.verify(receipt, verified, {"image": images}, executor=other, progress=advance)

    document = {
        "model": MODEL.name,
        "executor": session.executor,
        "images": len(labels),
        "correct": int((predictions == labels).sum()),
        "predictions": predictions.tolist(),
        "labels": labels.tolist(),
        **_proven(verified),
        "agreement": agreement_document(names, agreement),
        "receipt": _verified(receipt, verdict, other),
        "gas": verified.gas,
        "digest": verified.program.digest,
        "seconds": {what: round(taken, 3) for what, taken in seconds.items()},
    }
    code = 0 if agreement.difference is None and verdict.answer == "REPRODUCED" else 1
    return show(document, lambda console: _render(console, document, images), as_json, code)


def _proven(verified: VerifiedProgram) -> dict[str, Any]:
    """The size of the program, and which tensors are exact or bounded."""
    proven = report(verified)
    return {
        "tensors": {
            "exact": sum(tensor["exact"] for tensor in proven["tensors"]),
            "bounded": [tensor for tensor in proven["tensors"] if not tensor["exact"]],
        },
        "nodes": proven["nodes"],
        "constant_bytes": proven["constant_bytes"],
    }


def _verified(receipt: Receipt, verdict: Verdict, executor: str) -> dict[str, Any]:
    """The receipt, and the verdict that ``executor`` reached on it."""
    return {
        "id": receipt.id,
        "answer": verdict.answer,
        "level": verdict.level,
        "runs": len(receipt.claim.runs),
        "executor": executor,
        "judged": None if verdict.judged is None else verdict.judged.document(),
    }


def _timed(seconds: dict[str, float], what: str, action: Callable[[], _T]) -> _T:
    start = time.perf_counter()
    result = action()
    seconds[what] = time.perf_counter() - start
    return result


def _render(console: Console, document: dict[str, Any], images: Array) -> None:
    from cvm.cli.check import render

    seconds = document["seconds"]
    say(console, f"A LeNet for digits of 8 x 8 pixels, 8-bit quantised NNEF: {document['model']}\n")
    for line in _pictures(images[:_SHOWN]):
        say(console, line)
    told = zip(document["predictions"][:_SHOWN], document["labels"][:_SHOWN], strict=True)
    say(console, "   ".join(f"predicted {said}, is {true}".ljust(16) for said, true in told) + "\n")
    bounded = document["tensors"]["bounded"]
    bounds = "".join(f"; {item['tensor']} {meaning(item['bound'])}" for item in bounded)
    size = f"{document['nodes']} nodes, {document['constant_bytes']} bytes of constants"
    exact = f"{document['tensors']['exact']} tensors exact{bounds}"
    say(console, f"COMPILED {size} in {seconds['compile']:.1f} s; {exact}")
    right = f"{document['correct']} of {document['images']} test images right"
    say(console, f"RAN      {right}, on {document['executor']} in {seconds['run']:.2f} s")
    render(console, document["agreement"])
    receipt = document["receipt"]
    say(console, f"GAS      {document['gas']} per image")
    say(console, f"DIGEST   {document['digest']}")
    say(console, f"RECEIPT  {receipt['id']}")
    say(console, f"{receipt['answer']} by {receipt['executor']}, at level {receipt['level']}: {receipt['runs']} runs")
    if receipt["judged"] is not None:
        say(console, f"JUDGED   {judged_words(receipt['judged'])}")


def _pictures(images: Array) -> list[str]:
    """Images side by side, two characters per pixel, darker where there is more ink."""
    lines = []
    for row in range(images.shape[2]):
        pixels = [[_SHADES[round(float(pixel) * (len(_SHADES) - 1))] for pixel in image[0, row]] for image in images]
        lines.append("   ".join("".join(shade * 2 for shade in line) for line in pixels).rstrip())
    return lines


COMMAND = Command(command, ("cvm demo",))
