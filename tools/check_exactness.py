"""Compare the codes of programs with the exact meaning of the documents that they were compiled from.

    python -m tools.check_exactness FILE.. [--log FILE] [--elements N] [--random-range LOW HIGH] [--op-set 2]

A FILE is a model of ONNX, TFLite or NNEF. It is compiled; if it is not quantised, or not wholly, random data choose its
quantisers, as `cvm quantize --random` does. The program runs on drawn codes, two cycles if it has state. N drawn
elements of each tensor, and 2,000 of each output, are computed once more from the graph of the document, in rational
and computable real numbers, from the codes that the program has for the operands. They must be the codes of the
program or, where the program claims a bound, lie within it. Prints one line for each file; with --log, a JSON document
for each, and files that the log has are not done again. Exits 1 if an element is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cvm.compiling import program_of
from cvm.errors import CvmError
from cvm.formats import model_format
from cvm.frontends import nnef, onnx, tflite
from cvm.graph import QuantizedGraph
from cvm.program import Program
from tools.exactness.comparison import Sampling, compared

__all__ = ["How", "checked", "made"]


@dataclass(frozen=True, slots=True)
class How:
    """How programs are made of files."""

    op_set: int = 1
    samples: int = 16
    """Random samples that choose quantisers, of real numbers between ``low`` and ``high``."""
    low: float = -1.0
    high: float = 1.0
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The shapes of inputs whose extents a file of ONNX leaves open."""


def made(path: Path, how: How) -> tuple[str, QuantizedGraph, Program]:
    """How the program of a file was made, "compile" or "quantize", its graph with all quantisers, and the program."""
    kind = model_format(path)
    if kind == "nnef":
        graph = nnef.load(path)
        return "compile", graph, program_of(graph, op_set=how.op_set)

    def loaded(floats: bool) -> onnx.Loaded | tflite.Loaded:
        if kind == "onnx":
            return onnx.load(path, how.input_shapes, floats=floats)
        return tflite.load(path, floats=floats)

    try:
        graph = loaded(floats=False).graph
        return "compile", graph, program_of(graph, op_set=how.op_set)
    except CvmError:  # it may have no quantisers, or not all that it needs
        from cvm.calibration import Settings
        from cvm.quantizing import quantize_completed, random_inputs

        found = loaded(floats=True)
        data = random_inputs(found.graph, how.samples, 1, how.low, how.high)
        done = quantize_completed(path, found, data, Settings.measured(), op_set=how.op_set)
        return "quantize", done.calibration.graph, done.program


def checked(path: Path, sampling: Sampling, how: How) -> dict[str, Any]:
    """The document of one file."""
    begun = time.process_time()
    row: dict[str, Any] = {"file": str(path)}
    try:
        way, graph, program = made(path, how)
        row |= {"way": way, "nodes": len(program.nodes), "compiled": round(time.process_time() - begun, 1)}
        row |= asdict(compared(graph, program, sampling))
    except CvmError as error:
        row["refused"] = {"code": error.code, "message": error.message}
    return row | {"seconds": round(time.process_time() - begun, 1)}


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, extents = text.partition("=")
    return name, tuple(map(int, extents.split(",")))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--log", type=Path, help="file of JSON documents, one a line")
    parser.add_argument("--elements", type=int, default=25, help="of each tensor")
    parser.add_argument("--output-elements", type=int, default=2000, help="of each output")
    parser.add_argument("--reads", type=int, default=400_000, help="the most elements that one element may depend on")
    parser.add_argument("--samples", type=int, default=16, help="random samples that choose quantisers")
    parser.add_argument("--random-range", type=float, nargs=2, default=(-1.0, 1.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--input-shape", type=_shape, action="append", default=[], metavar="NAME=N,..")
    parser.add_argument("--op-set", type=int, default=1, choices=(1, 2))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    sys.setrecursionlimit(20_000)
    sampling = Sampling(options.elements, options.output_elements, options.reads, options.seed)
    low, high = options.random_range
    how = How(options.op_set, options.samples, low, high, dict(options.input_shape))
    rows = _logged(options.log)
    for path in options.files:
        if str(path) not in {row["file"] for row in rows}:
            rows.append(checked(path, sampling, how))
            print(_line(rows[-1]), flush=True)
            if options.log is not None:
                with options.log.open("a") as log:
                    log.write(json.dumps(rows[-1]) + "\n")
    return _sum(rows)


def _logged(log: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log is not None and log.exists() else []


def _line(row: dict[str, Any]) -> str:
    name = "/".join(Path(row["file"]).parts[-2:])
    if "refused" in row:
        return f"{name}: {row['refused']['code']}: {row['refused']['message'][:160]}"
    found = [f"{row['way']}, {row['tensors']} tensors, {row['elements']} elements, {len(row['wrong'])} wrong"]
    found += [f"{row['within']} within bounds of {len(row['bounded'])} tensors"] if row["bounded"] else []
    found += [f"not compared: {count} x {reason}" for reason, count in row["skipped"].items()]
    return f"{name}: {'; '.join(found)}; {row['seconds']} s" + "".join(f"\n  {text}" for text in row["wrong"][:5])


def _sum(rows: Sequence[dict[str, Any]]) -> int:
    """Print the sums over all files; 1 if an element is wrong."""
    done = [row for row in rows if "refused" not in row]
    sums = {key: sum(row[key] for row in done) for key in ("tensors", "outputs", "elements", "within", "absent")}
    wrong = sum(len(row["wrong"]) for row in done)
    skipped: Counter[str] = Counter()
    for row in done:
        skipped.update(row["skipped"])
    refused = Counter(row["refused"]["code"] for row in rows if "refused" in row)
    print(f"{len(done)} files, {sums}, {wrong} wrong; refused: {dict(refused)}; not compared: {dict(skipped)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
