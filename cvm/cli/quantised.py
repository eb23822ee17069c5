"""What ``cvm quantize`` says: parts of its document, and the document in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cvm.cli.output import counted, say, table

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.calibration import CalibratedTensor, Calibration, Settings, Trial
    from cvm.quantizing import Quantized

__all__ = ["choices_document", "render", "tensor_document", "widened_document"]

_LISTED = 5
"""How many tensors with 16 bits are named; --json names all."""

_LONGEST = 120
"""Characters of a quantiser in a table; lists per channel are cut."""


def widened_document(made: Quantized) -> list[dict[str, Any]]:
    """The groups of tensors that got more bits, and the SQNR if only that group had as few as the others."""
    from cvm.report.document import decibel

    return [{"tensors": list(item.tensors), "alone_db": decibel(item.alone_db)} for item in made.widened]


def choices_document(settings: Settings, trials: Sequence[Trial], found: Calibration) -> dict[str, Any]:
    """The choices that the settings left open, and the changes to the numbers of the model."""
    from cvm.report.document import decibel

    return {
        "method": settings.method,
        "tried": [
            {
                "method": item.method,
                "equalized": item.equalized,
                "corrected": item.corrected,
                "sqnr_db": decibel(item.apart_db),
                "kept": item.kept,
            }
            for item in trials
        ],
        "equalized": [
            {"tensor": item.tensor, "filters": list(item.filters), "exponents": list(item.exponents)}
            for item in found.rescaled
        ],
        "corrected": [
            {"tensor": item.tensor, "bias": item.bias, "greatest": item.greatest, "added": item.is_new}
            for item in found.corrected
        ],
    }


def tensor_document(item: CalibratedTensor) -> dict[str, Any]:
    """A tensor that got a quantiser."""
    return {
        "tensor": item.name,
        "role": item.role,
        "min": item.min,
        "max": item.max,
        "clipped": item.clipped,
        "quantizer": item.text,
    }


def render(console: Console, document: dict[str, Any]) -> None:
    """Print the document for people."""
    rows = [
        (
            item["tensor"],
            item["role"],
            f"{item['min']:.6g}",
            f"{item['max']:.6g}",
            f"{100 * item['clipped']:.3g} %" if item["clipped"] else "",
            item["quantizer"] if len(item["quantizer"]) <= _LONGEST else item["quantizer"][:_LONGEST] + "..",
        )
        for item in document["tensors"]
    ]
    table(console, ("tensor", "role", "min>", "max>", "clipped>", "quantiser"), rows)
    if "outputs" in document:
        _render_program(console, document)
    if "file" in document:
        say(console, f"wrote  {document['file']['path']} ({document['file']['bytes']} bytes)")
    if "folder" in document:
        say(console, f"wrote  {document['folder']}")


def _render_choices(console: Console, document: dict[str, Any]) -> None:
    if document["tried"]:
        say(console, f"ranges: {document['method']}, the best of {len({t['method'] for t in document['tried']})} tried")
    for done, what in (
        ("equalized", "channels equalised between layers"),
        ("corrected", "means of channels corrected"),
    ):
        tried = any(item[done] for item in document["tried"])
        if document[done]:
            names = ", ".join(item["tensor"] for item in document[done][:_LISTED])
            more = f" and {len(document[done]) - _LISTED} more" if len(document[done]) > _LISTED else ""
            say(console, f"{what}: {len(document[done])} ({names}{more})")
        elif tried:
            say(console, f"{what}: none, since that did not help")


def _render_program(console: Console, document: dict[str, Any]) -> None:
    say(console)
    table(console, ("output", "SQNR dB>"), ((item["output"], _ratio(item["sqnr_db"])) for item in document["outputs"]))
    say(console)
    kinds = Counter(item["role"] for item in document["tensors"])
    listed = [counted(count, role, "biases" if role == "bias" else None) for role, count in kinds.items()]
    say(console, f"quantisers added: {', '.join(listed) or 'none'}")
    if "tried" in document:
        _render_choices(console, document)
    widened = document.get("widened", [])
    if widened:
        costs = ", ".join(f"{item['tensors'][0]} ({_ratio(item['alone_db'])} dB)" for item in widened[:_LISTED])
        more = f" and {len(widened) - _LISTED} more" if len(widened) > _LISTED else ""
        say(console, f"more bits for {len(widened)}; the SQNR if only that one had {document['bits']}: {costs}{more}")
    data = document.get("data", {})
    if "random" in data:
        say(console, f"data: {data['runs']} random samples (seed {data['random']['seed']}): the ranges are theirs")
    halves = document.get("halves_to_even", [])
    if halves:
        more = f" and {len(halves) - _LISTED} more" if len(halves) > _LISTED else ""
        names = ", ".join(halves[:_LISTED])
        say(console, f"ONNX rounds halves to even, this model does not: averages may differ by a code ({names}{more})")
    say(console, f"{document['nodes']} nodes, {document['constant_bytes']} bytes of constants")
    say(console, f"gas     {document['gas']}")
    say(console, f"digest  {document['digest']}")


def _ratio(value: float | str | None) -> str:
    return "undefined" if value is None else str(value)
