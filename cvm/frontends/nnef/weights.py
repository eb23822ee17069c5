"""The tensor files of a document's variables: NNEF 1.0.1 sections 4.1.3 and 5.1.

A label is the name of a file without its extension. Labels that differ only in letter case share their data; a
container may have the file under any of the spellings, or equal files under several.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cvm.errors import CvmError
from cvm.frontends.nnef.container import DOCUMENT, Container, Member
from cvm.frontends.nnef.faults import MAX_ERRORS, collected, exhaustion, invalid
from cvm.frontends.nnef.tensor_file import TensorHeader, read_header
from cvm.frontends.nnef.values import FlatGraph, FlatOperation, FlatTensor
from cvm.graph.shapes import label_path
from cvm.limits import DEFAULT, Limits
from cvm.records import dataclass

__all__ = ["TensorFile", "find_tensor_files", "label_of"]


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A tensor file with a checked header; its items have not been read."""

    name: str
    member: Member
    header: TensorHeader


def label_of(operation: FlatOperation) -> str:
    """The label of a variable, as the path of its file without extension."""
    return "/".join(label_path(str(operation.arguments["label"])) or ())


def find_tensor_files(
    container: Container, flat: FlatGraph, limits: Limits = DEFAULT, variant: str | None = None
) -> Mapping[str, TensorFile]:
    """The tensor files of all variables by label, each with the shape that the document states; no items are read.

    The result is empty for a container without any tensor file; if it has one, every variable needs a file. With a
    ``variant``, a variable uses the file with that further extension where there is one. Raises the error of the first
    wrong file, which carries those of the others.
    """
    variables = [operation for operation in flat.operations if operation.name == "variable"]
    if not variables or (variant is None and not container.has_data()):
        return MappingProxyType({})
    spellings: dict[str, dict[str, None]] = {}
    for operation in variables:
        spellings.setdefault(label_of(operation).lower(), {})[label_of(operation)] = None
    files: dict[str, TensorFile] = {}
    errors: list[CvmError] = []
    for operation in variables:
        label = label_of(operation)
        others = (spelling for spelling in spellings[label.lower()] if spelling != label)
        try:
            files[label] = _file(container, operation, (label, *others), variant, limits, flat)
        except CvmError as error:
            errors.append(error)
            if len(errors) == MAX_ERRORS:
                break
    if errors:
        raise collected(errors)
    if variant is not None and not any(file.name.endswith(f".dat.{variant}") for file in files.values()):
        message = f"no variable has a file of the variant {variant!r}, which would end in '.dat.{variant}'"
        raise invalid("container.variant", message)
    return MappingProxyType(files)


def _file(
    container: Container,
    operation: FlatOperation,
    labels: tuple[str, ...],
    variant: str | None,
    limits: Limits,
    flat: FlatGraph,
) -> TensorFile:
    """The file of one variable, under the first of its labels that has a file."""
    extensions = (".dat",) if variant is None else (f".dat.{variant}", ".dat")
    for name in (label + extension for extension in extensions for label in labels):
        with exhaustion(container.origin(DOCUMENT)):
            member = container.find(name)
        if member is None:
            continue
        with exhaustion(container.origin(name)):
            header = read_header(member.head, member.size, limits, flat.allowed)
            (tensor,) = operation.results
            assert isinstance(tensor, FlatTensor)
            if header.shape != tensor.shape:
                message = f"the stored shape {list(header.shape)} is not {list(tensor.shape or ())} of the document"
                raise invalid("tensor-file.shape", message).at(tensor=tensor.name)
            return TensorFile(name, member, header)
    message = f"there is no file '{labels[0]}.dat' for this variable, but other variables have one"
    where = operation.location
    raise invalid("container.data", message).at(
        file=container.origin(DOCUMENT), line=where.line, column=where.column, op="variable"
    )
