"""The rules of the kernels: by the specification (`RULES`), and as the sample implementation computes them."""

from cvm.frontends.openvx.rules import pointwise, regions, sample, sums, windows  # (the imports enter the rules)
from cvm.frontends.openvx.rules.registry import RULES, SAMPLE_RULES

__all__ = ["RULES", "SAMPLE_RULES", "pointwise", "regions", "sample", "sums", "windows"]
