"""The steps of a quantiser say of every rational number which codes it has reached: its code and no other."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import code
from cvm.quantization.steps import step

NUMBERS = st.fractions(-10, 10, max_denominator=64)
LINEAR = st.builds(
    lambda scale, offset, bits: LinearQuantizer((scale,), (offset,), -3, 2**bits),
    st.fractions(Fraction(1, 20), 3, max_denominator=20), st.fractions(-3, 3, max_denominator=8), st.integers(0, 4),
)  # fmt: skip
LOGARITHMIC = st.builds(LogarithmicQuantizer, st.integers(-3, 4), st.integers(1, 3))


@given(NUMBERS, LINEAR | LOGARITHMIC)
def test_the_steps_reached_are_those_up_to_the_code(x, quantizer):
    found = code(x, quantizer)
    assert [k for k in range(quantizer.lo + 1, quantizer.hi + 1) if step(quantizer, k).reached(x)] == list(
        range(quantizer.lo + 1, found + 1)
    )


@given(LOGARITHMIC, st.integers(-8, 8))
def test_steps_of_logarithms_lie_at_the_middle_of_exponents(quantizer, k):
    if quantizer.lo < k <= quantizer.hi and k not in (0, 1):
        found = step(quantizer, k)
        power = quantizer.value(k if k > 0 else k - 1)  # the code that is further from zero
        assert found.square == power * power / 2
        assert found.sign == (1 if k > 0 else -1)
        assert found.strict == (k < 0)
