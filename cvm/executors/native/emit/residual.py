"""Residual connections: the sum of a contraction's codes and another tensor's codes, in vectors of 16-bit words.

A residual connection requantizes the sums of a contraction to codes, then requantizes the sum of these codes and the
codes of another tensor. Both codes fit in 16 bits. So the first codes are packed to words, with saturation, before they
are clipped; one instruction then clips two vectors. The two halves of a 32-bit lane hold a word of either tensor, and
one dot product of such pairs adds both terms. A multiplier of more than 16 bits is split into two digits, m = 2^14 m' +
m''; the sum is 2^14 * (a m' + b n') + (a m'' + b n''). The arithmetic is modulo 2^32, as in the formula that this code
replaces, whose true sum is an int32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cvm.executors.native.descriptions.expressions import Formula, FormulaStep, Requantization, Residual
from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.packs import to_words, unpacked, widened
from cvm.executors.native.emit.requantize import clipped

__all__ = ["residual", "results"]

DIGIT = 14
"""The number of bits of the lower digit of a multiplier."""
WORD = 2**15


def results(code: Code, joint: Residual, codes: Sequence[V], row: V, machine: Machine) -> list[V]:
    """Write the results of one pixel, from the interleaved vectors of its first codes and from the bytes ``row`` of the
    other tensor.
    """
    lane = lanes(codes[0].type)
    high, low = (typed(vector(32, lane), _pair(*digits)) for digits in (joint.high, joint.low))
    found = []
    for number, others in enumerate(widened(code, row, lane)):
        words = to_words(code, codes[2 * number], codes[2 * number + 1])
        words = code.intrinsic("smin", code.intrinsic("smax", words, joint.clip[0]), joint.clip[1])
        for end in (0, 1):
            pairs = code.bitcast(unpacked(code, words, others, 8, end), high.type)
            total = code.binary("shl", machine.dot2(code, typed(high.type, 0), pairs, high), DIGIT)
            total = machine.dot2(code, code.binary("add", total, joint.offset), pairs, low)
            found.append(clipped(code, joint.rule, code.binary("ashr", total, joint.shift)))
    return found


def residual(formula: Formula, biases: Mapping[int, int]) -> Residual | None:
    """The formula as a sum of two tensors of codes, or None if it does not end with such a sum.

    ``biases`` gives the bias of the format of each tensor of bytes that the formula reads, by the tensor's number.
    """
    last = formula.steps[-1] if formula.steps else FormulaStep("same")
    if last.op != "requantize":
        return None
    (rule,) = last.static
    assert isinstance(rule, Requantization)
    known = _immediates(formula)
    if rule.arithmetic != "narrow" or rule.terms != 2 or any(number not in known for number in last.arguments[2:]):
        return None
    m, n, offset, shift = (known[number] for number in last.arguments[2:])
    codes, read = last.arguments[:2]
    if codes in biases:
        codes, read, m, n = read, codes, n, m
    clip = _clipped_to(formula, codes)
    if read not in biases or clip is None or not all(-WORD <= _digits(k)[0] < WORD for k in (m, n)):
        return None
    index = codes - formula.reads
    first = formula.steps[index]
    (before,) = first.static
    assert isinstance(before, Requantization)
    steps = (*formula.steps[:index], replace(first, static=(replace(before, clips=False),)))
    moved = (offset - biases[read] * n + 2**31) % 2**32 - 2**31
    (m1, m0), (n1, n0) = _digits(m), _digits(n)
    return Residual(Formula(formula.reads, steps), clip, read, (m1, n1), (m0, n0), moved, rule, shift)


def _immediates(formula: Formula) -> dict[int, int]:
    """The constants among the values of a formula, by the number of the value."""
    found = {}
    for number, step in enumerate(formula.steps, formula.reads):
        if step.op == "immediate" and isinstance(step.static[0], int):
            found[number] = step.static[0]
    return found


def _clipped_to(formula: Formula, number: int) -> tuple[int, int] | None:
    """The interval to which the last step of a value clips it, or None unless that step is a 32-bit requantization to
    words.
    """
    if number < formula.reads:
        return None
    step = formula.steps[number - formula.reads]
    uses = sum(step.arguments.count(number) for step in formula.steps)
    if step.op != "requantize" or uses != 1:
        return None
    (rule,) = step.static
    assert isinstance(rule, Requantization)
    if rule.arithmetic == "wide" or not rule.clips or rule.lo < -WORD or rule.hi >= WORD:
        return None
    return rule.lo, rule.hi


def _digits(multiplier: int) -> tuple[int, int]:
    """The upper and the lower digit of a multiplier."""
    return multiplier >> DIGIT, multiplier & (2**DIGIT - 1)


def _pair(first: int, second: int) -> int:
    """Two words as the lower and the upper half of a signed 32-bit lane."""
    return (((first & 0xFFFF) | (second & 0xFFFF) << 16) ^ 2**31) - 2**31
