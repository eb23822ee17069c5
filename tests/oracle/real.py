"""Computable real numbers: exact where algebra says so, otherwise decided by enclosures of growing precision.

A `Number` is a `Fraction`, or a `Real`: constant + sum_i coefficient_i * atom_i with rational coefficients. An `Atom`
is an irrational building block: e^x, ln x, x^y, sin x, cos x, erf x, 1 / x of numbers, or a product of such. Equal
atoms are one object, so that like terms merge and differences of equals vanish. Algebra comes first: e^0, ln 1, perfect
powers, e^x * e^y, x^a * y^a, ln e^x and the like are rewritten when a number is built, so a Fraction results wherever
these rules give one. By Lindemann-Weierstrass that finds all ties that sigmoid, tanh, softmax and elu of rational
numbers have, since a rational combination of exponentials of distinct rationals is rational only if it has but e^0.
(The rules refer to one another - a product of powers is a power, its logarithm a product - hence one module.)

What the rules leave is decided by `Real.enclosure` with 64, 128, ... bits up to 400 digits; what is still open then
(presumably an equality that the rules do not know) raises `Undecided`, never guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import ceil, floor, isqrt
from typing import Any
from weakref import WeakValueDictionary

from . import enclosures
from .enclosures import Interval, Unresolved

LIMIT_BITS = 1330
"""400 decimal digits after the point."""
PRECISIONS = (64, 128, 256, 512, LIMIT_BITS)
_EXPANDED_TERMS = 100
"""Products of sums are expanded up to this many terms, and kept as one atom beyond."""


class Undecided(ArithmeticError):
    """A comparison or rounding is still open at 400 digits."""


class Atom:
    """An irrational building block; made by `_atom` only, which makes equal atoms identical."""

    __slots__ = ("__weakref__", "_bounds", "arguments", "name")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self._bounds: dict[int, Interval] = {}

    def enclosure(self, bits: int) -> Interval:
        """low <= 2^bits * atom <= high; computed once per precision."""
        if bits not in self._bounds:
            self._bounds[bits] = _ENCLOSURES[self.name](bits, *self.arguments)
        return self._bounds[bits]

    def __repr__(self) -> str:
        return f"{self.name}{self.arguments}"


_atoms: WeakValueDictionary[object, Atom] = WeakValueDictionary()


def _atom(name: str, *arguments: object) -> Atom:
    key = (name, *(argument.key if isinstance(argument, Real) else argument for argument in arguments))
    found = _atoms.get(key)
    if found is None:
        found = _atoms[key] = Atom(name, arguments)
    return found


class Real:
    """An irrational number (as far as the rules know): constant + sum of coefficient * atom."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: Fraction, terms: Mapping[Atom, Fraction]) -> None:
        self.constant, self.terms = constant, terms

    @property
    def key(self) -> object:
        """Equal for equal forms, and only for those."""
        return self.constant, frozenset(self.terms.items())

    def enclosure(self, bits: int) -> Interval:
        """low <= 2^bits * x <= high."""
        low, high = enclosures.around(self.constant, bits)
        for atom, coefficient in self.terms.items():
            part = enclosures.scaled(atom.enclosure(bits), coefficient)
            low, high = low + part[0], high + part[1]
        return low, high

    @property
    def monomial(self) -> tuple[Fraction, Atom] | None:
        """(coefficient, atom) if that is all."""
        if self.constant or len(self.terms) != 1:
            return None
        ((atom, coefficient),) = self.terms.items()
        return coefficient, atom

    def __add__(self, other: object) -> Number:
        if isinstance(other, Real):
            terms = dict(self.terms)
            for atom, coefficient in other.terms.items():
                terms[atom] = terms.get(atom, Fraction(0)) + coefficient
            return _number(self.constant + other.constant, terms)
        if isinstance(other, int | Fraction):
            return Real(self.constant + other, self.terms)
        return NotImplemented

    def __mul__(self, other: object) -> Number:
        if isinstance(other, Real):
            return _product(self, other)
        if not isinstance(other, int | Fraction):
            return NotImplemented
        if not other:
            return Fraction(0)
        constant = self.constant * other if self.constant else self.constant
        return Real(constant, {atom: coefficient * other for atom, coefficient in self.terms.items()})

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return self * -1

    def __sub__(self, other: Number | int) -> Number:
        return self + other * -1

    def __rsub__(self, other: Number | int) -> Number:
        return self * -1 + other

    def __truediv__(self, other: Number | int) -> Number:
        return self * reciprocal(other)

    def __rtruediv__(self, other: Number | int) -> Number:
        return reciprocal(self) * other

    def __abs__(self) -> Number:
        return self * sign(self)

    def __floordiv__(self, divisor: int) -> int:
        return floor_of(self * Fraction(1, divisor))[0]

    def __lt__(self, other: Number | int) -> bool:
        return sign(self - other) < 0

    def __le__(self, other: Number | int) -> bool:
        return sign(self - other) <= 0

    def __gt__(self, other: Number | int) -> bool:
        return sign(self - other) > 0

    def __ge__(self, other: Number | int) -> bool:
        return sign(self - other) >= 0

    def __eq__(self, other: object) -> bool:
        return sign(self - other) == 0 if isinstance(other, int | Fraction | Real) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        """A float nearby, for messages and sanity checks only."""
        low, high = self.enclosure(256)
        return float(Fraction(low + high, 2 << 256))

    def __repr__(self) -> str:
        return f"Real(~{float(self)!r})"


Number = Fraction | Real


def _number(constant: Fraction, terms: Mapping[Atom, Fraction]) -> Number:
    kept = {atom: coefficient for atom, coefficient in terms.items() if coefficient}
    return Real(constant, kept) if kept else constant


def _one(atom: Atom) -> Real:
    return Real(Fraction(0), {atom: Fraction(1)})


def total(items: Iterable[Number]) -> Number:
    """The sum, whose like terms are merged once."""
    constant, terms = Fraction(0), dict[Atom, Fraction]()
    for item in items:
        if isinstance(item, Real):
            constant += item.constant
            for atom, coefficient in item.terms.items():
                terms[atom] = terms.get(atom, Fraction(0)) + coefficient
        else:
            constant += item
    return _number(constant, terms)


# --- decisions --------------------------------------------------------------------------------------------------------


def _enclosed(x: Real) -> Iterable[tuple[int, Interval]]:
    for bits in PRECISIONS:
        try:
            yield bits, x.enclosure(bits)
        except Unresolved:
            continue


def sign(x: Number | int) -> int:
    """-1, 0 or 1."""
    if not isinstance(x, Real):
        return (x > 0) - (x < 0)
    for bits, (low, high) in _enclosed(x):
        if low > 0 or high < 0:
            return 1 if low > 0 else -1
        if bits >= 128:
            simpler, factor = _cleared(_merged_roots(x))
            if not isinstance(simpler, Real):
                return sign(simpler) * factor
    raise Undecided(f"the sign of {x.terms} + {x.constant} is open at 400 digits")


def floor_of(x: Number | int, scale: Fraction = Fraction(1), offset: Fraction = Fraction(0)) -> tuple[int, bool]:
    """floor(scale * x + offset), and whether scale * x + offset is an integer; scale > 0."""
    if not isinstance(x, Real):
        value = scale * x + offset
        return floor(value), value.denominator == 1
    factor = scale.numerator * offset.denominator
    divisor = scale.denominator * offset.denominator
    addend = offset.numerator * scale.denominator
    for bits, ends in _enclosed(x):
        low, high = ((end * factor + (addend << bits)) // (divisor << bits) for end in ends)
        if low == high:
            return low, False
        if bits >= 128 and high - low == 1:
            side = sign(x * scale + (offset - high))
            return (high, side == 0) if side >= 0 else (low, False)
    raise Undecided(f"the floor of {x.terms} + {x.constant} is open at 400 digits")


def _merged_roots(x: Real) -> Number:
    """x with terms x1^e and x2^e joined whose ratio is rational: sqrt(8) - 2 * sqrt(2) = 0."""
    constant, terms = x.constant, dict(x.terms)
    powers = [atom for atom in terms if atom.name == "power" and isinstance(atom.arguments[0], Fraction)]
    for i, first in enumerate(powers):
        for other in powers[i + 1 :]:
            if other in terms and first in terms and first.arguments[1] == other.arguments[1]:
                ratio = power(_rational(other.arguments[0]) / _rational(first.arguments[0]), first.arguments[1])
                if isinstance(ratio, Fraction):
                    terms[first] += terms.pop(other) * ratio
    return _number(constant, terms)


def _cleared(x: Number) -> tuple[Number, int]:
    """x times all D of its factors 1 / D, and the sign of their product: shows that a / (a + b) + b / (a + b) = 1."""
    factor = 1
    for _ in range(8):
        atoms = [] if not isinstance(x, Real) else [part for atom in x.terms for part in _factors(atom)]
        found = next((atom for atom in atoms if atom.name == "reciprocal"), None)
        if found is None or not isinstance(x, Real):
            break
        divisor = found.arguments[0]
        assert isinstance(divisor, Real)
        factor *= sign(divisor)
        rest: Number = divisor * x.constant
        for atom, coefficient in x.terms.items():
            others = _factors(atom)
            term: Number = coefficient if found in others else divisor * coefficient
            if found in others:
                others.remove(found)
            for other in others:
                term = _one(other) * term
            rest = term + rest
        x = rest
    return x, factor


def _rational(x: object) -> Fraction:
    assert isinstance(x, Fraction)
    return x


# --- functions --------------------------------------------------------------------------------------------------------


def exp(x: Number | int) -> Number:
    """e^x; e^(c * ln q + rest) = q^c * e^rest."""
    if not isinstance(x, Real):
        return Fraction(1) if x == 0 else _one(_atom("exp", Fraction(x)))
    logs = {atom: c for atom, c in x.terms.items() if atom.name == "log" and isinstance(atom.arguments[0], Fraction)}
    if not logs:
        return _one(_atom("exp", x))
    result = exp(_number(x.constant, {atom: c for atom, c in x.terms.items() if atom not in logs}))
    for atom, coefficient in logs.items():
        result = result * power(_rational(atom.arguments[0]), coefficient)
    return result


def log(x: Number | int) -> Number:
    """ln x of a positive number; ln(c * e^a) = ln c + a, ln(c * q^e) = ln c + e * ln q."""
    if sign(x) <= 0:
        raise ValueError("not satisfied: the argument of a logarithm is positive")
    if not isinstance(x, Real):
        value = Fraction(x)
        if value == 1:
            return Fraction(0)
        return _one(_atom("log", value)) if value > 1 else -_one(_atom("log", 1 / value))
    if x.monomial:
        coefficient, atom = x.monomial
        if atom.name == "exp":
            exponent: Number = atom.arguments[0]
            return log(coefficient) + exponent
        if atom.name == "power":
            base, fraction = atom.arguments
            return log(coefficient) + log(base) * _rational(fraction)
    return _one(_atom("log", x))


def reciprocal(x: Number | int) -> Number:
    """1 / x of a number that is not 0."""
    if not isinstance(x, Real):
        if x == 0:
            raise ValueError("not satisfied: the divisor is not zero")
        return 1 / Fraction(x)
    if x.monomial:
        coefficient, atom = x.monomial
        if atom.name == "product":
            result: Number = 1 / coefficient
            for factor in atom.arguments:
                result = result * reciprocal(_one(factor))
            return result
        if atom.name == "reciprocal":
            inverse: Number = atom.arguments[0]
            return inverse * (1 / coefficient)
        if atom.name == "exp":
            return exp(atom.arguments[0] * -1) * (1 / coefficient)
        if atom.name == "power":
            base, exponent = atom.arguments
            return power(base, -exponent) * (1 / coefficient)
        return _one(_atom("reciprocal", _one(atom))) * (1 / coefficient)
    return _one(_atom("reciprocal", x))


def power(x: Number | int, y: Number | int) -> Number:
    """x^y: x = 0 needs y > 0 (but 0^0 = 1), x < 0 an integer y."""
    if isinstance(y, Real):
        return exp(log(x) * y)
    exponent = Fraction(y)
    if exponent.denominator == 1:
        return _integer_power(x, exponent.numerator)
    side = sign(x)
    if side < 0 or (side == 0 and exponent < 0):
        raise ValueError("not satisfied: a power with a fractional exponent has a base that is not negative")
    if side == 0:
        return Fraction(0)
    whole = floor(exponent)
    if isinstance(x, Real):
        return _power_of_real(x, exponent - whole) * _integer_power(x, whole)
    return _power_of_rational(Fraction(x), exponent - whole) * _integer_power(x, whole)


def _integer_power(x: Number | int, n: int) -> Number:
    if not isinstance(x, Real):
        if x == 0 and n < 0:
            raise ValueError("not satisfied: the divisor is not zero")
        return Fraction(x) ** n
    base = reciprocal(x) if n < 0 else x
    result: Number = Fraction(1)
    for _ in range(abs(n)):
        result = result * base
    return result


def _power_of_rational(x: Fraction, e: Fraction) -> Number:
    """x^e, x > 0, 0 < e < 1: rational exactly if x is the power of a rational with the exponent e.denominator.

    (In lowest terms e = p / q, x^(p/q) = r means that x^p is a q-th power, hence x, as p and q have no common factor.)
    """
    for k in _divisors(e.denominator):
        numerator, denominator = integer_root(x.numerator, k), integer_root(x.denominator, k)
        if numerator is not None and denominator is not None:
            base, exponent = Fraction(numerator, denominator), e * k
            if exponent.denominator == 1:
                return base**exponent.numerator
            return power(base, exponent) if k > 1 else _one(_atom("power", base, exponent))
    raise AssertionError("every number is a first power")


def _divisors(n: int) -> list[int]:
    """The divisors of n from the largest down; of a huge n only n itself and 1 matter to the algebra here."""
    return [k for k in range(n, 0, -1) if n % k == 0] if n <= 10_000 else [n, 1]


def _power_of_real(x: Real, e: Fraction) -> Number:
    if x.monomial:
        coefficient, atom = x.monomial
        if atom.name == "exp" and coefficient > 0:
            return power(coefficient, e) * exp(atom.arguments[0] * e)
        if atom.name == "power" and coefficient > 0:
            return power(coefficient, e) * power(atom.arguments[0], atom.arguments[1] * e)
    return _one(_atom("power", x, e))


def integer_root(n: int, k: int) -> int | None:
    """The integer whose k-th power is n > 0, if there is one."""
    if k == 1 or n == 1:
        return n
    if k == 2:
        root = isqrt(n)
    elif k >= n.bit_length():
        return None
    else:
        low, high = 1, 1 << (n.bit_length() // k + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**k <= n else (low, middle - 1)
        root = low
    return root if root**k == n else None


def sin(x: Number | int) -> Number:
    """The sine; irrational for every rational x but 0."""
    return Fraction(0) if not isinstance(x, Real) and x == 0 else _one(_atom("sin", _as_number(x)))


def cos(x: Number | int) -> Number:
    """The cosine; irrational for every rational x but 0."""
    return Fraction(1) if not isinstance(x, Real) and x == 0 else _one(_atom("cos", _as_number(x)))


def arctangent(x: Number | int) -> Number:
    """The angle in (-pi/2, pi/2) with that tangent; irrational for every rational x but 0."""
    return Fraction(0) if not isinstance(x, Real) and x == 0 else _one(_atom("atan", _as_number(x)))


def erf(x: Number | int) -> Number:
    """The error function; irrational for every rational x but 0."""
    return Fraction(0) if not isinstance(x, Real) and x == 0 else _one(_atom("erf", _as_number(x)))


def _as_number(x: Number | int) -> Number:
    return x if isinstance(x, Real) else Fraction(x)


def round_up(x: Number | int) -> Number:
    """round of 4.2.1: floor(x + 1/2)."""
    return Fraction(floor_of(x + Fraction(1, 2))[0])


def ceiling(x: Number | int) -> Number:
    """The least integer that is not below x."""
    return Fraction(-floor_of(x * -1)[0]) if isinstance(x, Real) else Fraction(ceil(x))


# --- products ---------------------------------------------------------------------------------------------------------


def _product(x: Real, y: Real) -> Number:
    """Expanded term by term; only large products of sums stay as they are. x * (1 / x) is 1 whatever x is."""
    for one, other in ((x, y), (y, x)):
        if one.monomial and one.monomial[1].name == "reciprocal":
            divisor = one.monomial[1].arguments[0]
            if isinstance(divisor, Real) and divisor.key == other.key:
                return one.monomial[0]
    if not x.monomial and not y.monomial and (len(x.terms) + 1) * (len(y.terms) + 1) > _EXPANDED_TERMS:
        return _one(_atom("product", *sorted((_whole(x), _whole(y)), key=id)))
    result: Number = x.constant * y.constant
    for atom, coefficient in x.terms.items():
        result = result + _one(atom) * (coefficient * y.constant)
        for second, factor in y.terms.items():
            result = result + _atom_product(atom, second) * (coefficient * factor)
    for second, factor in y.terms.items():
        result = result + _one(second) * (factor * x.constant)
    return result


def _whole(x: Real) -> Atom:
    return _atom("sum", x)


def _factors(x: Atom) -> list[Atom]:
    return [factor for factor in x.arguments if isinstance(factor, Atom)] if x.name == "product" else [x]


def _atom_product(x: Atom, y: Atom) -> Number:
    """The product of all factors, those that `_joined` can join joined."""
    coefficient, factors, waiting = Fraction(1), _factors(x), _factors(y)
    while waiting:
        new = waiting.pop()
        for i, old in enumerate(factors):
            joined = _joined(old, new)
            if joined is None:
                continue
            del factors[i]
            if isinstance(joined, Real):
                assert joined.monomial is not None
                coefficient *= joined.monomial[0]
                waiting.extend(_factors(joined.monomial[1]))
            else:
                coefficient *= joined
            break
        else:
            factors.append(new)
    if not factors:
        return coefficient
    atom = factors[0] if len(factors) == 1 else _atom("product", *sorted(factors, key=id))
    return _one(atom) * coefficient


def _joined(x: Atom, y: Atom) -> Number | None:
    """The product of two atoms where it is simpler than the product: always rational or a monomial."""
    (a, *more), (b, *others) = x.arguments, y.arguments
    if x.name == y.name == "exp":
        total = exp(a + b)
        return total if not isinstance(total, Real) or total.monomial else None
    if x.name == y.name == "power":
        if more == others and isinstance(a, Fraction) and isinstance(b, Fraction):
            return power(a * b, more[0])
        if a is b or (isinstance(a, Fraction) and isinstance(b, Fraction) and a == b):
            total = power(a, more[0] + others[0])
            return total if not isinstance(total, Real) or total.monomial else None
    for one, other in ((x, y), (y, x)):
        if one.name == "reciprocal" and isinstance(divisor := one.arguments[0], Real):
            if divisor.key == _one(other).key:
                return Fraction(1)
            if other.name == "log" and divisor.monomial and divisor.monomial[1].name == "log":
                return _quotient_of_logs(other.arguments[0], divisor.monomial[1].arguments[0], divisor.monomial[0])
    return None


def _quotient_of_logs(a: object, b: object, coefficient: Fraction) -> Fraction | None:
    """ln a / (coefficient * ln b) of rationals if it is rational with a denominator up to 64: a^q = b^p."""
    if not isinstance(a, Fraction) or not isinstance(b, Fraction):
        return None
    guess = Fraction(float(_one(_atom("log", a)))) / Fraction(float(_one(_atom("log", b))))
    p, q = guess.limit_denominator(64).as_integer_ratio()
    if max(p, q) * max(a.numerator.bit_length(), b.numerator.bit_length()) < 1_000_000 and p > 0 and a**q == b**p:
        return Fraction(p, q) / coefficient
    return None


# --- enclosures of atoms ----------------------------------------------------------------------------------------------


def _interval(x: object, bits: int) -> Interval:
    if isinstance(x, Real | Atom):
        return x.enclosure(bits)
    assert isinstance(x, Fraction)
    return enclosures.around(x, bits)


def _power_enclosure(bits: int, x: object, e: object) -> Interval:
    base = _interval(x, bits)
    if e == Fraction(1, 2):
        return enclosures.square_root(base, bits)
    return enclosures.exp(enclosures.scaled(enclosures.log(base, bits), _rational(e)), bits)


def _product_enclosure(bits: int, *factors: object) -> Interval:
    result = (1 << bits, 1 << bits)
    for factor in factors:
        result = enclosures.product(result, _interval(factor, bits), bits)
    return result


_ENCLOSURES: Mapping[str, Callable[..., Interval]] = {
    "exp": lambda bits, x: enclosures.exp(_interval(x, bits), bits),
    "log": lambda bits, x: enclosures.log(_interval(x, bits), bits),
    "sin": lambda bits, x: enclosures.sin(_interval(x, bits), bits),
    "cos": lambda bits, x: enclosures.cos(_interval(x, bits), bits),
    "atan": lambda bits, x: enclosures.arctangent(_interval(x, bits), bits),
    "erf": lambda bits, x: enclosures.error_function(_interval(x, bits), bits),
    "reciprocal": lambda bits, x: enclosures.reciprocal(_interval(x, bits), bits),
    "sum": lambda bits, x: _interval(x, bits),
    "power": _power_enclosure,
    "product": _product_enclosure,
}
