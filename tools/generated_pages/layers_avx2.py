"""The page ``docs/layers-avx2.md``: the layers of `layers` on processors with AVX2 but without VNNI."""

from __future__ import annotations

from cvm.executors.native.runtime.select import named
from tools.generated_pages.layers import HEADING, introduction, measured
from tools.generated_pages.page import Page

__all__ = ["PAGE"]

_PEAK = """\
Here the peak is that of single steps of byte products, three instructions each. Kernels exceed it: two steps that 16
bits hold take five instructions, and convolutions in squares of results take a quarter of the products. Their
multiply-adds are counted as those of the convolution.
"""

PAGE = Page(
    "layers-avx2.md",
    lambda: introduction("Layers with AVX2", "layers_avx2", _PEAK),
    HEADING,
    lambda: measured(named("avx2")),
)
