"""The C functions that exported models call, each with what it needs; a model contains only those that it uses."""

from __future__ import annotations

import re

from cvm.export.c.dots import TEXTS as DOTS

__all__ = ["with_needed"]

_TEXTS: dict[str, tuple[tuple[str, ...], str]] = {
    "floor_shift": (
        (),
        """
/* floor(v / 2^s) for 0 <= s <= 62. C leaves shifts of negative numbers to the compiler; these are of others. */
static int64_t floor_shift(int64_t v, int32_t s)
{
    return v >= 0 ? v >> s : -1 - ((-1 - v) >> s);
}
""",
    ),
    "half_even": (
        ("floor_shift",),
        """
/* v / 2^s rounded to the nearest integer, of two equally near ones to the even one. */
static int64_t half_even(int64_t v, int32_t s)
{
    const int64_t below = floor_shift(v, s);
    const int64_t rest = v - below * ((int64_t)1 << s);
    const int64_t half = s > 0 ? (int64_t)1 << (s - 1) : 0;
    const int64_t odd = below % 2 != 0 ? 1 : 0;
    return s > 0 && (rest > half || (rest == half && odd == 1)) ? below + 1 : below;
}
""",
    ),
    "toward_zero": (
        (),
        """
/* v / 2^s rounded toward zero. */
static int64_t toward_zero(int64_t v, int32_t s)
{
    return v >= 0 ? v >> s : -((-v) >> s);
}
""",
    ),
    "half_of": (
        (),
        """
/* 2^(s - 1), or 0 for s = 0. */
static int64_t half_of(int32_t s)
{
    return s > 0 ? (int64_t)1 << (s - 1) : 0;
}
""",
    ),
    "clip": (
        (),
        """
/* v, or the bound that it is beyond. */
static int32_t clip(int64_t v, int32_t lo, int32_t hi)
{
    return v < lo ? lo : v > hi ? hi : (int32_t)v;
}
""",
    ),
    "digits": (
        (),
        """
/* The number of binary digits of |x|, and 1 for x = 0. */
static int32_t digits(int32_t x)
{
    int64_t rest = x >= 0 ? (int64_t)x : -(int64_t)x;
    int32_t count = 1;
    for (; rest > 1; rest /= 2) {
        count++;
    }
    return count;
}
""",
    ),
    "wrapped": (
        (),
        """
/* The signed integer that equals u modulo 2^32. A sum whose parts may wrap is formed unsigned; the whole sum fits. */
static int32_t wrapped(uint32_t u)
{
    return u <= UINT32_C(0x7fffffff) ? (int32_t)u : -1 - (int32_t)(UINT32_C(0xffffffff) - u);
}
""",
    ),
    "floor_quotient": (
        (),
        """
/* floor(a / b) for b > 0. */
static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -1 - (-1 - a) / b;
}
""",
    ),
    "even_quotient": (
        ("floor_quotient",),
        """
/* a / b for b > 0, rounded to the nearest integer, of two equally near ones to the even one. */
static int64_t even_quotient(int64_t a, int64_t b)
{
    const int64_t below = floor_quotient(a, b);
    const int64_t rest = a - below * b;
    const int64_t other = b - rest;
    return rest > other || (rest == other && below % 2 != 0) ? below + 1 : below;
}
""",
    ),
    "wide": (
        (),
        """
/* Integers of 288 bits in two's complement, least significant digit first, for products that no type of C holds. */
typedef struct {
    uint32_t digit[9];
} wide;

static wide wide_of(int64_t v)
{
    wide w;
    int32_t i;
    uint64_t bits = (uint64_t)v;
    w.digit[0] = (uint32_t)(bits & UINT32_C(0xffffffff));
    w.digit[1] = (uint32_t)(bits >> 32);
    for (i = 2; i < 9; i++) {
        w.digit[i] = v < 0 ? UINT32_C(0xffffffff) : 0;
    }
    return w;
}

static wide wide_sum(wide a, wide b)
{
    uint64_t carry = 0;
    int32_t i;
    for (i = 0; i < 9; i++) {
        carry += (uint64_t)a.digit[i] + b.digit[i];
        a.digit[i] = (uint32_t)(carry & UINT32_C(0xffffffff));
        carry >>= 32;
    }
    return a;
}

static wide wide_product(wide a, wide b)
{
    wide w = {{0, 0, 0, 0, 0, 0, 0, 0, 0}};
    int32_t i, j;
    for (i = 0; i < 9; i++) {
        uint64_t carry = 0;
        for (j = 0; i + j < 9; j++) {
            carry += (uint64_t)a.digit[i] * b.digit[j] + w.digit[i + j];
            w.digit[i + j] = (uint32_t)(carry & UINT32_C(0xffffffff));
            carry >>= 32;
        }
    }
    return w;
}

static int32_t wide_is_negative(wide a)
{
    return a.digit[8] > UINT32_C(0x7fffffff) ? 1 : 0;
}

/* -1, 0 or 1 as a is less than b, equal to it, or greater. */
static int32_t wide_order(wide a, wide b)
{
    int32_t i;
    if (wide_is_negative(a) != wide_is_negative(b)) {
        return wide_is_negative(a) == 1 ? -1 : 1;
    }
    for (i = 8; i >= 0; i--) {
        if (a.digit[i] != b.digit[i]) {
            return a.digit[i] < b.digit[i] ? -1 : 1;
        }
    }
    return 0;
}
""",
    ),
    "wide_quotient": (
        ("wide",),
        """
/* The greatest of lo and all q <= hi that n / d rounds up to, for d > 0; rounding 0 is half up, 1 half to even, and 2
   toward zero. What n / d rounds up to is all q up to one of them, so the interval around it is halved. */
static int32_t wide_quotient(wide n, wide d, int32_t rounding, int32_t lo, int32_t hi)
{
    int64_t below = lo;
    int64_t above = (int64_t)hi + 1;
    while (above - below > 1) {
        const int64_t q = below + (above - below) / 2;
        int32_t order;
        int32_t reached;
        if (rounding == 2) {
            order = wide_order(n, wide_product(wide_of(q > 0 ? q : q - 1), d));
            reached = q > 0 ? order >= 0 : order > 0;
        } else {
            order = wide_order(wide_sum(n, n), wide_product(wide_of(2 * q - 1), d));
            reached = order > 0 || (order == 0 && (rounding == 0 || q % 2 == 0));
        }
        if (reached) {
            below = q;
        } else {
            above = q;
        }
    }
    return (int32_t)below;
}
""",
    ),
    "normalized": (
        ("wide",),
        """
static wide wide_signed_square(wide a)
{
    wide square = wide_product(a, a);
    return wide_is_negative(a) == 1 ? wide_product(square, wide_of(-1)) : square;
}

/* The greatest of lo and all q <= hi that (m t / sqrt(v / r^2) + c) / k rounds up to. Twice both sides of
   m t r / sqrt(v) >= (q - 1/2) k - c are compared by their signs and squares. */
static int32_t normalized(int64_t t, int64_t m, int64_t c, int64_t k, int64_t r, wide v, int32_t even, int32_t lo,
                          int32_t hi)
{
    const wide twice = wide_product(wide_of(2 * t), wide_of(r));
    const wide left = wide_signed_square(wide_product(twice, wide_of(m)));
    const wide offset = wide_product(wide_of(-2), wide_of(c));
    int64_t below = lo;
    int64_t above = (int64_t)hi + 1;
    while (above - below > 1) {
        const int64_t q = below + (above - below) / 2;
        const wide bound = wide_sum(wide_product(wide_of(2 * q - 1), wide_of(k)), offset);
        const int32_t order = wide_order(left, wide_product(wide_signed_square(bound), v));
        if (order > 0 || (order == 0 && (even == 0 || q % 2 == 0))) {
            below = q;
        } else {
            above = q;
        }
    }
    return (int32_t)below;
}
""",
    ),
    "overlaps": (
        ("wide",),
        """
/* Whether the intersection of two boxes (x1, y1, x2, y2) is at least percent hundredths of their union. Areas have a
   sign; boxes whose areas do not add up to more than 0, or without a positive union, do not overlap. */
static int32_t overlaps(const int32_t *r, const int32_t *s, int32_t percent)
{
    const int64_t right = r[2] < s[2] ? r[2] : s[2];
    const int64_t left = r[0] > s[0] ? r[0] : s[0];
    const int64_t bottom = r[3] < s[3] ? r[3] : s[3];
    const int64_t top = r[1] > s[1] ? r[1] : s[1];
    const wide width = wide_of(right > left ? right - left : 0);
    const wide height = wide_of(bottom > top ? bottom - top : 0);
    const wide zero = wide_of(0);
    const wide of_r = wide_product(wide_of((int64_t)r[2] - r[0]), wide_of((int64_t)r[3] - r[1]));
    const wide of_s = wide_product(wide_of((int64_t)s[2] - s[0]), wide_of((int64_t)s[3] - s[1]));
    const wide areas = wide_sum(of_r, of_s);
    const wide both = wide_product(width, height);
    const wide either = wide_sum(areas, wide_product(both, wide_of(-1)));
    if (wide_order(areas, zero) <= 0 || wide_order(either, zero) <= 0) {
        return 0;
    }
    return wide_order(wide_product(both, wide_of(100)), wide_product(either, wide_of(percent))) >= 0 ? 1 : 0;
}
""",
    ),
    **DOTS,
}


def with_needed(code: str) -> str:
    """The definitions of the functions that this code calls, and of those that they call."""
    needed: set[str] = set()
    left = [name for name in _TEXTS if re.search(rf"\b{name}\(", code)]
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left.extend(_TEXTS[name][0])
    return "".join(text for name, (_, text) in _TEXTS.items() if name in needed)
