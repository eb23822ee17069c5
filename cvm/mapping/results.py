"""The finished chunks as one output: a ``.npz`` or Parquet file, or a folder with a file for each item."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cvm.arrays import npz_bytes
from cvm.errors import Invalid, Location
from cvm.mapping.parts import Parts
from cvm.writing import make_folder, unwritable, write_atomically

__all__ = ["assemble", "require_form"]

_WHOLE = "whole"
"""The name of the output while it is being written, in the folder of the parts."""


def require_form(output: Path) -> None:
    """Refuse a path where no result can be written.

    Raises `Invalid` (``map.output``), and `Unsupported` (``map.parquet``) without Parquet's library.
    """
    where = Location(str(output))
    if output.suffix == ".parquet":
        from cvm.mapping.tables import require_library

        require_library()
    elif output.suffix not in ("", ".npz"):
        message = f"expected OUT.npz, OUT.parquet or a folder, found the suffix {output.suffix!r}"
        raise Invalid("map.output", message, where)
    if output.suffix and output.is_dir():
        raise Invalid("map.output", "it is a folder; name a folder without a suffix, or another file", where)
    if not output.suffix and output.exists() and not output.is_dir():
        raise Invalid("map.output", "it is a file; expected a folder, or OUT.npz or OUT.parquet", where)


def assemble(parts: Parts, names: Sequence[str], output: Path) -> None:
    """Write the output from all parts. A file appears whole. Raises `Invalid` (``output.unwritable``)."""
    with unwritable(output):
        if not output.suffix:
            _write_folder(parts, names, output)
            return
        whole = parts.folder / _WHOLE
        if output.suffix == ".npz":
            _write_archive(parts, len(names), whole)
        else:
            from cvm.mapping.tables import write_table

            write_table(whole, parts.chunks())
        os.replace(whole, output)


def _write_folder(parts: Parts, names: Sequence[str], folder: Path) -> None:
    make_folder(folder)
    waiting = iter(names)
    for arrays in parts.chunks():
        for number in range(len(next(iter(arrays.values())))):
            item = {name: array[number] for name, array in arrays.items()}
            write_atomically(folder / f"{next(waiting)}.npz", npz_bytes(item), lasting=False)


def _write_archive(parts: Parts, items: int, path: Path) -> None:
    """The bytes that `cvm.arrays.npz_bytes` gives for the arrays of all items, without holding them in memory."""
    first = next(parts.chunks())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, sample in first.items():
            dtype = sample.dtype.newbyteorder("<")
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            shape = (items, *sample.shape[1:])
            large = sample[:1].nbytes * items >= 2**31
            with archive.open(info, "w", force_zip64=large) as stream:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(stream, header)
                for array in parts.arrays(name):
                    stream.write(np.ascontiguousarray(array, dtype).data)
