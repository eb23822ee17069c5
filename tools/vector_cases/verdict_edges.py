"""Programs at the limits of ops and quantisers: attributes at and beyond their bounds, one input too many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cvm.errors import CvmError
from cvm.ops import REGISTRY, op_set
from cvm.ops.catalogue import catalogue
from cvm.ops.specification import STATEMENTS, ExampleTensor
from cvm.program import Output, Program, ProgramBuilder
from cvm.program.encoding import encode
from cvm.program.model import Constant, Node, Value
from tools.vector_cases.answers import vector_tensor
from tools.vector_cases.case import Case, Tensor, parameter, tensor
from tools.vector_cases.refusals import Refusal, all_of, changed, put

__all__ = ["applied", "at_edges", "built", "quantisers_at_edges"]

_ATTRIBUTES = {entry["name"]: entry["attributes"] for entry in catalogue()}


def applied(op: str, item: Case) -> bytes:
    """The bytes of an unchecked program that applies an op to constants."""
    constants = [Constant.of(f"c{k}", vector_tensor(given).array(), given.kind) for k, given in enumerate(item.inputs)]
    attributes = {key: tuple(value) if isinstance(value, list) else value for key, value in item.attributes.items()}
    results = tuple(Value(name, (1,), 0, 0) for name in REGISTRY[op].outputs)
    node = Node(op, tuple(constant.name for constant in constants), results, attributes)
    outputs = tuple(Output(value.name, value.name) for value in results)
    return encode(Program((), outputs, tuple(constants), nodes=(node,), op_set=op_set([op])))


def built(op: str, item: Case) -> Program:
    """The program that applies an op to constants. Raises `CvmError` if it is refused."""
    builder = ProgramBuilder()
    names = [builder.constant(vector_tensor(given).array(), kind=given.kind) for given in item.inputs]
    results = builder.add(op, names, item.attributes)
    return builder.build([Output(result, result) for result in results])


def at_edges(op: str) -> Iterator[Refusal]:
    """The example of an op with one attribute at or beyond a bound, or an input too many; the code may be empty."""
    example = STATEMENTS[op].example
    inputs = tuple(_tensor(given) for given in example.inputs)
    whole = {key: value for key, value in REGISTRY[op].parse(example.attributes) if value is not None}
    for spec in _ATTRIBUTES[op]:
        code = f"ops.{op}.attribute.{spec['name']}"
        for label, value, legal in _values(spec):
            attributes = {**whole, spec["name"]: value}
            item = Case("", "", inputs, attributes)
            data = _data(op, item) if legal else applied(op, item)
            yield f"{op}_{spec['name']}_{label}", "" if legal else code, f"{spec['name']} {label}", data
    largest = REGISTRY[op].arity()[1]
    if largest is not None:
        more = (*inputs, *[inputs[-1]] * (largest + 1 - len(inputs)))
        yield f"{op}_inputs", f"ops.{op}.arity", "an input too many", applied(op, Case("", "", more, whole))


def _tensor(given: ExampleTensor) -> Tensor:
    return (parameter if given.role == "parameter" else tensor)(given.shape, given.elements)


def _data(op: str, item: Case) -> bytes:
    """The bytes of a program: with what follows for its result, where it is valid."""
    try:
        return built(op, item).to_bytes()
    except CvmError:
        return applied(op, item)


def _values(spec: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Values of an attribute: their names, and whether they are within its bounds."""
    if spec["type"] == "boolean":
        yield "one", 1, False
        yield "true", True, True
        return
    if spec["type"] == "word":
        yield "empty", "", False
        yield from ((word, word, True) for word in spec["values"])
        return
    numbers = [("least", spec["minimum"], True), ("largest", spec["maximum"], True)]
    numbers += [("below", spec["minimum"] - 1, False), ("above", spec["maximum"] + 1, False)]
    if spec["type"] == "integer":
        yield from numbers
        yield "true", True, False
        return
    least, most = spec["least_length"], spec["most_length"]
    length = max(least, 1)
    yield from ((label, (number,) * length, legal) for label, number, legal in numbers)
    yield "long", (max(1, spec["minimum"]),) * most, True
    yield "too_long", (max(1, spec["minimum"]),) * (most + 1), False
    if least:
        yield "too_short", (max(1, spec["minimum"]),) * (least - 1), False
    yield "number", max(1, spec["minimum"]), spec["name"] == "padding" and spec["what"].endswith("both")


def quantisers_at_edges() -> Iterator[Refusal]:
    """Logarithmic quantisers with the fewest and the most bits, and the least and the greatest number."""
    x = ("inputs", 0, "value")
    for bits, top in ((1, 2**14), (16, -(2**14))):
        quantiser = put("inputs", 0, "quantizer", {"bits": bits, "top": top})
        total = ("nodes", 0, "outputs", 0)
        wide = all_of(put(*total, "lo", -(2**16) - 1000), put(*total, "hi", 2**16 + 1000))
        interval = all_of(put(*x, "lo", -(2**bits)), put(*x, "hi", 2**bits))
        yield f"logarithm_{bits}", "", f"a quantiser of {bits} bits", changed(all_of(quantiser, interval, wide))
