"""Exact quantisers and the proofs of their fixed-point forms."""

from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding

__all__ = ["LinearQuantizer", "LogarithmicQuantizer", "Quantizer", "Rounding"]
