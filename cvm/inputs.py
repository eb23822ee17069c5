"""Convert the arrays of a caller to the codes of single runs, and results to arrays of the caller's layout.

The rules are the same everywhere. An array has the shape of the external, or that shape with a leading batch axis, or
with N in place of a leading 1. With cycles it has one more axis, after the batch axis.

An input with a quantiser takes real numbers. They are quantised as the document says: rounded once, exactly, and
clipped to the range of the quantiser; the caller decides about numbers out of range (`Intake`). Such an input takes
integers only if the caller says that they are codes, or if each code stands for itself. An input without a
quantiser takes integers, which are its values. Nothing else is clipped, cast or guessed: any other array is
`Invalid`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from cvm.errors import ClampWarning, Invalid, Location
from cvm.program.model import Input, ProgramParts, Shape
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.records import dataclass

__all__ = ["Clamped", "Feed", "Intake", "Layout", "OutOfRange", "ambiguous", "arrange", "check_codes", "stacked",
           "stream"]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
Feed: TypeAlias = dict[str, npt.NDArray[np.int32]]
"""The codes of one run, by the names of the inputs."""

OutOfRange: TypeAlias = Literal["refuse", "warn", "clamp"]
"""What to do with real numbers outside the range of an input's quantiser."""

_PART = 2**20
"""How many elements `stream` converts at once; at least one sample."""


@dataclass(frozen=True, slots=True)
class Clamped:
    """The real numbers of one input that were clipped, because they round to no code of its quantiser."""

    tensor: str
    count: int
    of: int
    """How many real numbers the input has."""
    value: float
    """The number that is farthest from the range."""
    index: tuple[int, ...]
    """The index of that number in the array of the caller."""
    lo: float
    hi: float
    """The range of the input, in real numbers; if channels have ranges of their own, that of ``value``'s channel."""

    @property
    def excess(self) -> float:
        """How far ``value`` is from the range."""
        return max(self.lo - self.value, self.value - self.hi)

    def __str__(self) -> str:
        return (
            f"input {self.tensor!r}: {self.count} of {self.of} real numbers are out of the range "
            f"[{self.lo:.6g}, {self.hi:.6g}], the farthest by {self.excess:.6g} "
            f"({self.value:.6g} at {list(self.index)})"
        )


@dataclass(slots=True)
class Intake:
    """What a caller says about the arrays of one call, and which numbers were clipped.

    ``codes``: whether integers for an input with a quantiser are its codes; without it they are refused unless each
    code stands for itself, since they may be meant as numbers. ``out_of_range`` is for real numbers that round to no
    code: "clamp" takes the nearest code, as the document says; "warn" also records them for
    `report`; "refuse" raises. Raises `Invalid` (``input.options``) for another word.
    """

    codes: bool = False
    out_of_range: OutOfRange = "clamp"
    clamped: list[Clamped] = field(default_factory=list)
    """The clipped numbers, in the order of the runs; recorded under "warn" only."""

    def __post_init__(self) -> None:
        if self.out_of_range not in get_args(OutOfRange):
            known = ", ".join(map(repr, get_args(OutOfRange)))
            raise Invalid("input.options", f"out_of_range is one of {known}, found {self.out_of_range!r}")

    def report(self, stacklevel: int = 2) -> None:
        """Warn about clipped numbers: one `ClampWarning` for the whole call, with a part for each input."""
        if not self.clamped:
            return
        parts = [_together([item for item in self.clamped if item.tensor == name]) for name in self._names()]
        message = "; ".join(map(str, parts)) + ": they were clamped"
        warnings.warn(ClampWarning(message), stacklevel=stacklevel + 1)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(item.tensor for item in self.clamped))


def _together(parts: Sequence[Clamped]) -> Clamped:
    """The clipped numbers of one input in several arrays: their total count, and the farthest number of all."""
    farthest = max(parts, key=lambda item: item.excess)
    return replace(farthest, count=sum(item.count for item in parts), of=sum(item.of for item in parts))


@dataclass(frozen=True, slots=True)
class Layout:
    """How the arrays of one call hold its runs."""

    samples: int | None = None
    """The extent of the batch axis; None: one sample, without such an axis."""
    in_place: bool = False
    """Whether the batch takes the place of a leading 1, if there is one."""
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

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return (self.samples or 1) * (self.cycles or 1)

    def run(self, joined: Array, shape: Shape, number: int) -> Array:
        """The tensor of ``shape`` of one run, from the result of `join`; runs are counted from 0."""
        found: Array = joined.reshape(self.runs, *shape)[number]
        return found

    def quantizer(self, quantizer: Quantizer, shape: Shape) -> Quantizer:
        """The quantiser of a tensor of ``shape``, as a quantiser of the joined array."""
        axis = quantizer.axis
        if isinstance(quantizer, LogarithmicQuantizer) or axis is None:
            return quantizer
        replaced = self.in_place and shape[0] == 1
        if replaced and axis == 0:  # the leading 1 has one scale, which serves every sample
            return replace(quantizer, axis=None)
        return replace(quantizer, axis=axis + len(self.shape(shape)) - len(shape))


def arrange(
    program: ProgramParts, arrays: Mapping[str, Any], cycles: bool = False, intake: Intake | None = None
) -> tuple[Layout, list[list[Feed]]]:
    """The layout of a call, and the codes of its runs: a list of samples, each a list of cycles.

    Raises `Invalid` with code ``input.<rule>``: names, type, shape, batch, real, integers, code, range, cycles.
    """
    rules = intake or Intake()
    layout, given = _opened(program, arrays, cycles, rules)
    return layout, _feeds(program, given, layout, rules)


def stacked(
    program: ProgramParts, arrays: Mapping[str, Any], intake: Intake
) -> tuple[Layout, dict[str, npt.NDArray[np.int32]]]:
    """As `arrange` without cycles, with the codes of all samples of an input in one C-contiguous array, samples first.

    C-contiguous int32 arrays are returned as they are, and their codes are not checked.
    """
    layout, given = _opened(program, arrays, False, intake)
    samples, made = layout.samples or 1, {}
    for item in program.inputs:
        array = given[item.value.name]
        if array.dtype != np.int32 or not array.flags.c_contiguous:
            array = _codes(item, array, layout, intake, 0)
        made[item.value.name] = array.reshape(samples, *item.value.shape)
    return layout, made


def stream(
    program: ProgramParts, arrays: Mapping[str, Any], cycles: bool = False, intake: Intake | None = None
) -> tuple[Layout, Iterator[list[Feed]]]:
    """As `arrange`, for data of any size: the codes of a sample are made when it is asked for.

    Names, types and shapes are checked at once, the numbers of a sample when it is asked for.
    """
    rules = intake or Intake()
    layout, given = _opened(program, arrays, cycles, rules)
    return layout, _streamed(program, given, layout, rules)


def ambiguous(quantizer: Quantizer | None) -> bool:
    """Whether an integer for an input with this quantiser means one thing as a code and another as a real number."""
    if isinstance(quantizer, LinearQuantizer):
        return any(scale != 1 for scale in quantizer.scale) or any(quantizer.offset)
    return quantizer is not None


def check_codes(name: str, quantizer: Quantizer | None, array: Array) -> None:
    """Refuse integers that may be codes of an input or numbers: the caller has to say which they are.

    Raises `Invalid` (``input.integers``).
    """
    if quantizer is None or array.dtype.kind not in "iu" or not ambiguous(quantizer):
        return
    lo, hi = _ends(quantizer, 0)
    message = (
        f"it takes real numbers from {lo:.6g} to {hi:.6g}, found an array of {array.dtype}: convert it, "
        f"array.astype('float32'), or say that its integers are codes in [{quantizer.lo}, {quantizer.hi}]: "
        "codes=True (on the command line --codes)"
    )
    raise Invalid("input.integers", message, Location(tensor=name))


def _streamed(
    program: ProgramParts, given: Mapping[str, Array], layout: Layout, intake: Intake
) -> Iterator[list[Feed]]:
    if layout.samples is None:
        yield from _feeds(program, given, layout, intake)
        return
    largest = max((math.prod(array.shape[1:]) for array in given.values()), default=1)
    step = max(1, _PART // largest)
    for first in range(0, layout.samples, step):
        part = {name: array[first : first + step] for name, array in given.items()}
        samples = min(step, layout.samples - first)
        yield from _feeds(program, part, replace(layout, samples=samples), intake, first)


def _opened(
    program: ProgramParts, arrays: Mapping[str, Any], cycles: bool, intake: Intake
) -> tuple[Layout, dict[str, Array]]:
    """The layout of a call, and its arrays with checked names, types and shapes."""
    if cycles and not program.state:
        raise Invalid("input.cycles", "the program keeps no state from run to run: it has no cycles")
    _check_names(program, arrays)
    given = {item.value.name: _plain(item, arrays[item.value.name], intake) for item in program.inputs}
    return _common_layout([(item, given[item.value.name].shape) for item in program.inputs], cycles), given


def _feeds(
    program: ProgramParts, given: Mapping[str, Array], layout: Layout, intake: Intake, first: int = 0
) -> list[list[Feed]]:
    """The codes of all runs of the samples from number ``first`` on; ``given`` holds them in ``layout``."""
    samples, length = layout.samples or 1, layout.cycles or 1
    feeds: list[list[Feed]] = [[{} for _ in range(length)] for _ in range(samples)]
    for item in program.inputs:
        name, shape = item.value.name, item.value.shape
        codes = _codes(item, given[name], layout, intake, first).reshape(samples, length, *shape)
        for sample, sample_codes in zip(feeds, codes, strict=True):
            for feed, run_codes in zip(sample, sample_codes, strict=True):
                feed[name] = run_codes
    return feeds


def _check_names(program: ProgramParts, arrays: Mapping[str, Any]) -> None:
    expected = [item.value.name for item in program.inputs]
    listed = ", ".join(map(repr, expected)) or "none"
    for name in arrays:
        if name not in expected:
            raise Invalid("input.names", f"there is no input {name!r}; the inputs are {listed}")
    for name in expected:
        if name not in arrays:
            found = ", ".join(map(repr, arrays)) or "none"
            raise Invalid("input.names", f"the input {name!r} is missing; found {found}", Location(tensor=name))


def _plain(item: Input, found: Any, intake: Intake) -> Array:
    """The array of an input: integers, logical values or floats, and at least one element."""
    where = Location(tensor=item.value.name)
    try:
        array = np.asarray(found)
    except (ValueError, TypeError, OverflowError):
        message = "expected an array of numbers, found parts of different lengths, or what numpy.asarray does not take"
        raise Invalid("input.type", message, where) from None
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
    if not intake.codes:
        check_codes(item.value.name, item.quantizer, array)
    return array.reshape(1) if array.shape == () and item.value.shape == (1,) else array


def _common_layout(inputs: Sequence[tuple[Input, Shape]], cycles: bool) -> Layout:
    """The layout that the arrays of all inputs share. Raises `Invalid` if they share none."""
    layouts = [_layout(item, found, cycles) for item, found in inputs]
    if Layout(samples=1) in layouts:  # then a leading 1 of another array is a batch of 1
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


def _codes(item: Input, array: Array, layout: Layout, intake: Intake, first: int) -> npt.NDArray[np.int32]:
    """The codes of all runs, in the array's own shape; its samples are those from number ``first`` on."""
    value, quantizer = item.value, item.quantizer
    where = Location(tensor=value.name)
    if array.dtype.kind == "f" and quantizer is not None:
        if not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            found = f"expected real numbers, found {array[tuple(index)]} at {_counted(index, first)}"
            raise Invalid("input.real", found, where)
        array = _quantised(array, layout.quantizer(quantizer, value.shape), intake, first, where)
    if not value.lo <= int(array.min()) <= int(array.max()) <= value.hi:
        outside = (array < value.lo) | (array > value.hi)
        index = np.argwhere(outside)[0].tolist()
        found = f"found {int(array[tuple(index)])} at {_counted(index, first)}"
        raise Invalid("input.code", f"expected codes in [{value.lo}, {value.hi}], {found}", where)
    return array.astype(np.int32, order="C")


def _quantised(array: Array, quantizer: Quantizer, intake: Intake, first: int, where: Location) -> Array:
    """The codes of real numbers; the intake says what to do with numbers out of range."""
    from cvm.quantization.exact import quantize

    if intake.out_of_range == "clamp":
        return quantize(array, quantizer, where)
    codes, outside = _unclamped(array, quantizer, where)
    if outside is None:
        return codes
    clamped = _described(array, outside, quantizer, first, where.tensor or "")
    if intake.out_of_range == "refuse":
        message = (
            f"expected real numbers in [{clamped.lo:.6g}, {clamped.hi:.6g}], found {clamped.value:.6g} at "
            f"{list(clamped.index)}; {clamped.count} of {clamped.of} numbers are out of range: out_of_range='clamp' "
            "(on the command line --out-of-range clamp) takes the nearest code for each"
        )
        raise Invalid("input.range", message, where)
    intake.clamped.append(clamped)
    return np.clip(codes, quantizer.lo, quantizer.hi)


def _unclamped(array: Array, quantizer: Quantizer, where: Location) -> tuple[Array, Array | None]:
    """The codes of real numbers, and which of these round to no code (None: all round to a code).

    A quantiser with one more step at each end finds this exactly: a number that rounds to a further step, or is clipped
    to it, rounds to no code. Powers of two get one more step at the far end, which moves all other codes by one.
    """
    from cvm.quantization.exact import quantize

    if isinstance(quantizer, LinearQuantizer):
        codes = quantize(array, replace(quantizer, lo=quantizer.lo - 1, hi=quantizer.hi + 1), where)
        outside = (codes < quantizer.lo) | (codes > quantizer.hi)
        return codes, outside if outside.any() else None
    codes = quantize(array, quantizer, where)
    if quantizer.top >= _MOST_POWER:  # there are no greater numbers in float64
        return codes, None
    further = quantize(array, LogarithmicQuantizer(quantizer.top + 1, quantizer.bits), where)
    outside = (further == quantizer.hi) | (further == quantizer.lo)
    return codes, outside if outside.any() else None


_MOST_POWER = 1024


def _described(array: Array, outside: Array, quantizer: Quantizer, first: int, tensor: str) -> Clamped:
    """The numbers out of range, for a message: float64 is precise enough."""
    indices, values = np.argwhere(outside), array[outside].astype(np.float64)
    channels = np.zeros(len(values), np.int64) if quantizer.axis is None else indices[:, quantizer.axis]
    count = len(quantizer.scale) if isinstance(quantizer, LinearQuantizer) else 1
    ends = np.array([_ends(quantizer, channel) for channel in range(count)])[channels]
    farthest = int(np.argmax(np.maximum(ends[:, 0] - values, values - ends[:, 1])))
    index = tuple(_counted(indices[farthest].tolist(), first))
    lo, hi = ends[farthest].tolist()
    return Clamped(tensor, len(values), array.size, float(values[farthest]), index, lo, hi)


def _ends(quantizer: Quantizer, channel: int) -> tuple[float, float]:
    """The real numbers of the least and the greatest code, each the nearest float64."""
    from cvm.quantization.exact import nearest_float

    if isinstance(quantizer, LinearQuantizer):
        ends = quantizer.value(quantizer.lo, channel), quantizer.value(quantizer.hi, channel)
    else:
        ends = quantizer.value(quantizer.lo), quantizer.value(quantizer.hi)
    return nearest_float(ends[0]), nearest_float(ends[1])


def _counted(index: list[int], first: int) -> list[int]:
    """The index among all samples, for an index counted from sample ``first``."""
    return [first + index[0], *index[1:]] if index else index
