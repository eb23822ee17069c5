"""Matrix products (4.7, 4.9.2), normalisation (4.9.4), moments (4.9.6) and softmax (4.9.1)."""

from __future__ import annotations

from tests.lowering.documents import Document
from tests.lowering.draws.operands import CODED, operand, shape_of, stored
from tests.lowering.draws.registry import draws

SIDES = ("input", "input", "scaled", "moved", "variable", "variable", "stored", "sum")


@draws("matmul")
def matmul(document: Document, operation: str) -> str:
    random = document.random
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    batches: list[tuple[int, ...]] = [(), ()]
    for _ in range(random.choice([0, 0, 1, 2])):
        extent = random.randint(1, 3)
        pair = random.choice([(extent, extent), (extent, 1), (1, extent)])
        batches = [(*batch, n) for batch, n in zip(batches, pair, strict=True)]
    turned = random.random() < 0.5, random.random() < 0.5
    a = (*batches[0], *((count, rows) if turned[0] else (rows, count)))
    b = (*batches[1], *((columns, count) if turned[1] else (count, columns)))
    x, y = operand(document, a, SIDES), operand(document, b, SIDES)
    flags = ", ".join(f"transpose{side} = {str(t).lower()}" for side, t in zip("AB", turned, strict=True))
    return document.apply(f"matmul({x}, {y}, {flags})")


@draws("linear")
def linear(document: Document, operation: str) -> str:
    random = document.random
    rows, count, columns = (random.randint(1, 4) for _ in range(3))
    x = operand(document, (rows, count), SIDES)
    w = operand(document, (columns, count), ("variable", "variable", "stored", "input"))
    shape = (random.choice([1, rows]), columns)
    bias = random.choice(["0.0", "-0.7", operand(document, shape, ("variable", "stored", "input"))])
    return document.apply(f"linear({x}, {w}, {bias})")


def narrow(document: Document, shape: tuple[int, ...], bits: int = 5) -> str:
    """An operand of few codes for operations whose thresholds stand in tables."""
    return operand(document, shape, CODED, -1.0, 1.0, bits)


def parameters(document: Document) -> str:
    random = document.random
    bias, epsilon = random.choice([("0.0", "0.01"), ("0.1", "0.0"), ("0.0", "0.9"), ("-0.05", "0.02"), ("0.0", "0.0")])
    return f"bias = {bias}, epsilon = {epsilon}"


def normalised(document: Document, call: str, bits: int = 6) -> str:
    y = document.apply(call, -1.2, 1.2)
    document.most_bits[y] = bits
    return y


@draws("l1_normalization", "l2_normalization")
def by_axes(document: Document, operation: str) -> str:
    shape = shape_of(document, 2, 4)
    axes = document.random.sample(range(len(shape)), document.random.randint(0, len(shape)))
    x = narrow(document, shape)
    return normalised(document, f"{operation}({x}, axes = {axes}, {parameters(document)})")


def window_of(document: Document, shape: tuple[int, ...]) -> list[int]:
    return [document.random.randint(1, 3) for _ in shape]


@draws("local_variance_normalization", "local_contrast_normalization")
def by_window(document: Document, operation: str) -> str:
    shape = shape_of(document, 2, 4)
    x = narrow(document, shape)
    if operation.startswith("local_contrast"):
        document.quantisers[x] = "linear_quantize(min = -0.6, max = 0.9, bits = 4)"
        document.fixed.add(x)
    call = f"{operation}({x}, size = {window_of(document, shape)}, {parameters(document)})"
    return normalised(document, call, 4 if operation.startswith("local_contrast") else 6)


@draws("local_mean_normalization")
def local_mean(document: Document, operation: str) -> str:
    shape = shape_of(document, 2, 4)
    return document.apply(f"{operation}({operand(document, shape)}, size = {window_of(document, shape)})")


@draws("local_response_normalization")
def local_response(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 2, 4)
    alpha, beta = random.choice(["1.0", "0.3", "0.0001"]), random.choice(["0.5", "0.75", "1.0", "0.25", "1.5"])
    x = narrow(document, shape)
    size, bias = window_of(document, shape), random.choice(["1.0", "0.2", "2.0"])
    return normalised(document, f"{operation}({x}, size = {size}, alpha = {alpha}, beta = {beta}, bias = {bias})")


@draws("batch_normalization")
def batch_normalization(document: Document, operation: str) -> str:
    random = document.random
    shape = (random.randint(1, 2), random.randint(1, 4), *(random.randint(1, 3) for _ in range(random.randint(0, 2))))
    x = operand(document, shape, (*CODED, "variable"), bits=12)
    names = []
    for low, high in ((-1, 1), (0.01, 2.0), (-1, 1), (-1.5, 1.5)):
        shapes = [(1, shape[1]), (1, shape[1]), (1, 1)]
        kind = random.choice(["variable", "stored", "stored"])
        drawn = random.choice(shapes)
        names.append(document.variable(drawn, low, high) if kind == "variable" else stored(document, drawn, low, high))
        if names[-1] in document.quantisers and low > 0:
            document.quantise_within(names[-1], low, high)
    if random.random() < 0.1:
        names[random.choice([0, 2, 3])] = random.choice(["0.0", "1.0"])
    epsilon = random.choice(["1e-3", "0.0", "0.25"])
    return document.apply(f"{operation}({x}, {', '.join(names)}, epsilon = {epsilon})")


@draws("moments")
def moments(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 4)
    axes = document.random.sample(range(len(shape)), document.random.randint(0, len(shape)))
    x = operand(document, shape, CODED)
    document.lines.append(f"mean, variance = moments({x}, axes = {axes});")
    document.quantise("mean")
    document.quantise("variance", 0.0, 0.7)
    return "mean, variance"


@draws("softmax")
def softmax(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    x = operand(document, shape, CODED, -random.uniform(0.5, 8.0), random.uniform(0.5, 8.0))
    axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
    return document.apply(f"softmax({x}, axes = {axes})", -0.1, 1.0)
