"""Activation functions, as tables."""

from __future__ import annotations

from cvm.frontends.openvx.constants import Kernels
from cvm.frontends.openvx.functions import activation_codes
from cvm.frontends.openvx.graph import OpenvxNode
from cvm.frontends.openvx.rules.registry import rule
from cvm.frontends.openvx.translation import OpenvxTranslation

__all__: list[str] = []


@rule(Kernels.VX_KERNEL_ACTIVATION_LAYER)
def activation(translation: OpenvxTranslation, node: OpenvxNode) -> str:
    """Emit an activation as a table with one code for each raw integer."""
    outputs = node["outputs"]
    codes = activation_codes(node["function"], node["a"], node["b"], outputs.format)
    name = translation.read(node["inputs"])
    return translation.emit("lookup", name, quantizer=outputs.format.quantizer(), codes=codes, first=outputs.format.lo)
