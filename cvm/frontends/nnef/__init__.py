"""The NNEF 1.0.1 front end: it reads, validates and flattens documents with their weights and quantisation.

* `load` reads a model as the graph that lowering starts from.
* `check` says whether a document is valid, or which rule it breaks; `check_paths` does so for many files.
* `upgrade` converts a provisional document to one of 1.0.1.
* `flatten` gives the flat text of a document.
* `save` writes a graph as a model that `load` reads back.
* `read_tensor` and `write_tensor` are the codec of tensor files.

``dialect`` is what a reader accepts: "1.0.1" the specification alone, "khronos" also the additions of the current
Khronos tools, "auto" whichever of the two a model needs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Literal

from cvm.frontends.nnef.checker import Findings
from cvm.frontends.nnef.container import open_container
from cvm.frontends.nnef.declarations import compound_operations
from cvm.frontends.nnef.diagnosis import PROVISIONAL_SECTIONS, explained
from cvm.frontends.nnef.faults import collected, exhaustion
from cvm.frontends.nnef.loader import load_graph, read_flat
from cvm.frontends.nnef.parser import parse_document
from cvm.frontends.nnef.printer import print_graph
from cvm.frontends.nnef.propagation import propagate
from cvm.frontends.nnef.provisional import is_provisional, upgrade_text
from cvm.frontends.nnef.report import CheckReport, CheckReports, check_path, read_document
from cvm.frontends.nnef.tensor_file import (
    BitOrder,
    ItemType,
    StoredTensor,
    TensorHeader,
    read_header,
    read_tensor,
    write_tensor,
)
from cvm.frontends.nnef.values import Dialect
from cvm.frontends.nnef.writer import save
from cvm.graph import QuantizedGraph
from cvm.limits import DEFAULT, Limits

__all__ = [
    "BitOrder",
    "CheckReport",
    "CheckReports",
    "Dialect",
    "ItemType",
    "StoredTensor",
    "TensorHeader",
    "check",
    "check_paths",
    "compound_operations",
    "flatten",
    "load",
    "read_header",
    "read_tensor",
    "save",
    "upgrade",
    "write_tensor",
]


def load(
    path: str | os.PathLike[str],
    quant: str | os.PathLike[str] | Literal[False] | None = None,
    limits: Limits = DEFAULT,
    *,
    dialect: Dialect = "auto",
    lower: Collection[str] = (),
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
) -> QuantizedGraph:
    """Read a model: a folder, a ``.tar`` or ``.tgz``, or a single document.

    The container's ``graph.quant`` applies when ``quant`` is None, another file when it is a path, none when it is
    False. Operations of NNEF 1.0.1 chapter 4 stay whole, except the compound operations (`compound_operations`) named
    in ``lower``, which are expanded by their definitions. Fragments of the document are expanded. Every operation has
    all of its parameters, with defaults resolved. ``bit_order`` is the bit order of all tensor files of the model
    (`read_tensor`). ``variant`` is a further extension, as in ``filter.dat.q8``: a variable with such a file uses it
    (section 5.1). Variables have their data unless the container has no tensor file at all.

    Raises `Malformed`, `Invalid`, `Unsupported` or `LimitExceeded`, with file, line and column.
    """
    return load_graph(path, quant, limits, dialect, lower, bit_order, variant)


def flatten(
    path: str | os.PathLike[str],
    limits: Limits = DEFAULT,
    *,
    dialect: Dialect = "auto",
    lower: Collection[str] = (),
) -> str:
    """The flat text of a document (chapter 6): one invocation per line, with every argument concrete.

    ``lower`` is as for `load`. Raises what `load` raises; weights and quantisation are not read.
    """
    with exhaustion(str(path)):
        flat, _ = read_flat(open_container(path, limits, weights=False), limits, dialect, lower)
        return print_graph(flat)


def check(
    path: str | os.PathLike[str],
    quant: str | os.PathLike[str] | Literal[False] | None = None,
    limits: Limits = DEFAULT,
    *,
    dialect: Dialect = "auto",
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
) -> CheckReport:
    """The verdict on a model (chapter 6), which covers shapes, quantisation and the headers of tensor files.

    The path may also be a provisional document, a tensor file (whose items are read in ``bit_order``) or a quantization
    file by itself. Weights of a model are not read, and nothing is raised: the report lists all independent errors.
    """
    return check_path(path, quant, limits, dialect, bit_order, variant)


def check_paths(
    paths: Iterable[str | os.PathLike[str]],
    quant: str | os.PathLike[str] | Literal[False] | None = None,
    limits: Limits = DEFAULT,
    *,
    dialect: Dialect = "auto",
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
) -> CheckReports:
    """The verdicts on many paths, each as `check` gives it."""
    return CheckReports(tuple(check_path(path, quant, limits, dialect, bit_order, variant) for path in paths))


def upgrade(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> str:
    """The text of a document of NNEF 1.0.1 that means the same as the provisional document at ``path``.

    A document of 1.0.1 is returned as it is. Raises `Malformed`, `Invalid` or `LimitExceeded` for a document that is
    not valid, `Unsupported` for one that 1.0.1 cannot express, with file, line and column.
    """
    text, origin = read_document(path, limits)
    if is_provisional(text):
        with exhaustion(origin), explained(text, PROVISIONAL_SECTIONS):
            return upgrade_text(text, limits)
    with exhaustion(origin), explained(text):
        findings = Findings()
        propagate(parse_document(text, limits), findings, limits)
        if findings:
            raise collected(findings)
    return text
