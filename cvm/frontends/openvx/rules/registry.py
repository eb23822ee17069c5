"""The rule of each kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cvm.frontends.common.registry import entering
from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.errors import NotSupported
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__ = ["RULES", "SAMPLE_RULES", "refused", "rule", "sample_rule"]

Rule: TypeAlias = "Callable[[OpenvxTranslation, OpenvxNode], str]"

RULES: dict[Kernels, Rule] = {}
"""By the specification: the tensor of the graph that holds the output, in its NumPy shape."""

SAMPLE_RULES: dict[Kernels, Rule] = {}
"""As the sample implementation of OpenVX 1.3 computes it."""

rule = entering(RULES)
"""Enter a rule by the specification."""

sample_rule = entering(SAMPLE_RULES)
"""Enter a rule of the sample implementation."""


def refused(node: OpenvxNode) -> NotSupported:
    """The refusal of a kernel whose arithmetic in the sample implementation is not reproduced."""
    message = f"{node.declaration.function} of the sample implementation computes in floats: only compat='spec' has it"
    return NotSupported("compat.kernel", message, node.location(), node.label)
