"""Data sets of array files: a folder with a file for each item, or one file whose first axis counts the items."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cvm.arrays import Array, kind_of, npz_members, read_npy, read_npz
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed, recognised
from cvm.mapping.datasets import Chunk, Dataset, chosen, numbered
from cvm.program.model import Input

__all__ = ["open_dataset"]

EXPECTED = (
    "a data set: a folder of .npy or .npz files, a .npz or .npy file whose first axis counts the items, or Parquet"
)


def open_dataset(path: Path, inputs: Sequence[Input]) -> Dataset:
    """The data set at a path, for a program with these inputs.

    Raises `Invalid` (``map.inputs``, ``map.shape``) for a data set that does not fit them, `Unsupported`
    (``map.parquet``) if Parquet's library is not installed, and the errors of array files.
    """
    if not inputs:
        raise Invalid("map.inputs", "the program has no inputs: each run gives the same result, use `cvm run`")
    if path.is_dir():
        return _Folder(path, inputs)
    found = recognised(path)
    if found is not None and found.key == "parquet":
        from cvm.mapping.tables import Table

        return Table(path, inputs)
    try:
        return _Archive(path, inputs)
    except CvmError as error:
        raise diagnosed(error, path, EXPECTED, ("npy", "npz", "parquet")) from None


class _Folder:
    """Each ``.npy`` or ``.npz`` file of a folder is an item, in the order of their names."""

    expected = "files *.npy or *.npz, one for each item"

    def __init__(self, folder: Path, inputs: Sequence[Input]) -> None:
        self.source = str(folder)
        self._folder, self._inputs = folder, inputs
        self._types: dict[str, str] = {}
        try:
            found = sorted(name for name in os.listdir(folder) if Path(name).suffix in (".npy", ".npz"))
        except OSError as error:
            message = f"the folder cannot be read: {error.strerror or error}"
            raise Invalid("map.dataset", message, Location(str(folder))) from None
        self._files = {Path(name).stem: name for name in found}
        if len(self._files) != len(found):
            twice = next(name for name in found if self._files[Path(name).stem] != name)
            message = f"two items have one name: {twice} and {self._files[Path(twice).stem]}"
            raise Invalid("map.dataset", message, Location(str(folder)))

    @property
    def names(self) -> Sequence[str]:
        return list(self._files)

    def chunks(self, size: int) -> Iterator[Chunk]:
        names = list(self._files)
        for begin in range(0, len(names), size):
            some = tuple(names[begin : begin + size])
            items = [self._item(self._folder / self._files[name]) for name in some]
            stacked = {item.value.name: np.stack([each[item.value.name] for each in items]) for item in self._inputs}
            yield Chunk(begin, some, stacked)

    def _item(self, path: Path) -> dict[str, Array]:
        """The arrays of one file, each in the shape of its input."""
        if path.suffix == ".npy":
            chosen([path.name], self._inputs, path, "array")
            arrays = {self._inputs[0].value.name: read_npy(path)}
        else:
            try:
                members = chosen(npz_members(path), self._inputs, path, "array")
                arrays = {name: read_npz(path, member) for name, member in members.items()}
            except CvmError as error:
                raise error.at(file=str(path)) from None
        for item in self._inputs:
            found, shape = arrays[item.value.name].shape, item.value.shape
            if found != shape:
                message = f"expected an array of {list(shape)}, one item, found {list(found)}"
                raise Invalid("map.shape", message, Location(str(path), tensor=item.value.name))
            dtype = str(arrays[item.value.name].dtype)
            before = self._types.setdefault(item.value.name, dtype)
            if dtype != before:
                message = f"found {dtype}, and the items before have {before}: convert them to one type"
                raise Invalid("map.types", message, Location(str(path), tensor=item.value.name))
        return arrays


class _Archive:
    """The arrays of a ``.npz`` file (or the array of a ``.npy`` file): their first axis counts the items."""

    expected = "arrays whose first axis counts the items"

    def __init__(self, path: Path, inputs: Sequence[Input]) -> None:
        self.source = str(path)
        if kind_of(path) == "npy":
            chosen([path.name], inputs, path, "array")
            self._arrays = {inputs[0].value.name: read_npy(path)}
        else:
            try:
                members = chosen(npz_members(path), inputs, path, "array")
                self._arrays = {name: read_npz(path, member) for name, member in members.items()}
            except CvmError as error:
                raise error.at(file=str(path)) from None
        for item in inputs:
            name, shape = item.value.name, item.value.shape
            array = self._arrays[name]
            if array.ndim == len(shape) and array.shape[1:] == shape[1:] and shape[0] == 1:
                array = self._arrays[name] = array[:, np.newaxis]  # N items in place of a leading 1
            if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
                message = f"expected items of {list(shape)} along the first axis, found an array of {list(array.shape)}"
                raise Invalid("map.shape", message, Location(str(path), tensor=name))
        counts = {name: len(array) for name, array in self._arrays.items()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise Invalid("map.shape", f"the arrays have different numbers of items: {said}", Location(str(path)))
        self._count = next(iter(counts.values()))

    @property
    def names(self) -> Sequence[str]:
        return numbered(self._count)

    def chunks(self, size: int) -> Iterator[Chunk]:
        names = numbered(self._count)
        for begin in range(0, self._count, size):
            end = min(begin + size, self._count)
            arrays = {name: array[begin:end] for name, array in self._arrays.items()}
            yield Chunk(begin, tuple(names[begin:end]), arrays)
