"""WebAssembly in Node: exported programs against onnxruntime-web and TFLite with XNNPACK (tfjs-tflite), on one thread.

    npm install --prefix FOLDER onnxruntime-web @tensorflow/tfjs-tflite
    python -m tools.bench.wasm --packages FOLDER [--real DIR..] [--rounds 15] [--seconds 0.2] [NETWORK..]

NETWORK is one of tools/bench/networks.py (default: mobilenet_v2 and mobilenet_v1). --real takes folders of NNEF
models, each with the network that it was converted from beside it (original.tflite). The engines take turns; the table
has the median of the processor time of a run in milliseconds, and how many times as long the others take.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cvm
from cvm.export.wasm import module
from cvm.program import Program, verify
from tools.bench.networks import NETWORKS
from tools.bench.onnx_models import onnx_model
from tools.bench.programs import program_of
from tools.bench.tflite_models import tflite_model

__all__ = ["main"]


def _written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def _ours(folder: Path, name: str, program: Program) -> dict[str, str]:
    return {"network": name, "engine": "cvm", "file": _written(folder, f"{name}.wasm", module(verify(program)).code)}


def _jobs(networks: Sequence[str], real: Sequence[Path], folder: Path) -> Iterator[dict[str, str]]:
    for name in networks:
        network = NETWORKS[name]()
        yield _ours(folder, name, program_of(network))
        for form in ("qdq", "qlinear"):
            data = onnx_model(network, "qdq" if form == "qdq" else "qlinear").SerializeToString()
            file = _written(folder, f"{name}.{form}.onnx", data)
            yield {"network": name, "engine": "onnxruntime", "file": file}
        yield {"network": name, "engine": "xnnpack", "file": _written(folder, f"{name}.tflite", tflite_model(network))}
    for path in real:
        name = f"real_{path.name}"
        yield _ours(folder, name, cvm.compile(path))
        yield {"network": name, "engine": "xnnpack", "file": str(path / "original.tflite")}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["mobilenet_v2", "mobilenet_v1"])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--real", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cvm-wasm-") as folder:
        jobs = list(_jobs(options.networks, options.real, Path(folder)))
        asked = {"packages": str(options.packages.resolve()), "jobs": jobs}
        asked |= {"rounds": options.rounds, "seconds": options.seconds}
        script = Path(__file__).with_name("wasm_engines.mjs")
        done = subprocess.run(["node", script, json.dumps(asked)], stdout=subprocess.PIPE, text=True, check=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    own = {line["network"]: line["median"] for line in lines if line["engine"] == "cvm"}
    print(f"{'network':20} {'engine':12} {'file':28} {'median, ms':>10} {'ratio':>6}")
    for line in lines:
        ratio = line["median"] / own[line["network"]]
        name = Path(line["file"]).name
        print(f"{line['network']:20} {line['engine']:12} {name:28} {line['median']:10.3f} {ratio:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
