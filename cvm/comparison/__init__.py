"""A model in another engine, beside its exact meaning: which operator adds which difference, and why.

`opened` reads a model and makes the two programs that are needed; `shown` runs the file in an engine, in a process of
its own; `compared` compares all tensors that the engine shows; `explained` finds the arithmetic behind the differences.
"""

from cvm.comparison.comparing import Compared, Counts, Difference, agreement, compared
from cvm.comparison.engines import ENGINES, Setting, setting
from cvm.comparison.explaining import Example, Explanation, explained
from cvm.comparison.model import Model, opened
from cvm.comparison.running import Shown, shown
from cvm.comparison.samples import Samples, drawn, samples

__all__ = [
    "ENGINES",
    "Compared",
    "Counts",
    "Difference",
    "Example",
    "Explanation",
    "Model",
    "Samples",
    "Setting",
    "Shown",
    "agreement",
    "compared",
    "drawn",
    "explained",
    "opened",
    "samples",
    "setting",
    "shown",
]
