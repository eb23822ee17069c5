"""Compare `cvm quantize` with ONNX Runtime's static quantisation on float networks of ONNX: same bits, same data.

    python tools/compare_quantizers.py --other PYTHON [--samples N] [--seed S] [--json] MODEL.onnx ..

``PYTHON`` is the interpreter of an environment that has onnx and onnxruntime (``python -m venv E; E/bin/pip install
onnx onnxruntime``); cvm's own environment needs neither. Both get N samples (16) drawn uniformly from [-1, 1), integers
from 0 to 9. Both use 8 bits and a scale per output channel of weights. ONNX Runtime (`quantize_static`, QDQ, all graph
optimisations off, so that it computes what the file says) uses MinMax and Percentile in turn. SQNR is 10 log10(sum x^2
/ sum (x - y)^2) against the float outputs of ONNX Runtime, for the output where it is least: once on the data of the
calibration, and once on as many further samples of the same kind. Outputs that ONNX Runtime's network leaves unchanged,
because it rounds nothing on the way to them, are left out.

It prints a table for docs/calibration.md; `--json` one line for each network instead.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_ROOT = Path(__file__).resolve().parent.parent

_WAYS = ("minmax", "percentile")


def _ratio(wanted: npt.NDArray[Any], given: npt.NDArray[Any]) -> float:
    """SQNR in decibels; infinite if all numbers are equal."""
    x, y = wanted.astype(np.float64).ravel(), given.astype(np.float64).ravel()
    noise, signal = float(np.square(x - y).sum()), float(np.square(x).sum())
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


# In the environment of ONNX Runtime


def _other(model: Path, folder: Path, samples: int, seed: int) -> None:
    """Write the data, the float outputs and the outputs of ONNX Runtime's quantised networks into a folder."""
    import onnx
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    source = folder / "model.onnx"
    onnx.save(_prepared(onnx, onnx.load(model)), source)
    session = ort.InferenceSession(str(source))
    random = np.random.default_rng(seed)
    feeds = [{item.name: _drawn(random, item) for item in session.get_inputs()} for _ in range(2 * samples)]
    names = [item.name for item in session.get_outputs()]
    _write(folder / "data.npz", {name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]})
    _save(folder / "float.npz", names, session, feeds)
    for way in _WAYS:
        try:
            quantised = _quantised(source, folder / f"{way}.onnx", way, feeds[:samples])
            _save(folder / f"{way}.npz", names, quantised, feeds)
        except Exception as error:  # an error of the other tool is its result
            (folder / f"{way}.txt").write_text(f"{type(error).__name__}: {error}")


def _prepared(onnx: Any, model: Any) -> Any:
    """The model in opset 13 or later, which scales per channel need, with a batch of one."""
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    if opset < 13:
        model = onnx.version_converter.convert_version(model, 13)
    stored = {item.name for item in model.graph.initializer}
    for item in model.graph.input:
        extents = item.type.tensor_type.shape.dim
        if item.name not in stored and extents and not extents[0].dim_value:
            extents[0].dim_value = 1
    return model


def _drawn(random: np.random.Generator, item: Any) -> npt.NDArray[Any]:
    shape = [extent if isinstance(extent, int) else 1 for extent in item.shape]
    if "float" in item.type:
        return random.uniform(-1.0, 1.0, shape).astype(np.float32)
    kinds: dict[str, type[np.generic]] = {"tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    return random.integers(0, 10, shape).astype(kinds.get(item.type, np.int64))


def _quantised(source: Path, target: Path, way: str, feeds: list[dict[str, npt.NDArray[Any]]]) -> Any:
    import onnxruntime as ort
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> dict[str, npt.NDArray[Any]] | None:
            return next(self._feeds, None)

    quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method={"minmax": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile}[way],
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(target), options)


def _save(path: Path, names: list[str], session: Any, feeds: list[dict[str, npt.NDArray[Any]]]) -> None:
    found = [session.run(names, feed) for feed in feeds]
    _write(path, {name: np.stack([run[i] for run in found]) for i, name in enumerate(names)})


def _write(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


# In the environment of cvm


def _compared(model: Path, python: Path, samples: int, seed: int) -> dict[str, Any]:
    """The ratios of one network, for each way: on the data of the calibration, and on further data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [python, __file__, "--into", folder, "--samples", str(samples), "--seed", str(seed), model]
        done = subprocess.run([str(item) for item in command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        wanted = dict(np.load(folder / "float.npz"))
        found: dict[str, Any] = {"network": model.parent.name if model.name == "network.onnx" else model.stem}
        plain = folder / f"{_WAYS[0]}.npz"
        if plain.exists():
            given = dict(np.load(plain))
            wanted = {name: array for name, array in wanted.items() if not np.array_equal(array, given[name])}
        for way in _WAYS:
            path = folder / f"{way}.npz"
            found[way] = _ratios(wanted, dict(np.load(path)), samples) if path.exists() else None
        found["cvm, outputs of 8 bits"], _ = _of_cvm(folder, wanted, samples, 8)
        found["cvm"], found["chosen"] = _of_cvm(folder, wanted, samples, 12)
        return found


def _of_cvm(
    folder: Path, wanted: dict[str, npt.NDArray[Any]], samples: int, output_bits: int
) -> tuple[list[float], str]:
    import cvm
    from cvm.calibration import Settings

    data = dict(np.load(folder / "data.npz"))
    settings = Settings(
        per_channel=True, method="best", output_bits=output_bits, equalize="auto", correct_bias="auto"
    )  # fmt: skip
    first = {name: array[:samples] for name, array in data.items()}
    made = cvm.quantize_program(folder / "model.onnx", first, settings)
    run = cvm.Session(made.program, threads=1).run(data, out_of_range="clamp")
    given = {name: run.real(name) if run.has_real(name) else run[name] for name in wanted}
    kept: list[str] = [made.settings.method]
    kept += ["equalised"] * bool(made.calibration.rescaled) + ["corrected"] * bool(made.calibration.corrected)
    return _ratios(wanted, given, samples), ", ".join(kept)


def _ratios(wanted: dict[str, npt.NDArray[Any]], given: dict[str, npt.NDArray[Any]], samples: int) -> list[float]:
    """The least ratio of all outputs, on the data of the calibration and on the further samples."""
    parts = (slice(0, samples), slice(samples, None))
    return [min(_ratio(wanted[name][part], given[name][part]) for name in wanted) for part in parts]


def _cell(ratios: list[float] | None) -> str:
    return "refused" if ratios is None else " / ".join(f"{ratio:.1f}" for ratio in ratios)


def main() -> int:
    """Compare the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--other", type=Path, metavar="PYTHON", help="has onnx and onnxruntime")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.into is not None:
        _other(arguments.models[0], arguments.into, arguments.samples, arguments.seed)
        return 0
    if arguments.other is None:
        parser.error("--other PYTHON is needed")
    sys.path.insert(0, str(_ROOT))
    if not arguments.json:
        print("| network | ORT MinMax | ORT Percentile | cvm, outputs of 8 bits | cvm | chosen |")
        print("|---|---|---|---|---|---|")
    code = 0
    for model in arguments.models:
        try:
            found = _compared(model.resolve(), arguments.other, arguments.samples, arguments.seed)
        except Exception as error:  # one failing network must not lose the results of the others
            print(f"{model}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            code = 1
            continue
        if arguments.json:
            print(json.dumps(found), flush=True)
        else:
            cells = [found["network"], *(_cell(found[way]) for way in (*_WAYS, "cvm, outputs of 8 bits", "cvm"))]
            print("|", " | ".join([*cells, found["chosen"]]), "|", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
