"""The contracts that judge a step, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Part", "judge_parts"]


@dataclass(frozen=True, slots=True)
class Part:
    """A contract, and its constructor's arguments, given the addresses of those made before it."""

    name: str
    arguments: Callable[[Mapping[str, str]], tuple[Any, ...]]


def judge_parts() -> list[Part]:
    """The judge and what it calls."""
    return [Part("StepJudge", lambda _: ())]
