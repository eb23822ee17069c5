"""Data movement (NNEF 1.0.1 section 4.5, Khronos dialect) moves exactly the numbers that the document denotes."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively

SUMS = ["copy({x})", "neg({x})", "add({x}, 0.3)", "relu({x})", "exp({x})", "mul({x}, {x})"]
"""What a tensor is before it is moved: codes, sums, a pending clamp, a table, products."""


def operand(document: Document, shape: tuple[int, ...], quantised: float = 0.3) -> str:
    """A tensor of any kind of form."""
    random = document.random
    x = document.external(shape)
    if random.random() < 0.2:
        name = document.variable(shape, quantised=random.random() < 0.7)
        document.stored[name] = (np.round(document.stored[name] * 2.0**40) / 2.0**40).astype(np.float32)
        return name
    y = document.apply(random.choice(SUMS).format(x=x), quantised=random.random() < quantised)
    if random.random() < 0.2 and quantised < 1:
        y = document.apply(f"add({y}, {document.external(shape)})", quantised=False) if random.random() < 0.5 else y
    return y


def shaped(random: Random, low: int = 1, high: int = 4) -> tuple[int, ...]:
    return tuple(random.randint(1, 4) for _ in range(random.randint(low, high)))


def finish(document: Document, results: str) -> None:
    """Every result is quantised on its own, or together with the others through a copy."""
    names = results.split(", ")
    outputs = [document.apply(f"copy({name})", quantised=True) for name in names]
    check(document, ", ".join(outputs))


def moved(document: Document, x: str, call: str) -> None:
    finish(document, document.apply(call.format(x=x), quantised=document.random.random() < 0.4))


def reshape(random: Random) -> None:
    document = Document(random)
    shape = shaped(random)
    x = operand(document, shape)
    target = random.choice([[math.prod(shape)], [-1], [1, -1, 1], list(shape[::-1]), [0, -1]])
    moved(document, x, f"reshape({{x}}, shape = {target})")


def squeeze(random: Random) -> None:
    document = Document(random)
    shape = tuple(random.choice([1, 1, 3]) for _ in range(random.randint(1, 4)))
    x = operand(document, shape)
    axes = [axis for axis, extent in enumerate(shape) if extent == 1 and random.random() < 0.8]
    moved(document, x, f"squeeze({{x}}, axes = {axes})")


def unsqueeze(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = operand(document, shape)
    axes = sorted(random.sample(range(len(shape) + 2), 2))
    moved(document, x, f"unsqueeze({{x}}, axes = {axes})")


def transpose(random: Random) -> None:
    document = Document(random)
    shape = shaped(random)
    x = operand(document, shape)
    count = random.randint(1, len(shape))
    moved(document, x, f"transpose({{x}}, axes = {random.sample(range(count), count)})")


def split(random: Random) -> None:
    document = Document(random)
    ratios = [random.randint(1, 2) for _ in range(random.randint(1, 3))]
    shape = [*shaped(random, 1, 3)]
    axis = random.randrange(len(shape))
    shape[axis] = sum(ratios) * random.randint(1, 2)
    x = operand(document, tuple(shape))
    names = [f"part{i}" for i in range(len(ratios))]
    document.lines.append(f"[{', '.join(names)}] = split({x}, axis = {axis}, ratios = {ratios});")
    for name in names:
        if random.random() < 0.3:
            document.quantise(name)
    finish(document, ", ".join(names))


def unstack(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    axis = random.randrange(len(shape))
    x = operand(document, shape)
    names = [f"part{i}" for i in range(shape[axis])]
    document.lines.append(f"[{', '.join(names)}] = unstack({x}, axis = {axis});")
    finish(document, ", ".join(names))


def concat(random: Random) -> None:
    document = Document(random)
    shape = [*shaped(random, 1, 3)]
    axis = random.randrange(len(shape))
    parts = []
    for _ in range(random.randint(1, 3)):
        shape[axis] = random.randint(1, 3)
        parts.append(operand(document, tuple(shape)))
    document.quantisers = dict(document.quantisers)
    finish(document, document.apply(f"concat([{', '.join(parts)}], axis = {axis})", quantised=True))


def stack(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    parts = [operand(document, shape) for _ in range(random.randint(1, 3))]
    axis = random.randint(0, len(shape))
    finish(document, document.apply(f"stack([{', '.join(parts)}], axis = {axis})", quantised=True))


def slice_(random: Random) -> None:
    document = Document(random)
    shape = shaped(random)
    x = operand(document, shape)
    axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
    begin, end = [], []
    for axis in axes:
        first = random.randint(0, shape[axis] - 1)
        last = random.randint(first + 1, shape[axis])
        begin.append(first - shape[axis] if first and random.random() < 0.4 else first)
        end.append(last - shape[axis] if random.random() < 0.4 else last)
    stride = f", stride = {[random.randint(1, 2) for _ in axes]}" if random.random() < 0.3 else ""
    moved(document, x, f"slice({{x}}, axes = {axes}, begin = {begin}, end = {end}{stride})")


def tile(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = operand(document, shape)
    moved(document, x, f"tile({{x}}, repeats = {[random.randint(1, 3) for _ in shape]})")


def pad(random: Random) -> None:
    document = Document(random)
    shape = tuple(random.randint(2, 4) for _ in range(random.randint(1, 3)))
    x = operand(document, shape)
    border = random.choice(["constant", "constant", "replicate", "reflect", "reflect-even"])
    padding = [(random.randint(0, 1), random.randint(0, 1)) for _ in shape]
    value = f", value = {random.uniform(-1, 1):.3f}" if border == "constant" and random.random() < 0.6 else ""
    moved(document, x, f"pad({{x}}, padding = {padding}, border = '{border}'{value})")


def gather(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = operand(document, shape)
    axis = random.randrange(len(shape))
    indices = document.integers(shaped(random, 1, 2), 0, shape[axis] - 1)
    moved(document, x, f"gather({{x}}, {indices}, axis = {axis})")


def copy_n(random: Random) -> None:
    document = Document(random)
    x = operand(document, shaped(random, 1, 3))
    names = [f"copy{i}" for i in range(random.randint(1, 3))]
    document.lines.append(f"[{', '.join(names)}] = copy_n({x}, times = {len(names)});")
    for name in names:
        if random.random() < 0.5:
            document.quantise(name)
    finish(document, ", ".join(names))


def cast(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = operand(document, shape)
    y = document.apply(f"mul({x}, 3.7)", quantised=False)
    check(document, document.apply(f"cast<{random.choice(['integer', 'logical'])}>({y})", quantised=False))


def movement_of_integers(random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 2, 3)
    kind = random.choice(["integer", "logical"])
    x = document.integers(shape, 0, 1 if kind == "logical" else 2000, kind)
    y = document.apply(f"transpose({x}, axes = [1, 0])", quantised=False)
    check(document, document.apply(f"reshape({y}, shape = [-1])", quantised=False))


CASES: Cases = {
    "reshape": reshape,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    "transpose": transpose,
    "split": split,
    "unstack": unstack,
    "concat": concat,
    "stack": stack,
    "slice": slice_,
    "tile": tile,
    "pad": pad,
    "gather": gather,
    "copy_n": copy_n,
    "cast": cast,
    "integers": movement_of_integers,
}

test_a_few_documents = drawn(CASES)
test_many_documents = exhaustively(CASES)
