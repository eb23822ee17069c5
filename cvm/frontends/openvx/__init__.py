"""The OpenVX neural-network extension: objects, nodes, checks, and the translation to a `cvm.graph.QuantizedGraph`.

`cvm.openvx` has the whole interface; this package is the part that knows neither programs nor executors.
"""

from cvm.frontends.openvx.reader import translate
from cvm.frontends.openvx.translation import Translated

__all__ = ["Translated", "translate"]
