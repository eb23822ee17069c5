"""Element-wise operations (4.2), activations (4.9.1), copy_n and add_n (4.9.6)."""

from __future__ import annotations

from tests.lowering.documents import Document
from tests.lowering.draws.operands import CODED, KINDS, LINEAR, broadcast, operand, shape_of
from tests.lowering.draws.registry import draws

FUNCTIONS: dict[str, tuple[float, float, float, float]] = {
    "copy": (-1, 1, -1, 1), "neg": (-1, 1, -1, 1), "abs": (-1, 1, 0, 1), "sign": (-1, 1, -1.5, 1.5),
    "floor": (-4, 4, -4, 4), "ceil": (-4, 4, -4, 4), "round": (-4, 4, -4, 4), "sqr": (-2, 2, 0, 4),
    "exp": (-3, 2, 0, 6), "sigmoid": (-5, 5, 0, 1), "tanh": (-3, 3, -1, 1), "softplus": (-4, 4, 0, 4),
    "elu": (-3, 2, -1, 2), "relu": (-1, 1, -0.2, 1), "selu": (-3, 2, -2, 2), "gelu": (-3, 3, -0.3, 3),
    "silu": (-4, 4, -0.3, 4), "rcp": (0.1, 2, 0, 8), "rsqr": (0.2, 2, 0, 20), "rsqrt": (0.05, 3, 0, 4),
    "sqrt": (0, 4, 0, 2), "log": (0.02, 4, -3, 1.5), "log2": (0.02, 4, -5, 2), "sin": (-7, 7, -1, 1),
    "cos": (-7, 7, -1, 1), "tan": (-1.4, 1.4, -4, 4), "asin": (-1, 1, -1.6, 1.6), "acos": (-1, 1, 0, 3.2),
    "atan": (-5, 5, -1.4, 1.4), "sinh": (-2, 2, -3, 3), "cosh": (-2, 2, 0, 3), "asinh": (-4, 4, -2, 2),
    "acosh": (1, 5, 0, 2.2), "atanh": (-0.95, 0.95, -1.5, 1.5),
}  # fmt: skip
"""The range of the argument, in the domain of the function, and about that of the result."""

RATIONAL = {"copy", "neg", "abs", "sign", "floor", "ceil", "round", "sqr", "relu", "rcp"}
"""Functions that keep numbers rational, whose tables are made quickly."""

SLOW = {"sin", "cos", "tan", "asin", "acos", "atan", "gelu", "softplus"}
"""Functions whose numbers take milliseconds each."""


@draws(*FUNCTIONS)
def function(document: Document, operation: str) -> str:
    random = document.random
    low, high, least, most = FUNCTIONS[operation]
    if low > 0 and random.random() < 0.1 and operation in ("rcp", "rsqr", "rsqrt", "log", "log2"):
        low = 0  # the limit at 0, or a refusal
    if operation in ("rcp", "rsqr") and random.random() < 0.2:
        low, high = -high, -low  # all numbers negative
        least, most = (-most, -least) if operation == "rcp" else (least, most)
    # Wide tables take long: of one tensor by its codes, of two by their combinations.
    usual = 6 if operation in SLOW else 8
    bits = usual if random.random() < 0.97 else 16 if operation in RATIONAL else 10
    kinds, bits = random.choice([(tuple(kind for kind in KINDS if kind != "sum"), bits)] * 9 + [(("sum",), 4)])
    x = operand(document, shape_of(document, 1, 3), kinds, low, high, bits)
    call = f"elu({x}, alpha = {random.uniform(0.2, 2):.2f})" if operation == "elu" and random.random() < 0.5 else None
    if operation == "selu" and random.random() < 0.5:
        call = f"selu({x}, alpha = {random.uniform(0.2, 2):.2f}, lambda = {random.uniform(0.5, 2):.2f})"
    return document.apply(call or f"{operation}({x})", least, most)


@draws("softabs", "leaky_relu")
def with_attribute(document: Document, operation: str) -> str:
    random = document.random
    x = operand(document, shape_of(document, 1, 3), low=-2, high=2, bits=8)
    if operation == "softabs":
        return document.apply(f"softabs({x}, epsilon = {random.choice(['0.0', '0.01', '1.5'])})", 0, 2)
    return document.apply(f"leaky_relu({x}, alpha = {random.choice(['0.1', '0.0', '1.5', '-0.5'])})", -1, 2)


@draws("prelu")
def prelu(document: Document, operation: str) -> str:
    random = document.random
    shapes = shape_of(document, 1, 3), (1,)
    rank = len(shapes[0])
    per_channel = tuple(extent if axis == min(1, rank - 1) else 1 for axis, extent in enumerate(shapes[0]))
    x = operand(document, shapes[0], low=-2, high=2, bits=6)
    shape = random.choice([(1,), per_channel[: random.randint(1, rank)], shapes[0]])
    alpha = random.choice(["0.25", operand(document, shape, ("variable", "stored", "input"), bits=4)])
    return document.apply(f"prelu({x}, {alpha})", -1, 2)


@draws("add", "sub", "mul", "min", "max")
def binary(document: Document, operation: str) -> str:
    random = document.random
    shapes = broadcast(document)
    kinds, bits = random.choice([(LINEAR, 16), (KINDS, 6)])
    x, y = (operand(document, shape, kinds, bits=bits) for shape in shapes)
    draw = random.random()
    if draw < 0.1:
        x = f"{random.uniform(-1, 1):.3f}"
    elif draw < 0.3:
        y = f"{random.uniform(-1, 1):.3f}"
    elif draw < 0.4:
        y = x
    if x[0] not in "0-" and y[0] not in "0-" and operation in ("min", "max") and random.random() < 0.2:
        x = document.apply(f"exp({operand(document, shapes[0], ('input',), bits=6)})", quantised=False)
        y = operand(document, shapes[1], ("input",), 0.1, 2, 6)
    return document.apply(f"{operation}({x}, {y})", -1.5, 1.5)


@draws("div", "pow")
def quotient_or_power(document: Document, operation: str) -> str:
    random = document.random
    shapes = broadcast(document, 2)
    kind = random.choice(["table", "table", "constant", "literal", "forms"])
    small = 4 if operation == "pow" else 6
    if operation == "div":
        positive = (0.2, 1.5) if random.random() < 0.8 else (-1.5, -0.2)
        if kind == "forms":
            x, y = (operand(document, shape, ("sum",), *bounds)
                    for shape, bounds in zip(shapes, ((-1, 1), (0.2, 1.5)), strict=True))  # fmt: skip
            return document.apply(f"div({x}, {y})", -3, 3)
        x = operand(document, shapes[0], KINDS if kind != "table" else CODED, bits=small)
        y = operand(document, shapes[1], CODED, *positive, small)
        if kind == "constant":
            x = operand(document, shapes[0])
            y = operand(document, shapes[1], ("variable", "stored"), *positive)
        elif kind == "literal":
            x = operand(document, shapes[0])
            y = random.choice(["0.3", "-2.5", "1000.0"])
        elif random.random() < 0.2:
            x = "1.5"
        return document.apply(f"div({x}, {y})", -3, 3)
    base = operand(document, shapes[0], (*CODED, "variable", "clamped"), 0.1, 2.0, small)
    exponent = operand(document, shapes[1], CODED, -2.0, 2.0, small)
    if kind == "literal":
        exponent = random.choice(["2.0", "3.0", "0.5", "-1.0", "-0.5", "1.5", "0.0", "0.3333", "-3.0"])
        low = random.choice([-1.5, 0.0, 0.1]) if exponent in ("2.0", "3.0", "0.0") else 0.1
        base = operand(document, shapes[0], ("input", "moved", "clamped", "table"), low, 1.5, 8)
    elif kind == "constant":
        exponent = operand(document, shapes[1], ("variable",), -2.0, 2.0, small)
        document.most_bits[exponent] = 3
    elif kind == "forms":
        base = random.choice(["2.0", "0.5", "1.0", "3.7"])
    return document.apply(f"pow({base}, {exponent})", 0.0, 3)


@draws("clamp")
def clamp(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    if random.random() < 0.6:
        bounds = [f"{random.uniform(-1, 0.4):.3f}", f"{random.uniform(-0.4, 1):.3f}"]  # a > b at times: a wins
        return document.apply(f"clamp({operand(document, shape)}, {bounds[0]}, {bounds[1]})")
    x = operand(document, shape, ("input", "scaled", "table"), bits=6)
    other = tuple(extent if random.random() < 0.5 else 1 for extent in shape)
    a = operand(document, other, ("variable", "stored", "input"), -1.0, 0.2, 4)
    b = random.choice(["0.7", operand(document, shape, ("variable", "stored", "input"), -0.2, 1.0, 4)])
    return document.apply(f"clamp({x}, {a}, {b})")


@draws("lt", "gt", "le", "ge", "eq", "ne")
def comparison(document: Document, operation: str) -> str:
    random = document.random
    shapes = broadcast(document)
    kinds, bits = random.choice([(LINEAR, 16), (KINDS, 2), (KINDS, 6)])
    x, y = (operand(document, shape, kinds, bits=bits) for shape in shapes)
    if random.random() < 0.2:
        y = random.choice(["0.0", "0.25", x])
    if x in document.quantisers and y in document.quantisers and random.random() < 0.4:
        document.quantisers[y] = document.quantisers[x]  # equal codes are equal numbers
        document.fixed |= {x, y}
    return document.apply(f"{operation}({x}, {y})", quantised=False)


def truth(document: Document, shape: tuple[int, ...]) -> str:
    """A logical tensor: given, compared, negated, or a literal."""
    random = document.random
    kind = random.choice(["input", "compared", "negated", "constant"])
    if kind == "constant" and random.random() < 0.3:
        return random.choice(["true", "false"])
    if kind == "input":
        return document.integers(shape, 0, 1, "logical")
    x = operand(document, shape, CODED if kind != "constant" else ("variable",))
    found = document.apply(f"gt({x}, {random.uniform(-0.5, 0.5):.3f})", quantised=False)
    return document.apply(f"not({found})", quantised=False) if kind == "negated" else found


@draws("and", "or")
def logic(document: Document, operation: str) -> str:
    x, y = (truth(document, shape) for shape in broadcast(document))
    return document.apply(f"{operation}({x}, {y})", quantised=False)


@draws("not")
def negation(document: Document, operation: str) -> str:
    return document.apply(f"not({truth(document, shape_of(document, 1, 3))})", quantised=False)


@draws("select")
def select(document: Document, operation: str) -> str:
    random = document.random
    shapes = broadcast(document)
    random.shuffle(shapes)
    condition = truth(document, shapes[0])
    x, y = operand(document, shapes[1]), operand(document, random.choice(shapes))
    if random.random() < 0.3:
        y = f"{random.uniform(-1, 1):.3f}"
    elif random.random() < 0.1:
        x = f"{random.uniform(-1, 1):.3f}"
    if random.random() < 0.15:
        return document.apply(f"select({condition}, {truth(document, shapes[1])}, {truth(document, shapes[0])})",
                              quantised=False)  # fmt: skip
    chosen = document.apply(f"select({condition}, {x}, {y})", quantised=random.random() < 0.6)
    return chosen if chosen in document.quantisers else document.apply(f"copy({chosen})")


@draws("copy_n")
def copy_n(document: Document, operation: str) -> str:
    x = operand(document, shape_of(document, 1, 3))
    names = [f"copy{i}" for i in range(document.random.randint(1, 3))]
    document.lines.append(f"[{', '.join(names)}] = copy_n({x}, times = {len(names)});")
    for name in names:
        document.quantise(name)
    return ", ".join(names)


@draws("add_n")
def add_n(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 3)
    parts = [operand(document, shape) for _ in range(document.random.randint(1, 4))]
    if document.random.random() < 0.2:
        parts.append(parts[0])
    return document.apply(f"add_n([{', '.join(parts)}])")
