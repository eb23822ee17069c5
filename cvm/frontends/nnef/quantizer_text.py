"""Quantization files from quantisers: NNEF 1.0.1 section 5.3, and the algorithms of the Khronos tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from cvm.frontends.nnef.exact import number_text
from cvm.frontends.nnef.faults import unsupported
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer

__all__ = ["algorithm_text", "quantization_text"]

_SHORT = 64  # the greatest exponent of a power of two that is written as a number


def quantization_text(graph: QuantizedGraph) -> str:
    """The quantization file of a graph; empty without any quantiser.

    Raises `Unsupported` for a quantiser that none of the algorithms can express.
    """
    lines: list[str] = []
    for tensor in graph.tensors.values():
        if tensor.quantizer is not None:
            text = algorithm_text(tensor.quantizer)
            if text is None:
                message = f"no quantisation algorithm of NNEF has the codes of this one: {_described(tensor.quantizer)}"
                raise unsupported("writer.quantizer", message).at(tensor=tensor.name)
            lines.append(f'"{tensor.name}": {text};\n')
    return "".join(lines)


def _described(quantizer: Quantizer) -> str:
    codes = f"codes {quantizer.lo} to {quantizer.hi}"
    return codes if isinstance(quantizer, LogarithmicQuantizer) else f"{codes}, rounding {quantizer.rounding}"


def algorithm_text(quantizer: Quantizer) -> str | None:
    """The algorithm with its arguments, one of 1.0.1 where possible; None if there is none."""
    if isinstance(quantizer, LogarithmicQuantizer):
        power = number_text(Fraction(2) ** quantizer.top) if abs(quantizer.top) < _SHORT else f"2.0 ^ {quantizer.top}.0"
        return f"logarithmic_quantize(max = {power}, bits = {quantizer.bits})"
    if quantizer.rounding != "half_up":
        return None
    low = [offset + scale * quantizer.lo for scale, offset in zip(quantizer.scale, quantizer.offset, strict=True)]
    high = [offset + scale * quantizer.hi for scale, offset in zip(quantizer.scale, quantizer.offset, strict=True)]
    bits = quantizer.hi.bit_length()
    if len(low) == 1 and quantizer.lo == 0 and quantizer.hi == 2**bits - 1 and bits < 32:
        return f"linear_quantize(min = {number_text(low[0])}, max = {number_text(high[0])}, bits = {bits})"
    for found in _code_ranges(quantizer):
        suffix = f"bits = {found[0]}, signed = {_logical(found[1])}, symmetric = {_logical(found[2])}"
        zeros = [-offset / scale for scale, offset in zip(quantizer.scale, quantizer.offset, strict=True)]
        if all(zero.denominator == 1 for zero in zeros):
            points = _list([str(zero.numerator) for zero in zeros])
            scales = _list(list(map(number_text, quantizer.scale)))
            return f"zero_point_linear_quantize(zero_point = {points}, scale = {scales}, {suffix})"
        minimum, maximum = _list(list(map(number_text, low))), _list(list(map(number_text, high)))
        return f"min_max_linear_quantize(min = {minimum}, max = {maximum}, {suffix})"
    return None


def _code_ranges(quantizer: LinearQuantizer) -> Iterator[tuple[int, bool, bool]]:
    """The combinations of bits, sign and symmetry that have the codes of the quantiser."""
    bits = quantizer.hi.bit_length()
    if 1 <= bits <= 32 and (quantizer.lo, quantizer.hi) == (0, 2**bits - 1):
        yield bits, False, False
    if 1 <= bits <= 31 and quantizer.hi == 2**bits - 1 and quantizer.lo in (-quantizer.hi - 1, -quantizer.hi):
        yield bits + 1, True, quantizer.lo == -quantizer.hi


def _logical(value: bool) -> str:
    return "true" if value else "false"


def _list(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"[{', '.join(items)}]"
