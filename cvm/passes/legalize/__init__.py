"""Programs in the document's ops alone: `legalize`.

Extension ops are rewritten exactly (``requantize``, ``greater``), by expressions whose intervals are proven as they
are made (``expressions``, ``tensors``, ``columns``, ``layouts``), and the program around them is kept (``rewrite``).
"""

from cvm.passes.legalize.expansion import Expansion, expansions
from cvm.passes.legalize.rewrite import legalize

__all__ = ["Expansion", "expansions", "legalize"]
