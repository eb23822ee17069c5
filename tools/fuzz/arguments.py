"""Fuzzer of arguments: one operation per document, with arguments of the right types and any values.

    python -m tools.fuzz.arguments --count 200000 --seed 1

Other fuzzers' documents are mostly valid, so their operations rarely see an unexpected rank, axis or number; these
documents are rarely valid. They are examined as the fuzzer of documents examines its own.
"""

from __future__ import annotations

import random
import sys

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import khronos_library
from cvm.frontends.nnef.types import ArrayType, Primitive, TensorType, TupleType, Type
from tools.fuzz.documents import examine
from tools.fuzz.harness import Fuzzer, main

__all__ = ["FUZZER"]

_SHAPES = ("[]", "[1]", "[4]", "[2,3]", "[1,4,1]", "[1,2,4,4]", "[1,1,2,2,2]", "[1,1,1,1,1,1,1,1]")
_LARGE = "[2147483647,3]"
_SMALL = ("0", "1", "2", "3", "4", "-1")
_INTEGERS = (*_SMALL, "7", "2147483647", "2147483648", "9223372036854775808", "-9223372036854775809", f"{2**100}")
_SCALARS = ("0.0", "1.0", "-1.0", "0.5", "1e300", "-1e300", "1e-300", "255.0")
_STRINGS = ("constant", "ignore", "replicate", "reflect", "reflect-even", "symmetric", "asymmetric", "aligned", "", "a")
_TENSORS = {
    "scalar": ("x", "u", "v", "w", "x", "1.0", "relu(x)", "-u"),
    "logical": ("x < 1.0", "u > w", "true", "!(x < u)"),
    "integer": ("i", "1", "argmax_reduce(x, axes = [0])"),
}


def _value(random_: random.Random, type_: Type, generic: str) -> str:
    match type_:
        case TensorType(name):
            kind = generic if name in (None, "?") else name
            if random_.random() < 0.05:
                kind = random_.choice(tuple(_TENSORS))
            return random_.choice(_TENSORS.get(str(kind), ("x",)))
        case ArrayType(item):
            count = random_.choice((0, 1, 1, 2, 2, 3, 4, 4, 5, 9))
            if item is None or random_.random() < 0.02:
                return "[]"
            if random_.random() < 0.02:
                return f"[{_value(random_, item, generic)}] * {random_.choice(_INTEGERS)}"
            first = _value(random_, item, generic)
            items = [first if random_.random() < 0.5 else _value(random_, item, generic) for _ in range(count)]
            return f"[{', '.join(items)}]"
        case TupleType(items):
            return f"({', '.join(_value(random_, item, generic) for item in items)})"
        case Primitive("integer"):
            return random_.choice(_SMALL if random_.random() < 0.8 else _INTEGERS)
        case Primitive("scalar"):
            return random_.choice(_SCALARS)
        case Primitive("logical"):
            return random_.choice(("true", "false"))
        case Primitive("string"):
            return f"'{random_.choice(_STRINGS)}'"
    return _value(random_, TensorType(generic) if random_.random() < 0.5 else Primitive("scalar"), generic)  # type: ignore[arg-type]


def _target(random_: random.Random, declaration: syntax.Fragment) -> str:
    names = [
        f"[{', '.join(f'r{index}{item}' for item in range(random_.choice((1, 2, 2, 3))))}]"
        if isinstance(result.type, ArrayType)
        else f"r{index}"
        for index, result in enumerate(declaration.results)
    ]
    return ", ".join(names)


def make(random_: random.Random) -> bytes:
    """A document with one operation of any library."""
    library = khronos_library()
    declaration = library[random_.choice(sorted(library))]
    generic = random_.choice(("scalar", "scalar", "scalar", "integer", "logical"))
    arguments = [
        f"{parameter.name} = {_value(random_, parameter.type, generic)}"
        for parameter in declaration.parameters
        if parameter.default is None or random_.random() < 0.5
    ]
    explicit = f"<{generic}>" if declaration.generic and random_.random() < 0.7 else ""
    invocation = f"{declaration.name}{explicit}({', '.join(arguments)})"
    shape = _LARGE if random_.random() < 0.02 else random_.choice(_SHAPES)
    variables = "".join(
        f"    {name} = variable(shape = {random_.choice((shape, shape, random_.choice(_SHAPES)))}, label = '{name}');\n"
        for name in "uvw"
    )
    return f"""version 1.0;
extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;
graph net( x, i ) -> ( y )
{{
    x = external(shape = {shape});
    i = external<integer>(shape = {random_.choice(_SHAPES)});
{variables}    {_target(random_, declaration)} = {invocation};
    y = relu(x);
}}
""".encode()


FUZZER = Fuzzer("tools.fuzz.arguments", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
