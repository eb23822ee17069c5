"""Inputs that need no conversion, the usual case of callers who count microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvm.inputs import ambiguous
from cvm.program.model import ProgramParts

__all__ = ["PlainInputs"]


class PlainInputs:
    """Tells whether the arrays for a program are int32 codes of one run in the declared shapes."""

    def __init__(self, parts: ProgramParts) -> None:
        self._shapes = [(item.value.name, item.value.shape) for item in parts.inputs]
        self.names = [name for name, _ in self._shapes]
        """The names of the program's inputs."""
        self.ambiguous = any(ambiguous(item.quantizer) for item in parts.inputs)
        """Whether integers for some input mean codes only if the caller says so."""

    def fit(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the inputs need no arranging; the executor still checks the interval of each code."""
        if not isinstance(inputs, Mapping) or len(inputs) != len(self._shapes):
            return False
        for name, shape in self._shapes:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != np.int32 or array.shape != shape:
                return False
        return True
