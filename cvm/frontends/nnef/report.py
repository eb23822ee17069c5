"""Verdicts on documents, models and the files of models: NNEF 1.0.1 chapter 6.

The name and the first bytes of a file determine its kind: a folder or an archive is a model, ``.dat`` a tensor file,
``.quant`` a quantization file, anything else a document. The document itself states its edition of NNEF.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from cvm.errors import CvmError, Location
from cvm.frontends.nnef import provisional
from cvm.frontends.nnef.archive import is_archive
from cvm.frontends.nnef.checker import Findings, TooMany
from cvm.frontends.nnef.container import DOCUMENT, QUANTIZATION, Container, open_container, open_file, read_text_file
from cvm.frontends.nnef.diagnosis import PROVISIONAL_SECTIONS, Diagnosis, diagnose
from cvm.frontends.nnef.faults import SECTIONS, exhaustion, invalid
from cvm.frontends.nnef.loader import Quantization, needed_dialect, read_quantizers, without_collection
from cvm.frontends.nnef.parser import decode, parse_document
from cvm.frontends.nnef.propagation import propagate
from cvm.frontends.nnef.quantization_file import QuantizationInfo, read_quantization
from cvm.frontends.nnef.tensor_file import BitOrder, read_tensor
from cvm.frontends.nnef.values import Dialect, FlatGraph, FlatTensor, NeededDialect
from cvm.frontends.nnef.weights import TensorFile, find_tensor_files
from cvm.limits import Limits, require
from cvm.records import dataclass

__all__ = ["CheckReport", "CheckReports", "check_path", "read_document"]

Shapes = dict[str, tuple[int, ...]]
Edition = Literal["1.0.1", "provisional"]

_NEEDS: Mapping[tuple[Edition | None, NeededDialect | None], str] = MappingProxyType(
    {
        ("1.0.1", "1.0.1"): "NNEF 1.0.1",
        ("1.0.1", "khronos"): "NNEF 1.0.1 with what the dialect khronos adds",
        ("provisional", None): "provisional NNEF 1.0",
    }
)
"""The description of what a reader must support, by edition and dialect."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of `cvm.frontends.nnef.check`.

    When ``valid`` is false, ``class_`` names the kind of violation, ``section`` the section of NNEF 1.0.1 with the
    rule, and ``error`` is the error itself; all three belong to the first of ``errors``. ``shapes`` holds the tensors
    of the graph body whose shapes are known. ``edition`` is that of the document; for a provisional document, sections
    are those of the provisional specification. ``dialect`` is the one that the model, or the file of a model, needs.
    """

    path: str
    valid: bool
    class_: str | None = None
    section: str | None = None
    line: int | None = None
    column: int | None = None
    message: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    error: CvmError | None = field(default=None, compare=False)
    errors: tuple[Diagnosis, ...] = ()
    edition: Edition | None = None
    dialect: NeededDialect | None = None

    def to_json(self) -> dict[str, Any]:
        """One entry of ``results`` of ``cvm nnef check --json``."""
        return {
            "path": self.path,
            "valid": self.valid,
            "class": self.class_,
            "section": self.section,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "errors": [error.to_json() for error in self.errors],
            "edition": self.edition,
            "dialect": self.dialect,
        }

    def __str__(self) -> str:
        if self.errors:
            return "\n".join(map(str, self.errors))
        needs = _NEEDS[self.edition, self.dialect]
        if not self.shapes:
            return f"{self.path}: {needs}"
        return f"{self.path}: {needs}, {len(self.shapes)} tensor{'' if len(self.shapes) == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class CheckReports:
    """The reports on many paths, in their order."""

    results: tuple[CheckReport, ...]

    @property
    def valid(self) -> bool:
        """Whether all documents are valid."""
        return all(report.valid for report in self.results)

    def to_json(self) -> dict[str, Any]:
        """The document of ``cvm nnef check --json``, without its version."""
        return {"results": [report.to_json() for report in self.results]}

    def __iter__(self) -> Iterator[CheckReport]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


def read_document(path: str | os.PathLike[str], limits: Limits) -> tuple[str, str]:
    """The text of the document of a model, and the name of its file in messages."""
    with exhaustion(str(path)):
        return _document(open_container(path, limits, weights=False), limits)


def _document(container: Container, limits: Limits) -> tuple[str, str]:
    origin = container.origin(DOCUMENT)
    with exhaustion(origin):
        member = container.find(DOCUMENT)
        if member is None:
            raise invalid("container.document", f"there is no {DOCUMENT}")
        require("text_bytes", member.size, limits.text_bytes, "bytes of text")
        return decode(member.read(), limits), origin


def check_path(
    path: str | os.PathLike[str],
    quant: Quantization,
    limits: Limits,
    dialect: Dialect,
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
) -> CheckReport:
    """See `cvm.frontends.nnef.check`."""
    examination = _Examination(str(path), limits, dialect, bit_order, variant)
    with suppress(TooMany):
        _examine(examination, path, quant, limits)
    return examination.report()


def _examine(examination: _Examination, path: str | os.PathLike[str], quant: Quantization, limits: Limits) -> None:
    try:
        with exhaustion(str(path)):
            kind = _kind(Path(path))
            if kind is None:
                examination.model(open_container(path, limits, False, examination.variant), quant)
            else:
                kind(examination, Path(path))
    except CvmError as error:
        examination.findings.add(error)


def _kind(path: Path) -> Callable[[_Examination, Path], None] | None:
    """The method that examines a file that is not a model; None for a model."""
    if "\0" in str(path):
        raise invalid("container.name", "the path has a NUL character")
    if path.is_dir():
        return None
    with open_file(path) as file:
        head = file.read(512)
    if is_archive(head, path.name):
        return None
    if path.suffix == ".dat" or head.startswith(b"N\xef"):
        return _Examination.tensor
    return _Examination.quantization if path.suffix == ".quant" else None


class _AnyExtent(int):
    """The extent of an unknown tensor; it equals the length of every list of channels."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class _AnyTensor(Mapping[str, FlatTensor]):
    """The tensors of an unknown document: every name in a quantization file is a scalar tensor."""

    def __getitem__(self, name: str) -> FlatTensor:
        return FlatTensor("scalar", (_AnyExtent(),), "external", Location(), name)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Examination:
    """Collects the findings at one path."""

    def __init__(self, path: str, limits: Limits, dialect: Dialect, bit_order: BitOrder, variant: str | None) -> None:
        self._path = path
        self._dialect: Dialect = dialect
        self._bit_order: BitOrder = bit_order
        self.variant = variant
        self._limits = limits
        self._texts: dict[str, str] = {}
        self._shapes: Shapes = {}
        self._edition: Edition | None = None
        self._needed: NeededDialect | None = None
        self.findings = Findings()

    def model(self, container: Container, quant: Quantization) -> None:
        """Examine a container: its document and, if that is correct, its quantization and the
        headers of its tensors.
        """
        text, origin = _document(container, self._limits)
        self._texts[origin] = text
        if provisional.is_provisional(text):
            self._edition = "provisional"
            with exhaustion(origin):
                self._shapes.update(provisional.examine_text(text, self.findings, self._limits))
            for error in self.findings:
                error.at(file=origin)
            return
        self._edition = "1.0.1"
        with exhaustion(origin), without_collection():
            flat = propagate(parse_document(text, self._limits), self.findings, self._limits, self._dialect)
        for error in self.findings:
            error.at(file=origin)
        for name, tensor in flat.exported.items():
            if tensor.shape is not None:
                self._shapes[name] = tensor.shape
        self._needed = flat.dialect
        if self.findings:
            return
        self._remember(container, quant)
        info, files = QuantizationInfo(), dict[str, TensorFile]()
        try:
            info = read_quantizers(container, quant, flat, self._limits)
        except CvmError as error:
            self.findings.add(error)
        try:
            files.update(find_tensor_files(container, flat, self._limits, self.variant))
        except CvmError as error:
            self.findings.add(error)
        self._needed = needed_dialect(flat, info, files)

    def _remember(self, container: Container, quant: Quantization) -> None:
        """Keep the text of the quantization file, for the excerpts of its errors."""
        try:
            if quant is None:
                member = container.find(QUANTIZATION)
                if member is not None and member.size <= self._limits.text_bytes:
                    self._texts[container.origin(QUANTIZATION)] = decode(member.read(), self._limits)
            elif quant is not False:
                self._texts[str(quant)] = decode(read_text_file(quant, self._limits), self._limits)
        except (CvmError, OSError):
            return  # the code that needs the file reports this error

    def tensor(self, path: Path) -> None:
        """Examine a tensor file by itself, with its items."""
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            require("archive_bytes", size, self._limits.archive_bytes, f"bytes of {path.name}")
            header = read_tensor(file.read(), self._limits, self._bit_order, self._dialect).header
        self._edition, self._needed = "1.0.1", "khronos" if header.item.added else "1.0.1"
        self._shapes[path.stem] = header.shape

    def quantization(self, path: Path) -> None:
        """Examine a quantization file by itself: everything except the names of its tensors."""
        text = self._texts[str(path)] = decode(read_text_file(path, self._limits), self._limits)
        graph = FlatGraph("", (), (), (), _AnyTensor(), allowed=self._dialect)
        self._edition, self._needed = "1.0.1", read_quantization(text, graph, self._limits).dialect

    def report(self) -> CheckReport:
        """The report with all findings, the first error first."""
        if not self.findings:
            return CheckReport(self._path, True, shapes=self._shapes, edition=self._edition, dialect=self._needed)
        sections = PROVISIONAL_SECTIONS if self._edition == "provisional" else SECTIONS
        errors = tuple(diagnose(error, self._texts.get(error.location.file or ""), sections) for error in self.findings)
        first, error = errors[0], self.findings[0]
        return CheckReport(
            self._path,
            False,
            first.class_,
            first.section,
            first.location.line,
            first.location.column,
            str(error),
            self._shapes,
            error,
            errors,
            self._edition,
            self._needed,
        )
