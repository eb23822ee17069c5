"""The OpenVX neural-network extension: objects, nodes, checks, and their translation to a `cvm.graph.QuantizedGraph`.

`cvm.openvx` has the whole interface; this package is its part that knows nothing of programs and executors.
"""

from cvm.frontends.openvx.reader import translate
from cvm.frontends.openvx.translation import Translated

__all__ = ["Translated", "translate"]
