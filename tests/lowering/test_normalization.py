"""Normalisations (NNEF 1.0.1 section 4.9.4) and moments give exactly the codes of the document."""

from __future__ import annotations

from random import Random

from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively


def operand(document: Document, shape: tuple[int, ...]) -> str:
    x = document.external(shape)
    document.quantise(x, bits=document.random.choice([3, 5, 6]))
    bits = int(document.quantisers[x].split("bits = ")[1].rstrip(")"))
    document.ranges[x] = 0, 2**bits - 1
    return x


def result(document: Document, call: str, low: float = -1.2, high: float = 1.2) -> str:
    y = document.apply(call)
    document.quantise(y, low, high, bits=document.random.choice([2, 4, 6]))
    return y


def shaped(random: Random) -> tuple[int, ...]:
    return tuple(random.randint(1, 4) for _ in range(random.randint(2, 4)))


def by_axes(random: Random, name: str) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    shape = shaped(random)
    x = operand(document, shape)
    axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
    bias, epsilon = random.choice([("0.0", "0.01"), ("0.1", "0.0"), ("0.0", "0.9"), ("-0.05", "0.02")])
    check(document, result(document, f"{name}({x}, axes = {axes}, bias = {bias}, epsilon = {epsilon})"))


def by_window(random: Random, name: str) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    shape = shaped(random)
    x = operand(document, shape)
    if name == "local_contrast_normalization":
        document.quantisers[x] = "linear_quantize(min = -0.6, max = 0.9, bits = 4)"
        document.ranges[x] = 0, 15
    size = [random.randint(1, min(3, n)) for n in shape]
    bias, epsilon = random.choice([("0.0", "0.01"), ("0.1", "0.0"), ("0.0", "0.9")])
    check(document, result(document, f"{name}({x}, size = {size}, bias = {bias}, epsilon = {epsilon})"))


def local_mean(random: Random) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    shape = shaped(random)
    x = document.external(shape)
    size = [random.randint(1, min(3, n)) for n in shape]
    check(document, document.apply(f"local_mean_normalization({x}, size = {size})"))


def local_response(random: Random) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    shape = shaped(random)
    x = operand(document, shape)
    size = [random.randint(1, min(3, n)) for n in shape]
    beta = random.choice(["0.5", "0.75", "1.0", "0.25"])
    check(
        document,
        result(
            document,
            f"local_response_normalization({x}, size = {size}, alpha = {random.choice(['1.0', '0.3'])}, "
            f"beta = {beta}, bias = {random.choice(['1.0', '0.2'])})",
        ),
    )


def moments(random: Random) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    shape = shaped(random)
    x = document.external(shape)
    axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
    document.lines.append(f"(mean, variance) = moments({x}, axes = {axes});")
    document.quantise("mean")
    document.quantise("variance", 0.0, 0.7)
    check(document, "mean, variance")


def moments_of_many(random: Random) -> None:
    document = Document(random, op_set=random.choice([1, 2]))
    x = document.external((1, 2, random.randint(12, 16), 16))
    document.lines.append(f"(mean, variance) = moments({x}, axes = [2, 3]);")
    document.quantise("mean")
    document.quantise("variance", 0.0, 0.7)
    check(document, "mean, variance", 1)


CASES: Cases = {
    "l1": lambda random: by_axes(random, "l1_normalization"),
    "l2": lambda random: by_axes(random, "l2_normalization"),
    "local mean": local_mean,
    "local variance": lambda random: by_window(random, "local_variance_normalization"),
    "local contrast": lambda random: by_window(random, "local_contrast_normalization"),
    "local response": local_response,
    "moments": moments,
    "moments of many items": moments_of_many,
}

test_a_few_documents = drawn(CASES, 6)
test_many_documents = exhaustively(CASES)
