"""The error for a tensor without a quantiser. It says how to get a quantiser by calibration."""

from __future__ import annotations

from cvm.errors import Location, Unsupported

__all__ = ["unquantized"]

_OFFER = "`cvm quantize MODEL -i data.npz -o graph.quant` chooses quantisers from data"


def unquantized(message: str, location: Location) -> Unsupported:
    """The error ``lowering.unquantized`` with ``message`` and the command that chooses quantisers from data."""
    return Unsupported("lowering.unquantized", f"{message}; {_OFFER}", location)
