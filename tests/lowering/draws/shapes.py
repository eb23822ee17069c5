"""Reductions (4.4), movement of data (4.5) and what the Khronos dialect adds to it."""

from __future__ import annotations

import math

from tests.lowering.documents import Document
from tests.lowering.draws.elementwise import truth
from tests.lowering.draws.operands import CODED, KINDS, operand, shape_of
from tests.lowering.draws.registry import draws

ORDERED = ("input", "scaled", "clamped", "table", "parts", "variable")


def axes_of(document: Document, rank: int) -> list[int]:
    """Some axes in any order; all or none at times."""
    random = document.random
    return random.sample(range(rank), random.choice([0, rank, *range(1, rank + 1), *range(1, rank + 1)]))


@draws("sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce")
def reduction(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 4)
    x = operand(document, shape, ORDERED if "m" in operation[:4] and operation != "mean_reduce" else KINDS, bits=8)
    axes = axes_of(document, len(shape))
    if operation.startswith("arg") and not axes:
        axes = [0]
    extra = f", normalize = {random.choice(['true', 'false'])}" if operation == "sum_reduce" else ""
    call = f"{operation}({x}, axes = {axes}{extra})"
    return document.apply(call, -2.0, 2.0, quantised=not operation.startswith("arg"))


@draws("any_reduce", "all_reduce")
def logical_reduction(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 3)
    condition = truth(document, shape)
    if condition in ("true", "false"):
        condition = document.integers(shape, 0, 1, "logical")
    return document.apply(f"{operation}({condition}, axes = {axes_of(document, len(shape))})", quantised=False)


def moved(document: Document, call: str, shape: tuple[int, ...]) -> str:
    """A movement of any kind of tensor; of integers and truth values at times."""
    random = document.random
    draw = random.random()
    if draw < 0.12:
        kind, most = random.choice([("integer", 2000), ("logical", 1)])
        x = document.integers(shape, 0, most, kind)
        return document.apply(call.format(x=x), quantised=False)
    y = document.apply(call.format(x=operand(document, shape)), quantised=random.random() < 0.7)
    return y if y in document.quantisers else document.apply(f"copy({y})")


@draws("reshape")
def reshape(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 4)
    if random.random() < 0.3:
        start = random.randrange(len(shape))
        count = random.randint(1, len(shape) - start)
        inner = math.prod(shape[start : start + count])
        target = random.choice([[inner], [1, inner], [-1]])
        count = random.choice([count, -1]) if start + count == len(shape) else count
        return moved(document, f"reshape({{x}}, shape = {target}, axis_start = {start}, axis_count = {count})", shape)
    targets = [[math.prod(shape)], [-1], [1, -1, 1], list(shape[::-1]), [0, -1], [0] * len(shape)]
    return moved(document, f"reshape({{x}}, shape = {random.choice(targets)})", shape)


@draws("squeeze")
def squeeze(document: Document, operation: str) -> str:
    random = document.random
    shape = tuple(random.choice([1, 1, 3, 4]) for _ in range(random.randint(1, 5)))
    axes = [axis for axis, extent in enumerate(shape) if extent == 1 and random.random() < 0.8]
    return moved(document, f"squeeze({{x}}, axes = {axes})", shape)


@draws("unsqueeze")
def unsqueeze(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    count = random.randint(0, 3)
    axes = sorted(random.sample(range(len(shape) + count), count))
    return moved(document, f"unsqueeze({{x}}, axes = {axes})", shape)


@draws("transpose")
def transpose(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 5, 3)
    count = random.randint(0, len(shape))
    return moved(document, f"transpose({{x}}, axes = {random.sample(range(count), count)})", shape)


@draws("split", "unstack")
def cut(document: Document, operation: str) -> str:
    random = document.random
    shape = [*shape_of(document, 1, 4)]
    axis = random.randrange(len(shape))
    ratios = [random.randint(1, 3) for _ in range(random.randint(1, 3))]
    if operation == "split":
        shape[axis] = sum(ratios) * random.randint(1, 2)
    names = [f"part{i}" for i in range(len(ratios) if operation == "split" else shape[axis])]
    ratio = f", ratios = {ratios}" if operation == "split" else ""
    x = operand(document, tuple(shape))
    document.lines.append(f"[{', '.join(names)}] = {operation}({x}, axis = {axis}{ratio});")
    results = []
    for name in names:
        if random.random() < 0.6:
            document.quantise(name)
        results.append(name if name in document.quantisers else document.apply(f"copy({name})"))
    return ", ".join(results)


@draws("concat", "stack")
def joined(document: Document, operation: str) -> str:
    random = document.random
    shape = [*shape_of(document, 1, 3)]
    axis = random.randint(0, len(shape)) if operation == "stack" else random.randrange(len(shape))
    parts = []
    for _ in range(random.randint(1, 3)):
        if operation == "concat":
            shape[axis] = random.randint(1, 3)
        parts.append(operand(document, tuple(shape)))
    if operation == "stack" and random.random() < 0.2:
        parts.append(parts[0])
    y = document.apply(f"{operation}([{', '.join(parts)}], axis = {axis})", quantised=random.random() < 0.6)
    return y if y in document.quantisers else document.apply(f"copy({y})")


@draws("slice")
def slice_(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 4, 5)
    axes = random.sample(range(len(shape)), random.randint(0, len(shape)))
    begin, end = [], []
    for axis in axes:
        extent = shape[axis]
        first = random.randrange(extent)
        last = random.randint(first + 1, extent)
        begin.append(first - extent if first and random.random() < 0.4 else first)
        end.append(random.choice([last, last - extent]))  # 0 is the end of the axis
    stride = f", stride = {[random.randint(1, 3) for _ in axes]}" if axes and random.random() < 0.4 else ""
    return moved(document, f"slice({{x}}, axes = {axes}, begin = {begin}, end = {end}{stride})", shape)


@draws("tile")
def tile(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 4, 3)
    return moved(document, f"tile({{x}}, repeats = {[document.random.randint(1, 3) for _ in shape]})", shape)


@draws("pad")
def pad(document: Document, operation: str) -> str:
    random = document.random
    shape = tuple(random.randint(2, 4) for _ in range(random.randint(1, 4)))
    border = random.choice(["constant", "constant", "replicate", "reflect", "reflect-even"])
    most = 3 if border in ("constant", "replicate") else 1
    padding = [(random.randint(0, most), random.randint(0, most)) for _ in shape]
    value = f", value = {random.uniform(-1, 1):.3f}" if border == "constant" and random.random() < 0.6 else ""
    y = document.apply(f"pad({operand(document, shape)}, padding = {padding}, border = '{border}'{value})",
                       quantised=random.random() < 0.6)  # fmt: skip
    return y if y in document.quantisers else document.apply(f"copy({y})")


@draws("gather")
def gather(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    axis = random.randrange(len(shape))
    places = shape_of(document, 1, 2)
    if random.random() < 0.4:
        items = [random.randrange(shape[axis]) for _ in range(math.prod(places))]
        name = f"indices{len(document.lines)}"
        document.lines.append(f"{name} = constant<integer>(shape = {list(places)}, value = {items});")
    else:
        name = document.integers(places, 0, shape[axis] - 1)
    return moved(document, f"gather({{x}}, {name}, axis = {axis})", shape)


@draws("cast")
def cast(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    source = random.choice(["scalar", "scalar", "integer", "logical"])
    if source == "scalar":
        x = operand(document, shape, (*CODED, "sum", "table", "clamped", "parts"), -4.0, 4.0)
    else:
        x = document.integers(shape, 0 if source == "logical" else -90, 1 if source == "logical" else 90, source)
    target = random.choice(["integer", "logical", "scalar"])
    return document.apply(f"cast<{target}>({x})", -5.0, 5.0, quantised=target == "scalar")
