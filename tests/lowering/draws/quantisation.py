"""Quantisation in the graph (4.9.5, 7.2, Khronos dialect); external, variable, constant (4.1) and update (4.8)."""

from __future__ import annotations

import math

from tests.lowering.documents import Document
from tests.lowering.draws.operands import operand, shape_of
from tests.lowering.draws.registry import draws


@draws("linear_quantize")
def linear_quantize(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3, 3)
    bits = random.choice([1, 2, 4, 8])
    if random.random() < 0.5:
        low = random.uniform(-1, 0.3)
        bounds = [f"{low:.4f}", f"{low + random.uniform(0.2, 1.5):.4f}"]
        x = operand(document, shape)
        if random.random() < 0.3:
            channels = tuple(extent if axis == 0 else 1 for axis, extent in enumerate(shape))
            bounds = [operand(document, channels, ("stored",), *pair) for pair in ((-1.0, 0.0), (0.3, 1.0))]
    else:
        x = operand(document, shape, ("input", "input", "scaled", "sum"), bits=8)
        axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
        high = document.apply(f"max_reduce({x}, axes = {axes})", quantised=random.random() < 0.3)
        low_ = document.apply(f"min_reduce({x}, axes = {axes})", quantised=random.random() < 0.3)
        bounds = [random.choice(["0.0", low_]), high]
    y = document.apply(f"linear_quantize({x}, min = {bounds[0]}, max = {bounds[1]}, bits = {bits})", quantised=False)
    return document.apply(random.choice(["copy({y})", "mul({y}, 0.7)"]).format(y=y))


@draws("min_max_linear_quantize", "zero_point_linear_quantize")
def khronos(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 3)
    bits = random.choice([2, 4, 8, 12])
    flags = (
        f"bits = {bits}, signed = {random.choice(['true', 'false'])}, symmetric = {random.choice(['true', 'false'])}"
    )
    x = operand(document, shape)
    channels = tuple(extent if axis == len(shape) - 1 else 1 for axis, extent in enumerate(shape))
    per_channel = random.random() < 0.4
    if operation.startswith("min"):
        low, high = f"{random.uniform(-1, -0.1):.3f}", f"{random.uniform(0.2, 1):.3f}"
        if per_channel:
            low, high = (operand(document, channels, ("stored",), *pair) for pair in ((-1.0, -0.1), (0.3, 1.0)))
        call = f"{operation}({x}, min = {low}, max = {high}, {flags})"
    else:
        scale = f"{2.0 / 2**bits:.6f}"
        if per_channel:
            scale = operand(document, channels, ("stored",), 2.0 / 2**bits, 3.0 / 2**bits)
            document.stored[scale] += 1 / 4096  # never 0
        zero = f"zero{len(document.lines)}"
        document.lines.append(f"{zero} = constant<integer>(shape = [1], value = [{random.randint(-3, 3)}]);")
        call = f"{operation}({x}, zero_point = {zero}, scale = {scale}, {flags})"
    return document.apply(f"copy({document.apply(call, quantised=False)})")


@draws("logarithmic_quantize")
def logarithmic_quantize(document: Document, operation: str) -> str:
    random = document.random
    x = operand(document, shape_of(document, 1, 3))
    bound, bits = f"{random.uniform(0.05, 3):.3f}", random.randint(1, 4)
    y = document.apply(f"logarithmic_quantize({x}, max = {bound}, bits = {bits})", quantised=False)
    return document.apply(random.choice(["copy({y})", "mul({y}, 0.7)"]).format(y=y))


@draws("external")
def external(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 4)
    kind = document.random.choice(["scalar", "integer", "logical"])
    if kind == "scalar":
        return document.external(shape)
    return document.integers(shape, 0 if kind == "logical" else -1000, 1 if kind == "logical" else 1000, kind)


@draws("variable")
def variable(document: Document, operation: str) -> str:
    shape = shape_of(document, 1, 4)
    x = operand(document, shape, ("input",))
    w = operand(document, shape, ("variable", "variable", "stored"))
    return document.apply(f"add({x}, {w})")


@draws("constant")
def constant(document: Document, operation: str) -> str:
    random = document.random
    shape = shape_of(document, 1, 4, 3)
    kind = random.choice(["scalar", "scalar", "integer", "logical"])
    count = random.choice([1, math.prod(shape)])
    items = {
        "scalar": [f"{random.uniform(-1, 1):.{random.randint(1, 9)}f}" for _ in range(count)],
        "integer": [str(random.randint(-(2**31) + 1, 2**31 - 1)) for _ in range(count)],
        "logical": [random.choice(["true", "false"]) for _ in range(count)],
    }[kind]
    name = f"constant{len(document.lines)}"
    document.lines.append(f"{name} = constant<{kind}>(shape = {list(shape)}, value = [{', '.join(items)}]);")
    x = operand(document, shape, ("input",))
    if kind != "scalar":
        output = document.apply(f"copy({name})", quantised=False)
        return ", ".join([output, document.apply(f"copy({x})")])
    if random.random() < 0.5:
        document.quantise(name)
    return document.apply(f"add({x}, {name})")


@draws("update")
def update(document: Document, operation: str) -> str:
    """One or two variables, read before and after they are updated, over three cycles."""
    random = document.random
    document.cycles = 3
    shape = shape_of(document, 1, 3, 3)
    x = operand(document, shape, ("input", "input", "sum"), bits=8)
    outputs, held = [], []
    for _ in range(random.randint(1, 2)):
        name = document.variable(shape)
        document.quantisers[name] = document.quantisers[name].replace("logarithmic", "linear")
        held.append(name)
    document.most_bits.update(dict.fromkeys(held, 8))
    for name in held:
        source = random.choice(held)
        step = random.choice(["add", "sub", "max"])
        value = document.apply(f"{step}({x}, {source})",
                               quantised=random.random() < 0.7)  # fmt: skip
        result = document.apply(f"update({name}, {value})", quantised=random.random() < 0.5)
        outputs.append(document.apply(f"add({result}, {name})"))
    return ", ".join(outputs)
