"""A model in another engine, beside its exact meaning: which operator adds which difference, and why.

`opened` reads a model and makes the two programs that are needed; `shown` runs the file in an engine, in a process of
its own; `compared` compares all tensors that the engine shows; `explained` finds the arithmetic behind the differences,
and `searched` the rewrites of the engine's graph that make some.
"""

from cvm.comparison.comparing import (
    Compared,
    Counts,
    Difference,
    Disagreement,
    agreement,
    compared,
    disagreements,
)
from cvm.comparison.engines import ENGINES, Setting, setting, variants
from cvm.comparison.explaining import Example, Explanation, explained
from cvm.comparison.model import Model, opened
from cvm.comparison.rewriting import Search, searched
from cvm.comparison.running import Shown, shown
from cvm.comparison.samples import Samples, drawn, samples

__all__ = [
    "ENGINES",
    "Compared",
    "Counts",
    "Difference",
    "Disagreement",
    "Example",
    "Explanation",
    "Model",
    "Samples",
    "Search",
    "Setting",
    "Shown",
    "agreement",
    "compared",
    "disagreements",
    "drawn",
    "explained",
    "opened",
    "samples",
    "searched",
    "setting",
    "shown",
    "variants",
]
