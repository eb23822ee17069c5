"""Encoding of programs: canonical bytes, whose format `cvm.program.codec` describes, and the numbers of values."""

from __future__ import annotations

from collections.abc import Mapping

from cvm.errors import Invalid, Location
from cvm.program.model import Constant, Exactness, Node, ProgramParts, Provenance, Value
from cvm.program.wire import Listed, Tree, packs_to, pieces, rational_text
from cvm.quantization.quantizer import LogarithmicQuantizer, Quantizer

__all__ = ["FORMAT", "FORMAT_NAME", "VERSION", "ValueNumbers", "encode", "encoded", "encodes_to", "value_numbers"]

FORMAT = "cvm-program"
VERSION = 1
FORMAT_NAME = "program"
"""The beginning of the codes of errors."""


class ValueNumbers(dict[str, int]):
    """The number of each value of a program, by name. A look-up of an unknown name raises `Invalid`."""

    def __missing__(self, name: str) -> int:
        raise Invalid("program.undefined", f"no value is called {name!r}", Location(tensor=name))


def value_numbers(program: ProgramParts) -> ValueNumbers:
    """The numbers of all values. Raises `Invalid` for a name that is written twice."""
    numbers = ValueNumbers()
    for name in program.value_names():
        if name in numbers:
            raise Invalid("program.duplicate", f"the name {name!r} is written twice", Location(tensor=name))
        numbers[name] = len(numbers)
    return numbers


def encode(program: ProgramParts) -> bytes:
    """The canonical bytes of ``program``. Raises as `encoded` does."""
    return b"".join(encoded(program))


def encoded(program: ProgramParts) -> tuple[bytes, ...]:
    """The canonical bytes of ``program`` in pieces, large constants among them without a copy.

    Raises `Invalid` or `LimitExceeded` for a program that cannot be written: one with duplicate or undefined names,
    integers beyond 64 bits, or constants beyond 2^32 - 1 bytes. It does not verify the program.
    """
    return tuple(pieces(_file(program), FORMAT_NAME))


def encodes_to(program: ProgramParts, data: bytes) -> bool:
    """Whether ``data`` are the canonical bytes of ``program``."""
    return packs_to(_file(program), data, FORMAT_NAME)


def _file(program: ProgramParts) -> Tree:
    return [FORMAT, VERSION, _program(program, value_numbers(program))]


def _program(program: ProgramParts, numbers: ValueNumbers) -> Tree:
    return {
        "op_set": program.op_set,
        "limits": program.limits,
        "inputs": [{"value": _value(item.value), **_optional_quantizer(item.quantizer)} for item in program.inputs],
        "constants": Listed(len(program.constants), map(_constant, program.constants)),
        "state": [
            {"value": _value(state.value), "initial": numbers[state.initial], "update": numbers[state.update]}
            for state in program.state
        ],
        "nodes": Listed(len(program.nodes), (_node(node, numbers) for node in program.nodes)),
        "outputs": [
            {"name": output.name, "value": numbers[output.value], **_optional_quantizer(output.quantizer)}
            for output in program.outputs
        ],
        "provenance": _provenance(program.provenance),
    }


def _value(value: Value) -> Tree:
    return {"name": value.name, "shape": list(value.shape), "lo": value.lo, "hi": value.hi}


def _constant(constant: Constant) -> Tree:
    return {
        "name": constant.name,
        "kind": constant.kind,
        "shape": list(constant.shape),
        "width": constant.width,
        "data": constant.data,
    }


def _node(node: Node, numbers: ValueNumbers) -> Tree:
    return {
        "op": node.op,
        "inputs": [numbers[name] for name in node.inputs],
        "outputs": [_value(value) for value in node.outputs],
        "attributes": {
            key: list(value) if isinstance(value, tuple) else value for key, value in node.attributes.items()
        },
    }


def _optional_quantizer(quantizer: Quantizer | None) -> Mapping[str, Tree]:
    if quantizer is None:
        return {}
    if isinstance(quantizer, LogarithmicQuantizer):
        return {"quantizer": {"bits": quantizer.bits, "top": quantizer.top}}
    fields: dict[str, Tree] = {
        "scale": [rational_text(scale) for scale in quantizer.scale],
        "offset": [rational_text(offset) for offset in quantizer.offset],
        "lo": quantizer.lo,
        "hi": quantizer.hi,
        "rounding": quantizer.rounding,
    }
    if quantizer.axis is not None:
        fields["axis"] = quantizer.axis
    return {"quantizer": fields}


def _provenance(provenance: Provenance) -> Tree:
    return {
        "tool": provenance.tool,
        "source": provenance.source,
        "source_digest": provenance.source_digest,
        "exactness": [_exactness(item) for item in provenance.exactness],
    }


def _exactness(item: Exactness) -> Tree:
    fields: dict[str, Tree] = {
        "tensor": item.tensor,
        "value": item.value,
        "bound": rational_text(item.bound),
        "note": item.note,
    }
    if item.accumulator is not None:
        fields["accumulator"] = list(item.accumulator)
    return fields
