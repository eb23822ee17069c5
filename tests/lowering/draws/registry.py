"""What draws the random documents of each operation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.lowering.documents import Document

__all__ = ["DRAWS", "Draw", "Drawn", "draws"]

Drawn = tuple[Document, str]
"""A document, and its output or outputs (with commas)."""

Draw = Callable[[Random], Drawn]

DRAWS: dict[str, Draw] = {}
"""By the name of the operation in NNEF."""


def draws(*operations: str) -> Callable[[Callable[[Document, str], str]], Callable[[Document, str], str]]:
    """Enter a function that writes a document of one of the operations and returns its output or outputs."""

    def enter(function: Callable[[Document, str], str]) -> Callable[[Document, str], str]:
        for operation in operations:

            def drawn(random: Random, operation: str = operation) -> Drawn:
                document = Document(random)
                return document, function(document, operation)

            assert operation not in DRAWS, operation
            DRAWS[operation] = drawn
        return function

    return enter
