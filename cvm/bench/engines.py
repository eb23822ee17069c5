"""The engines that can be timed: executors on program files, and other engines on model files.

An engine opens a file for a number of threads and a batch, and gives calls that run it on random inputs. ``run`` passes
arrays in and takes arrays out, as a user does. ``bound`` runs on memory that was bound before, without the time that
Python adds. Other engines take inputs whose extents are fixed except for the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Location, Unsupported
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.model import Input

__all__ = ["ENGINES", "EXTRA", "Engine", "Opened", "random_inputs"]

Array = npt.NDArray[Any]

EXTRA = "bench"
"""The extra of this package that installs the other engines."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A model ready to run."""

    run: Callable[[], object]
    bound: Callable[[], object] | None = None
    outputs: Callable[[], Mapping[str, Array]] | None = None
    """The outputs of one run as int32 codes, by name, for engines that must agree."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts about the engine, for documents."""
    later: Callable[[], Opened] | None = None
    """Gives what is to be timed after the first run, if that is something else; it may take long."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: the modules to import before its memory counts, the files that it reads, and how it opens one."""

    name: str
    modules: tuple[str, ...]
    suffixes: tuple[str, ...]
    open: Callable[[Path, int, int], Opened]
    keeps_code: bool = False
    """Whether it keeps compiled code on disk, so that a second start differs from the first."""

    @property
    def foreign(self) -> bool:
        """Whether this is another engine, not an executor of cvm."""
        return ".cvm" not in self.suffixes


def random_inputs(declared: Sequence[Input], batch: int) -> dict[str, Array]:
    """Codes within the declared intervals, by the name of the input, from a fixed seed; stacked if batch > 1."""
    random = np.random.default_rng(0)
    made = {}
    for item in declared:
        value = item.value
        shape = value.shape
        if batch > 1:
            shape = (batch, *(shape[1:] if shape[0] == 1 else shape))
        made[value.name] = random.integers(value.lo, value.hi, shape, np.int32, endpoint=True)
    return made


def _executor(name: str) -> Callable[[Path, int, int], Opened]:
    """Opens sessions of an executor as their users do. So the first run of the native one may be NumPy's."""

    def opened(path: Path, threads: int, batch: int) -> Opened:
        from cvm.session import Session

        session = Session(path, None if name == "native" else name, threads)
        inputs = random_inputs(session.declared, batch)

        def later() -> Opened:
            session.explain()  # waits for machine code
            timed = session if session.executor == name else Session(path, name, threads)  # may say why there is none
            bound = None
            if name == "native" and batch == 1 and not timed.state:
                bound = _bound_native(timed, inputs)
            return Opened(
                lambda: timed.run(inputs, codes=True),
                bound,
                lambda: dict(timed.run(inputs, codes=True)),
                {"digest": timed.digest},
            )

        return Opened(lambda: session.run(inputs, codes=True), later=later)

    return opened


def _bound_native(session: Any, inputs: Mapping[str, Array]) -> Callable[[], object]:
    """A call on arrays that stay in place."""
    bound = session.bind()
    for name, array in bound.inputs.items():
        array[...] = inputs[name]
    run: Callable[[], object] = bound.run
    return run


def _onnxruntime(path: Path, threads: int, batch: int) -> Opened:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {
        item.name: _random(_shape(item.name, item.shape, batch), _ONNX_TYPES.get(item.type))
        for item in session.get_inputs()
    }
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for item in session.get_outputs():
        binding.bind_output(item.name)
    return Opened(
        lambda: session.run(None, inputs),
        lambda: session.run_with_iobinding(binding),
        facts={"package": f"onnxruntime {onnxruntime.__version__}"},
    )


_ONNX_TYPES = {
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(float)": np.float32,
}


def _openvino(path: Path, threads: int, batch: int) -> Opened:
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    shapes = {
        number: _shape(item.any_name, [n.get_length() if n.is_static else None for n in extents], batch, True)
        for number, item in enumerate(model.inputs)
        for extents in [item.partial_shape]
    }
    model.reshape({number: list(shape) for number, shape in shapes.items()})
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    inputs = {
        number: _random(shapes[number], item.element_type.to_dtype().type) for number, item in enumerate(model.inputs)
    }
    request.infer(inputs)
    return Opened(
        lambda: request.infer(inputs),
        lambda: request.infer(),
        facts={"package": f"openvino {openvino.__version__}"},
    )


def _litert(path: Path, threads: int, batch: int) -> Opened:
    from importlib.metadata import version

    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    for item in interpreter.get_input_details():
        shape = _shape(item["name"], item["shape"].tolist(), batch, True)
        if shape != tuple(item["shape"].tolist()):
            interpreter.resize_tensor_input(item["index"], shape)
    interpreter.allocate_tensors()
    inputs = {item["index"]: _random(tuple(item["shape"]), item["dtype"]) for item in interpreter.get_input_details()}
    results = [item["index"] for item in interpreter.get_output_details()]

    def run() -> list[Array]:
        for index, array in inputs.items():
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    run()
    return Opened(run, interpreter.invoke, facts={"package": f"ai-edge-litert {version('ai-edge-litert')}"})


def _shape(name: str, shape: Sequence[Any], batch: int, resizes: bool = False) -> tuple[int, ...]:
    """The extents of an input with the batch filled in. Raises `Unsupported` if that is impossible."""
    where = Location(tensor=name)
    if not shape:
        return ()
    first, *others = shape
    if not all(isinstance(extent, int) and extent > 0 for extent in others):
        raise Unsupported("bench.extents", f"the extents {list(shape)} are not fixed", where)
    fixed = isinstance(first, int) and first > 0
    if fixed and first != batch and not (resizes and first == 1):
        raise Unsupported("bench.batch", f"the model is made for a batch of {first}, not {batch}", where)
    return (batch, *others)


def _random(shape: tuple[int, ...], dtype: Any) -> Array:
    """Items of an input of another engine, from a fixed seed: any codes, real numbers in [0, 1), and 0 for indices."""
    random = np.random.default_rng(0)
    if dtype in (np.uint8, np.int8, np.int16):
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype is np.float32:
        return random.random(shape, np.float32)
    if dtype in (np.int32, np.int64):
        return np.zeros(shape, dtype)
    raise Unsupported("bench.type", f"no inputs can be made up of the type {dtype}")


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine("native", ("cvm.session", "cvm.executors.native"), (".cvm",), _executor("native"), True),
            Engine("numpy", ("cvm.session", "cvm.executors.numpy"), (".cvm",), _executor("numpy")),
            Engine("cuda", ("cvm.session", "cvm.executors.cuda.executor"), (".cvm",), _executor("cuda"), True),
            Engine("formal", ("cvm.session", "cvm.executors.formal"), (".cvm",), _executor("formal")),
            Engine("onnxruntime", ("onnxruntime",), (".onnx",), _onnxruntime),
            Engine("openvino", ("openvino",), (".onnx", ".tflite"), _openvino),
            Engine("litert", ("ai_edge_litert.interpreter",), (".tflite",), _litert),
        )
    }
)
"""All engines by name: the executors first."""
