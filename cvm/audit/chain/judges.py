"""The contracts that judge a step, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cvm.records import dataclass

__all__ = ["FAMILIES", "Part", "judge_parts"]

FAMILIES = ("ElementwiseJudge", "TransformJudge", "SumJudge", "QuotientJudge", "SearchJudge")
"""The contracts that compute the steps, one for each family of ops, in the order of the judge's constructor."""


@dataclass(frozen=True, slots=True)
class Part:
    """A contract, and its constructor's arguments, given the addresses of those made before it."""

    name: str
    arguments: Callable[[Mapping[str, str]], tuple[Any, ...]]


def judge_parts() -> list[Part]:
    """The judge, after the contracts that it calls. None has an owner or any storage."""
    families = [Part(name, lambda _: ()) for name in FAMILIES]
    return [*families, Part("StepJudge", lambda made: tuple(made[name] for name in FAMILIES))]
