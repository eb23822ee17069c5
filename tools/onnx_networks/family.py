"""Networks of `images` and `sequences`, quantised by ``onnxruntime.quantization.quantize_static`` in every form.

    python -m tools.onnx_networks.family              compiles all of them, and prints a table
    python -m tools.onnx_networks.family gpt --save d  one network, its files in the folder d

Needs onnxruntime. Calibration data are random, from a fixed seed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import cvm
from cvm.errors import CvmError
from tools.onnx_networks import images, sequences
from tools.onnx_networks.building import Array

__all__ = ["FORMS", "NETWORKS", "Form", "data", "quantised"]

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    function.__name__: function
    for function in (
        images.resnet, images.mobilenet_v3, images.efficientnet, images.yolo, images.unet, images.espcn, images.ds_cnn,
        sequences.tcn, sequences.vit, sequences.bert, sequences.gpt, sequences.lstm, sequences.gru,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """The options of the quantiser, and the bits of activations and weights."""

    name: str
    format: str
    per_channel: bool
    activations: str
    weights: str


FORMS = tuple(
    Form(f"{kind}-{along}-{activations[1:]}".lower(), kind, along == "channel", activations, weights)
    for kind, along, activations, weights in (
        ("QDQ", "tensor", "QUInt8", "QInt8"), ("QDQ", "tensor", "QInt8", "QInt8"),
        ("QDQ", "channel", "QUInt8", "QInt8"), ("QDQ", "channel", "QInt8", "QInt8"),
        ("QDQ", "tensor", "QUInt16", "QInt8"), ("QDQ", "channel", "QInt16", "QInt16"),
        ("QOperator", "tensor", "QUInt8", "QUInt8"), ("QOperator", "tensor", "QInt8", "QInt8"),
        ("QOperator", "channel", "QUInt8", "QInt8"), ("QOperator", "channel", "QInt8", "QInt8"),
    )
)  # fmt: skip


def data(model: onnx.ModelProto, count: int, seed: int = 1) -> list[dict[str, Array]]:
    """``count`` samples of all inputs: normal numbers, words out of fifty, a mask."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        sample: dict[str, Array] = {}
        for item in model.graph.input:
            shape = [extent.dim_value for extent in item.type.tensor_type.shape.dim]
            whole = item.type.tensor_type.elem_type == onnx.TensorProto.INT64
            most = 2 if item.name == "mask" else 50
            sample[item.name] = random.integers(0, most, shape) if whole else random.normal(0, 1, shape).astype("f")
        found.append(sample)
    return found


def quantised(model: onnx.ModelProto, form: Form) -> onnx.ModelProto:
    """The model as the library quantises it in one form, after the preparation that the library recommends."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """The data reader that the library expects."""

        def __init__(self) -> None:
            self._items: Iterator[dict[str, Any]] = iter(data(model, 8))

        def get_next(self) -> dict[str, Any] | None:
            return next(self._items, None)

    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, ready, target = (Path(folder) / name for name in ("float.onnx", "ready.onnx", "quantised.onnx"))
            onnx.save(model, source)
            quant_pre_process(source, ready, skip_symbolic_shape=True)
            quantization.quantize_static(
                ready, target, Reader(), quant_format=quantization.QuantFormat[form.format],
                per_channel=form.per_channel, activation_type=quantization.QuantType[form.activations],
                weight_type=quantization.QuantType[form.weights],
            )  # fmt: skip
            return onnx.load(target)
    finally:
        logging.disable(logging.NOTSET)


def _tried(name: str, form: Form, folder: Path) -> str:
    file = folder / f"{name}-{form.name}.onnx"
    if not file.exists():
        onnx.save(quantised(NETWORKS[name](), form), file)
    start = time.process_time()
    try:
        program = cvm.compile(file)
    except CvmError as error:
        return f"refused: {error}"
    bound = max((item.bound for item in program.provenance.exactness), default=0)
    return f"{time.process_time() - start:.1f} s, {'exact' if not bound else f'within {bound}'}"


def table() -> str:
    """How exactly the models of each network compile, by format and bits of activations."""
    lines = [
        "What `onnxruntime.quantization.quantize_static` writes of small networks of well-known architectures, per",
        "tensor and per channel, signed and unsigned (`python -m tools.onnx_networks.family`). LSTM and GRU are",
        "refused since the file has no scales of gates and states: `cvm quantize` finds them and makes programs of",
        "all these files. What differs by some codes has a Softmax; with 16 bits, a code is 1/65536 of the range.",
        "",
        "| network | QDQ, 8 bits | QDQ, 16 bits | QOperator, 8 bits |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            cells = []
            for kind, bits in (("QDQ", "8"), ("QDQ", "16"), ("QOperator", "8")):
                forms = [form for form in FORMS if form.format == kind and form.activations.endswith(f"Int{bits}")]
                found = {_verdict(_tried(name, form, Path(folder))) for form in forms}
                cells.append("; ".join(sorted(found)))
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdict(found: str) -> str:
    if found.startswith("refused"):
        return f"refused, `{found.rsplit('[', 1)[-1].rstrip(']')}`"
    return found.split(", ", 1)[1]


def main(arguments: list[str]) -> int:
    """Compile networks in all forms."""
    parser = argparse.ArgumentParser(description="networks that ONNX Runtime quantises, in all forms")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--form", action="append", default=[])
    parser.add_argument("--save", type=Path, default=None)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.save or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in chosen.names or NETWORKS:
            for form in FORMS:
                if not chosen.form or form.name in chosen.form:
                    print(f"{name:14} {form.name:26} {_tried(name, form, folder)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
