"""What tensors and graphs know of the context that owns them, so that they need not know the context itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy.typing as npt

__all__ = ["Owner"]


class Owner(ABC):
    """The settings of a context (`ML.create_context` says what they mean), and what it does with what it owns."""

    def __init__(
        self,
        strict_scale_rank: bool,
        allow_negative_scale: bool,
        integer_overflow: Literal["wrap", "error"],
        executor: str | None,
    ) -> None:
        self.strict_scale_rank = strict_scale_rank
        self.allow_negative_scale = allow_negative_scale
        self.integer_overflow: Literal["wrap", "error"] = integer_overflow
        self.executor = executor

    @abstractmethod
    def dispatch(self, graph: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Run a graph from tensors into tensors."""

    @abstractmethod
    def compute(self, graph: Any, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
        """Run a graph on arrays."""

    @abstractmethod
    def read_tensor(self, tensor: Any, output: Any = None) -> npt.NDArray[Any]:
        """A copy of the elements of a tensor."""

    @abstractmethod
    def write_tensor(self, tensor: Any, data: Any) -> None:
        """Replace the elements of a tensor."""

    @abstractmethod
    def destroy(self) -> None:
        """Destroy what it owns."""
