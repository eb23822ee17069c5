"""`MLContext.lost`: a future that Python code can await, wait for, or add callbacks to (WebNN 8.3.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from cvm.records import dataclass

__all__ = ["Lost", "MLContextLostInfo"]


@dataclass(frozen=True, slots=True)
class MLContextLostInfo:
    """The reason why a context was lost."""

    message: str


class Lost(Future[MLContextLostInfo]):
    """The counterpart of a JavaScript promise: done once the context is lost. Any event loop can await it."""

    def __await__(self) -> Generator[Any, Any, MLContextLostInfo]:
        return asyncio.wrap_future(self).__await__()
