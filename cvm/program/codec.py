"""The canonical bytes of a program: one program, one file.

A file is the canonical msgpack (`cvm.program.wire`) of the array ``["cvm-program", 1, program]``, so it begins with the
13 bytes ``93 ab "cvm-program"`` and the format's version. ``program`` is a map that mirrors the data
classes, with these differences:

* Values are numbered: inputs, constants, state, then the outputs of each node, from 0. Nodes, outputs and state refer
  to values by number, so that a reader in any language resolves a reference with an array index and sees at once
  whether it points backward.
* The key of an attribute that is None is missing; all other keys must be present.
* Rationals are strings ``p/q``. Booleans occur as attributes only.

Encoding the decoded program gives the same bytes, or the file is refused. Decoding checks the form; rules (shapes,
ranges, limits) are the verifier's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from cvm.errors import Invalid, Location, Malformed
from cvm.limits import DEFAULT, Limits, require
from cvm.program.checks import ENTRIES, operand_entries
from cvm.program.model import (
    AttributeValue,
    Constant,
    Exactness,
    Input,
    Node,
    Output,
    Program,
    Provenance,
    State,
    Value,
)
from cvm.program.wire import Listed, Reader, Tree, packs_to, pieces, rational_text
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding

__all__ = ["FORMAT", "VERSION", "ValueNumbers", "decode", "encode", "encoded", "value_numbers"]

FORMAT = "cvm-program"
VERSION = 1
FORMAT_NAME = "program"
"""The beginning of the codes of errors."""

_Item = TypeVar("_Item")
_Fields: TypeAlias = Mapping[str, Callable[[], Any]]

_KINDS: tuple[Literal["tensor", "parameter"], ...] = ("parameter", "tensor")


class ValueNumbers(dict[str, int]):
    """The number of each value of a program, by name. A look-up of an unknown name raises `Invalid`."""

    def __missing__(self, name: str) -> int:
        raise Invalid("program.undefined", f"no value is called {name!r}", Location(tensor=name))


def value_numbers(program: Program) -> ValueNumbers:
    """The numbers of all values. Raises `Invalid` for a name that is written twice."""
    numbers = ValueNumbers()
    for name in program.value_names():
        if name in numbers:
            raise Invalid("program.duplicate", f"the name {name!r} is written twice", Location(tensor=name))
        numbers[name] = len(numbers)
    return numbers


def encode(program: Program) -> bytes:
    """The canonical bytes of ``program``. Raises as `encoded` does."""
    return b"".join(encoded(program))


def encoded(program: Program) -> tuple[bytes, ...]:
    """The canonical bytes of ``program`` in pieces, large constants among them without a copy.

    Raises `Invalid` or `LimitExceeded` for a program that cannot be written: one with duplicate or undefined names,
    integers beyond 64 bits, or constants beyond 2^32 - 1 bytes. It does not verify the program.
    """
    return tuple(pieces(_file(program), FORMAT_NAME))


def decode(data: bytes, limits: Limits = DEFAULT) -> Program:
    """The program that ``data`` encodes; its rules are not yet verified.

    Raises `Malformed` for bytes that are not the canonical bytes of any program, `Invalid` for impossible values
    (references to values that do not exist, invalid quantisers), and `LimitExceeded`.
    """
    require("program_bytes", len(data), limits.program_bytes, "bytes of a program")
    reader = Reader(data, FORMAT_NAME, limits.nodes)
    program = _Decoder(reader, limits).program()
    reader.forget()
    if not packs_to(_file(program), data, FORMAT_NAME):
        raise Malformed("program.canonical", "these are not the canonical bytes of the program that they describe")
    return program


def _file(program: Program) -> Tree:
    return [FORMAT, VERSION, _program(program, value_numbers(program))]


def _program(program: Program, numbers: ValueNumbers) -> Tree:
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


def _name_of(names: Sequence[str], number: int) -> str:
    """The name of the value with that number."""
    if not 0 <= number < len(names):
        raise Invalid("program.undefined", f"there is no value {number}; the program has {len(names)}")
    return names[number]


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A node as the file has it, with numbers of values instead of names as inputs."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, AttributeValue]


class _Decoder:
    """Reads the parts of a program with a `Reader`; each method reads one part."""

    def __init__(self, reader: Reader, limits: Limits) -> None:
        self._reader = reader
        self._limits = limits
        self._entries = 0
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._ops: dict[str, str] = {}
        # A program has many of these parts, so their tables are made once.
        self._value_fields: _Fields = {
            "hi": reader.integer,
            "lo": reader.integer,
            "name": reader.text,
            "shape": self._shape,
        }
        self._node_fields: _Fields = {
            "attributes": lambda: reader.table(self._attribute),
            "inputs": self._integers,
            "op": self._op,
            "outputs": lambda: reader.array(self._value),
        }
        self._attribute_kinds: dict[str, Callable[[], AttributeValue]] = {
            "integer": reader.integer,
            "boolean": reader.boolean,
            "string": reader.text,
            "array": self._integers,
        }

    def program(self) -> Program:
        """A whole file."""
        self._header()
        array = self._entry_array
        parts = self._reader.record({
            "constants": lambda: array(self._constant),
            "inputs": lambda: array(self._input),
            "limits": self._reader.text,
            "nodes": lambda: array(self._node),
            "op_set": self._reader.integer,
            "outputs": lambda: array(self._output),
            "provenance": self._provenance,
            "state": lambda: array(self._state),
        })  # fmt: skip
        self._reader.end()
        return _resolved(parts)

    def _entry_array(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        """Read an array of entries; each entry is counted before the next one is read."""

        def counted() -> _Item:
            self._count(1)
            return item()

        return self._reader.array(counted)

    def _count(self, entries: int) -> None:
        self._entries += entries
        require("entries", self._entries, self._limits.entries, ENTRIES)

    def _header(self) -> None:
        reader = self._reader
        if reader.array_header() != 3 or reader.text() != FORMAT:
            raise reader.malformed("format", "this is not a cvm program")
        version = reader.integer()
        if version != VERSION:
            raise reader.malformed("version", f"expected version {VERSION} of the format, found {version}")

    def _value(self) -> Value:
        return Value(**self._reader.record(self._value_fields))

    def _integers(self) -> tuple[int, ...]:
        return self._reader.array(self._reader.integer)

    def _shape(self) -> tuple[int, ...]:
        """Read a shape. Equal shapes become one object, since many values have the same shape."""
        shape = self._integers()
        return self._shapes.setdefault(shape, shape)

    def _op(self) -> str:
        """Read the name of an op. Equal names become one object."""
        name = self._reader.text()
        return self._ops.setdefault(name, name)

    def _input(self) -> Input:
        return Input(**self._reader.record({"quantizer": self._quantizer, "value": self._value}, ["quantizer"]))

    def _output(self) -> dict[str, Any]:
        reader = self._reader
        fields = {"name": reader.text, "quantizer": self._quantizer, "value": reader.integer}
        return reader.record(fields, ["quantizer"])

    def _state(self) -> dict[str, Any]:
        reader = self._reader
        return reader.record({"initial": reader.integer, "update": reader.integer, "value": self._value})

    def _constant(self) -> Constant:
        reader = self._reader
        fields: _Fields = {
            "data": reader.binary,
            "kind": lambda: reader.choice(_KINDS),
            "name": reader.text,
            "shape": self._integers,
            "width": reader.integer,
        }
        return Constant(**reader.record(fields))

    def _node(self) -> _Numbered:
        node = _Numbered(**self._reader.record(self._node_fields))
        self._count(operand_entries(len(node.inputs)))
        return node

    def _attribute(self) -> AttributeValue:
        kind = self._reader.kind()
        if kind not in self._attribute_kinds:
            raise self._reader.malformed("type", f"expected an attribute, found {kind}")
        return self._attribute_kinds[kind]()

    def _quantizer(self) -> Quantizer:
        reader = self._reader
        linear: _Fields = {
            "axis": reader.integer,
            "hi": reader.integer,
            "lo": reader.integer,
            "offset": lambda: self._entry_array(reader.rational),
            "rounding": lambda: reader.choice(get_args(Rounding)),
            "scale": lambda: self._entry_array(reader.rational),
        }
        logarithmic: _Fields = {"bits": reader.integer, "top": reader.integer}
        found = reader.record({**linear, **logarithmic}, [*linear, *logarithmic])
        make, expected = (LogarithmicQuantizer, logarithmic) if "bits" in found else (LinearQuantizer, linear)
        for key in (*expected, *found):
            if key not in expected or (key not in found and key != "axis"):
                keys = ", ".join(expected)
                raise reader.malformed("key", f"a quantiser has the keys {keys}; of these or of others, {key!r}")
        return make(**found)

    def _provenance(self) -> Provenance:
        reader = self._reader
        return Provenance(**reader.record({
            "exactness": lambda: self._entry_array(self._exactness),
            "source": reader.text,
            "source_digest": reader.text,
            "tool": reader.text,
        }))  # fmt: skip

    def _exactness(self) -> Exactness:
        reader = self._reader
        fields: _Fields = {
            "accumulator": self._interval,
            "bound": reader.rational,
            "note": reader.text,
            "tensor": reader.text,
            "value": reader.text,
        }
        return Exactness(**reader.record(fields, ["accumulator"]))

    def _interval(self) -> tuple[int, int]:
        if self._reader.array_header() != 2:
            raise self._reader.malformed("value", "an interval has two ends")
        return self._reader.integer(), self._reader.integer()


def _named(nodes: Iterable[_Numbered], names: Sequence[str]) -> Iterator[Node]:
    """The nodes with the names of their inputs. Each numbered node is released when its named one has been made."""
    waiting = deque(nodes)
    del nodes
    while waiting:
        node = waiting.popleft()
        inputs = tuple([_name_of(names, number) for number in node.inputs])
        yield Node(node.op, inputs, node.outputs, node.attributes)


def _resolved(parts: dict[str, Any]) -> Program:
    """The program that consists of the parts that were read, with names instead of numbers."""
    names = [item.value.name for item in parts["inputs"]]
    names += [constant.name for constant in parts["constants"]]
    names += [state["value"].name for state in parts["state"]]
    names += [value.name for node in parts["nodes"] for value in node.outputs]
    nodes = tuple(_named(parts.pop("nodes"), names))
    outputs = tuple(Output(**{**output, "value": _name_of(names, output["value"])}) for output in parts["outputs"])
    state = tuple(
        State(item["value"], _name_of(names, item["initial"]), _name_of(names, item["update"]))
        for item in parts["state"]
    )
    return Program(**{**parts, "nodes": nodes, "outputs": outputs, "state": state})
