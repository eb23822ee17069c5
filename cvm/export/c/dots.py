"""Sums of products of bytes as functions that machines have instructions for, each with the same result in plain C.

They are used where both factors are stored in 8 bits and no partial sum can leave 32 bits, in any order: then every
instruction below is exact. Products of two bytes fit 17 bits, so two of them added fit 32; `vpdpbusd`, `smlal` and
`smlad` do not saturate. Where `vpdpbusd` needs an operand without sign, 128 is added to it, and 128 times the weights
is subtracted from the sum, modulo 2^32. A build that defines the macro CVM_DOT4_S8 (.._U8), CVM_DOT_S8 (.._U8) gives
its own kernel; one that defines CVM_PORTABLE uses plain C alone.
"""

from __future__ import annotations

__all__ = ["TEXTS"]

_ROWS = """
/* For columns q from 0 to count - 1: sums[q] += w[0] x[q] + w[step] x[plane + q] + w[2 step] x[2 plane + q]
   + w[3 step] x[3 plane + q]. No partial sum leaves 32 bits. */
static CVM_NOINLINE void dot4_@t(int32_t *sums, const @type *x, int32_t plane, const int8_t *w, int32_t step,
                                 int32_t count)
{
#if defined(CVM_DOT4_@T)
    CVM_DOT4_@T(sums, x, plane, w, step, count);
#else
    const int32_t w0 = w[0];
    const int32_t w1 = w[step];
    const int32_t w2 = w[2 * step];
    const int32_t w3 = w[3 * step];
    int32_t q = 0;
#if defined(CVM_PORTABLE)
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
    const int32_t three = (w0 & 255) | (w1 & 255) << 8 | (w2 & 255) << 16;
    const __m128i four = _mm_set1_epi32(three | (int32_t)((uint32_t)w3 << 24));
    const __m128i sign = _mm_set1_epi8(@flip);
    const __m128i excess = _mm_set1_epi32(@excess * (w0 + w1 + w2 + w3));
    for (; q + 8 <= count; q += 8) {
        const __m128i a = _mm_loadl_epi64((const __m128i *)(x + q));
        const __m128i b = _mm_loadl_epi64((const __m128i *)(x + plane + q));
        const __m128i c = _mm_loadl_epi64((const __m128i *)(x + 2 * plane + q));
        const __m128i d = _mm_loadl_epi64((const __m128i *)(x + 3 * plane + q));
        const __m128i ab = _mm_xor_si128(_mm_unpacklo_epi8(a, b), sign);
        const __m128i cd = _mm_xor_si128(_mm_unpacklo_epi8(c, d), sign);
        __m128i *to = (__m128i *)(sums + q);
        const __m128i one = _mm_sub_epi32(_mm_loadu_si128(to), excess);
        const __m128i two = _mm_sub_epi32(_mm_loadu_si128(to + 1), excess);
        _mm_storeu_si128(to, _mm_dpbusd_epi32(one, _mm_unpacklo_epi16(ab, cd), four));
        _mm_storeu_si128(to + 1, _mm_dpbusd_epi32(two, _mm_unpackhi_epi16(ab, cd), four));
    }
#elif defined(__SSE2__)
    const __m128i pair = _mm_set1_epi32((w0 & 65535) | (int32_t)((uint32_t)w1 << 16));
    const __m128i other = _mm_set1_epi32((w2 & 65535) | (int32_t)((uint32_t)w3 << 16));
    for (; q + 8 <= count; q += 8) {
        const __m128i a = WIDE_@T(_mm_loadl_epi64((const __m128i *)(x + q)));
        const __m128i b = WIDE_@T(_mm_loadl_epi64((const __m128i *)(x + plane + q)));
        const __m128i c = WIDE_@T(_mm_loadl_epi64((const __m128i *)(x + 2 * plane + q)));
        const __m128i d = WIDE_@T(_mm_loadl_epi64((const __m128i *)(x + 3 * plane + q)));
        const __m128i low = _mm_add_epi32(_mm_madd_epi16(_mm_unpacklo_epi16(a, b), pair),
                                          _mm_madd_epi16(_mm_unpacklo_epi16(c, d), other));
        const __m128i high = _mm_add_epi32(_mm_madd_epi16(_mm_unpackhi_epi16(a, b), pair),
                                           _mm_madd_epi16(_mm_unpackhi_epi16(c, d), other));
        __m128i *to = (__m128i *)(sums + q);
        _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), low));
        _mm_storeu_si128(to + 1, _mm_add_epi32(_mm_loadu_si128(to + 1), high));
    }
#elif defined(__ARM_NEON)
    for (; q + 8 <= count; q += 8) {
        const int16x8_t a = WIDE_@T(x + q);
        const int16x8_t b = WIDE_@T(x + plane + q);
        const int16x8_t c = WIDE_@T(x + 2 * plane + q);
        const int16x8_t d = WIDE_@T(x + 3 * plane + q);
        int32x4_t low = vmlal_n_s16(vld1q_s32(sums + q), vget_low_s16(a), (int16_t)w0);
        int32x4_t high = vmlal_n_s16(vld1q_s32(sums + q + 4), vget_high_s16(a), (int16_t)w0);
        low = vmlal_n_s16(low, vget_low_s16(b), (int16_t)w1);
        high = vmlal_n_s16(high, vget_high_s16(b), (int16_t)w1);
        low = vmlal_n_s16(low, vget_low_s16(c), (int16_t)w2);
        high = vmlal_n_s16(high, vget_high_s16(c), (int16_t)w2);
        vst1q_s32(sums + q, vmlal_n_s16(low, vget_low_s16(d), (int16_t)w3));
        vst1q_s32(sums + q + 4, vmlal_n_s16(high, vget_high_s16(d), (int16_t)w3));
    }
#endif
    for (; q < count; q++) {
        sums[q] += w0 * x[q] + w1 * x[plane + q] + w2 * x[2 * plane + q] + w3 * x[3 * plane + q];
    }
#endif
}
"""

_ROW = """
/* The sum of x[k] w[k] for k from 0 to count - 1. No partial sum leaves 32 bits. */
static int32_t dot_@t(const @type *x, const int8_t *w, int32_t count)
{
#if defined(CVM_DOT_@T)
    return CVM_DOT_@T(x, w, count);
#else
    int32_t sum = 0;
    int32_t k = 0;
#if !defined(CVM_PORTABLE) && defined(__ARM_FEATURE_SIMD32)
    for (; k + 4 <= count; k += 4) {
        uint32_t a, b;
        memcpy(&a, x + k, 4);
        memcpy(&b, w + k, 4);
        sum = __smlad(@half(a), __sxtb16((int8x4_t)b), sum);
        sum = __smlad(@half(a >> 8 | a << 24), __sxtb16((int8x4_t)(b >> 8 | b << 24)), sum);
    }
#endif
    for (; k < count; k++) {
        sum += (int32_t)x[k] * w[k];
    }
    return sum;
#endif
}
"""

_OPENING = """
#if defined(CVM_PORTABLE)
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#define WIDE_S8(a) _mm_srai_epi16(_mm_unpacklo_epi8(a, a), 8)
#define WIDE_U8(a) _mm_unpacklo_epi8(a, _mm_setzero_si128())
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define WIDE_S8(x) vmovl_s8(vld1_s8(x))
#define WIDE_U8(x) vreinterpretq_s16_u16(vmovl_u8(vld1_u8(x)))
#elif defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#include <string.h>
#endif
"""


def _of(text: str, kind: str) -> str:
    signed = kind == "s8"
    words = {
        "@type": "int8_t" if signed else "uint8_t",
        "@flip": "-128" if signed else "0",
        "@excess": "128" if signed else "0",
        "@half(a >>": "__sxtb16((int8x4_t)(a >>" if signed else "(int16x2_t)__uxtb16((uint8x4_t)(a >>",
        "a << 24), __": "a << 24)), __",
        "@half(a)": "__sxtb16((int8x4_t)a)" if signed else "(int16x2_t)__uxtb16((uint8x4_t)a)",
        "@T": kind.upper(),
        "@t": kind,
    }
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


TEXTS = {
    "dot_opening": ((), _OPENING),
    **{f"dot4_{kind}": (("dot_opening",), _of(_ROWS, kind)) for kind in ("s8", "u8")},
    **{f"dot_{kind}": (("dot_opening",), _of(_ROW, kind)) for kind in ("s8", "u8")},
}
"""The functions by name, each with what it needs before it."""
