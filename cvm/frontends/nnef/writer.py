"""Models on disk from graphs: the document, the quantization file and the tensor files. NNEF 1.0.1 chapters 3 and 5.

Reading a written model gives the same graph: names, shapes, operations, exact contents, quantisers. A graph that the
format cannot express - a quantiser that no algorithm gives, codes that no item type stores - is refused before anything
is written; the texts are also read back first, so that every list of scales is sure to find its axis.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from cvm.errors import CvmError
from cvm.frontends.nnef.container import DOCUMENT, QUANTIZATION, memory_container
from cvm.frontends.nnef.document_text import document_text
from cvm.frontends.nnef.faults import invalid, unsupported
from cvm.frontends.nnef.loader import read_flat, read_quantizers
from cvm.frontends.nnef.quantizer_text import quantization_text
from cvm.frontends.nnef.tensor_data import tensor_bytes
from cvm.graph import QuantizedGraph
from cvm.graph.shapes import label_path
from cvm.limits import LARGE
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.writing import write_file

__all__ = ["checked_texts", "save"]

_ARCHIVES = {".tar": False, ".tgz": True, ".tar.gz": True}


def save(graph: QuantizedGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph as a model: a tar archive where ``path`` ends in .tar, .tgz or .tar.gz, a new folder otherwise.

    The same graph gives the same bytes. Raises `Invalid` for a graph that breaks a rule and for a path that exists,
    `Unsupported` for a graph that NNEF cannot express.
    """
    target = Path(path)
    try:
        files = {name: text.encode() for name, text in checked_texts(graph).items()}
        files.update(_data_files(graph))
    except CvmError as error:
        raise error.at(file=str(target)) from None
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise invalid("container.exists", "the path exists already").at(file=str(target))
    compressed = next((zipped for suffix, zipped in _ARCHIVES.items() if target.name.endswith(suffix)), None)
    try:
        if compressed is None:
            for name, content in files.items():
                file = target.joinpath(*name.split("/"))
                file.parent.mkdir(parents=True, exist_ok=True)
                write_file(file, content)
        else:
            write_file(target, _archive(files, compressed))
    except OSError as error:
        raise invalid("container.unwritable", f"cannot be written: {error.strerror}").at(file=str(target)) from None


def checked_texts(graph: QuantizedGraph) -> dict[str, str]:
    """The document and, if there is a quantiser, the quantization file, both read back and compared with the graph.

    Raises `Invalid` for a graph that breaks a rule, `Unsupported` for one that NNEF cannot express.
    """
    texts = {DOCUMENT: document_text(graph)}
    quantization = quantization_text(graph)
    if quantization:
        texts[QUANTIZATION] = quantization
    _check(graph, {name: text.encode() for name, text in texts.items()})
    return texts


def _archive(files: Mapping[str, bytes], compressed: bool) -> bytes:
    """A tar archive without times and owners, which would differ from one run to the next."""
    made = io.BytesIO()
    stream = gzip.GzipFile("", "wb", mtime=0, fileobj=made) if compressed else made
    with tarfile.open(mode="w", fileobj=stream, format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    if compressed:
        stream.close()
    return made.getvalue()


def _data_files(graph: QuantizedGraph) -> dict[str, bytes]:
    """The tensor files. Either all variables have contents, or none has, as in a bare document."""
    variables = [tensor for tensor in graph.tensors.values() if tensor.kind == "variable"]
    if all(tensor.data is None for tensor in variables):
        return {}
    files: dict[str, bytes] = {}
    names: dict[str, str] = {}
    for tensor in variables:
        if tensor.data is None:
            raise invalid("container.data", "a variable has no contents, but others have").at(tensor=tensor.name)
        label = "/".join(label_path(tensor.label or tensor.name) or ())
        name, content = names.setdefault(label.lower(), f"{label}.dat"), tensor_bytes(tensor)
        if files.setdefault(name, content) != content:
            message = f"another variable of label {label!r}, letter case aside, has other contents"
            raise invalid("container.data", message).at(tensor=tensor.name)
    for name in files:
        parents = name.split("/")[:-1]
        if any("/".join(parents[: depth + 1]) in files for depth in range(len(parents))):
            raise invalid("container.data", f"{name!r} would be in a folder with the name of another file")
    return files


def _check(graph: QuantizedGraph, files: Mapping[str, bytes]) -> None:
    """Read the texts back. Raises `Invalid` or `Unsupported` unless they give the same graph and quantisers."""
    container = memory_container("the text that would be written", files)
    flat, _ = read_flat(container, LARGE)
    found = read_quantizers(container, None, flat, LARGE).quantizers
    for name, tensor in graph.tensors.items():
        read = flat.exported.get(name)
        if read is None or read.shape != tensor.shape or read.dtype != tensor.dtype:
            raise invalid("writer.tensor", "the tensor is not the result of its operation").at(tensor=name)
        if not _same(found.get(name), tensor.quantizer):
            message = "the quantization file would give the quantiser another axis"
            raise unsupported("writer.quantizer", message).at(tensor=name)


def _same(found: Quantizer | None, wanted: Quantizer | None) -> bool:
    """Whether two quantisers are equal. Their axes do not count where the list of scales has one item."""
    if isinstance(found, LinearQuantizer) and isinstance(wanted, LinearQuantizer) and len(wanted.scale) == 1:
        return (found.scale, found.offset, found.lo, found.hi) == (wanted.scale, wanted.offset, wanted.lo, wanted.hi)
    return found == wanted
