"""Other engines, each as a function that runs a file on samples and gives every tensor that it shows.

They run in a process of their own (`cvm.comparison.worker`): an engine may crash, and settings of the environment, such
as the instruction set that oneDNN uses, are read when it starts. ENGINES names them all; the extra `engines` installs
those that PyPI has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.arrays import npz_bytes, npz_members, read_npz
from cvm.comparison.instruction_sets import limited
from cvm.errors import Invalid, Unsupported
from cvm.frontends.onnx.outputs import operators_behind
from cvm.frontends.onnx.outputs import with_outputs as with_further_outputs
from cvm.frontends.tflite.outputs import with_outputs
from cvm.records import dataclass

__all__ = ["ENGINES", "EXTRA", "Engine", "Request", "Setting", "setting", "variants"]

Array = npt.NDArray[Any]
EXTRA = "engines"


@dataclass(frozen=True, slots=True)
class Setting:
    """An engine and how it is set up."""

    engine: str
    threads: int = 1
    optimization: str = "all"
    """The level of graph optimisation, for engines that have levels: "none", "basic", "extended" or "all"."""
    properties: tuple[tuple[str, str], ...] = ()
    """The engine's own properties, such as ``INFERENCE_PRECISION_HINT`` of OpenVINO."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the environment, such as ``ONEDNN_MAX_CPU_ISA``."""
    command: tuple[str, ...] = ()
    """The words of the command, for the engine ``command``."""
    isa: str = "default"
    """The instruction set that it may use, of `cvm.comparison.instruction_sets`."""

    @property
    def label(self) -> str:
        """The setting as one writes it on the command line."""
        words = [f"threads={self.threads}"] if self.threads != 1 else []
        words += [f"optimization={self.optimization}"] if self.optimization != "all" else []
        words += [f"isa={self.isa}"] if self.isa != "default" else []
        words += [f"{name}={value}" for name, value in (*self.properties, *self.environment)]
        name = " ".join(["command:", *self.command]) if self.command else self.engine
        return f"{name}({', '.join(words)})" if words else name

    @property
    def runner(self) -> Engine:
        """The engine itself."""
        return COMMAND if self.command else ENGINES[self.engine]

    @property
    def package(self) -> str:
        """The package of the engine and its version; "" for a command."""
        return "" if self.command else f"{self.runner.package} {version(self.runner.package)}"

    def process(self, module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of a process of Python that runs a module of cvm with this setting.

        Raises as `limited` does.
        """
        before, environment = limited(self.engine, self.isa)
        words = [*before, sys.executable, "-m", module, *arguments]
        return words, {**os.environ, **environment, **dict(self.environment)}

    def document(self) -> dict[str, Any]:
        """What such a process must know, for JSON."""
        return {
            "engine": self.engine,
            "threads": self.threads,
            "optimization": self.optimization,
            "properties": [list(pair) for pair in self.properties],
            "command": list(self.command),
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> Setting:
        """The setting that `document` gave. It has the default instruction set: the process runs on it already."""
        return Setting(
            document["engine"],
            document["threads"],
            document["optimization"],
            tuple((name, value) for name, value in document["properties"]),
            command=tuple(document["command"]),
        )


LEVELS = ("none", "basic", "extended", "all")


def setting(text: str) -> Setting:
    """The setting that a text says: ``ENGINE``, ``ENGINE:KEY=VALUE,..`` or ``command:WORDS``.

    Keys are ``threads``, ``optimization`` (none, basic, extended, all), ``isa``, ``property.NAME`` for the engine's own
    properties, and names of environment variables. Raises `Invalid` (``compare.engine``).
    """
    name, _, rest = text.partition(":")
    if name == "command":
        import shlex

        if not rest.strip():
            raise Invalid("compare.engine", "command: needs the words of a command after the colon")
        try:
            return Setting("command", command=tuple(shlex.split(rest)))
        except ValueError as error:
            raise Invalid("compare.engine", f"the words of the command cannot be told apart: {error}") from None
    if name not in ENGINES:
        known = ", ".join([*ENGINES, "command:WORDS"])
        raise Invalid("compare.engine", f"there is no engine {name!r}; there are {known}")
    threads, level, isa = 1, "all", "default"
    environment: list[tuple[str, str]] = []
    properties: list[tuple[str, str]] = []
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Invalid("compare.engine", f"after {name}: stand settings like threads=2, found {word!r}")
        if key == "threads":
            if not value.isdigit() or not 1 <= int(value) <= 1024:
                raise Invalid("compare.engine", f"threads is a number from 1 to 1024, found {value!r}")
            threads = int(value)
        elif key == "optimization":
            if value not in LEVELS:
                raise Invalid("compare.engine", f"optimization is one of {', '.join(LEVELS)}, found {value!r}")
            level = value
        elif key == "isa":
            limited(name, value)
            isa = value
        elif key.startswith("property."):
            properties.append((key.removeprefix("property."), value))
        else:
            environment.append((key, value))
    return Setting(name, threads, level, tuple(properties), tuple(environment), isa=isa)


def variants(found: Setting, threads: Sequence[int], isas: Sequence[str]) -> list[Setting]:
    """A setting with each number of threads and each instruction set. An empty sequence leaves what the setting has.

    Commands have neither. Raises `Invalid` (``compare.engine``) for an unknown instruction set, and `Unsupported`
    (``compare.isa``) for one that the engine cannot be limited to.
    """
    if found.command:
        return [found]
    for isa in isas:
        limited(found.engine, isa)
    return [
        replace(found, threads=count, isa=isa) for isa in isas or (found.isa,) for count in threads or (found.threads,)
    ]


@dataclass(frozen=True, slots=True)
class Request:
    """What an engine shall run."""

    model: Path
    names: Sequence[str]
    """The tensors that it shall show."""
    indices: Mapping[str, int]
    """Their numbers, in a file that counts its tensors."""
    inputs: Mapping[str, Array]
    """Samples of each input along a further first axis, in the data type of the file."""
    setting: Setting

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.inputs.values())))


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: the module that it needs, the formats that it reads, and how it runs a file."""

    module: str
    package: str
    formats: tuple[str, ...]
    run: Callable[[Request, bool], dict[str, Array]]
    """Runs the file on all samples. False: as it is, for its outputs; True: so that it shows the tensors asked for."""
    levels: tuple[str, ...] = ("all",)
    """Its levels of graph optimisation, from none to all."""
    graph: Callable[[Request, bool], dict[str, str]] | None = None
    """For engines that write down the graph that they run: its tensors, each with the kind of operator behind it."""


def _onnxruntime_options(setting: Setting) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = setting.threads, 1
    options.log_severity_level = 4
    for name, value in setting.properties:
        options.add_session_config_entry(name, value)
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[setting.optimization]
    return options


def _onnxruntime_graph(request: Request, showing: bool) -> dict[str, str]:
    """The graph that ONNX Runtime makes of the file, as it saves it."""
    import onnxruntime

    model, _ = with_further_outputs(request.model, request.names if showing else [])
    with tempfile.TemporaryDirectory() as folder:
        options = _onnxruntime_options(request.setting)
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return operators_behind(options.optimized_model_filepath)


def _onnxruntime(request: Request, showing: bool) -> dict[str, Array]:
    """ONNX Runtime; to show tensors, on a copy of the model whose quantised tensors are outputs."""
    import onnxruntime

    model, names = with_further_outputs(request.model, request.names if showing else [])
    options = _onnxruntime_options(request.setting)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    runs = [
        session.run(names, {name: array[sample] for name, array in request.inputs.items()})
        for sample in range(request.samples)
    ]
    return {name: np.stack([run[n] for run in runs]) for n, name in enumerate(names)}


_OPENVINO_LEVELS: Mapping[str, dict[str, str]] = MappingProxyType(
    {
        "none": {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": "NO", "SNIPPETS_MODE": "DISABLE"},
        "basic": {"INFERENCE_PRECISION_HINT": "f32"},
    }
)
"""Properties: no integer operators at all (none), integer operators and float32 (basic), bfloat16 as well (all)."""


def _openvino(request: Request, showing: bool) -> dict[str, Array]:
    """OpenVINO; to show tensors, on a model with results for those that its reader keeps."""
    from cvm.comparison import openvino

    settings = {"INFERENCE_NUM_THREADS": request.setting.threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    settings |= _OPENVINO_LEVELS.get(request.setting.optimization, {}) | dict(request.setting.properties)
    names, indices = (request.names, request.indices) if showing else ([], {})
    return openvino.run(request.model, names, indices, request.inputs, settings)


def _interpreter(request: Request, showing: bool, reference: bool) -> dict[str, Array]:
    """LiteRT; to show tensors, on a copy of the file whose quantised tensors are outputs, which its delegate keeps."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    content = request.model.read_bytes()
    shown = dict(request.indices) if showing else {}
    bare = request.setting.optimization == "none"
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if bare else OpResolverType.AUTO
    resolver = OpResolverType.BUILTIN_REF if reference else resolver

    def opened(content: bytes) -> Any:
        return Interpreter(
            model_content=content, num_threads=request.setting.threads, experimental_op_resolver_type=resolver
        )

    shown |= {item["name"]: item["index"] for item in opened(content).get_output_details()}
    interpreter = opened(with_outputs(content, list(shown.values())) if showing else content)
    interpreter.allocate_tensors()
    numbers = {item["name"]: item["index"] for item in interpreter.get_input_details()}
    found: dict[str, list[Array]] = {name: [] for name in shown}
    for sample in range(request.samples):
        for name, array in request.inputs.items():
            interpreter.set_tensor(numbers[name], array[sample])
        interpreter.invoke()
        for name, made in found.items():
            made.append(interpreter.get_tensor(shown[name]).copy())
    return {name: np.stack(made) for name, made in found.items()}


def _command(request: Request, showing: bool) -> dict[str, Array]:
    """A command that is given a model, a file of inputs and the name of the file that it shall write.

    It cannot be asked for fewer tensors, so what it shows is taken as what it computes.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        inputs.write_bytes(npz_bytes(dict(request.inputs)))
        done = subprocess.run(
            [*request.setting.command, str(request.model), str(inputs), str(outputs)], stdin=subprocess.DEVNULL
        )
        if done.returncode or not outputs.exists():
            message = f"the command ended with {done.returncode}" + (
                "" if outputs.exists() else " and wrote no outputs"
            )
            raise Unsupported("compare.failed", message)
        members = [name for name in npz_members(outputs) if showing or name not in request.names]
        return {name: read_npz(outputs, name) for name in members}


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "onnxruntime": Engine("onnxruntime", "onnxruntime", ("onnx",), _onnxruntime, LEVELS, _onnxruntime_graph),
        "openvino": Engine("openvino", "openvino", ("onnx", "tflite"), _openvino, ("none", "basic", "all")),
        "litert": Engine(
            "ai_edge_litert", "ai-edge-litert", ("tflite",), partial(_interpreter, reference=False), ("none", "all")
        ),
        "tflite-reference": Engine(
            "ai_edge_litert", "ai-edge-litert", ("tflite",), partial(_interpreter, reference=True)
        ),
    }
)
"""The engines by name, besides ``command``."""

COMMAND = Engine("numpy", "numpy", ("onnx", "tflite"), _command)
