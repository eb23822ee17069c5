"""What each kernel becomes: by the specification (`RULES`), and as the sample implementation computes it."""

from cvm.frontends.openvx.rules import pointwise, regions, sample, sums, windows  # (the imports enter the rules)
from cvm.frontends.openvx.rules.registry import RULES, SAMPLE_RULES

__all__ = ["RULES", "SAMPLE_RULES", "pointwise", "regions", "sample", "sums", "windows"]
