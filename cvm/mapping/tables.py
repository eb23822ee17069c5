"""Parquet files, in and out: a row for each item, a column for each input or output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cvm.arrays import Array
from cvm.errors import CvmError, Invalid, Location, Malformed, Unsupported
from cvm.limits import DEFAULT, require
from cvm.mapping.datasets import Chunk, chosen, numbered
from cvm.program.model import Input

__all__ = ["Table", "require_library", "write_table"]


class Table:
    """The rows of a Parquet file: for each input a column of numbers, or of lists with the elements in order."""

    expected = "rows, with a column for each input"

    def __init__(self, path: Path, inputs: Sequence[Input]) -> None:
        parquet = require_library()
        self.source = str(path)
        self._path, self._inputs = path, inputs
        with _readable(self._path):
            self._file = parquet.ParquetFile(path)
        meta = self._file.metadata
        for group in range(meta.num_row_groups):
            size = meta.row_group(group).total_byte_size
            require("archive_bytes", size, DEFAULT.archive_bytes, "bytes of a row group", Location(str(path)))
        self._columns = chosen(self._file.schema_arrow.names, inputs, path, "column")
        self._count = int(meta.num_rows)

    @property
    def names(self) -> Sequence[str]:
        """The numbers of the rows."""
        return numbered(self._count)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """See `cvm.mapping.datasets.Dataset.chunks`."""
        names = numbered(self._count)
        begin = 0
        with _readable(self._path):
            for batch in self._file.iter_batches(size, columns=list(self._columns.values())):
                end = begin + batch.num_rows
                arrays = {item.value.name: self._array(batch, item, begin) for item in self._inputs}
                yield Chunk(begin, tuple(names[begin:end]), arrays)
                begin = end

    def _array(self, batch: Any, item: Input, begin: int) -> Array:
        name, shape = item.value.name, item.value.shape
        column = batch.column(batch.schema.get_field_index(self._columns[name]))
        where = Location(str(self._path), tensor=name)
        if column.null_count:
            raise Invalid("map.shape", f"rows from {begin} on: a row has no value", where)
        while hasattr(column.type, "value_type") and hasattr(column, "flatten"):
            column = column.flatten()
        values: Array = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iufb":
            raise Invalid("map.types", f"expected a column of numbers or lists of numbers, found {column.type}", where)
        expected = batch.num_rows * math.prod(shape)
        if values.size != expected:
            message = f"rows from {begin} on: expected {expected // batch.num_rows} elements in each row"
            raise Invalid("map.shape", f"{message}, found {values.size} in {batch.num_rows} rows", where)
        return values.reshape((int(batch.num_rows), *shape))


def write_table(path: Path, chunks: Iterator[dict[str, Array]]) -> None:
    """Write chunks of stacked arrays as the rows of a Parquet file: lists with the elements of each array in order.

    The shape of each array is in the metadata of its column, under ``shape``. Raises `Unsupported` (``map.parquet``),
    and OSError.
    """
    parquet = require_library()
    import pyarrow

    writer: Any = None
    try:
        for arrays in chunks:
            columns = {
                name: pyarrow.FixedSizeListArray.from_arrays(
                    pyarrow.array(array.reshape(-1)), math.prod(array.shape[1:])
                )
                for name, array in arrays.items()
            }
            if writer is None:
                fields = [
                    pyarrow.field(name, column.type, metadata={"shape": str(list(arrays[name].shape[1:]))})
                    for name, column in columns.items()
                ]
                schema = pyarrow.schema(fields)
                writer = parquet.ParquetWriter(path, schema)
            writer.write_table(pyarrow.Table.from_arrays(list(columns.values()), schema=schema))
    finally:
        if writer is not None:
            writer.close()


def require_library() -> Any:
    """Parquet's library. Raises `Unsupported` (``map.parquet``) if it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise Unsupported("map.parquet", "Parquet needs its library: pip install 'cvm[parquet]'") from None
    return pyarrow.parquet


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the library's errors into `Malformed` (``map.dataset``)."""
    try:
        yield
    except CvmError:
        raise
    except Exception as error:  # the errors of the library have no class of their own
        said = " ".join(str(error).split())[:200]
        raise Malformed("map.dataset", f"this Parquet file cannot be read: {said}", Location(str(path))) from None
