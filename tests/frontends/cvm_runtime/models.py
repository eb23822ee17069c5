"""Models of cvm-runtime made by hand for the tests: documents, parameter files, and what a model gives for an input."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvm.frontends import cvm_runtime
from cvm.session import Session

LIST_MAGIC, ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F


@dataclass(frozen=True)
class Variable:
    """The input or a parameter."""

    name: str
    shape: Sequence[int]
    precision: int = 8


@dataclass(frozen=True)
class Op:
    """An op on entries, which are numbers of nodes, or pairs of a node and its output."""

    func: str
    inputs: Sequence[int | tuple[int, int]]
    shapes: Sequence[Sequence[int]]
    attributes: Mapping[str, str] = field(default_factory=dict)


DATA = Variable("data", (2, 3))


def document(*nodes: Variable | Op, heads: Sequence[int | tuple[int, int]] = (-1,), storage: Sequence[int] = ()) -> Any:
    """A document of version 1.0.0, with storage for every entry unless it is given."""
    shapes = [list(shape) for node in nodes for shape in _shapes(node)]
    pointer = [0]
    for node in nodes:
        pointer.append(pointer[-1] + len(_shapes(node)))
    return {
        "nodes": [_record(node, place) for place, node in enumerate(nodes)],
        "arg_nodes": [place for place, node in enumerate(nodes) if isinstance(node, Variable)],
        "node_row_ptr": pointer,
        "heads": [_entry(head if head != -1 else len(nodes) - 1) for head in heads],
        "attrs": {
            "shape": ["list_shape", shapes],
            "storage_id": ["list_int", list(storage) or list(range(len(shapes)))],
            "dltype": ["list_str", ["int32"] * len(shapes)],
            "precision": [
                "list_int",
                [node.precision if isinstance(node, Variable) else -1 for node in nodes for _ in _shapes(node)],
            ],
            "op_attrs": [
                "list_str",
                ["{}" if isinstance(node, Variable) else json.dumps(dict(node.attributes)) for node in nodes],
            ],
        },
    }


def _shapes(node: Variable | Op) -> Sequence[Sequence[int]]:
    return [node.shape] if isinstance(node, Variable) else node.shapes


def _entry(entry: int | tuple[int, int]) -> list[int]:
    return [entry, 0, 0] if isinstance(entry, int) else [*entry, 0]


def _record(node: Variable | Op, place: int) -> dict[str, Any]:
    if isinstance(node, Variable):
        return {"op": "null", "name": node.name, "inputs": []}
    attrs = {"func_name": node.func, "flatten_data": "0", "num_inputs": str(len(node.inputs)), "num_outputs": "1"}
    return {"op": "cvm_op", "name": f"{node.func}_{place}", "attrs": attrs, "inputs": list(map(_entry, node.inputs))}


def parameters(*arrays: tuple[str, Any], trailing: bytes = b"") -> bytes:
    """A parameter file with arrays of the dtypes that they have, names as often as they are given."""
    names = b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name, _ in arrays)
    count = struct.pack("<Q", len(arrays))
    body = b"".join(_array(np.asarray(array)) for _, array in arrays)
    return struct.pack("<QQ", LIST_MAGIC, 0) + count + names + count + body + trailing


def _array(array: Any) -> bytes:
    head = struct.pack("<QQiiiBBH", ARRAY_MAGIC, 0, 1, 0, array.ndim, 0, 8 * array.itemsize, 1)
    shape = struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes)
    return head + shape + bytes(array.tobytes())


NO_PARAMETERS = parameters()


def loaded(text: Any, params: bytes = NO_PARAMETERS, compat: Any = "correct") -> cvm_runtime.Imported:
    """The model of a document or text."""
    return cvm_runtime.loads(
        text if isinstance(text, str | bytes) else json.dumps(text, ensure_ascii=False), params, compat
    )


def given(imported: cvm_runtime.Imported, data: bytes, executor: str = "numpy") -> bytes:
    """The bytes that a model gives."""
    interface = imported.model.interface
    result = Session(imported.program, executor).run({"data": interface.decode(data)})
    return interface.encode([result[item.name] for item in imported.program.outputs])


def codes(imported: cvm_runtime.Imported, values: Sequence[int], executor: str = "numpy") -> list[int]:
    """What a model gives for elements, both in its own encoding."""
    interface = imported.model.interface
    found = given(imported, np.asarray(values).astype(f"<i{interface.input_size}").tobytes(), executor)
    return [int(code) for code in np.frombuffer(found, f"<i{interface.output_size}")]
