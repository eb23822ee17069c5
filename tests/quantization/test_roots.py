import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.roots import exact_root, floor_root

DEGREES = st.integers(1, 40)


@given(st.one_of(st.integers(0, 1000), st.integers(0, 2**4096)), DEGREES)
def test_the_floor_is_the_greatest_integer_whose_power_does_not_exceed_n(n: int, degree: int) -> None:
    root = floor_root(n, degree)
    assert root**degree <= n < (root + 1) ** degree


@given(st.integers(0, 2**64), DEGREES, st.integers(-2, 2))
def test_powers_alone_have_an_exact_root(root: int, degree: int, off: int) -> None:
    n = max(0, root**degree + off)
    found = exact_root(n, degree)
    assert found == next((near for near in range(max(0, root - 2), root + 3) if near**degree == n), None)


@pytest.mark.parametrize(("n", "degree", "root"), [(0, 5000, 0), (1, 5000, 1), (2, 5000, None), (2**5000, 5000, 2)])
def test_degrees_may_be_large(n: int, degree: int, root: int | None) -> None:
    assert exact_root(n, degree) == root


@pytest.mark.parametrize("n", [0, 1, 2, 2**64])
def test_degrees_beyond_all_powers_are_decided_at_once(n: int) -> None:
    """As of ``pow(v, 0.3333333333333333333)``, whose exponent has a denominator of 10^19."""
    assert floor_root(n, 10**19) == min(n, 1)
    assert exact_root(n, 10**19) == (n if n < 2 else None)
