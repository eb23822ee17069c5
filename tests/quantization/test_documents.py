"""Quantisers as plain data, and the code ranges of the quantisers of the Khronos tools."""

from fractions import Fraction

import pytest

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.document import quantizer_document


def test_documents_say_all_of_a_quantiser() -> None:
    linear = LinearQuantizer((Fraction(1, 3),), (Fraction(-2),), -8, 7, 1, "half_even")
    assert quantizer_document(None) is None
    assert quantizer_document(LogarithmicQuantizer(3, 4)) == {"top": 3, "bits": 4, "lo": -16, "hi": 16}
    assert quantizer_document(linear) == {
        "scale": ["1/3"],
        "offset": ["-2"],
        "lo": -8,
        "hi": 7,
        "axis": 1,
        "rounding": "half_even",
    }


@pytest.mark.parametrize(
    ("signed", "symmetric", "codes"),
    [(False, False, (0, 255)), (False, True, (0, 255)), (True, False, (-128, 127)), (True, True, (-127, 127))],
)
def test_the_codes_of_a_zero_point(signed: bool, symmetric: bool, codes: tuple[int, int]) -> None:
    quantizer = LinearQuantizer.zero_point((3,), (Fraction(1, 2),), 8, signed, symmetric)
    assert (quantizer.lo, quantizer.hi) == codes
    assert quantizer.offset == (Fraction(-3, 2),)
