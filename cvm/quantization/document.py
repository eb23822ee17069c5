"""Quantisers as plain data, for the documents that commands print and write."""

from __future__ import annotations

from typing import Any

from cvm.quantization.quantizer import LogarithmicQuantizer, Quantizer

__all__ = ["quantizer_document"]


def quantizer_document(quantizer: Quantizer | None) -> dict[str, Any] | None:
    """A quantiser as a document in which rationals are texts; None for None."""
    if quantizer is None:
        return None
    if isinstance(quantizer, LogarithmicQuantizer):
        return {"top": quantizer.top, "bits": quantizer.bits, "lo": quantizer.lo, "hi": quantizer.hi}
    return {
        "scale": list(map(str, quantizer.scale)),
        "offset": list(map(str, quantizer.offset)),
        "lo": quantizer.lo,
        "hi": quantizer.hi,
        "axis": quantizer.axis,
        "rounding": quantizer.rounding,
    }
