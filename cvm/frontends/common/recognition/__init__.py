"""What a document writes out in simple operations, found where one operation of the graph is the same real number.

`recognized` puts layer normalisations (`normalization`) and softmax (`softmax`) in the place of what they consist of.
Nothing within may be rounded or read from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cvm.frontends.common.recognition.normalization import normalization_around
from cvm.frontends.common.recognition.regions import Regions, Whole
from cvm.frontends.common.recognition.softmax import softmax_around
from cvm.graph import GraphOperation, GraphTensor

__all__ = ["recognized"]

_FINDERS = {
    "sqrt": normalization_around,
    "rsqrt": normalization_around,
    "pow": normalization_around,
    "exp": softmax_around,
}


def recognized(
    tensors: Mapping[str, GraphTensor], operations: Sequence[GraphOperation], outputs: Collection[str]
) -> list[GraphOperation]:
    """The operations; what some of them compute together is one, in the place of the last of these.

    ``outputs`` are results of the graph, which stay what they are.
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
