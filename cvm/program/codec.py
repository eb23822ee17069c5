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

from cvm.errors import Invalid, Malformed
from cvm.limits import DEFAULT, Limits, require
from cvm.program.checks import ENTRIES, operand_entries
from cvm.program.encoding import FORMAT, FORMAT_NAME, VERSION, encodes_to
from cvm.program.model import AttributeValue, Constant, Exactness, Input, Node, Output, Provenance, State, Value
from cvm.program.program import Program
from cvm.program.wire import Reader
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding

__all__ = ["decode"]

_Item = TypeVar("_Item")
_Fields: TypeAlias = Mapping[str, Callable[[], Any]]

_KINDS: tuple[Literal["tensor", "parameter"], ...] = ("parameter", "tensor")


def decode(data: bytes, limits: Limits = DEFAULT) -> Program:
    """The program that ``data`` encodes; its rules are not yet verified.

    Raises `Malformed` for bytes that are not the canonical bytes of any program, `Invalid` for impossible values
    (references to values that do not exist, invalid quantisers), and `LimitExceeded`.
    """
    require("program_bytes", len(data), limits.program_bytes, "bytes of a program")
    reader = Reader(data, FORMAT_NAME, limits.nodes)
    program = _Decoder(reader, limits).program()
    reader.forget()
    if not encodes_to(program, data):
        raise Malformed("program.canonical", "these are not the canonical bytes of the program that they describe")
    return program


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
