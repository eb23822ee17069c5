"""Recognition of operations that a document writes as several simple ones, where both are the same real number.

`recognized` replaces the parts of a layer normalisation (`normalization`) and of a softmax (`softmax`) by one
operation. No tensor within the parts may be quantised, or read by an operation outside of them. `recognize_masks` then
finds what masks hide from a softmax (`masks`), and `recognize_shared_heads` matrices that are repeated for a product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cvm.frontends.common.recognition.masks import recognize_masks
from cvm.frontends.common.recognition.normalization import normalization_around
from cvm.frontends.common.recognition.regions import Regions, Whole
from cvm.frontends.common.recognition.shared_heads import recognize_shared_heads
from cvm.frontends.common.recognition.softmax import softmax_around
from cvm.graph import GraphOperation, GraphTensor

__all__ = ["recognize_masks", "recognize_shared_heads", "recognized"]

_FINDERS = {
    "sqrt": normalization_around,
    "rsqrt": normalization_around,
    "pow": normalization_around,
    "exp": softmax_around,
}


def recognized(
    tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation], outputs: Collection[str]
) -> list[GraphOperation]:
    """The operations, with each recognised group replaced by one operation in the position of the last of the group.

    ``outputs`` are the results of the graph, which keep their names.
    """
    regions = Regions(tensors, operations, outputs)
    found: dict[int, Whole] = {}
    gone: set[int] = set()
    for operation in operations:
        finder = _FINDERS.get(operation.name)
        whole = finder(regions, operation) if finder is not None else None
        if whole is not None and not gone.intersection(map(id, whole.parts)):
            found[id(whole.last)] = whole
            gone.update(map(id, whole.parts))
    return [
        found[id(item)].operation if id(item) in found else item
        for item in operations
        if id(item) in found or id(item) not in gone
    ]
