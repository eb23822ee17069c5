"""The C++ library as its notes describe it, written for the tests alone: it shares nothing with `cvm.frontends`.

`opened` says what it makes of the files of a model, and raises `Refused`. `Opened.run` computes what its two backends
give, with the defects that are known of each; where one would leave memory unwritten or read beyond a tensor, it raises
`Hazard`: no model that is meant to agree may come there.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backends import computed
from .library_rules import Array, Attributes, Hazard, Shape, judged, need


@dataclass
class Step:
    name: str
    op: str
    attributes: Attributes
    inputs: list[int]
    outputs: list[int]


@dataclass
class Opened:
    """A model that was accepted."""

    steps: list[Step]
    shapes: list[Shape]
    precisions: list[int]
    storage: list[int]
    data: int
    constants: dict[int, Array]
    heads: list[int]
    postprocess: str

    @property
    def input_size(self) -> int:
        return 1 if self.precisions[self.data] <= 8 else 4

    @property
    def output_size(self) -> int:
        return 1 if not self.postprocess and max(self.precisions[head] for head in self.heads) <= 8 else 4

    def run(self, data: bytes, backend: str) -> bytes:
        """What a backend, "formal" or "cpu", gives for an input, on the storage that the plan assigns."""
        memory: dict[int, tuple[int, Array]] = {}  # storage -> the entry that it holds, and its elements

        def write(entry: int, value: Array) -> None:
            bound = 2 ** (self.precisions[entry] - 1) - 1
            assert value.shape == self.shapes[entry]
            if int(np.abs(value).max()) > bound:
                raise Hazard(f"entry {entry} exceeds its {self.precisions[entry]} bits")
            memory[self.storage[entry]] = entry, value

        def read(entry: int) -> Array:
            held, value = memory[self.storage[entry]]
            if held != entry:
                raise Hazard(f"entry {entry} has been overwritten")
            return value

        for entry, array in self.constants.items():
            write(entry, array)
        need(len(data) == self.input_size * math.prod(self.shapes[self.data]), "length of the input")
        bound = 2 ** (self.precisions[self.data] - 1) - 1
        values = np.frombuffer(data, f"<i{self.input_size}").astype(np.int64).reshape(self.shapes[self.data])
        write(self.data, np.clip(values, -bound, bound))
        for step in self.steps:
            results = computed(backend, step.op, step.attributes, [read(entry).copy() for entry in step.inputs])
            for entry, value in zip(step.outputs, results, strict=True):
                write(entry, value)
        heads = [read(entry) for entry in self.heads]
        rows = [head.reshape(-1, head.shape[-1]) for head in heads]
        need(len({len(part) for part in rows}) == 1, "rows of the heads")
        need(self.postprocess == "", "only models without postprocess are run here")
        return np.concatenate(rows, axis=1).astype(f"<i{self.output_size}").tobytes()


INPLACE = {
    "flatten",
    "relu",
    "expand_dims",
    "reshape",
    "squeeze",
    "abs",
    "cvm_precision",
    "elemwise_add",
    "elemwise_sub",
    "clip",
    "cvm_clip",
    "cvm_right_shift",
    "cvm_left_shift",
}


def opened(text: str, parameters: bytes) -> Opened:
    """A model, as the library loads it: version 1.0.0, with everything that it has to have. Raises `Refused`."""
    document = json.loads(text)
    need(set(document) == {"nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"}, "keys")
    attrs = document["attrs"]
    tags = {
        "shape": "list_shape",
        "storage_id": "list_int",
        "dltype": "list_str",
        "precision": "list_int",
        "op_attrs": "list_str",
    }
    need({key: value[0] for key, value in attrs.items()} == tags, "attrs")
    lists = {key: value[1] for key, value in attrs.items()}
    shapes, stored, storage = [tuple(shape) for shape in lists["shape"]], lists["precision"], lists["storage_id"]
    for shape in shapes:
        need(1 <= len(shape) <= 6 and all(1 <= n <= 2**24 for n in shape) and math.prod(shape) <= 2**30, "shape")
    need(all(p == -1 or 1 <= p <= 32 for p in stored) and min(storage) >= 0, "precision or storage")
    need(set(lists["dltype"]) == {"int32"}, "dltype")
    arrays = parameters_of(parameters)
    pointer, arguments, steps = [0], [], []
    precisions: list[int] = []
    constants: dict[int, Array] = {}
    names: set[str] = set()
    need(document["nodes"][0]["name"] == "data", "data stands first, or its shape is not found")
    for place, (node, texts) in enumerate(zip(document["nodes"], lists["op_attrs"], strict=True)):
        need({"op", "name", "inputs"} <= set(node) <= {"op", "name", "inputs", "attrs"}, "keys of a node")
        if node["op"] == "null":
            need(node["name"] not in names and node["inputs"] == [], "variable")
            names.add(node["name"])
            arguments.append(place)
            need(stored[pointer[-1]] != -1, "precision of a variable")
            if node["name"] != "data":
                array = arrays.pop(node["name"], None)
                need(array is not None and array.shape == shapes[pointer[-1]], "parameter")
                assert array is not None
                need(int(np.abs(array).max()) < 2 ** (stored[pointer[-1]] - 1), "parameter beyond its precision")
                constants[pointer[-1]] = array
            precisions.append(stored[pointer[-1]])
            pointer.append(pointer[-1] + 1)
            continue
        need(node["op"] == "cvm_op", "op")
        need(all(isinstance(value, str) for value in node["attrs"].values()), "attrs of a node")
        need(set(node["attrs"]) <= {"func_name", "num_inputs", "num_outputs", "flatten_data", "op_attrs"}, "attrs")
        op = node["attrs"]["func_name"]
        inputs = [pointer[item[0]] + item[1] for item in node["inputs"]]
        need(all(entry < pointer[-1] for entry in inputs), "order")
        pairs = json.loads(texts)
        need(all(isinstance(value, str) for value in pairs.values()), "attributes are strings")
        attributes, out, found = judged(
            op, pairs, [shapes[entry] for entry in inputs], [precisions[entry] for entry in inputs]
        )
        outputs = list(range(pointer[-1], pointer[-1] + len(out)))
        need([shapes[entry] for entry in outputs] == out, "stored shape")
        if op not in INPLACE:
            need(not {storage[entry] for entry in inputs} & {storage[entry] for entry in outputs}, "in place")
        precisions += found
        pointer.append(pointer[-1] + len(out))
        steps.append(Step(node["name"], op, attributes, inputs, outputs))
    need(not arrays, "unknown parameters")
    need(document["node_row_ptr"] == pointer and document["arg_nodes"] == arguments, "index")
    need(len(shapes) == len(stored) == len(storage) == len(lists["dltype"]) == pointer[-1], "lengths")
    heads = [pointer[item[0]] + item[1] for item in document["heads"]]
    need(bool(heads) and max(heads) < pointer[-1], "heads")
    sizes: dict[int, int] = {}
    for number, shape in zip(storage, shapes, strict=True):
        sizes[number] = max(sizes.get(number, 0), 4 * math.prod(shape))
    need(sum(sizes.values()) <= 2**32, "storage")
    return Opened(steps, shapes, precisions, storage, 0, constants, heads, "")


def parameters_of(data: bytes) -> dict[str, Array]:
    """The arrays of a parameter file that ends where it should."""
    place = 0

    def take(form: str) -> Any:
        nonlocal place
        found = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return found if len(found) > 1 else found[0]

    need(take("QQ") == (0xF7E58D4F05049CB7, 0), "magic")
    names = []
    for _ in range(take("Q")):
        length = take("Q")
        names.append(data[place : place + length].decode())
        place += length
    need(take("Q") == len(names), "count")
    arrays: dict[str, Array] = {}
    for name in names:
        need(take("QQ") == (0xDD5E40F096B4A13F, 0), "magic of an array")
        need(take("ii")[0] == 1, "device")
        rank = take("i")
        code, bits, lanes = take("BBH")
        need(code == 0 and lanes == 1 and bits in (8, 32), "dtype")
        shape = [take("q") for _ in range(rank)]
        size = take("q")
        need(size == math.prod(shape) * bits // 8, "bytes")
        arrays[name] = np.frombuffer(data[place : place + size], f"<i{bits // 8}").reshape(shape).astype(np.int64)
        place += size
    need(place == len(data), "trailing bytes")
    return arrays
