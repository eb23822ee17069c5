"""Sizes and speed of exported C beside TensorFlow Lite for Microcontrollers (TFLM), same networks, compiler and flags.

    python -m tools.firmware.beside_tflm --sources DIR -o BUILD sizes NETWORK.tflite...
    python -m tools.firmware.beside_tflm --sources DIR -o BUILD speed NETWORK.tflite... [--dot] [--options=-O3]

DIR has checkouts of four repositories: tflite-micro, flatbuffers (the release that its schema names), gemmlowp, ruy.
TFLM is built with its reference kernels, the flags of its own makefile for a release without error strings, and an op
resolver with only the ops of the network. ``sizes`` are of firmware for a Cortex-M4 (arm-none-eabi-gcc -Os, soft
floats): flash is what the linked file has beyond one whose main is empty; RAM of TFLM is what its arena uses, asked of
the interpreter under QEMU, and of C its arena, inputs and outputs, since TFLM's arena holds them too. ``speed`` is
processor time on this machine: TFLM, C, and the native executor with one thread, in one run. Exit status: 0 C is within
TFLM's arena and 1.1 times its flash, or is at least as fast; 1 it is not; 2 something is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cvm.cli.models import open_program
from cvm.executors import create
from cvm.export.c import exported
from cvm.frontends.tflite.reading import read_model
from cvm.limits import DEFAULT
from cvm.program.verifier import VerifiedProgram
from tools.c_targets import FIRMWARE, TARGETS

__all__ = ["main"]

OPS = {
    "FULLY_CONNECTED": "resolver.AddFullyConnected()",
    "CONV_2D": "resolver.AddConv2D()",
    "DEPTHWISE_CONV_2D": "resolver.AddDepthwiseConv2D()",
    "AVERAGE_POOL_2D": "resolver.AddAveragePool2D()",
    "MAX_POOL_2D": "resolver.AddMaxPool2D()",
    "RESHAPE": "resolver.AddReshape()",
    "SOFTMAX": "resolver.AddSoftmax()",
}
"""The ops that the driver can register, by TFLite's names."""
KERNELS = ("conv", "depthwise_conv", "fully_connected", "softmax", "reshape", "pooling")
LIBRARY = (
    "micro/*.cc", "micro/arena_allocator/*.cc", "micro/memory_planner/*.cc", "micro/tflite_bridge/*.cc",
    "core/api/*.cc", "core/c/common.cc", "kernels/kernel_util.cc", "kernels/internal/*.cc",
    "kernels/internal/reference/*.cc", "../compiler/mlir/lite/schema/schema_utils.cc",
    "../compiler/mlir/lite/core/api/error_reporter.cc",
    "micro/kernels/kernel_util.cc", "micro/kernels/micro_tensor_utils.cc",
    *(f"micro/kernels/{name}{end}.cc" for name in KERNELS for end in ("", "_common")),
)  # fmt: skip
NOT_IN_FIRMWARE = ("_test", "benchmark", "test_helper", "fake_", "mock_", "recording", "hexdump")
CXX = (
    "-std=c++17", "-fno-rtti", "-fno-exceptions", "-fno-threadsafe-statics", "-fno-unwind-tables",
    "-ffunction-sections", "-fdata-sections", "-fmessage-length=0", "-DTF_LITE_STATIC_MEMORY", "-DNDEBUG",
    "-DTF_LITE_STRIP_ERROR_STRINGS", "-w",
)  # fmt: skip
M4 = ("-Os", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")
LINK = ("-T", str(FIRMWARE / "cortex_m.ld"), "-nostartfiles", "-Wl,--gc-sections", "--specs=nano.specs")
START = ("-x", "c", str(FIRMWARE / "startup.c"), "-x", "none")
ARENA = 2**18


def _called(command: Sequence[str], given: bytes = b"") -> str:
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.decode(errors='replace')[:3000]}"
        )
    return done.stdout.decode()


@dataclass(frozen=True, slots=True)
class Tflm:
    """TFLM built for one machine."""

    sources: Path
    folder: Path
    compiler: str
    flags: tuple[str, ...]

    def compile(self, source: Path, target: Path, *more: str) -> None:
        """Compile one file, if it was not before."""
        if not target.exists():
            include = [
                f"-I{self.sources / name}" for name in ("tflite-micro", "flatbuffers/include", "gemmlowp", "ruy")
            ]
            _called([self.compiler, *CXX, *self.flags, *include, *more, "-c", str(source), "-o", str(target)])

    def library(self) -> list[str]:
        """The object files of the interpreter and of the kernels of `OPS`."""
        root = self.sources.resolve() / "tflite-micro" / "tensorflow" / "lite"
        self.folder.mkdir(parents=True, exist_ok=True)
        found = []
        for source in sorted(path.resolve() for pattern in LIBRARY for path in root.glob(pattern)):
            if not any(word in source.name for word in NOT_IN_FIRMWARE):
                target = self.folder / f"{'_'.join(source.parts[len(root.parts) - 1 :])}.o"
                self.compile(source, target)
                found.append(str(target))
        return found

    def network(self, path: Path, kind: str) -> list[str]:
        """The object files of the driver and of a network; ``kind`` is SIZE for one run and nothing else."""
        model, driver = self.folder / f"{_name(path)}_data", self.folder / f"{_name(path)}_{kind}.o"
        numbers = ",".join(map(str, path.read_bytes()))
        text = "extern const unsigned char model_data[];\nalignas(16) const unsigned char model_data[] = {"
        model.with_suffix(".cc").write_text(f"{text}{numbers}}};\n")
        self.compile(model.with_suffix(".cc"), model.with_suffix(".o"))
        registered = ";".join(OPS[name] for name in _ops(path))
        self.compile(FIRMWARE / "tflm_main.cc", driver, f"-D{kind}", f"-DARENA={ARENA}", f"-DOPS={registered}")
        return [str(driver), str(model.with_suffix(".o"))]


def _name(path: Path) -> str:
    """A network's name: that of its file, or of its folder if the file is called original."""
    return path.parent.name if path.stem == "original" else path.stem


def _ops(path: Path) -> list[str]:
    """The names of the ops of a TFLite file, each once. Raises RuntimeError for one that the driver cannot register."""
    model = read_model(path.read_bytes(), DEFAULT)
    names = sorted({operator.op for operator in model.subgraphs[0].operators})
    if unknown := [name for name in names if name not in OPS]:
        raise RuntimeError(f"{path}: the driver cannot register {', '.join(unknown)}")
    return names


_SIZE_MAIN = """#include "model.h"
static model_arena arena;
{arrays}
int main(void)
{{
    const model_inputs in = {{{inputs}}};
    const model_outputs out = {{{outputs}}};
    return model_run(&arena, &in, &out);
}}
"""
_SPEED_MAIN = """#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"
static model_arena arena;
{arrays}
int main(int argc, char **argv)
{{
    const model_inputs in = {{{inputs}}};
    const model_outputs out = {{{outputs}}};
    const int runs = argc > 1 ? atoi(argv[1]) : 1;
    if (fread(x0, 1, sizeof x0, stdin) != sizeof x0 || model_run(&arena, &in, &out) != 0) {{
        return 1;
    }}
    const clock_t begin = clock();
    for (int run = 0; run < runs; run++) {{
        model_run(&arena, &in, &out);
    }}
    printf("microseconds %.3f\\n", 1e6 * (double)(clock() - begin) / CLOCKS_PER_SEC / runs);
    return 0;
}}
"""


def _written(verified: VerifiedProgram, folder: Path, main: str, dots: bool = False) -> int:
    """Write the exported network with a main function; returns the bytes of its arena, inputs and outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    made = exported(verified, "model", dots=dots)
    for name, data in made.files.items():
        (folder / name).write_bytes(data)
    program = verified.program
    counts = [("x", item.value.shape) for item in program.inputs]
    counts += [("y", verified.shapes[item.value]) for item in program.outputs]
    names = [f"x{number}" for number in range(len(program.inputs))]
    given = [f"y{number}" for number in range(len(program.outputs))]
    sizes = [int(np.prod(shape)) for _, shape in counts]
    arrays = "\n".join(f"static int8_t {name}[{size}];" for name, size in zip(names + given, sizes, strict=True))
    text = main.format(arrays=arrays, inputs=", ".join(names), outputs=", ".join(given))
    (folder / "main.c").write_text(text)
    return made.arena_bytes + sum(sizes)


def _flash(compiler: str, files: Sequence[str], binary: Path, *more: str) -> int:
    """The bytes of flash of a linked file: code, constants, and what data begin with."""
    _called([compiler, *M4, *LINK, *more, *files, "-o", str(binary)])
    text, data = _called(["arm-none-eabi-size", str(binary)]).splitlines()[1].split()[:2]
    return int(text) + int(data)


def _sizes(options: argparse.Namespace) -> int:
    board = TARGETS["cortex_m4"]
    tflm = Tflm(options.sources, options.output / "m4", "arm-none-eabi-g++", M4)
    library = tflm.library()
    empty = options.output / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    nothing = _flash("arm-none-eabi-gcc", [*START, str(empty)], options.output / "empty.elf", "--specs=nosys.specs")
    worse = 0
    for path in options.networks:
        firmware = [*START, *tflm.network(path, "SIZE"), *library]
        flash = _flash("arm-none-eabi-g++", firmware, options.output / "tflm.elf", "--specs=nosys.specs") - nothing
        asked = options.output / "asked.elf"
        files = [*tflm.network(path, "TIME"), *library]
        _called(["arm-none-eabi-g++", *board.linked([*M4], files, asked)[1:]])
        verified = open_program(path)
        given = bytes(int(np.prod(verified.program.inputs[0].value.shape)))
        arena = int(_called(board.run(asked), given).split()[1])
        folder = options.output / _name(path)
        ram = _written(verified, folder, _SIZE_MAIN)
        mine = [*START, str(folder / "model.c"), str(folder / "main.c")]
        flags = ("-std=c99", "-ffunction-sections", "-fdata-sections", "--specs=nosys.specs")
        ours = _flash("arm-none-eabi-gcc", mine, options.output / "c.elf", *flags) - nothing
        worse += ram > arena or ours > 1.1 * flash
        print(f"{_name(path)}: flash TFLM {flash}, C {ours} ({ours / flash:.2f}); "
              f"RAM TFLM {arena}, C {ram} ({ram / arena:.2f})", flush=True)  # fmt: skip
    return int(worse > 0)


def _speed(options: argparse.Namespace) -> int:
    flags = tuple(options.options.split())
    tflm = Tflm(options.sources, options.output / ("x86" + "".join(flags)), "g++", flags)
    library = tflm.library()
    slower = 0
    for path in options.networks:
        verified = open_program(path)
        shape = verified.program.inputs[0].value.shape
        codes = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
        binary = tflm.folder / f"{_name(path)}_tflm"
        _called(["g++", *tflm.network(path, "TIME"), *library, "-o", str(binary)])
        folder = options.output / _name(path)
        _written(verified, folder, _SPEED_MAIN, options.dot)
        ours = folder / "timed"
        _called(["gcc", "-std=c99", *flags, str(folder / "model.c"), str(folder / "main.c"), "-o", str(ours)])
        times: list[tuple[float, ...]] = []
        for _ in range(options.repeats):
            each = [
                float(_called([str(file), str(options.runs)], codes.tobytes()).split()[-1]) for file in (binary, ours)
            ]
            times.append((*each, _native(verified, codes, options.runs)))
        reference, c, native = (min(column) for column in zip(*times, strict=True))
        slower += c > reference
        print(f"{_name(path)}: microseconds TFLM {reference:.1f}, C {c:.1f} ({reference / c:.2f} times as fast), "
              f"native {native:.1f} ({c / native:.2f} times that); {' '.join(flags)}", flush=True)  # fmt: skip
    return int(slower > 0)


def _native(verified: VerifiedProgram, codes: np.ndarray[tuple[int, ...], np.dtype[np.int8]], runs: int) -> float:
    """Microseconds of processor time for a run of the native executor with one thread."""
    executor = create("native", verified, threads=1)
    feed = {verified.program.inputs[0].value.name: codes.astype(np.int32)}
    executor.run(feed, {})
    begin = time.process_time()
    for _ in range(runs):
        executor.run(feed, {})
    return 1e6 * (time.process_time() - begin) / runs


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("sizes", "speed"):
        command = commands.add_parser(name)
        command.add_argument("networks", type=Path, nargs="+")
    command.add_argument("--dot", action="store_true", help="export with --dot")
    command.add_argument("--runs", type=int, default=50)
    command.add_argument("--repeats", type=int, default=5)
    command.add_argument("--options", default="-O3")
    options = parser.parse_args(arguments)
    lacking = [
        name for name in ("tflite-micro", "flatbuffers", "gemmlowp", "ruy") if not (options.sources / name).is_dir()
    ]
    lacking += [TARGETS["cortex_m4"].missing()] if options.what == "sizes" and TARGETS["cortex_m4"].missing() else []
    if lacking:
        print(f"missing: {', '.join(lacking)}", file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    return _sizes(options) if options.what == "sizes" else _speed(options)


if __name__ == "__main__":
    sys.exit(main())
