"""From cases to vector files: FORMAL gives the outputs, and the verifier confirms the refusals.

A case with a value must be valid as a program whose inputs are constants. A refused case must be refused with the code
that its author expected. Anything else stops the maker, so that no unintended vector is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from struct import pack
from typing import Any

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.ops import REGISTRY, op_set
from cvm.program import Output, ProgramBuilder
from cvm.program.checks import attribute_values
from cvm.vectors.format import Expected, OpCase, VectorFile, VectorTensor
from formal.registry import OPS
from formal.tensor import elements, stored
from tools.vector_cases import broadcast, computed, elemwise, extension, nn, reduce, transform, vision
from tools.vector_cases.case import Case, Cases, Tensor
from tools.vector_cases.errata import ERRATA, Erratum, case, nested_tensor
from tools.vector_cases.stream import SEED

__all__ = ["GENERATOR", "VERDICTS", "op_files", "op_names", "vector_tensor"]

GENERATOR = "tools/make_vectors.py"

FAMILIES: tuple[dict[str, Callable[[str], Cases]], ...] = (
    reduce.FAMILY, broadcast.FAMILY, nn.FAMILY, elemwise.FAMILY, transform.FAMILY, vision.FAMILY, extension.FAMILY,
    computed.FAMILY,
)  # fmt: skip

VERDICTS: dict[type[CvmError], Expected] = {Invalid: "invalid", LimitExceeded: "limit", Malformed: "malformed"}


def op_names() -> list[str]:
    """The ops that have cases, and the names in errata that are no op."""
    return list(dict.fromkeys([*(op for family in FAMILIES for op in family), *(line.op for line in ERRATA)]))


def op_files() -> dict[str, VectorFile]:
    """The files of all ops by their paths under the folder of vectors."""
    makers = {op: maker for family in FAMILIES for op, maker in family.items()}
    files = {}
    for op in op_names():
        cases = [_op_case(op, item) for item in (makers[op](op).items if op in makers else ())]
        cases += [_erratum(line) for line in ERRATA if line.op == op]
        family = REGISTRY[op].family if op in REGISTRY else "unknown"
        files[f"ops/{family}/{op}.msgpack"] = VectorFile(op_set([op]), GENERATOR, SEED, tuple(cases), op)
    return files


def vector_tensor(tensor: Tensor) -> VectorTensor:
    """A tensor of a case as the file has it."""
    dtype, code = ("int32", "i") if tensor.kind == "tensor" else ("int64", "q")
    return VectorTensor(dtype, tensor.shape, pack(f"<{len(tensor.elements)}{code}", *tensor.elements))


def _op_case(op: str, item: Case) -> OpCase:
    """The vector of a case: FORMAL's outputs, or the refusal that it must meet."""
    location = f"{op}, case {item.name}"
    found = _refusal(op, item)
    code = found.code if found is not None else None
    if code != item.code:
        raise SystemExit(f"{location}: expected {item.code or 'a value'}, found {code or 'a value'}: {found}")
    inputs = tuple(vector_tensor(tensor) for tensor in item.inputs)
    if found is not None:
        attributes = dict(item.attributes)
        return OpCase(op, item.name, item.aim, attributes, inputs, VERDICTS[type(found)], found.code)
    attributes = attribute_values(REGISTRY[op].parse(item.attributes))
    result = OPS[op](*(stored(tensor.shape, tensor.elements) for tensor in item.inputs), **attributes)
    outputs = result if isinstance(result, tuple) else (result,)
    answers = tuple(vector_tensor(Tensor(output.shape, tuple(elements(output)))) for output in outputs)
    return OpCase(op, item.name, item.aim, attributes, inputs, "value", outputs=answers)


def _refusal(op: str, item: Case) -> CvmError | None:
    """The error of a program that applies the op to the inputs as constants, or None."""
    try:
        builder = ProgramBuilder()
        names = [builder.constant(_array(tensor), kind=tensor.kind) for tensor in item.inputs]
        outputs = builder.add(op, names, item.attributes)
        builder.build([Output(name, name) for name in outputs])
    except CvmError as error:
        return error
    return None


def _array(tensor: Tensor) -> Any:
    return vector_tensor(tensor).array()


def _erratum(line: Erratum) -> OpCase:
    """A line of errata; FORMAL must give the outputs of the line."""
    found = _op_case(line.op, case(line))
    expected = tuple(vector_tensor(nested_tensor(output)) for output in line.outputs)
    if found.outputs != expected:
        raise SystemExit(f"{line.name}: FORMAL gives {_lists(found.outputs)}, the line says {_lists(expected)}")
    return replace(found, id=line.name)


def _lists(tensors: Iterable[VectorTensor]) -> list[Any]:
    return [tensor.array().tolist() for tensor in tensors]
