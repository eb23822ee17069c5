"""Which tensor of a graph holds the codes of which quantised tensor of the file."""

from __future__ import annotations

from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the codes of a quantised tensor of a file are in the graph, so that engines can be compared with it."""

    name: str
    """The name that the file has for the tensor."""
    tensor: str
    """The tensor of the graph."""
    quantizer: LinearQuantizer
    """Under it, the integers that the file stores are the codes of the graph's tensor."""
    planar: bool = False
    """Whether the graph has the channels at axis 1 and the file has them last."""
    index: int = -1
    """The number of the tensor in a file that counts its tensors; -1 in others."""
