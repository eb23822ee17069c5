"""Arrays of a caller that receive the codes of outputs.

They are checked before the run, and never cast, resized or copied to other memory: an array that does not fit is
`Invalid`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.executors.batching import Entry, address

__all__ = ["Attached", "Fresh", "receiving"]

Int32Array = npt.NDArray[np.int32]
INT32 = np.dtype(np.int32)
empty = np.empty  # looking it up takes as long as a test of an array


def receiving(out: object, shapes: Mapping[str, tuple[int, ...]], inputs: Mapping[str, Any]) -> dict[str, Int32Array]:
    """The arrays that receive outputs: one for each name in ``shapes``, of that shape.

    Each is C-contiguous, writable and of dtype int32, and shares memory neither with another one nor with an input.
    Raises `Invalid` with code ``out.<rule>``: names, type, shape, layout, overlap.
    """
    if not isinstance(out, Mapping):
        raise Invalid("out.names", f"expected arrays by the names of the outputs, found {type(out).__name__}")
    if out.keys() != shapes.keys():
        name = min(map(str, out.keys() ^ shapes.keys()))
        listed = ", ".join(map(repr, shapes))
        what = f"there is no array for the output {name!r}" if name in shapes else f"there is no output {name!r}"
        raise Invalid("out.names", f"{what}; the outputs are {listed}")
    made = {name: _fitting(name, out[name], shape) for name, shape in shapes.items()}
    others = [(f"the input {name!r}", array) for name, array in inputs.items() if isinstance(array, np.ndarray)]
    for name, array in made.items():
        for other, memory in others:
            if np.may_share_memory(array, memory):
                message = f"its array may share memory with that of {other}: give it memory of its own"
                raise Invalid("out.overlap", message, Location(tensor=name))
        others.append((f"the output {name!r}", array))
    return made


def _fitting(name: str, array: Any, shape: tuple[int, ...]) -> Int32Array:
    where = Location(tensor=name)
    if not isinstance(array, np.ndarray) or array.dtype != INT32:
        found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise Invalid("out.type", f"expected an array of int32, which holds the codes, found {found}", where)
    if array.shape != shape:
        message = f"expected an array of shape {list(shape)}, found {list(array.shape)}"
        raise Invalid("out.shape", message, where)
    if not array.flags.c_contiguous or not array.flags.writeable:
        what = "cannot be written" if array.flags.c_contiguous else "is not C-contiguous"
        raise Invalid("out.layout", f"its array {what}: numpy.empty({list(shape)}, numpy.int32) makes one", where)
    return array


def _is_code_array(array: Any, shape: tuple[int, ...]) -> TypeGuard[Int32Array]:
    """Whether this is an array of int32 in a shape. Other dtypes of the same integers are left to slower ways."""
    return type(array) is np.ndarray and array.dtype is INT32 and array.shape == shape


class Fresh:
    """Runs whose outputs get new arrays, for inputs that need no conversion."""

    def __init__(self, entry: Entry, outputs: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        """``outputs`` are the names and the shapes of outputs by the names of their values, in the order of results."""
        self._run, self._given, self._count = entry.run, entry.given, len(entry.given)
        self._none = [0] * len(entry.left)
        places = {value: self._count + place for place, value in enumerate(entry.left)}
        self._made = [(name, shape, places[value]) for value, (name, shape) in outputs.items()]

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Int32Array] | None:
        """The outputs by name; None if an array is not as the program declares it, or has an element beyond its
        interval.
        """
        if len(inputs) != self._count:
            return None
        addresses = []
        for name, shape in self._given:
            array = inputs.get(name)
            if not _is_code_array(array, shape) or not array.flags.c_contiguous:
                return None
            addresses.append(address(array))
        addresses += self._none
        made = {}
        for name, shape, place in self._made:
            made[name] = array = empty(shape, INT32)
            addresses[place] = address(array)
        return made if self._run(addresses) else None


def _nothing() -> None:
    """A reference to no array."""


class Attached:
    """Arrays of outputs that were checked, for runs that differ in their inputs at most.

    A weak reference to an array does not keep it alive, and NumPy refuses to resize an array that has one: as long as
    an array is the same one, so is its memory.
    """

    def __init__(self, entry: Entry, outputs: Mapping[str, tuple[str, Int32Array]]) -> None:
        """``outputs`` are the names and the arrays of outputs by the names of their values."""
        self.run = entry.run
        self._given = entry.given
        self._seen: dict[str, tuple[Callable[[], object], int]] = dict.fromkeys(
            (name for name, _ in entry.given), (_nothing, 0)
        )
        arrays = [outputs[value] for value in entry.left]
        self._outputs: list[tuple[str, Callable[[], object], tuple[int, ...], int]] = [
            (name, weakref.ref(array), array.shape, address(array)) for name, array in arrays
        ]
        self._taken = [
            (start, start + array.nbytes) for (_, array), (*_, start) in zip(arrays, self._outputs, strict=True)
        ]

    def addresses(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[int] | None:
        """The addresses of all arrays for ``run``; None if these are other outputs, or if an array does not fit."""
        if len(inputs) != len(self._given) or len(outputs) != len(self._outputs):
            return None
        found = []
        for name, shape in self._given:
            array = inputs.get(name)
            if not _is_code_array(array, shape) or not array.flags.c_contiguous:
                return None
            known, start = self._seen[name]
            if known() is not array:
                start = address(array)
                end = start + array.nbytes
                for low, high in self._taken:
                    if start < high and low < end:
                        return None
                self._seen[name] = weakref.ref(array), start
            found.append(start)
        for name, known, shape, start in self._outputs:
            array = outputs.get(name)
            if not _is_code_array(array, shape) or array is not known():
                return None
            if not array.flags.carray:
                return None
            found.append(start)
        return found
