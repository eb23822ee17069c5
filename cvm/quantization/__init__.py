"""Exact quantisers and the proofs of their fixed-point forms."""

from cvm.quantization.quantizer import LinearQuantizer, Rounding

__all__ = ["LinearQuantizer", "Rounding"]
