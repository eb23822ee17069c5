"""Records of a program, read back from their preimages (docs/commitments.md, section 4)."""

from __future__ import annotations

from collections.abc import Mapping

from cvm import ops
from cvm.audit.dispute.cursor import Cursor
from cvm.errors import Invalid
from cvm.program.checks import attribute_values, same_attributes
from cvm.program.model import AttributeValue, Value
from cvm.records import dataclass

__all__ = ["OpRecord", "read_op_record"]


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op of a program, as its record states it: values by number."""

    op: str
    attributes: Mapping[str, AttributeValue]
    inputs: tuple[int, ...]
    first: int
    """The number of the first output; the other outputs follow."""
    outputs: tuple[Value, ...]


def read_op_record(data: bytes) -> OpRecord:
    """The op whose record is ``data``.

    Raises `Malformed` for bytes that are no record of an op, and `Invalid` for an op, or attributes, that do not exist.
    """
    cursor = Cursor(data)
    cursor.tag(b"cvm1:op\0")
    name = cursor.text()
    items = cursor.listed(lambda: (cursor.text(), _attribute(cursor)), 6)
    inputs = cursor.listed(cursor.u32, 4)
    first = cursor.u32()
    outputs = cursor.listed(lambda: _value(cursor), 29)
    cursor.end()
    names = [key for key, _ in items]
    if names != sorted(set(names)):
        raise cursor.malformed("attributes", "attributes stand in the order of their names, each once")
    attributes = dict(items)
    op = ops.get(name)
    if not same_attributes(attributes, attribute_values(op.parse(attributes))):
        raise Invalid("step.attributes", f"the attributes of a {name} are not complete")
    op.check_arity(len(inputs))
    if len(outputs) != len(op.outputs):
        raise Invalid("step.outputs", f"a {name} has {len(op.outputs)} outputs, found {len(outputs)}")
    return OpRecord(name, attributes, inputs, first, outputs)


def _attribute(cursor: Cursor) -> AttributeValue:
    kind = cursor.u8()
    if kind == 0:
        return cursor.flag()
    if kind == 1:
        return cursor.i64()
    if kind == 2:
        return cursor.text()
    if kind == 3:
        return cursor.listed(cursor.i64, 8)
    raise cursor.malformed("attributes", f"there is no kind {kind} of attribute")


def _value(cursor: Cursor) -> Value:
    return Value(cursor.text(), cursor.shape(), cursor.i64(), cursor.i64())
