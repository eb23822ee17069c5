"""Vector files: data classes, and their canonical bytes.

A file is the canonical msgpack (`cvm.program.wire`) of ``["cvm-vectors", 1, header, cases]``. The header's ``kind``
says whether the cases are uses of one op, runs of whole programs, or verdicts of the verifier.
``spec_vectors/README.md`` describes every field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from cvm.errors import LimitExceeded, Malformed
from cvm.limits import DEFAULT, elements
from cvm.program.model import AttributeValue, Shape
from cvm.program.wire import Reader, Tree, pack
from cvm.records import dataclass

__all__ = ["EXPECTED", "FORMAT", "VERSION", "Bounds", "Case", "Expected", "OpCase", "ProgramCase", "Run",
           "VectorFile", "VectorTensor", "VerdictCase", "decode", "encode", "tree_of_attributes", "tree_of_tensor",
           "tree_of_tensors"]  # fmt: skip

FORMAT = "cvm-vectors"
VERSION = 1

Expected: TypeAlias = Literal["value", "invalid", "malformed", "limit"]
EXPECTED: tuple[Expected, ...] = ("value", "invalid", "malformed", "limit")
Bounds: TypeAlias = tuple[tuple[int, int, int], ...]
"""The bounds of a value along its channels, as runs of equal bounds: (lo, hi, how many)."""

_ITEM_BYTES = {"int32": 4, "int64": 8}
_ITEMS = 1_000_000
"""The most cases of a file, and the most items of any list in it."""


@dataclass(frozen=True, slots=True)
class VectorTensor:
    """A tensor of a vector: ``int32``, or ``int64`` for a parameter; its elements are little-endian, row-major."""

    dtype: str
    shape: Shape
    data: bytes = field(repr=False)

    @staticmethod
    def of(array: npt.NDArray[Any]) -> VectorTensor:
        """The elements of an int32 or int64 array."""
        dtype = str(array.dtype)
        return VectorTensor(dtype, tuple(array.shape), array.astype(f"<i{_ITEM_BYTES[dtype]}").tobytes())

    def array(self) -> npt.NDArray[Any]:
        """The elements as a read-only array of native byte order."""
        found = np.frombuffer(self.data, f"<i{_ITEM_BYTES[self.dtype]}").reshape(self.shape).astype(self.dtype)
        found.setflags(write=False)
        return found


@dataclass(frozen=True, slots=True)
class OpCase:
    """One application of an op to given tensors: ``outputs`` if it has a value, else the ``code`` of the error."""

    op: str
    id: str
    aim: str
    attributes: Mapping[str, AttributeValue]
    inputs: tuple[VectorTensor, ...]
    verdict: Expected
    code: str = ""
    outputs: tuple[VectorTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: its inputs and results, by the names of the values."""

    inputs: Mapping[str, VectorTensor]
    values: Mapping[str, VectorTensor]


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """The bytes of a program: its digest and consecutive runs if it is valid, else the ``code`` of the error.

    ``outputs`` names the values that every implementation must give; further ``values`` are for those that can.
    """

    id: str
    aim: str
    program: bytes = field(repr=False)
    verdict: Expected
    code: str = ""
    digest: str = ""
    outputs: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictCase:
    """The bytes of a program, and the verdict of a verifier on it.

    For an accepted program: the digest, the gas of each node, and the bounds of all values but constants, by name. For
    any other program: the ``code`` of the error.
    """

    id: str
    aim: str
    program: bytes = field(repr=False)
    verdict: Expected
    code: str = ""
    digest: str = ""
    gas: tuple[int, ...] = ()
    ranges: Mapping[str, Bounds] = field(default_factory=dict)


Case: TypeAlias = OpCase | ProgramCase | VerdictCase


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file: all cases of one op (``op`` names it), runs of programs, or ``verdicts`` on programs."""

    op_set: int
    generator: str
    seed: int
    cases: tuple[OpCase, ...] | tuple[ProgramCase, ...] | tuple[VerdictCase, ...]
    op: str = ""
    verdicts: bool = False

    @property
    def kind(self) -> str:
        """The kind of the cases, as the header states it."""
        return "op" if self.op else "verdict" if self.verdicts else "program"


def encode(file: VectorFile) -> bytes:
    """The canonical bytes of a file."""
    header: dict[str, Tree] = {
        "generator": file.generator,
        "kind": file.kind,
        "op_set": file.op_set,
        "seed": file.seed,
    }
    if file.op:
        header["op"] = file.op
    return pack([FORMAT, VERSION, header, [_tree(case) for case in file.cases]], "vectors")


def decode(data: bytes) -> VectorFile:
    """The file that ``data`` encodes. Raises `Malformed` (codes ``vectors.*``) or `LimitExceeded`."""
    reader = Reader(data, "vectors", _ITEMS)
    if reader.array_header() != 4 or reader.text() != FORMAT:
        raise reader.malformed("format", "this is not a file of cvm vectors")
    version = reader.integer()
    if version != VERSION:
        raise reader.malformed("version", f"expected version {VERSION} of the format, found {version}")
    header = reader.record(
        {
            "generator": reader.text,
            "kind": lambda: reader.choice(("op", "program", "verdict")),
            "op": reader.text,
            "op_set": reader.integer,
            "seed": reader.integer,
        },
        ["op"],
    )
    op = header.get("op", "")
    kind = header.pop("kind")
    if (kind == "op") != bool(op):
        raise reader.malformed("header", "files of kind op, and only they, name their op")
    readers: dict[str, Callable[[], Case]] = {
        "op": lambda: _op_case(reader, op),
        "program": lambda: _program_case(reader),
        "verdict": lambda: _verdict_case(reader),
    }
    cases = reader.array(readers[kind])
    reader.end()
    file = VectorFile(**header, cases=cast("Any", cases), verdicts=kind == "verdict")
    if encode(file) != data:
        raise Malformed("vectors.canonical", "these are not the canonical bytes of the vectors that they describe")
    return file


def tree_of_tensor(tensor: VectorTensor) -> Tree:
    """A tensor as it is packed: ``[dtype, shape, data]``."""
    return [tensor.dtype, list(tensor.shape), tensor.data]


def tree_of_tensors(tensors: Mapping[str, VectorTensor]) -> Tree:
    """Named tensors as they are packed."""
    return {name: tree_of_tensor(tensor) for name, tensor in tensors.items()}


def tree_of_attributes(attributes: Mapping[str, AttributeValue]) -> Tree:
    """Attributes as they are packed."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}


def _tree(case: Case) -> Tree:
    fields: dict[str, Tree] = {"id": case.id, "aim": case.aim, "verdict": case.verdict}
    if case.verdict != "value":
        fields["code"] = case.code
    if isinstance(case, OpCase):
        fields["attributes"] = tree_of_attributes(case.attributes)
        fields["inputs"] = [tree_of_tensor(tensor) for tensor in case.inputs]
        if case.verdict == "value":
            fields["outputs"] = [tree_of_tensor(tensor) for tensor in case.outputs]
        return fields
    fields["program"] = case.program
    if case.verdict == "value":
        fields["digest"] = case.digest
    if isinstance(case, VerdictCase):
        if case.verdict == "value":
            fields["gas"] = list(case.gas)
            fields["ranges"] = {name: [list(run) for run in bounds] for name, bounds in case.ranges.items()}
        return fields
    if case.verdict == "value":
        fields["outputs"] = list(case.outputs)
        fields["runs"] = [
            {"inputs": tree_of_tensors(run.inputs), "values": tree_of_tensors(run.values)} for run in case.runs
        ]
    return fields


def _op_case(reader: Reader, op: str) -> OpCase:
    fields = reader.record(
        {
            **_common(reader),
            "attributes": lambda: reader.table(lambda: _attribute(reader)),
            "inputs": lambda: reader.array(lambda: _tensor(reader)),
            "outputs": lambda: reader.array(lambda: _tensor(reader)),
        },
        ["code", "outputs"],
    )
    _consistent(reader, fields, ["outputs"])
    return OpCase(op=op, **fields)


def _program_case(reader: Reader) -> ProgramCase:
    fields = reader.record(
        {
            **_common(reader),
            "digest": reader.text,
            "outputs": lambda: reader.array(reader.text),
            "program": reader.binary,
            "runs": lambda: reader.array(lambda: _run(reader)),
        },
        ["code", "digest", "outputs", "runs"],
    )
    _consistent(reader, fields, ["digest", "outputs", "runs"])
    for run in fields.get("runs", ()):
        missing = [name for name in fields["outputs"] if name not in run.values]
        if missing:
            raise reader.malformed("case", f"case {fields['id']!r}: a run has no value {missing[0]!r}")
    return ProgramCase(**fields)


def _verdict_case(reader: Reader) -> VerdictCase:
    fields = reader.record(
        {
            **_common(reader),
            "digest": reader.text,
            "gas": lambda: reader.array(reader.integer),
            "program": reader.binary,
            "ranges": lambda: reader.table(lambda: reader.array(lambda: _run_of_bounds(reader))),
        },
        ["code", "digest", "gas", "ranges"],
    )
    _consistent(reader, fields, ["digest", "gas", "ranges"])
    return VerdictCase(**fields)


def _run_of_bounds(reader: Reader) -> tuple[int, int, int]:
    if reader.array_header() != 3:
        raise reader.malformed("bounds", "equal bounds are [lo, hi, how many]")
    lo, hi, count = reader.integer(), reader.integer(), reader.integer()
    if not lo <= hi or count < 1:
        raise reader.malformed("bounds", f"{count} bounds [{lo}, {hi}]")
    return lo, hi, count


def _common(reader: Reader) -> dict[str, Callable[[], Any]]:
    return {
        "aim": reader.text,
        "code": reader.text,
        "id": reader.text,
        "verdict": lambda: reader.choice(EXPECTED),
    }


def _consistent(reader: Reader, fields: Mapping[str, Any], of_value: list[str]) -> None:
    """Require that a case with a value has the fields of a value and no code, and any other case a code alone."""
    expected = of_value if fields["verdict"] == "value" else ["code"]
    if [name for name in ("code", *of_value) if name in fields] != expected:
        raise reader.malformed("case", f"case {fields['id']!r} with verdict {fields['verdict']} needs {expected} only")


def _run(reader: Reader) -> Run:
    def tensors() -> Mapping[str, VectorTensor]:
        return reader.table(lambda: _tensor(reader))

    return Run(**reader.record({"inputs": tensors, "values": tensors}))


def _tensor(reader: Reader) -> VectorTensor:
    if reader.array_header() != 3:
        raise reader.malformed("tensor", "a tensor is [dtype, shape, data]")
    dtype = reader.choice(tuple(_ITEM_BYTES))
    shape, data = reader.array(reader.integer), reader.binary()
    try:
        count = elements(shape, DEFAULT)
    except LimitExceeded as error:
        raise reader.malformed("tensor", error.message) from None
    if not shape or min(shape) < 1 or len(data) != count * _ITEM_BYTES[dtype]:
        raise reader.malformed("tensor", f"{len(data)} bytes for {dtype} elements of shape {list(shape)}")
    return VectorTensor(dtype, shape, data)


def _attribute(reader: Reader) -> AttributeValue:
    kind = reader.kind()
    if kind == "array":
        return reader.array(reader.integer)
    readers: dict[str, Callable[[], AttributeValue]] = {
        "boolean": reader.boolean,
        "integer": reader.integer,
        "string": reader.text,
    }
    if kind not in readers:
        raise reader.malformed(
            "attribute", f"an attribute is a boolean, an integer, a string or integers, found {kind}"
        )
    return readers[kind]()
