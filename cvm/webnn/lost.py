"""`MLContext.lost`: a future that Python code can await, wait for, or be called back by (WebNN 8.3.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

__all__ = ["Lost", "MLContextLostInfo"]


@dataclass(frozen=True, slots=True)
class MLContextLostInfo:
    """Why a context was lost."""

    message: str


class Lost(Future[MLContextLostInfo]):
    """What a promise is in JavaScript: done once the context is lost. It can be awaited in any event loop."""

    def __await__(self) -> Generator[Any, Any, MLContextLostInfo]:
        return asyncio.wrap_future(self).__await__()
