"""Convert the arrays of a caller to the codes of single runs, and results back to arrays of the caller's layout.

The rules, everywhere the same: an array has the shape of the external; or that with a leading batch axis; or N in
place of a leading 1. With cycles it has one axis more, after the batch axis. Integers are codes, floats are real
numbers and are quantised exactly. Nothing is clamped, cast or guessed: what does not fit is `Invalid`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.program.model import Input, Program, Shape
from cvm.quantization import LogarithmicQuantizer, Quantizer

__all__ = ["Feed", "Layout", "arrange", "stream"]

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = dict[str, npt.NDArray[np.int32]]
"""The codes of one run, by the names of the inputs."""

_PART = 2**20
"""Elements that `stream` converts at once, or those of one sample."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the arrays of one call hold its runs."""

    samples: int | None = None
    """The extent of the batch axis; None: one sample, without such an axis."""
    in_place: bool = False
    """Whether the batch takes the place of a leading 1, where there is one."""
    cycles: int | None = None
    """The extent of the cycle axis; None: one cycle, without such an axis."""

    def shape(self, shape: Shape) -> Shape:
        """The shape of an array that holds a tensor of ``shape`` for every run."""
        runs = tuple(extent for extent in (self.samples, self.cycles) if extent is not None)
        return runs + (shape[1:] if self.in_place and shape[0] == 1 else shape)

    def join(self, runs: Sequence[Array]) -> Array:
        """The tensors of all runs, sample by sample and cycle by cycle, as one array."""
        joined = np.stack(runs) if len(runs) > 1 else runs[0]
        return joined.reshape(self.shape(runs[0].shape))

    def quantizer(self, quantizer: Quantizer, shape: Shape) -> Quantizer:
        """The quantiser of a tensor of ``shape`` as one of the joined array."""
        axis = quantizer.axis
        if isinstance(quantizer, LogarithmicQuantizer) or axis is None:
            return quantizer
        replaced = self.in_place and shape[0] == 1
        if replaced and axis == 0:  # the leading 1 has one scale, which serves every sample
            return replace(quantizer, axis=None)
        return replace(quantizer, axis=axis + len(self.shape(shape)) - len(shape))


def arrange(program: Program, arrays: Mapping[str, Any], cycles: bool = False) -> tuple[Layout, list[list[Feed]]]:
    """The layout of a call, and the codes of its runs: a list of samples, each a list of cycles.

    Raises `Invalid` with code ``input.<rule>``: names, type, shape, batch, real, code, cycles.
    """
    layout, given = _opened(program, arrays, cycles)
    return layout, _feeds(program, given, layout)


def stream(program: Program, arrays: Mapping[str, Any], cycles: bool = False) -> tuple[Layout, Iterator[list[Feed]]]:
    """As `arrange`, for data of any size: the codes are made as the samples are asked for.

    Names, types and shapes are checked at once, the numbers when their sample comes.
    """
    layout, given = _opened(program, arrays, cycles)
    return layout, _streamed(program, given, layout)


def _streamed(program: Program, given: Mapping[str, Array], layout: Layout) -> Iterator[list[Feed]]:
    if layout.samples is None:
        yield from _feeds(program, given, layout)
        return
    largest = max((math.prod(array.shape[1:]) for array in given.values()), default=1)
    step = max(1, _PART // largest)
    for first in range(0, layout.samples, step):
        part = {name: array[first : first + step] for name, array in given.items()}
        samples = min(step, layout.samples - first)
        yield from _feeds(program, part, replace(layout, samples=samples), first)


def _opened(program: Program, arrays: Mapping[str, Any], cycles: bool) -> tuple[Layout, dict[str, Array]]:
    """The layout of a call, and its arrays, of which names, types and shapes are in order."""
    if cycles and not program.state:
        raise Invalid("input.cycles", "the program keeps no state from run to run: it has no cycles")
    _check_names(program, arrays)
    given = {item.value.name: _plain(item, arrays[item.value.name]) for item in program.inputs}
    return _common_layout([(item, given[item.value.name].shape) for item in program.inputs], cycles), given


def _feeds(program: Program, given: Mapping[str, Array], layout: Layout, first: int = 0) -> list[list[Feed]]:
    """The codes of all runs of the samples from number ``first`` on, which ``given`` holds as ``layout`` says."""
    samples, length = layout.samples or 1, layout.cycles or 1
    feeds: list[list[Feed]] = [[{} for _ in range(length)] for _ in range(samples)]
    for item in program.inputs:
        name, shape = item.value.name, item.value.shape
        codes = _codes(item, given[name], layout, first).reshape(samples, length, *shape)
        for sample, sample_codes in zip(feeds, codes, strict=True):
            for feed, run_codes in zip(sample, sample_codes, strict=True):
                feed[name] = run_codes
    return feeds


def _check_names(program: Program, arrays: Mapping[str, Any]) -> None:
    expected = [item.value.name for item in program.inputs]
    listed = ", ".join(map(repr, expected)) or "none"
    for name in arrays:
        if name not in expected:
            raise Invalid("input.names", f"there is no input {name!r}; the inputs are {listed}")
    for name in expected:
        if name not in arrays:
            found = ", ".join(map(repr, arrays)) or "none"
            raise Invalid("input.names", f"the input {name!r} is missing; found {found}", Location(tensor=name))


def _plain(item: Input, found: Any) -> Array:
    """The array of an input: integers, logical values or floats, and at least one element."""
    where = Location(tensor=item.value.name)
    try:
        array = np.asarray(found)
    except (ValueError, TypeError, OverflowError) as error:
        raise Invalid("input.type", f"expected an array of numbers: {error}", where) from None
    if array.dtype.kind not in "iufb" or array.dtype.itemsize > 8:
        expected = "integers (codes) or real numbers of at most 64 bits"
        raise Invalid("input.type", f"expected {expected}, found an array of dtype {array.dtype}", where)
    if array.size == 0:
        raise Invalid("input.shape", f"expected at least one element, found shape {list(array.shape)}", where)
    if array.dtype.kind in "fb" and item.quantizer is None and (array.dtype.kind == "f" or item.value.hi > 1):
        message = f"it has no quantiser and takes integers only, found an array of dtype {array.dtype}"
        raise Invalid("input.real", message, where)
    if array.dtype.kind == "b" and item.quantizer is not None:
        raise Invalid("input.type", "logical values are neither codes nor real numbers; convert them", where)
    return array.reshape(1) if array.shape == () and item.value.shape == (1,) else array


def _common_layout(inputs: Sequence[tuple[Input, Shape]], cycles: bool) -> Layout:
    """The one layout that the arrays of all inputs have."""
    layouts = [_layout(item, found, cycles) for item, found in inputs]
    if Layout(samples=1) in layouts:  # then a leading 1 that is there is a batch of 1 in its place
        alike = Layout(samples=1, in_place=True)
        layouts = [alike if layout == Layout() else layout for layout in layouts]
    common = next((layout for layout in layouts if layout.in_place), layouts[0] if layouts else Layout())
    for (item, found), layout in zip(inputs, layouts, strict=True):
        ways = (True, False) if item.value.shape[0] != 1 else (common.in_place,)
        if replace(layout, in_place=common.in_place) != common or layout.in_place not in ways:
            message = f"its array of shape {list(found)} holds {_said(layout)}, another input's {_said(common)}"
            raise Invalid("input.batch", message, Location(tensor=item.value.name))
    return common


def _layout(item: Input, found: Shape, cycles: bool) -> Layout:
    """The layout of one array, from its shape."""
    shape = item.value.shape
    if cycles:
        if len(found) == len(shape) + 1 and found[1:] == shape:
            return Layout(cycles=found[0])
        if len(found) == len(shape) + 2 and found[2:] == shape:
            return Layout(samples=found[0], cycles=found[1])
        expected = f"{['T', *shape]} (T cycles) or {['N', 'T', *shape]} (N samples)"
    else:
        if found == shape:
            return Layout()
        if found[1:] == shape:
            return Layout(samples=found[0])
        if shape[0] == 1 and len(found) == len(shape) and found[1:] == shape[1:]:
            return Layout(samples=found[0], in_place=True)
        expected = f"{list(shape)} or, for N samples, {['N', *shape]}"
        expected += f" or {['N', *shape[1:]]}" if shape[0] == 1 else ""
    message = f"expected an array of shape {expected.replace(chr(39), '')}, found {list(found)}"
    raise Invalid("input.shape", message, Location(tensor=item.value.name))


def _said(layout: Layout) -> str:
    samples = "a single sample" if layout.samples is None else f"{layout.samples} samples"
    samples += " in place of the leading 1" if layout.in_place else ""
    return samples if layout.cycles is None else f"{samples} of {layout.cycles} cycles"


def _codes(item: Input, array: Array, layout: Layout, first: int) -> npt.NDArray[np.int32]:
    """The codes of all runs, in the array's own shape; its samples are those from number ``first`` on."""
    value, quantizer = item.value, item.quantizer
    where = Location(tensor=value.name)
    if array.dtype.kind == "f" and quantizer is not None:
        from cvm.quantization.exact import quantize

        if not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            found = f"expected real numbers, found {array[tuple(index)]} at {_counted(index, first)}"
            raise Invalid("input.real", found, where)
        array = quantize(array, layout.quantizer(quantizer, value.shape), where)
    if not value.lo <= int(array.min()) <= int(array.max()) <= value.hi:
        outside = (array < value.lo) | (array > value.hi)
        index = np.argwhere(outside)[0].tolist()
        found = f"found {int(array[tuple(index)])} at {_counted(index, first)}"
        raise Invalid("input.code", f"expected codes in [{value.lo}, {value.hi}], {found}", where)
    return array.astype(np.int32, order="C")


def _counted(index: list[int], first: int) -> list[int]:
    """The position among all samples, for a position counted from sample ``first``."""
    return [first + index[0], *index[1:]] if index else index
