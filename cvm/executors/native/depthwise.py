"""Depthwise convolutions: every channel by itself, vectors of channels side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cvm.executors.native.pointwise import Build
from cvm.executors.native.steps import Home
from cvm.program.model import Node

if TYPE_CHECKING:
    from cvm.executors.native.plan import Planner

__all__ = ["plan", "suits"]

Integers = npt.NDArray[np.int64]


def suits(planner: Planner, node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a convolution has one input and one output channel per group."""
    return False


def plan(
    planner: Planner, root: Node, node: Node, home: Home, weights: Integers, bias: Integers, built: Build
) -> None:
    """The kernel of a depthwise convolution."""
    raise NotImplementedError
