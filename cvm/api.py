"""The functions of the public surface: compile a model, load a program, run one op."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.arguments import checked_arrays, checked_path, expected
from cvm.compiling import program_of
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed, model_format, refuse_folder
from cvm.inputs import check_codes
from cvm.program import Program
from cvm.timing import timed

if TYPE_CHECKING:
    from cvm.audit import Judging, Receipt, Verdict
    from cvm.audit.verdict import Level
    from cvm.calibration import Calibration, Form, Settings
    from cvm.frontends.cvm_runtime import Compat
    from cvm.frontends.nnef import BitOrder
    from cvm.graph import QuantizedGraph
    from cvm.quantization.calibration import Method
    from cvm.quantizing import Goal, Loaded, Quantized

__all__ = ["compile", "load", "quantize", "quantize_program", "run_op", "verify"]


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
    outputs: Sequence[str] = (),
    op_set: Literal[1, 2] = 1,
) -> Program:
    """The integer program of a model of NNEF (a folder, an archive, a document), ONNX, TFLite or cvm-runtime.

    ``quant`` is a file of quantisation information to use instead of the model's own graph.quant; False: none.
    ``optimize`` changes no code of any output, state or tensor of the document (docs/optimize.md); without it, the
    program is the one that the lowering rules give. ``bit_order`` says where the items of a tensor file begin within a
    byte if they are no whole bytes: at the least significant bit ("lsb") or the most significant ("msb"). ``variant``
    selects tensor files with a further extension, as in ``filter.dat.q8``, for variables that have such a file.

    With ``params``, the ``.params`` file that belongs to it, ``path`` is a model of cvm-runtime. Such a model is an
    integer program already, and is not changed; ``compat`` says whether its ops mean what they should ("correct") or
    what that library computes ("cvm-1"). For a model of TFLite, "tflite-reference" computes the integers of TFLite's
    reference kernels instead of the exact meaning (docs/tflite.md).

    ``input_shapes`` give the shapes of inputs whose extents a model of ONNX leaves open; an open first extent is 1
    without it. ``input_ranges`` promise that integer inputs of such a model stay within (lo, hi); every run checks it.
    ``states`` maps inputs of such a model to outputs: the program keeps each of these inputs as state, and its output
    is the next state. ``outputs`` names the outputs of the program, by default all. ``op_set`` is the latest version of
    the op-set whose ops it may use: transformers take far fewer ops with 2. Exact codes stay the same, those of a
    softmax come nearer; op-set 1 keeps its digests. Raises `CvmError` with the file, line and column of the error.
    """
    at = Location(checked_path(path, "a model"))
    kind = "cvm_runtime" if params is not None else model_format(path)
    if kind != "tflite" and compat == "tflite-reference":
        raise Invalid(f"{kind}.options", "compat tflite-reference is for a model of TFLite", at)
    _check_nnef_only(quant is not None or variant is not None, kind, at)
    _check_op_set(op_set, kind, at)
    if params is not None:
        return _of_cvm_runtime(path, params, "cvm-1" if compat == "cvm-1" else "correct")
    if kind == "onnx":
        return _of_onnx(path, optimize, op_set, input_shapes or {}, input_ranges or {}, states or {}, outputs)
    if input_shapes or input_ranges or states or outputs:
        raise Invalid("onnx.options", _ONNX_ONLY, at)
    if kind == "tflite":
        return _of_tflite(path, optimize, op_set, "tflite-reference" if compat == "tflite-reference" else "correct")
    return _of_nnef(path, quant, optimize, op_set, bit_order, variant)


def _check_nnef_only(given: bool, kind: str, at: Location) -> None:
    """Require that options for NNEF models are given for such models alone. Raises `Invalid`."""
    if given and kind != "nnef":
        raise Invalid(f"{kind}.options", "quant and variant are for an NNEF model", at)


def _check_op_set(op_set: int, kind: str, at: Location) -> None:
    """Require op-set 1 or 2, and a model that is lowered. Raises `Invalid`."""
    if op_set not in (1, 2):
        raise Invalid("lowering.op_set", f"expected op-set 1 or 2, found {op_set!r}", at)
    if kind == "cvm_runtime" and op_set != 1:
        raise Invalid("cvm_runtime.options", "a model of cvm-runtime has the ops that it has: op_set is for others", at)


def _of_cvm_runtime(path: str | PathLike[str], params: str | PathLike[str], compat: Compat) -> Program:
    from cvm.frontends import cvm_runtime

    return cvm_runtime.load(path, params, compat).program


def _of_nnef(
    path: str | PathLike[str],
    quant: str | PathLike[str] | Literal[False] | None,
    optimize: bool,
    op_set: int,
    bit_order: BitOrder,
    variant: str | None,
) -> Program:
    from cvm.frontends import nnef
    from cvm.frontends.nnef.container import DOCUMENT

    if quant is not None and quant is not False:
        checked_path(quant, "a quantisation file (graph.quant), or None or False")
    with timed("reading"):
        graph = nnef.load(path, quant, bit_order=bit_order, variant=variant)
    try:
        return program_of(graph, optimize, op_set)
    except CvmError as error:
        file = os.path.join(path, DOCUMENT) if os.path.isdir(path) else os.fspath(path)
        raise error.at(file=file) from None


def _of_onnx(
    path: str | PathLike[str],
    optimize: bool,
    op_set: int,
    shapes: Mapping[str, Sequence[int]],
    ranges: Mapping[str, tuple[int, int]],
    states: Mapping[str, str],
    outputs: Sequence[str],
) -> Program:
    from cvm.frontends import onnx

    extents = {name: tuple(shape) for name, shape in shapes.items()}
    return _of_loaded(path, lambda: onnx.load(path, extents, ranges, states=states, outputs=outputs), optimize, op_set)


def _of_tflite(
    path: str | PathLike[str], optimize: bool, op_set: int, compat: Literal["correct", "tflite-reference"]
) -> Program:
    from cvm.frontends import tflite

    return _of_loaded(path, lambda: tflite.load(path, compat=compat), optimize, op_set)


def _of_loaded(path: str | PathLike[str], load: Callable[[], Loaded], optimize: bool, op_set: int) -> Program:
    """The program of a model that ``load`` reads. Refusals are in the terms of its file."""
    try:
        with timed("reading"):
            loaded = load()
    except CvmError as error:
        raise _offered(error, path) from None
    try:
        return program_of(loaded.graph, optimize, op_set)
    except CvmError as error:
        raise _offered(loaded.explained(error).at(file=os.fspath(path)), path) from None


_COMMAND = "`cvm quantize MODEL.onnx -i DATA -o model.cvm`"
"""The command in refusals of the ONNX reader, which does not know the name of the file."""


def _offered(error: CvmError, path: str | PathLike[str]) -> CvmError:
    """The refusal of a float value, with the command that would quantise it."""
    if error.code in ("onnx.float", "tflite.float", "lowering.unquantized"):
        command = f"cvm quantize {shlex.quote(os.fspath(path))} -i DATA -o model.cvm"
        if _COMMAND in error.message:
            error.message = error.message.replace(_COMMAND, f"`{command}`")
            return error
        error.message += f"; or let cvm choose the quantisers that are missing, from data: `{command}`"
    return error


def load(path: str | PathLike[str], expect_digest: str | None = None) -> Program:
    """The program in a file, decoded and verified.

    Raises `CvmError` with the file, `Mismatch` (``program.digest``) for a program of another digest than
    ``expect_digest``, and OSError.
    """
    from cvm.program.files import load as load_program
    from cvm.program.files import require_digest

    refuse_folder(checked_path(path, "a program"), "a program of cvm (.cvm)")
    try:
        program = load_program(path)
    except CvmError as error:
        raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None
    require_digest(program, expect_digest, os.fspath(path))
    return program


def verify(
    receipt: Receipt | str | PathLike[str],
    program: Program | str | PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    outputs: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    cycles: bool = False,
    codes: bool = False,
    level: Level | None = None,
    executor: str | None = None,
    signers: str | Sequence[str] = (),
    judging: Judging | None = None,
) -> Verdict:
    """Recompute the claim of a receipt; the answer is REPRODUCED, DIVERGED or CANNOT_RECOMPUTE (docs/receipts.md).

    ``receipt`` and ``program`` may be paths. ``inputs``, ``cycles`` and ``codes`` are those of `Session.run`; without
    inputs only the structure is compared. ``outputs`` must be those of the receipt, codes or real numbers;
    ``state`` is the state before the first run, if not the initial one. ``level`` says how far to go: "structure",
    "roots", "outputs", "trace", "formal" (None: as far as the receipt claims anything). ``signers`` are keys, or
    one, that must have signed the claim, in hexadecimal or PEM. ``judging`` (`cvm.audit.Judging`) says how much FORMAL
    judges of the executor. Raises `CvmError` for files that cannot be read, and for arrays that no run can have.
    """
    from cvm import audit
    from cvm.audit.signatures import public_key
    from cvm.program import verifier

    claimed = receipt if isinstance(receipt, audit.Receipt) else audit.Receipt.load(receipt)
    made = program if isinstance(program, Program) else load(program)
    if inputs is not None:
        checked_arrays(inputs, [item.value.name for item in made.inputs])
    if level is not None and level not in audit.LEVELS:
        raise expected("level", f"one of {', '.join(audit.LEVELS)}", level)
    return audit.verify(
        claimed,
        verifier.verify(made),
        {} if inputs is None and not made.inputs else inputs,
        outputs=outputs,
        state=state,
        cycles=cycles,
        codes=codes,
        level=level,
        executor=executor,
        signers=[public_key(key) for key in ([signers] if isinstance(signers, str) else signers)],
        judging=judging,
    )


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
    codes: bool = False,
    on_run: Callable[[int], None] | None = None,
) -> Calibration:
    """Quantisers for an NNEF model with float weights, for the numbers that it computes from ``data`` in float64.

    ``data`` holds an array for every input of the model, as for `Session.run`. ``bits`` are those of activations and,
    up to 8, of filters, unless ``weight_bits`` says otherwise. ``method`` finds the ranges: "minmax", "percentile"
    (which keeps ``percentile`` percent), "mse" or "entropy"; ``form`` is "linear", "zero-point" or "logarithmic"
    (filters only). The quantisation of the model is ignored, with one exception: if ``codes`` is set, integers for an
    input with a quantiser are its codes. ``on_run`` receives the number of finished runs.

    The result holds the quantisers by tensor, the ``text`` of a graph.quant, and saves the quantised model.
    Raises `CvmError` with the file or the tensor of the error.
    """
    from cvm.calibration import Settings, calibrate
    from cvm.frontends import nnef
    from cvm.frontends.nnef.faults import exhaustion

    kind = model_format(checked_path(path, "a model"))
    if kind != "nnef":
        message = "the quantisers of this model are not written to a file: use cvm.quantize_program"
        raise Invalid(f"{kind}.options", message, Location(os.fspath(path)))
    settings = Settings(bits, weight_bits, per_channel, method, percentile, form)
    graph = nnef.load(path)
    _check_codes(graph, data, codes)
    with exhaustion(os.fspath(path)):
        return calibrate(graph, data, settings, cycles=cycles, on_run=on_run)


def quantize_program(
    path: str | PathLike[str],
    data: Mapping[str, npt.ArrayLike],
    settings: Settings | None = None,
    *,
    optimize: bool = True,
    op_set: Literal[1, 2] = 1,
    cycles: bool = False,
    codes: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_ranges: Mapping[str, tuple[int, int]] | None = None,
    states: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
    on_run: Callable[[int], None] | None = None,
    goal: Goal | None = None,
) -> Quantized:
    """The integer program of a model with float weights, NNEF, ONNX or TFLite, with quantisers chosen for ``data``.

    ``data`` and ``codes`` are as for `quantize`. A model of ONNX or TFLite may be quantised in part: its quantisers are
    kept, and others are added where the program needs them (docs/calibration.md). ``settings``
    (`cvm.calibration.Settings`) are 8 bits by default, `Settings.measured` for ONNX and TFLite. ``op_set`` is that of
    `compile`; ``input_shapes``, ``input_ranges``, ``outputs`` and ``states``, with which data have a cycle axis, are
    for ONNX, as there. A ``goal`` (`cvm.quantizing.Goal`) gives tensors more bits until the outputs have an SQNR, or
    the program a size. The result holds the ``program`` and the ``calibration``. Raises `CvmError` with the place.
    """
    from cvm.calibration import Settings
    from cvm.frontends import nnef, onnx, tflite
    from cvm.frontends.nnef.faults import exhaustion
    from cvm.quantizing import quantize_completed, quantize_nnef

    kind = model_format(checked_path(path, "a model"))
    _check_op_set(op_set, kind, Location(os.fspath(path)))
    how: dict[str, Any] = {"optimize": optimize, "op_set": op_set, "on_run": on_run, "goal": goal}
    if kind == "onnx":
        shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
        loaded: onnx.Loaded | tflite.Loaded = onnx.load(
            path, shapes, input_ranges, floats=True, states=states, outputs=outputs
        )
        cycles = cycles or bool(states)
    elif input_shapes or input_ranges or states or outputs:
        raise Invalid("onnx.options", _ONNX_ONLY, Location(os.fspath(path)))
    elif kind == "tflite":
        loaded = tflite.load(path, floats=True)
    else:
        graph = nnef.load(path)
        _check_codes(graph, data, codes)
        with exhaustion(os.fspath(path)):
            return quantize_nnef(graph, data, settings or Settings(), cycles=cycles, **how)
    _check_codes(loaded.graph, data, codes)
    return quantize_completed(path, loaded, data, settings or Settings.measured(), cycles=cycles, **how)


def _check_codes(graph: QuantizedGraph, data: Mapping[str, npt.ArrayLike], codes: bool) -> None:
    """Refuse integers for inputs with a quantiser unless they are declared to be codes, as `Session.run` does."""
    checked_arrays(data, list(graph.inputs))
    for name in graph.inputs:
        if name in data and not codes:
            check_codes(name, graph.tensors[name].quantizer, np.asarray(data[name]))


_ONNX_ONLY = "input shapes and ranges, states and chosen outputs are for a model of ONNX; others state them"


def run_op(
    op: str,
    arrays: Sequence[npt.ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    executor: str = "numpy",
) -> list[npt.NDArray[np.int32]]:
    """The outputs of one op on integer arrays, which count with their true values, like constants.

    The arrays may have any integer dtype; int32 must hold their values, or int64 those of a parameter (`requantize`).
    Raises `Invalid` if an array, an attribute or a constraint of the op is violated.
    """
    from cvm import ops
    from cvm.executors import create
    from cvm.program.build import ProgramBuilder
    from cvm.program.model import Output
    from cvm.program.verifier import verify

    if not isinstance(op, str):
        raise expected("op", "the name of an op, as `cvm ops` lists them", op)
    if not isinstance(arrays, list | tuple):
        raise expected("arrays", "a list of arrays, one for each input of the op", arrays)
    if attributes is not None and not isinstance(attributes, Mapping):
        raise expected("attributes", "attributes by name, such as {'axis': 1}", attributes)
    if op not in ops.REGISTRY:
        from cvm.ops.catalogue import meant

        raise Invalid("ops.unknown", f"there is no op {op!r}{meant(op, ops.REGISTRY)}; `cvm ops` lists all")
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
