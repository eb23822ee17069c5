"""Random documents of every operation of NNEF 1.0.1 chapter 4 and of the Khronos dialect, over all attributes."""

from tests.lowering.draws import elementwise, products, quantisation, regions, shapes  # noqa: F401  (they enter draws)
from tests.lowering.draws.registry import DRAWS, Draw, Drawn

__all__ = ["DRAWS", "Draw", "Drawn"]
