"""`legalize` writes a program in the document's ops alone.

The modules ``requantize``, ``greater`` and ``matmul`` rewrite one extension op each, exactly. They build expressions
(``expressions``, ``tensors``, ``columns``, ``layouts``), whose intervals are proven when they are built. ``rewrite``
replaces the ops and keeps the rest of the program.
"""

from cvm.passes.legalize.expansion import Expansion, expansions
from cvm.passes.legalize.rewrite import legalize

__all__ = ["Expansion", "expansions", "legalize"]
