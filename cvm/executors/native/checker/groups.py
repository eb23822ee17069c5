"""Groups: the formula of a kernel computes what the program's nodes say, for every element and every channel.

`Group.proves` walks through the nodes and the formula side by side. A step must have the op of its node, and compute it
from values that are proven to be the node's operands. A kernel may differ in four ways: leave out a clip that the
proven interval makes unnecessary, start sums with another number, requantize in another arithmetic, and leave the last
clip to the store. Each difference is proven to be harmless from the numbers in the packed constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from cvm.executors.native.checker.addresses import Array, Factors, Unproven, broadcast, extent, merged, require, stride
from cvm.executors.native.checker.thresholds import Line, agree
from cvm.executors.native.descriptions.expressions import SINGLE, TABLE, Formula, FormulaStep, Requantization, Residual
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.homes import Home
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["Added", "Group", "number_of", "require_joint"]

INT32, INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
SAME = {
    "broadcast_add": "add", "elemwise_add": "add", "broadcast_sub": "sub", "elemwise_sub": "sub",
    "broadcast_mul": "mul", "broadcast_div": "div", "broadcast_max": "max", "broadcast_greater": "greater",
    "abs": "abs", "negative": "negative", "cvm_precision": "precision",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Added:
    """The sums of a contraction: value 0 of a formula, or ``number``, which adds sums of windows to it.

    For each channel, ``more`` is the sum of the kernel minus the result of the node ``name``; ``lo`` and ``hi`` bound
    that result. All arrays have the rank of the result.
    """

    name: str
    more: Array
    lo: Array
    hi: Array
    number: int = 0


@dataclass(slots=True)
class Group:
    """One group to be proven. The functions look up what the plan claims and what the program says."""

    formula: Formula
    shape: tuple[int, ...]
    producer: dict[str, Node]
    attributes: Callable[[Node], Any]
    hull: Callable[[str], tuple[int, int]]
    constant: Callable[[str], Array | None]
    holds: Callable[..., bool]
    """Whether a home is the view that the function makes of some home of the tensor (see `reads` of the checker)."""
    home: Callable[[int], Home | None]
    elements: Callable[[int], Array]
    """The elements of a constant that the formula reads, which broadcast to the result."""
    exists: Callable[[str], bool]
    """Whether a tensor has a home."""
    shape_of: Callable[[str], tuple[int, ...]]
    data: bytes | memoryview = b""
    """The packed constants."""
    added: Added | None = None
    proven: set[tuple[str, int]] = field(default_factory=set)

    def proves(self, name: str, number: int) -> None:
        """Prove that value ``number`` of the formula is tensor ``name``. Raises `Unproven`."""
        number = self._same(number)
        if (name, number) in self.proven:
            return
        if number < self.formula.reads or (self.added is not None and number == self.added.number):
            self._read(name, number)
        elif self.constant(name) is not None:
            self._immediate(name, self._step(number))
        else:
            self._node(self.producer[name], number)
        self.proven.add((name, number))

    def stored(self, root: Node, format_: Format, clamp: tuple[int, int] | None) -> None:
        """Prove that the formula, after the store, gives the stored result of the root. Raises `Unproven`."""
        lo, hi = self.hull(root.outputs[0].name)
        least, most = format_.hull
        if clamp is None:
            require(least <= lo <= hi <= most, "the format does not hold the result")
            self.proves(root.outputs[0].name, self.formula.result)
            return
        clip = clamp[0] - format_.bias, clamp[1] - format_.bias
        require(least <= clip[0] <= lo <= hi <= clip[1] <= most, "the clip of the store changes results")
        node = root
        if root.op in ("relu", "clip", "cvm_clip") and not self.exists(root.inputs[0]):
            node = self.producer.get(root.inputs[0], root)
            lo, hi = _bounds(root.op, self.attributes(root))
            require(lo <= clip[0] <= clip[1] <= hi, "the store clips to another interval")
        require(node.op == "requantize", "only a requantize leaves its clip to the store")
        self._requantize(node, self._step(self.formula.result), format_.bias, clip)

    def _same(self, number: int) -> int:
        """The number of the value that a chain of ``same`` steps repeats."""
        while number >= self.formula.reads and self.formula.steps[number - self.formula.reads].op == "same":
            (number,) = self.formula.steps[number - self.formula.reads].arguments
        return number

    def _step(self, number: int) -> FormulaStep:
        number = self._same(number)
        require(number >= self.formula.reads, "the formula has no step for a node")
        return self.formula.steps[number - self.formula.reads]

    def _read(self, name: str, number: int) -> None:
        node = self.producer.get(name)
        if node is not None and node.op in ("relu", "clip", "cvm_clip") and not self.exists(name):
            self._clip(node, number, *_bounds(node.op, self.attributes(node)))
            return
        if self.added is not None and number in (0, self.added.number):
            require(number == self.added.number, "the sums lack those of windows")
            require(
                name == self.added.name and not self.added.more.any(),
                "the sums differ from the result of the contraction",
            )
            return
        home = self.home(number)
        values = self.constant(name)
        if home is None or (home.buffer.kind == "constants" and values is not None):
            if values is None:
                raise Unproven(f"{name} is not a constant")
            require(_equal(values, self.elements(number), self.shape), f"the packed elements differ from {name}")
            return
        spread = self.holds(name, home, lambda one: (one.view.offset, broadcast(one.view.axes, self.shape)))
        require(spread, f"the kernel does not read {name}")

    def _immediate(self, name: str, step: FormulaStep) -> None:
        values = self.constant(name)
        require(values is not None and step.op == "immediate", f"the formula computes something else than {name}")
        assert values is not None
        require(bool((values == step.static[0]).all()), f"a number of the formula differs from {name}")

    def _node(self, node: Node, number: int) -> None:
        a = self.attributes(node)
        if node.op in ("relu", "clip", "cvm_clip"):
            self._clip(node, number, *_bounds(node.op, a))
            return
        step = self._step(number)
        match node.op:
            case "cvm_right_shift":
                most = 2 ** (a.precision - 1) - 1
                require(
                    step.op == "clip" and step.static == (-most, most),
                    "the result of a shift is clipped to another interval",
                )
                inner = self._step(step.arguments[0])
                require(
                    inner.op == "right_shift" and inner.static == (a.shift_bit,), "a shift by another number of bits"
                )
                self.proves(node.inputs[0], inner.arguments[0])
            case "cvm_left_shift":
                static = (a.shift_bit, 2 ** (a.precision - 1) - 1)
                require(step.op == "left_shift" and step.static == static, "a shift by another number of bits")
                self.proves(node.inputs[0], step.arguments[0])
            case "where":
                self._where(node, step)
            case "take" | "cvm_lut":
                self._gather(node, step, getattr(a, "axis", None))
            case "requantize":
                clip = a.lo, a.hi
                self._requantize(node, step, 0, clip)
            case _:
                require(step.op == SAME.get(node.op), f"{node.op} is computed as {step.op}")
                if step.static:  # float32 holds every integer below 2^24, and no quotient of two of them is misplaced
                    ends = [abs(end) for name in node.inputs for end in self.hull(name)]
                    require(step.static == (SINGLE,) and max(ends) < 2**24, "an operand has more bits than float32")
                for name, argument in zip(node.inputs, step.arguments, strict=True):
                    self.proves(name, argument)

    def _clip(self, node: Node, number: int, lo: int, hi: int) -> None:
        least, most = self.hull(node.inputs[0])
        if not lo <= least <= most <= hi:
            step = self._step(number)
            require(step.op == "clip" and step.static == (lo, hi), "a clip is missing")
            number = step.arguments[0]
        self.proves(node.inputs[0], number)

    def _where(self, node: Node, step: FormulaStep) -> None:
        require(step.op == "where", f"where is computed as {step.op}")
        condition, *branches = node.inputs
        if len(self.shape_of(condition)) == len(self.shape):
            self.proves(condition, step.arguments[0])
        else:  # a condition of rank 1 chooses whole slices along axis 0
            home, rows = self.home(step.arguments[0]), ((),) * (len(self.shape) - 1)
            found = home is not None and self.holds(
                condition, home, lambda one: (one.view.offset, broadcast((one.view.axes[0], *rows), self.shape))
            )
            require(found, f"the kernel does not read {condition}")
        for name, argument in zip(branches, step.arguments[1:], strict=True):
            self.proves(name, argument)

    def _permute(self, node: Node, step: FormulaStep) -> None:
        """Prove that a table split into bytes has the entries of the constant, and that its indices are the node's."""
        source, indices = node.inputs
        values, home = self.constant(source), self.home(step.arguments[0])
        extent_, format_, *last = step.static
        require(values is not None and home is not None, f"{source} is no constant, or has no home")
        assert values is not None
        assert home is not None
        assert isinstance(format_, Format)
        flat = node.op == "cvm_lut" or values.ndim == 1 or self.attributes(node).axis is None
        require(flat, "the entries of a table are no numbers")
        every = all(step == 0 for axis in home.view.axes for _, step in axis)
        require(every and home.format == Format(8, signed=False), "the bytes of a table have another format")
        given = values.ravel()
        require(extent_ == given.size <= TABLE + 1 and len(last) == given.size // (TABLE + 1), "a longer table")
        size = format_.bytes
        planes = np.frombuffer(self.data, np.uint8, size * TABLE, home.view.offset).reshape(size, TABLE)
        stored = np.ascontiguousarray(planes.T).view(format_.dtype.newbyteorder("<")).ravel().astype(np.int64)
        found = [*stored.tolist()[: given.size], *last]
        expected = [entry + format_.bias for entry in given.tolist()]
        require(found == expected, f"the entries differ from {source}")
        require(len(self.shape_of(indices)) == len(self.shape), "the entries of a table are no numbers")
        self.proves(indices, step.arguments[1])

    def _gather(self, node: Node, step: FormulaStep, axis: int | None) -> None:
        if step.op in ("permute", "shuffle"):
            self._permute(node, step)
            return
        require(step.op in ("gather", "pick"), f"{node.op} is computed as {step.op}")
        source, indices = node.inputs
        base, index = self.home(step.arguments[0]), step.arguments[1]
        count, apart, format_ = step.static
        assert isinstance(count, int)
        assert isinstance(format_, Format)
        bytes_ = count <= 128 and (apart, format_.bits) == (1, 8)
        require(step.op == "gather" or bytes_, "the elements that are picked are no bytes side by side")
        rank = len(self.shape_of(indices))

        def spread(one: Home) -> tuple[int, tuple[Factors, ...]]:
            axes = one.view.axes
            if axis is None or node.op == "cvm_lut":
                flat = merged([factor for factors in axes for factor in factors])
                require((count, apart) == (extent(flat), stride(flat)), "the elements have another count or stride")
                return one.view.offset, broadcast(((),) * rank, self.shape)
            position = axis % len(axes)
            require(
                (count, apart) == (extent(axes[position]), stride(axes[position])),
                "the elements have another count or stride",
            )
            found = (*axes[:position], *((),) * rank, *axes[position + 1 :])
            return one.view.offset, broadcast(found, self.shape)

        require(base is not None and base.format == format_, "the elements have another format")
        assert base is not None
        require(self.holds(source, base, spread, beyond=True), f"the kernel does not read {source}")
        before = 0 if axis is None or node.op == "cvm_lut" else axis % len(self.shape_of(source))
        if rank == len(self.shape):
            self.proves(indices, index)
            return
        home, after = self.home(index), len(self.shape) - rank - before
        found = home is not None and self.holds(
            indices, home,
            lambda one: (one.view.offset, broadcast(((),) * before + one.view.axes + ((),) * after, self.shape)),
        )  # fmt: skip
        require(found, f"the kernel does not read {indices}")

    def _requantize(self, node: Node, step: FormulaStep, bias: int, clip: tuple[int, int]) -> None:
        """Prove that the step, clipped to ``clip`` plus ``bias``, is the node's result plus ``bias``."""
        require(step.op == "requantize", f"requantize is computed as {step.op}")
        (rule,) = step.static
        assert isinstance(rule, Requantization)
        a, count = self.attributes(node), (len(node.inputs) - 2) // 2
        require(rule.terms == count and rule.rounding == a.rounding, "another rounding or number of terms")
        if rule.clips:
            require((rule.lo, rule.hi) == (a.lo, a.hi) == clip and bias == 0, "a result is clipped to another interval")
        require(rule.clips or a.lo <= clip[0] <= clip[1] <= a.hi, "a result is clipped to another interval")
        ends = []
        for name, argument in zip(node.inputs[:count], step.arguments[:count], strict=True):
            if self.added is not None and (argument, name) == (self.added.number, self.added.name):
                ends += [self.added.lo, self.added.hi, self.added.more]
            else:
                self.proves(name, argument)
                ends += [np.array(number) for number in (*self.hull(name), 0)]
        given = [self.constant(name) for name in node.inputs[count:]]
        own = [self.elements(argument) for argument in step.arguments[count:]]
        most = 0 if self.added is None else int((self.added.hi + self.added.more).max())
        columns = np.broadcast_arrays(*(array for array in (*given, *own, *ends) if array is not None))
        require(len(columns) == len(given) + len(own) + 3 * count, "a parameter is not a constant")
        for row in set(zip(*(column.ravel().tolist() for column in columns), strict=True)):
            kernel, operands = row[count + 2 : count + 2 + len(own)], row[count + 2 + len(own) :]
            _require_same(rule, row[: count + 2], kernel, operands, most, bias, clip)


def _bounds(op: str, attributes: Any) -> tuple[int, int]:
    """The interval to which an op clips."""
    if op == "relu":
        return 0, INT32[1]
    if op == "clip":
        return attributes.a_min, attributes.a_max
    return 1 - 2 ** (attributes.precision - 1), 2 ** (attributes.precision - 1) - 1


def _equal(a: Array, b: Array, shape: Sequence[int]) -> bool:
    """Whether two arrays broadcast to the same elements of a result of this shape."""
    rank = len(shape)
    a, b = (array.reshape((1,) * (rank - array.ndim) + array.shape) for array in (a, b))
    return bool((a == b).all())


def _require_same(
    rule: Requantization,
    node: Sequence[int],
    kernel: Sequence[int],
    operands: Sequence[int],
    most: int,
    bias: int,
    clip: tuple[int, int],
) -> None:
    """Prove one channel. ``node`` and ``kernel`` are the parameters m.., c and s of either; ``operands`` holds for each
    operand its least value, its largest value, and the number by which the kernel's operand is larger. ``most`` is the
    largest sum of any channel, which the neighbouring lane may hold.
    """
    *ms, c, s = node
    if rule.arithmetic == "words":
        _require_words(rule, (ms[0], c, s), kernel, operands, bias)
        return
    if rule.arithmetic in ("scaled", "digits"):
        kernel = _combined(rule, kernel, operands)
    require(len(kernel) == len(node), "another number of parameters")
    *Ms, C, S = kernel
    lows, highs, more = operands[0::3], operands[1::3], operands[2::3]
    if rule.arithmetic == "wide":  # the same sum, which the verifier has proven to fit in 64 bits (requantize C7)
        c += (1 << s) >> 1 if rule.rounding == "half_up" else 0
        if (ms, c, s, bias) != (Ms, C, S, 0) or any(more):
            given = c + sum(m * lo for m, lo, hi in zip(ms, lows, highs, strict=True) if lo == hi)
            found = C + sum(M * (lo * (lo == hi) + d) for M, lo, hi, d in zip(Ms, lows, highs, more, strict=True))
            same = all(m == M or lo == hi for m, M, lo, hi in zip(ms, Ms, lows, highs, strict=True))
            require(same and (given, s, bias) == (found, S, 0), "other parameters")
        require(not rule.short or all(-(2**31) <= M < 2**31 for M in Ms), "a multiplier has more than 32 bits")
        return
    require(rule.rounding == "half_up", "only 64-bit lanes have this rounding")
    slack, total = 0, S
    if rule.arithmetic == "fused":
        require(rule.bits in range(20, 24) and 0 <= Ms[0] < 2**52, "a multiplier has more than 52 bits")
        require(lows[0] + more[0] >= 0 and most < 2**rule.bits, "the sums have more bits than the rule says")
        require(INT64[0] <= C <= INT64[1] - 2**52, "an offset has more than 64 bits")
        # The upper half of C + floor((x 2^(52 - b) + y) M / 2^52) is the result; y < 2^(52 - b) comes from the
        # neighbouring lane. So the result is floor((M x + 2^b C + e) / 2^(32 + b)) with 0 <= e <= slack.
        slack, total = -((most >> rule.bits - 20) * -Ms[0] >> 52 - rule.bits), 32 + rule.bits
        C <<= rule.bits
    else:
        total = _require_fits(rule, Ms, C, S, operands)
    c = 2 * c + (1 << s if s else 0) + (bias << s + 1)  # the numerator over 2^(s + 1), rounded half up, with the bias
    C += sum(M * d for M, d in zip(Ms, more, strict=True))
    pairs = [(2 * m, M, lo, hi) for m, M, lo, hi in zip(ms, Ms, lows, highs, strict=True)]
    require(
        _same_sums(pairs, Line(0, c, s + 1), Line(0, C, total), slack, (clip[0] + bias, clip[1] + bias)),
        "the results of the two requantizations may differ",
    )


def _require_words(
    rule: Requantization, node: tuple[int, int, int], kernel: Sequence[int], operands: Sequence[int], bias: int
) -> None:
    """Prove one channel of bytes in 16-bit lanes: each value of the operand is tried."""
    require((len(kernel), len(operands), rule.clips) == (4, 3, True), "another number of parameters")
    require((bias, rule.rounding) == (0, "half_up"), "a result has a bias, or another rounding")
    (m, c, s), (lo, hi, more) = node, operands
    k, M, a, b = kernel
    lane = 2**16 - 1
    require(more == 0 and 0 <= lo - rule.least <= hi - rule.least <= 255, "the operand is no byte")
    require(all(0 <= number <= lane for number in (M, a, b)), "a parameter has more than 16 bits")
    require(k >= 0 and (hi - rule.least) * k <= lane, "a product does not fit in its lane")
    require(0 <= rule.bits < 16 and 0 <= rule.hi - rule.lo <= lane, "a shift or a bound is as wide as the lane")
    half = (1 << s) >> 1
    for x in range(lo, hi + 1):
        total = max(min(((x - rule.least) * k * M >> 16) + a, lane) - b, 0)
        found = rule.lo + min(total >> rule.bits, rule.hi - rule.lo)
        require(found == min(max(m * x + c + half >> s, rule.lo), rule.hi), "a byte has another code")


def _require_fits(rule: Requantization, Ms: Sequence[int], C: int, S: int, operands: Sequence[int]) -> int:
    """Prove that the sum of M x and C fits in the lanes of an arithmetic. Returns the number of bits of its shift."""
    limits, bits = (INT32, 0) if rule.arithmetic == "narrow" else (INT64, 32)
    if rule.arithmetic == "digits":
        limits, bits = (INT32[0] << rule.bits, INT32[1] << rule.bits), rule.bits
    least = most = C
    for M, lo, hi, more in zip(Ms, operands[0::3], operands[1::3], operands[2::3], strict=True):
        one, other = M * (lo + more), M * (hi + more)
        least += min(one, other)
        most += max(one, other)
    require(limits[0] <= least <= most <= limits[1], "a sum does not fit in its lane")
    require(0 <= S < 32, "a shift is as wide as the lane")
    short = rule.short and rule.arithmetic != "scaled"
    require(not short or all(INT32[0] <= M <= INT32[1] for M in Ms), "a multiplier has more than 32 bits")
    return S + bits


def _combined(rule: Requantization, kernel: Sequence[int], operands: Sequence[int]) -> tuple[int, int, int]:
    """M, C and S of the arithmetics that multiply twice, where neither product has more bits than its lane."""
    expected = 5 if rule.arithmetic == "digits" else 4
    require((len(kernel), len(operands)) == (expected, 3), "another number of parameters")
    factor, m, c, *rest = kernel
    lo, hi, more = operands
    ends = [factor * (x + more) for x in (lo, hi)]
    if rule.arithmetic == "digits":  # (m x + c + ((n x + d) >> bits)) >> s, modulo 2^32 but for n x + d
        factor, m, (d, S) = m, factor, rest
        ends = [factor * (x + more) + d for x in (lo, hi)]
        require(0 <= rule.bits < 32, "a shift is as wide as the lane")
        c, m = (c << rule.bits) + d, (m << rule.bits) + factor
    else:
        (S,) = rest
        require(INT32[0] <= m <= INT32[1], "a multiplier has more than 32 bits")
        m *= factor
    require(all(INT32[0] <= end <= INT32[1] for end in ends), "a product does not fit in its lane")
    return m, c, S


def require_joint(joint: Residual, formula: Formula, home: Home | None) -> None:
    """Prove that 16-bit words compute the last step of a formula, a narrow sum of two requantized terms.

    Both terms must fit in 16 bits, the digits must make up both multipliers, and the offset must subtract the bias of
    the bytes. Raises `Unproven`.
    """
    last = formula.steps[-1]
    (rule,) = last.static
    assert isinstance(rule, Requantization)
    require(
        (last.op, rule.arithmetic, rule.terms, rule) == ("requantize", "narrow", 2, joint.rule),
        "the words replace another step",
    )
    codes = joint.codes.result
    terms = last.arguments[:2]
    require(sorted(terms) == sorted((codes, joint.read)) and codes != joint.read, "the words add other terms")
    numbers = []
    for argument in last.arguments[2:]:
        require(argument >= formula.reads, "a parameter of the words is not a constant number")
        number = formula.steps[argument - formula.reads].static[0]
        require(isinstance(number, int), "a parameter of the words is not a constant number")
        assert isinstance(number, int)
        numbers.append(number)
    m, n, c, s = numbers if terms[0] == codes else (numbers[1], numbers[0], *numbers[2:])
    before = formula.steps[: codes - formula.reads + 1]
    (own,) = before[-1].static if before[-1].static else (None,)
    require(
        before[-1].op == "requantize" and isinstance(own, Requantization), "the words do not come from a requantize"
    )
    assert isinstance(own, Requantization)
    unclipped = FormulaStep("requantize", before[-1].arguments, (replace(own, clips=False),))
    require(joint.codes == Formula(formula.reads, (*before[:-1], unclipped)), "the words come from another formula")
    require(
        own.clips and own.arithmetic != "wide" and joint.clip == (own.lo, own.hi),
        "the words are clipped to another interval",
    )
    require(-(2**15) <= own.lo <= own.hi < 2**15, "the words do not fit in 16 bits")
    digits = [*joint.high, *joint.low]
    require(all(-(2**15) <= digit < 2**15 for digit in digits), "a digit has more than 16 bits")
    made = [(high << 14) + low for high, low in zip(joint.high, joint.low, strict=True)]
    require(made == [m, n] and joint.shift == s, "other multipliers")
    require(
        home is not None and (home.format.bits, home.format.signed) == (8, False),
        "the other term of the words is not stored in bytes",
    )
    assert home is not None
    require((joint.offset - (c - n * home.format.bias)) % 2**32 == 0, "another offset")


def _same_sums(pairs: Sequence[tuple[int, int, int, int]], a: Line, b: Line, slack: int, clip: tuple[int, int]) -> bool:
    """Whether two rounded sums of products agree for all operands.

    They do if all multipliers and offsets are in the same proportion. Otherwise every combination of values of all
    operands is tried, except of the one with the widest interval, for which `agree` decides.
    """
    if not slack and a.c << b.s == b.c << a.s and all(m << b.s == M << a.s or lo == hi == 0 for m, M, lo, hi in pairs):
        return True
    if len(pairs) == 1:
        ((m, M, lo, hi),) = pairs
        return agree(Line(m, a.c, a.s), Line(M, b.c, b.s), slack, (lo, hi), clip)
    *others, (m, M, lo, hi) = sorted(pairs, key=lambda pair: pair[3] - pair[2])
    if others[0][3] - others[0][2] > 2**16:
        return False
    (m1, M1, lo1, hi1), left = others[0], [*others[1:], (m, M, lo, hi)]
    return all(
        _same_sums(left, Line(0, a.c + m1 * x, a.s), Line(0, b.c + M1 * x, b.s), slack, clip)
        for x in range(lo1, hi1 + 1)
    )


def number_of(step: FormulaStep) -> Array:
    """The number of an ``immediate`` step, as an array."""
    require(step.op == "immediate", "a parameter is not a constant number")
    return np.array(step.static[0], object)
