"""The results of one network: the commands of a user, one after the other, and their output.

Every command is a process of its own: `cvm compile` or `cvm quantize`, `cvm check` on random codes with FORMAL as the
judge of drawn elements, and, if the engine of the format is installed, `cvm bench` with that engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cvm.audit.costs import macs
from cvm.bench.engines import random_inputs
from cvm.program.files import load_verified
from tools.gallery.networks import Network
from tools.gallery.weights import with_drawn_weights

__all__ = ["ENGINES", "JUDGED", "SAMPLES", "measured"]

ENGINES = {"TFLite": ("litert", "ai_edge_litert"), "ONNX": ("onnxruntime", "onnxruntime")}
"""The engine of each format, and the module that contains it."""

SAMPLES = 4
"""How many random samples `cvm quantize` gets."""

JUDGED = 200
"""How many elements FORMAL computes, spread over all tensors."""

_LONGEST = 160
"""The most characters of what an engine says."""

_SECONDS = 900
"""The most seconds that a command may take."""


def measured(network: Network, file: Path, timed: bool) -> dict[str, Any]:
    """The row of the network in results.json; ``timed`` runs the engine of its format by turns with cvm."""
    with tempfile.TemporaryDirectory(prefix="cvm-gallery-") as folder:
        program, inputs = Path(folder, "model.cvm"), Path(folder, "inputs.npz")
        if network.weights == "drawn":
            made = Path(folder, file.name)
            made.write_bytes(with_drawn_weights(file.read_bytes()))
            file = made
        row: dict[str, Any] = {"name": network.name, "bytes": file.stat().st_size}
        command = [network.way, str(file), "-o", str(program), *network.options]
        if network.way == "quantize":
            command += ["--random", str(SAMPLES)]
        begun = time.perf_counter()
        said = _said(command)
        row["seconds"] = round(time.perf_counter() - begun, 2)
        if "error" in said:
            return row | {"refused": {"code": said["error"]["code"], "message": _message(said["error"], file)}}
        row |= _facts(program, inputs)
        if network.way == "quantize":
            row["sqnr"] = [item["sqnr_db"] for item in said["outputs"]]
        checked = _said(
            ["check", str(program), "-i", str(inputs), "--codes", "--executors", "numpy,native", "--judge", str(JUDGED)]
        )
        if "error" in checked:
            return row | {"unchecked": {"code": checked["error"]["code"], "message": _message(checked["error"], file)}}
        row |= {"agree": checked["agree"], "judged": checked["judged"]["elements"]}
        if timed and find_spec(ENGINES[network.format][1]) is not None:
            row |= _timed(program, file, ENGINES[network.format][0])
        return row


def _said(arguments: list[str]) -> dict[str, Any]:
    """The JSON document that a command prints; a command that takes too long, or prints none, gives an error."""
    command = [sys.executable, "-m", "cvm", *arguments, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": {"code": "time", "message": f"took over {_SECONDS} s"}}
    except json.JSONDecodeError:
        return {"error": {"code": f"exit {done.returncode}", "message": done.stderr.strip().splitlines()[-1][:300]}}
    assert isinstance(document, dict)
    return document


def _message(error: dict[str, Any], file: Path) -> str:
    return str(error["message"]).replace(str(file), file.name)


def _facts(program: Path, inputs: Path) -> dict[str, Any]:
    """Facts about a program; random codes for it are written to ``inputs``."""
    verified = load_verified(program)
    codes = random_inputs(verified.program.inputs, 1)
    np.savez(inputs, **dict(codes))  # type: ignore[arg-type]
    claims = verified.program.provenance.exactness
    return {
        "digest": verified.program.digest,
        "nodes": len(verified.program.nodes),
        "macs": sum(macs(verified)),
        "constant_bytes": sum(len(constant.data) for constant in verified.program.constants),
        "tensors": len(claims),
        "exact": sum(claim.bound == 0 for claim in claims),
        "bound": str(max((claim.bound for claim in claims), default=0)),
        "state": bool(verified.program.state),
    }


def _timed(program: Path, file: Path, engine: str) -> dict[str, Any]:
    command = ["bench", str(program), "--executor", "native", "--compare", engine, "--model", str(file)]
    said = _said([*command, "--seconds", "0.2", "--rounds", "5"])
    if "error" in said:
        return {}
    medians = {item["engine"]: item["run"]["median"] for item in said["results"] if item["failure"] is None}
    if "native" not in medians:
        return {}
    row = {"engine": engine, "ours_us": round(medians["native"] / 1e3, 1)}
    if engine in medians:
        return row | {"theirs_us": round(medians[engine] / 1e3, 1)}
    (failure,) = (item["failure"] for item in said["results"] if item["engine"] == engine)
    return row | {"engine_fails": _message({"message": failure}, file).splitlines()[0][:_LONGEST]}
