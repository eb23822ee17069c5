"""Inputs from the command line, ``-i [NAME=]FILE[:MEMBER]``, and other files with arrays or receipts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cvm.arrays import Array, kind_of, npz_members, read_npy, read_npz
from cvm.cli.failures import Usage
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed
from cvm.inputs import check_codes

if TYPE_CHECKING:
    from cvm.audit.receipt import Receipt
    from cvm.frontends.nnef import BitOrder
    from cvm.graph import QuantizedGraph, TensorData
    from cvm.program.model import Input
    from cvm.quantization import Quantizer

__all__ = ["graph_inputs", "parts", "read_archive", "read_array", "read_inputs", "read_receipt"]


def graph_inputs(graph: QuantizedGraph) -> list[Input]:
    """The inputs of a graph, in the form that the readers of arrays need."""
    from cvm.program.model import Input, Value

    tensors = [graph.tensors[name] for name in graph.inputs]
    return [Input(Value(tensor.name, tensor.shape, 0, 0), tensor.quantizer) for tensor in tensors]


def read_inputs(
    specs: Sequence[str], inputs: Sequence[Input], bit_order: BitOrder = "lsb", codes: bool = False
) -> dict[str, Array]:
    """The arrays of all ``-i`` options, by the name of the input; ``bit_order`` is that of tensor files.

    Integers for an input with a quantiser are its codes. A tensor file says what its integers stand for; for arrays,
    ``codes`` says that they are codes. Raises `Usage` if it is not clear which input an array is for, and `Invalid`
    (``input.integers``) for integers that are not declared to be codes.
    """
    arrays: dict[str, Array] = {}
    for spec in specs:
        for name, array in _read(spec, inputs, bit_order, codes).items():
            if name in arrays:
                raise Usage(f"the input {name!r} is given twice")
            arrays[name] = array
    missing = [item.value.name for item in inputs if item.value.name not in arrays]
    if missing:
        listed = ", ".join(f"{item.value.name} {list(item.value.shape)}" for item in inputs)
        unknown = "".join(
            f"; {name!r} is none of them" for name in arrays if name not in {item.value.name for item in inputs}
        )
        raise Usage(f"no -i option gives the input {missing[0]!r}; the inputs are {listed}{unknown}")
    return arrays


def read_array(spec: str) -> Array:
    """The array that FILE[:MEMBER] names: a ``.npy`` file, or a member of a ``.npz`` file, by default its only one."""
    name, file, member = parts(spec)
    if name is not None:
        raise Usage(f"expected FILE[:MEMBER], found {spec!r}")
    path = Path(file)
    try:
        kind = kind_of(path)
        if kind == "npz":
            members = npz_members(path)
            if member is None and len(members) != 1:
                raise Usage(f"say which array: {file}:MEMBER; there are {', '.join(members) or 'none'}")
            return read_npz(path, members[0] if member is None else member)
        if kind != "npy" or member is not None:
            expected = "a .npy file has no members" if kind == "npy" else "expected a .npy or .npz file"
            raise Usage(f"{spec}: {expected}")
        return read_npy(path)
    except CvmError as error:
        raise error.at(file=file) from None


def read_archive(path: Path) -> dict[str, Array]:
    """All arrays of a ``.npz`` file, by name."""
    return {name: read_npz(path, name) for name in npz_members(path)}


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file. Raises `CvmError`."""
    from cvm.audit import load_receipt

    try:
        return load_receipt(path)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("receipt.unreadable", message, Location(str(path))) from None


def _read(spec: str, inputs: Sequence[Input], bit_order: BitOrder, codes: bool) -> dict[str, Array]:
    name, file, member = parts(spec)
    path = Path(file)
    try:
        kind = kind_of(path)
        if kind == "npz":
            return _stated(_from_archive(path, name, member, inputs), inputs, codes)
        if member is not None:
            raise Usage(f"{file} holds one array: there is no member {member!r} in it")
        chosen = name if name is not None else _only_input(spec, inputs)
        if kind == "npy":
            return _stated({chosen: read_npy(path)}, inputs, codes)
        return {chosen: _from_tensor_file(path, _input(chosen, inputs), bit_order)}
    except CvmError as error:
        raise diagnosed(error.at(file=file), path, "an array (.npy, .npz, .dat)", ("npy", "npz", "tensor")) from None


def _stated(arrays: dict[str, Array], inputs: Sequence[Input], codes: bool) -> dict[str, Array]:
    """The arrays, if integers for inputs with a quantiser are declared to be codes. Raises `Invalid` otherwise."""
    for name, array in arrays.items():
        item = _input(name, inputs)
        if item is not None and not codes:
            check_codes(name, item.quantizer, array)
    return arrays


def parts(spec: str) -> tuple[str | None, str, str | None]:
    """NAME, FILE and MEMBER of a spec. An existing file is FILE, even with ``=`` or ``:`` in its name."""
    name: str | None = None
    member: str | None = None
    file = spec
    if "=" in file and not Path(file).exists():
        name, file = file.split("=", 1)
    drive = re.match(r"[A-Za-z]:[\\/]", file)  # a drive of Windows: its colon begins no member
    if ":" in file[drive.end() if drive else 0 :] and not Path(file).exists():
        file, member = file.rsplit(":", 1)
    if name == "" or not file or member == "":
        raise Usage(f"expected -i [NAME=]FILE[:MEMBER], found {spec!r}")
    return name, file, member


def _only_input(spec: str, inputs: Sequence[Input]) -> str:
    names = [item.value.name for item in inputs]
    if len(names) != 1:
        raise Usage(f"say which input {spec} is: -i NAME={spec}; the inputs are {', '.join(names) or 'none'}")
    return names[0]


def _from_archive(path: Path, name: str | None, member: str | None, inputs: Sequence[Input]) -> dict[str, Array]:
    members = npz_members(path)
    names = [item.value.name for item in inputs]
    if name is None and member is None:
        if len(members) == 1 and len(names) == 1:
            return {names[0]: read_npz(path, members[0])}
        return {each: read_npz(path, each) for each in _known(path, members, names)}
    if member is None:
        member = name if name in members else (members[0] if len(members) == 1 else None)
        if member is None:
            raise Usage(f"say which array: -i {name}={path}:MEMBER; there are {', '.join(members) or 'none'}")
    if name is None:
        name = member if member in names else _only_input(f"{path}:{member}", inputs)
    return {name: read_npz(path, member)}


def _known(path: Path, members: Sequence[str], inputs: Sequence[str]) -> Sequence[str]:
    for member in members:
        if member not in inputs:
            listed = ", ".join(inputs) or "none"
            raise Usage(f"it holds {member!r}, which is no input ({listed}): name the array, -i {path}:MEMBER")
    return members


def _input(name: str, inputs: Sequence[Input]) -> Input | None:
    return next((item for item in inputs if item.value.name == name), None)


def _from_tensor_file(path: Path, item: Input | None, bit_order: BitOrder) -> Array:
    """The array in an NNEF tensor file: codes if its items are codes of the input's quantiser, else real numbers."""
    from cvm.frontends.nnef.tensor_file import ItemType, read_tensor
    from cvm.limits import DEFAULT
    from cvm.program.reading import read_bytes

    try:
        data = read_bytes(path, DEFAULT.archive_bytes, "tensor")
        stored = read_tensor(data, bit_order=bit_order)
    except OSError as error:
        raise Invalid("array.unreadable", f"cannot be read: {error.strerror or error}", Location(str(path))) from None
    except CvmError as error:
        raise diagnosed(error.at(file=str(path)), path, "an array (.npy, .npz, .dat)", ("tensor",)) from None
    quantizer = None if item is None else item.quantizer
    if stored.data.quantizer is not None:
        if stored.data.quantizer == quantizer:
            return stored.data.values
        return _converted(stored.data, quantizer)
    if stored.header.item in (ItemType.INTEGER, ItemType.SIGNED) and quantizer is not None:
        return _converted(stored.data, quantizer)
    return stored.data.values


def _converted(data: TensorData, quantizer: Quantizer | None) -> Array:
    """Stored numbers as codes of the input's quantiser, rounded once from the exact number; without one, as float64.

    A stored number is the number that a code of the file's own quantiser stands for or, without one, an integer.
    """
    from fractions import Fraction

    import numpy as np

    from cvm.quantization.exact import quantize_rationals
    from cvm.quantization.rationals import Rationals

    codes, stored = data.values.ravel().tolist(), data.quantizer
    numbers = [Fraction(code) if stored is None else stored.value(code) for code in codes]
    if quantizer is None:
        return np.array([float(number) for number in numbers]).reshape(data.values.shape)
    return quantize_rationals(Rationals.of(numbers, data.values.shape), quantizer)
