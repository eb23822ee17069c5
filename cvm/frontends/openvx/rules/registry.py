"""The table of rules, by kernel."""

from __future__ import annotations

from cvm.frontends.common.registry import entering
from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.translation import Rule

__all__ = ["RULES", "SAMPLE_RULES", "rule", "sample_rule"]

RULES: dict[Kernels, Rule] = {}
"""The rules by the specification; each returns the tensor of the graph that holds the output, in its NumPy shape."""

SAMPLE_RULES: dict[Kernels, Rule] = {}
"""The rules of the sample implementation of OpenVX 1.3."""

rule = entering(RULES)
"""Register a function as the rule of a kernel by the specification."""

sample_rule = entering(SAMPLE_RULES)
"""Register a function as the rule of a kernel in the sample implementation."""
