"""The JSON document of a model: its keys, and the types of their values.

Anything else is `Malformed`, as for the library's reader: an unknown key, a missing key, a value of another type.
`cvm.frontends.cvm_runtime.graph` checks what the values mean.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cvm.errors import Malformed
from cvm.frontends.cvm_runtime.text import read_text
from cvm.limits import DEFAULT, Limits

__all__ = ["Document", "NodeRecord", "read_attributes", "read_document"]

_Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Unsigned = Annotated[int, Field(gt=-(2**32), lt=2**32)]
"""An unsigned number of 32 bits as the library's reader takes it: a negative one wraps to 2^32 + number."""
_Entry = Annotated[list[_Unsigned], Field(min_length=2, max_length=3)]
"""A reference to an entry: the index of a node, the index of its output, and a version that the library ignores."""
_Tag = TypeVar("_Tag")
_Item = TypeVar("_Item")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _FunctionRecord(_Record):
    """The ``attrs`` of a node. Only the function's name has a meaning."""

    func_name: str
    num_inputs: str = ""
    num_outputs: str = ""
    flatten_data: str = ""
    op_attrs: str = ""


class NodeRecord(_Record):
    """A node: an op, or a variable, whose ``op`` is "null"."""

    op: str
    name: str
    inputs: list[_Entry]
    attrs: _FunctionRecord | None = None
    precision: _Int32 = -1


class _Tagged(_Record, Generic[_Tag, _Item]):
    """A value of the form ``[tag, list]``."""

    tag: _Tag
    items: list[_Item]


class _AttributesRecord(_Record):
    """The ``attrs`` of the graph: lists with an item per entry, or per node."""

    shape: _Tagged[Literal["list_shape"], list[int]]
    storage_id: _Tagged[Literal["list_int"], _Int32]
    op_attrs: _Tagged[Literal["list_str"], str]
    precision: _Tagged[Literal["list_int"], _Int32]
    dltype: _Tagged[Literal["list_str"], str] | None = None
    device_index: _Tagged[Literal["list_int"], _Int32] | None = None
    dtype: _Tagged[Literal["list_int"], _Int32] | None = None


class Document(_Record):
    """The whole document of a model."""

    nodes: list[NodeRecord]
    heads: list[_Entry]
    attrs: _AttributesRecord
    arg_nodes: list[int] | None = None
    node_row_ptr: list[int] | None = None
    version: str = "cvm_1.0.0"
    postprocess: str = ""


class _Texts(_Record):
    """The attributes of an op: an object of strings."""

    texts: dict[str, str]


def read_document(data: bytes | str, limits: Limits = DEFAULT) -> Document:
    """The document in a text. Raises `Malformed` (``cvm_runtime.json``, ``cvm_runtime.structure``)
    and `LimitExceeded`.
    """
    value = read_text(data, limits)
    if isinstance(value, dict) and isinstance(value.get("attrs"), dict):
        value["attrs"] = {name: _tagged(name, item) for name, item in value["attrs"].items()}
    return _validated(Document, value)


def _tagged(name: str, item: Any) -> Any:
    if not isinstance(item, list) or len(item) != 2:
        raise Malformed("cvm_runtime.structure", f"attrs.{name[:80]}: expected [type, list]")
    return {"tag": item[0], "items": item[1]}


def read_attributes(text: str, limits: Limits = DEFAULT) -> dict[str, str]:
    """The attributes in the text of one op. Raises what `read_document` raises."""
    return _validated(_Texts, {"texts": read_text(text, limits)}).texts


_M = TypeVar("_M", bound=BaseModel)


def _validated(model: type[_M], value: Any) -> _M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"] if part not in ("texts", "items", "tag")) or "the document"
        raise Malformed("cvm_runtime.structure", f"{path[:200]}: {first['msg']}") from None
