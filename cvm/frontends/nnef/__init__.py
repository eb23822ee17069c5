"""The NNEF 1.0.1 front end: documents with their weights and quantisation, read, validated and flattened.

* `load` reads a model into the graph that lowering starts from.
* `check` says whether a document is valid, and which rule it breaks otherwise.
* `flatten` gives the flat text of a document.
* `read_tensor` and `write_tensor` are the codec of tensor files.
"""

from __future__ import annotations

import os
from typing import Literal

from cvm.frontends.nnef.container import open_container
from cvm.frontends.nnef.faults import exhaustion
from cvm.frontends.nnef.loader import load_graph, read_flat
from cvm.frontends.nnef.printer import print_graph
from cvm.frontends.nnef.report import CheckReport, check_container
from cvm.frontends.nnef.tensor_file import ItemType, StoredTensor, TensorHeader, read_header, read_tensor, write_tensor
from cvm.graph import QuantizedGraph
from cvm.limits import DEFAULT, Limits

__all__ = [
    "CheckReport",
    "ItemType",
    "StoredTensor",
    "TensorHeader",
    "check",
    "flatten",
    "load",
    "read_header",
    "read_tensor",
    "write_tensor",
]


def load(
    path: str | os.PathLike[str],
    quant: str | os.PathLike[str] | Literal[False] | None = None,
    limits: Limits = DEFAULT,
) -> QuantizedGraph:
    """Read a model: a folder, a ``.tar`` or ``.tgz``, or a single document.

    The container's ``graph.quant`` is applied when ``quant`` is None, another file when it is a path, none when it is
    False. Operations of NNEF 1.0.1 chapter 4 are whole, fragments of the document are expanded; every operation has all
    of its parameters, defaults resolved. Variables have their data unless the container has no tensor file at all.

    Raises `Malformed`, `Invalid`, `Unsupported` or `LimitExceeded`, with file, line and column.
    """
    return load_graph(path, quant, limits)


def flatten(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> str:
    """The flat text of a document (chapter 6): one invocation per line, every argument concrete.

    Raises as `load`; weights and quantisation are not read.
    """
    with exhaustion(str(path)):
        flat, _ = read_flat(open_container(path, limits, weights=False), limits)
        return print_graph(flat)


def check(
    path: str | os.PathLike[str],
    quant: str | os.PathLike[str] | Literal[False] | None = None,
    limits: Limits = DEFAULT,
) -> CheckReport:
    """The verdict on a model (chapter 6), shapes, quantisation and headers of tensor files included.

    Reads no weights and raises nothing: what is wrong stands in the report.
    """
    return check_container(path, quant, limits)
