"""The rule of each kernel."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.translation import Rule

__all__ = ["RULES", "SAMPLE_RULES", "rule", "sample_rule"]

RULES: dict[Kernels, Rule] = {}
"""By the specification: the tensor of the graph that holds the output, in its NumPy shape."""

SAMPLE_RULES: dict[Kernels, Rule] = {}
"""As the sample implementation of OpenVX 1.3 computes it."""

rule = entering(RULES)
"""Enter a rule by the specification."""

sample_rule = entering(SAMPLE_RULES)
"""Enter a rule of the sample implementation."""
