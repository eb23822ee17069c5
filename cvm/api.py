"""The functions of the public surface: compile a model, load a program, run one op."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed, model_format
from cvm.program.model import Program
from cvm.repeated import remembering
from cvm.timing import timed

if TYPE_CHECKING:
    from cvm.calibration import Calibration, Form, Settings
    from cvm.frontends.cvm_runtime import Compat
    from cvm.frontends.nnef import BitOrder
    from cvm.graph import QuantizedGraph
    from cvm.quantization.calibration import Method
    from cvm.quantizing import Goal, Quantized

__all__ = ["compile", "load", "quantize", "quantize_program", "run_op"]


def compile(
    path: str | PathLike[str],
    quant: str | PathLike[str] | Literal[False] | None = None,
    optimize: bool = True,
    *,
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
    params: str | PathLike[str] | None = None,
    compat: Compat | Literal["tflite-reference"] = "correct",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_ranges: Mapping[str, tuple[int, int]] | None = None,
    states: Mapping[str, str] | None = None,
) -> Program:
    """The integer program of a model of NNEF (a folder, an archive, a document), ONNX, TFLite or cvm-runtime.

    ``quant`` is a file of quantisation information to use instead of the model's own graph.quant; False: none.
    ``optimize`` changes no code of any output, state or tensor of the document (docs/optimize.md); without it, the
    program is the one that the lowering rules give. ``bit_order`` says from which end of a byte tensor files fill in
    items that are no whole bytes: "lsb" or "msb"; ``variant`` is the further extension, as in ``filter.dat.q8``, of
    the tensor files to use where there are such.

    With ``params``, the ``.params`` file that belongs to it, ``path`` is a model of cvm-runtime. It is an integer
    program already, and stays as it is; ``compat`` says whether its ops mean what they should ("correct") or what
    that library computes ("cvm-1"). For a model of TFLite, "tflite-reference" computes the integers of TFLite's
    reference kernels instead of the exact meaning (docs/tflite.md).

    ``input_shapes`` are for inputs of a model of ONNX that leaves their extents open; a leading one is 1 otherwise.
    ``input_ranges`` promise that integer inputs of such a model stay within (lo, hi), which every run checks.
    ``states`` name inputs of such a model that the program keeps as state, each with the output that it becomes.
    Raises `CvmError` with the file, line and column of what is wrong.
    """
    at = Location(os.fspath(path))
    kind = "cvm_runtime" if params is not None else model_format(path)
    if kind != "tflite" and compat == "tflite-reference":
        raise Invalid(f"{kind}.options", "compat tflite-reference is for a model of TFLite", at)
    if kind != "nnef" and (quant is not None or variant is not None):
        raise Invalid(f"{kind}.options", "quant and variant are for an NNEF model", at)
    if params is not None:
        return _of_cvm_runtime(path, params, "cvm-1" if compat == "cvm-1" else "correct")
    if kind == "onnx":
        return _of_onnx(path, optimize, input_shapes or {}, input_ranges or {}, states or {})
    if input_shapes or input_ranges or states:
        raise Invalid("onnx.options", _ONNX_ONLY, at)
    if kind == "tflite":
        return _of_tflite(path, optimize, "tflite-reference" if compat == "tflite-reference" else "correct")
    return _of_nnef(path, quant, optimize, bit_order, variant)


def _of_cvm_runtime(path: str | PathLike[str], params: str | PathLike[str], compat: Compat) -> Program:
    from cvm.frontends import cvm_runtime

    return cvm_runtime.load(path, params, compat).program


def _of_nnef(
    path: str | PathLike[str],
    quant: str | PathLike[str] | Literal[False] | None,
    optimize: bool,
    bit_order: BitOrder,
    variant: str | None,
) -> Program:
    from cvm.frontends import nnef
    from cvm.frontends.nnef.container import DOCUMENT

    with timed("reading"):
        graph = nnef.load(path, quant, bit_order=bit_order, variant=variant)
    try:
        return _lowered(graph, optimize)
    except CvmError as error:
        file = os.path.join(path, DOCUMENT) if os.path.isdir(path) else os.fspath(path)
        raise error.at(file=file) from None


def _of_onnx(
    path: str | PathLike[str],
    optimize: bool,
    shapes: Mapping[str, Sequence[int]],
    ranges: Mapping[str, tuple[int, int]],
    states: Mapping[str, str],
) -> Program:
    from cvm.frontends import onnx

    try:
        with timed("reading"):
            loaded = onnx.load(path, {name: tuple(shape) for name, shape in shapes.items()}, ranges, states=states)
    except CvmError as error:
        raise _offered(error, path) from None
    try:
        return _lowered(loaded.graph, optimize)
    except CvmError as error:
        raise _offered(loaded.explained(error).at(file=os.fspath(path)), path) from None


def _offered(error: CvmError, path: str | PathLike[str]) -> CvmError:
    """The refusal of a float value, with the command that quantises it."""
    if error.code in ("onnx.float", "tflite.float", "lowering.unquantized"):
        command = f"cvm quantize {shlex.quote(os.fspath(path))} -i DATA -o model.cvm"
        error.message += f"; or let cvm choose the quantisers that are missing, from data: `{command}`"
    return error


def _of_tflite(path: str | PathLike[str], optimize: bool, compat: Literal["correct", "tflite-reference"]) -> Program:
    from cvm.frontends import tflite

    try:
        with timed("reading"):
            loaded = tflite.load(path, compat=compat)
    except CvmError as error:
        raise _offered(error, path) from None
    try:
        return _lowered(loaded.graph, optimize)
    except CvmError as error:
        raise _offered(loaded.explained(error).at(file=os.fspath(path)), path) from None


def _lowered(graph: QuantizedGraph, optimize: bool) -> Program:
    with timed("importing"):
        from cvm.lowering import lower
        from cvm.passes.optimize import optimize as optimized

    with remembering():
        program = lower(graph)
        return optimized(program) if optimize else program


def load(path: str | PathLike[str]) -> Program:
    """The program in a file, decoded and verified. Raises `CvmError` with the file, and OSError."""
    from cvm.program.files import load as load_program

    try:
        return load_program(path)
    except CvmError as error:
        raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None


def quantize(
    path: str | PathLike[str],
    data: Mapping[str, npt.ArrayLike],
    bits: int = 8,
    *,
    weight_bits: int | None = None,
    per_channel: bool = False,
    method: Method = "minmax",
    percentile: float = 99.99,
    form: Form = "linear",
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
) -> Calibration:
    """Quantisers for an NNEF model with float weights, chosen for what it computes from ``data``, in float64.

    ``data`` holds an array for every input of the model, as for `Session.run`. ``bits`` are those of activations and,
    up to 8, of filters, unless ``weight_bits`` says otherwise. ``method`` finds the ranges: "minmax", "percentile" (of
    which ``percentile`` is kept), "mse" or "entropy"; ``form`` is "linear", "zero-point" or "logarithmic" (filters
    only). Quantisation that the model has already is ignored. ``on_run`` is told how many runs are done.

    The result holds the quantisers by tensor, the ``text`` of a graph.quant, and saves the quantised model.
    Raises `CvmError` with the file or the tensor of what is wrong.
    """
    from cvm.calibration import Settings, calibrate
    from cvm.frontends import nnef
    from cvm.frontends.nnef.faults import exhaustion

    kind = model_format(path)
    if kind != "nnef":
        message = "the quantisers of this model are not written to a file: use cvm.quantize_program"
        raise Invalid(f"{kind}.options", message, Location(os.fspath(path)))
    settings = Settings(bits, weight_bits, per_channel, method, percentile, form)
    graph = nnef.load(path)
    with exhaustion(os.fspath(path)):
        return calibrate(graph, data, settings, cycles=cycles, on_run=on_run)


def quantize_program(
    path: str | PathLike[str],
    data: Mapping[str, npt.ArrayLike],
    settings: Settings | None = None,
    *,
    optimize: bool = True,
    cycles: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_ranges: Mapping[str, tuple[int, int]] | None = None,
    states: Mapping[str, str] | None = None,
    on_run: Callable[[int], None] | None = None,
    goal: Goal | None = None,
) -> Quantized:
    """The integer program of a model with float weights, NNEF, ONNX or TFLite, with quantisers chosen for ``data``.

    ``data`` as for `quantize`. A model of ONNX or TFLite may be quantised in part: what it has stays, and quantisers
    are added where the program needs one (docs/calibration.md). ``settings`` (`cvm.calibration.Settings`) are 8 bits,
    and for these a scale per channel of weights, if not given; ``input_shapes`` and ``input_ranges`` are for ONNX, as
    for `compile`, and so are ``states``, with which data have a cycle axis. A ``goal`` (`cvm.quantizing.Goal`) gives
    tensors of models of ONNX and TFLite more bits until the outputs have an SQNR, or the program a size. The result
    holds the ``program`` and the ``calibration``. Raises `CvmError` with the file or the tensor.
    """
    from cvm.calibration import Settings
    from cvm.frontends import nnef, onnx, tflite
    from cvm.frontends.nnef.faults import exhaustion
    from cvm.quantizing import quantize_completed, quantize_nnef

    kind = model_format(path)
    if kind == "onnx":
        shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
        loaded: onnx.Loaded | tflite.Loaded = onnx.load(path, shapes, input_ranges, floats=True, states=states)
        cycles = cycles or bool(states)
    elif input_shapes or input_ranges or states:
        raise Invalid("onnx.options", _ONNX_ONLY, Location(os.fspath(path)))
    elif kind == "tflite":
        loaded = tflite.load(path, floats=True)
    else:
        if goal is not None:
            raise Invalid("calibration.goal", _NO_GOAL, Location(os.fspath(path)))
        graph = nnef.load(path)
        with exhaustion(os.fspath(path)):
            return quantize_nnef(graph, data, settings or Settings(), optimize=optimize, cycles=cycles, on_run=on_run)
    chosen = settings or Settings(per_channel=True)
    return quantize_completed(path, loaded, data, chosen, optimize=optimize, cycles=cycles, on_run=on_run, goal=goal)


_NO_GOAL = "every tensor of a model of NNEF has the bits that the settings say: a goal is for ONNX and TFLite"
_ONNX_ONLY = "input shapes and ranges are for a model of ONNX, and so are states; others state them"


def run_op(
    op: str,
    arrays: Sequence[npt.ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    executor: str = "numpy",
) -> list[npt.NDArray[np.int32]]:
    """The outputs of one op on integer arrays, which count with their true values, like constants.

    Values of any integer dtype are taken that int32 holds, int64 for a parameter (`requantize`). Raises `Invalid`
    where an array, an attribute or a constraint of the op is violated.
    """
    from cvm import ops
    from cvm.executors import create
    from cvm.program.build import ProgramBuilder
    from cvm.program.model import Output
    from cvm.program.verifier import verify

    declaration = ops.get(op)
    items = [_integers(op, index, array) for index, array in enumerate(arrays)]
    kinds = declaration.input_kinds(len(items))
    builder = ProgramBuilder()
    names = [
        builder.constant(array, f"{op}.{index}", kinds[index] if index < len(kinds) else "tensor")
        for index, array in enumerate(items)
    ]
    results = builder.add(op, names, attributes)
    program = builder.build([Output(name, name) for name in results])
    values = create(executor, verify(program)).run({}, {}).values
    return [values[name] for name in results]


def _integers(op: str, index: int, array: npt.ArrayLike) -> npt.NDArray[Any]:
    where = Location(op=op, tensor=f"input {index}")
    try:
        items = np.asarray(array)
    except (ValueError, TypeError, OverflowError) as error:
        raise Invalid("input.type", f"expected an array of integers: {error}", where) from None
    if items.dtype.kind not in "iu":
        raise Invalid("input.type", f"expected an array of integers, found dtype {items.dtype}", where)
    if items.size == 0 or items.ndim == 0:
        found = list(items.shape)
        raise Invalid("input.shape", f"expected at least one dimension and one element, found shape {found}", where)
    if int(items.max()) > np.iinfo(np.int64).max:
        raise Invalid("input.code", f"expected integers of 64 bits, found {int(items.max())}", where)
    return items
