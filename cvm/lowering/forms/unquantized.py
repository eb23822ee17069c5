"""The refusal that names a tensor without quantisation, and says how it gets one."""

from __future__ import annotations

from cvm.errors import Location, Unsupported

__all__ = ["unquantized"]

_OFFER = "`cvm quantize MODEL -i data.npz -o graph.quant` chooses quantisers from data"


def unquantized(message: str, location: Location) -> Unsupported:
    """The error ``lowering.unquantized``: what is missing, and the offer to calibrate it instead of guessing."""
    return Unsupported("lowering.unquantized", f"{message}; {_OFFER}", location)
