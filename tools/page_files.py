"""The files that commands on pages need: models of each format, data, receipts, the files of a dispute.

``make`` writes sets of them into a folder; a page names its sets in the comment ``<!-- files: SET .. -->``. All models
are the digit classifier of ``cvm/demo``, so that they share images. The TFLite models are an exception: a single layer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cvm
from cvm.arrays import npz_bytes
from cvm.demo import IMAGES, MODEL
from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written
from cvm.program import Output, ProgramBuilder
from tools.cached_model import cached
from tools.decode_step import CHARACTERS

__all__ = ["SETS", "make"]

Array = npt.NDArray[Any]


def images() -> dict[str, Array]:
    """The images of the demo and their labels."""
    with np.load(IMAGES) as data:
        return dict(data)


def program(folder: Path) -> None:
    """``model.cvm`` and the image ``photo.npy``; ``large.cvm`` and ``a.cvm`` are the same, ``b.cvm`` not optimised."""
    found = cvm.compile(MODEL)
    for name in ("model", "large", "a"):
        found.save(folder / f"{name}.cvm")
    cvm.compile(MODEL, optimize=False).save(folder / "b.cvm")
    np.save(folder / "photo.npy", images()["image"][:1])


def nnef(folder: Path) -> None:
    """The folder ``model/``, ``model.tgz``, ``calibrated.quant``, ``data.npz``, images; a provisional document."""
    shutil.copytree(MODEL, folder / "model")
    shutil.copy(MODEL / "graph.nnef", folder / "graph.nnef")
    shutil.copy(MODEL / "graph.quant", folder / "calibrated.quant")
    with tarfile.open(folder / "model.tgz", "w:gz") as archive:
        for file in sorted(MODEL.rglob("*")):
            archive.add(file, str(file.relative_to(MODEL)), recursive=False)
    data(folder)
    (folder / "data.npz").write_bytes(npz_bytes(images()))
    (folder / "old").mkdir()
    (folder / "old" / "graph.nnef").write_text(
        "version 1.0;\ngraph old(x) -> (y)\n{\n    x = external(shape = [1, 4]);\n    y = relu(x);\n}\n", "utf-8"
    )


def data(folder: Path) -> None:
    """``data.npz`` and the same as ``images.npy``, and one image as ``photo.npy``."""
    found = images()["image"]
    np.save(folder / "photo.npy", found[:1])
    np.save(folder / "images.npy", found)
    (folder / "data.npz").write_bytes(npz_bytes({"image": found}))


def onnx(folder: Path) -> None:
    """The quantised ``model.onnx``, the float ``float.onnx``, and data."""
    import onnx as format_library

    from tools.onnx_networks.lenet import lenet

    data(folder)
    format_library.save(lenet(), str(folder / "float.onnx"))
    command(folder, "quantize", "float.onnx", "-i", "data.npz", "-o", "model.onnx")


def tflite(folder: Path) -> None:
    """``model.tflite``, a quantised convolution, and ``photo.npy`` for it."""
    drawn = np.random.default_rng(1).integers(-127, 128, (4, 3, 3, 1))
    write_convolution(
        folder,
        Tensor((1, 8, 8, 1), scales=(1 / 128,), zeros=(-128,), name="image"),
        Tensor((4, 3, 3, 1), scales=(0.02,), zeros=(0,), values=drawn, name="filter"),
        Tensor((4,), "int32", scales=(0.02 / 128,), zeros=(0,), values=np.arange(4), name="bias"),
        Tensor((1, 4, 4, 4), scales=(0.05,), zeros=(-128,), name="maps"),
    )
    np.save(folder / "photo.npy", images()["image"][:1].reshape(1, 8, 8, 1))


def tflite_float(folder: Path) -> None:
    """``model.tflite``, a convolution of floats, and ``data.npz`` for it."""
    drawn = np.random.default_rng(1).standard_normal((4, 3, 3, 1))
    write_convolution(
        folder,
        Tensor((1, 8, 8, 1), "float32", name="image"),
        Tensor((4, 3, 3, 1), "float32", values=drawn, name="filter"),
        Tensor((4,), "float32", values=np.zeros(4), name="bias"),
        Tensor((1, 4, 4, 4), "float32", name="maps"),
    )
    (folder / "data.npz").write_bytes(npz_bytes({"image": images()["image"].reshape(40, 8, 8, 1)}))


def write_convolution(folder: Path, *tensors: Tensor) -> None:
    """``model.tflite`` with one convolution and its Relu; the tensors are image, filter, bias and result."""
    options = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
    operator = Operator("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", options)
    (folder / "model.tflite").write_bytes(written(Graph(tensors, [operator], [0], [3])))


def pair(folder: Path) -> None:
    """``pair.cvm``, which adds two inputs, with ``a.npy`` and ``b.npz`` for it."""
    builder = ProgramBuilder()
    inputs = [builder.input(name, (1, 4), -100, 100) for name in ("left", "right")]
    builder.build([Output("sum", builder.add("elemwise_add", inputs, name="sum")[0])]).save(folder / "pair.cvm")
    np.save(folder / "a.npy", np.array([[5, 6, 7, 8]]))
    (folder / "b.npz").write_bytes(npz_bytes({"right": np.array([[1, 2, 3, 4]])}))


def receipts(folder: Path) -> None:
    """After ``program``: receipt, trace and codes of ``photo.npy``, more receipts, a folder of them, ``key.pem``."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    run = ("run", "model.cvm", "-i", "photo.npy")
    command(folder, *run, "-o", "result.npz", "--receipt", "result.receipt", "--trace-file", "result.trace")
    command(folder, *run, "--codes", "-o", "codes.npz")
    (folder / "receipts").mkdir()
    for name in ("receipts/first", "receipts/second"):
        (folder / f"{name}.npz").write_bytes(npz_bytes({"image": images()["image"][:1]}))
        shutil.copy(folder / "result.receipt", folder / f"{name}.receipt")
    for name in ("mine", "theirs"):
        shutil.copy(folder / "result.receipt", folder / f"{name}.receipt")
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def dispute(folder: Path) -> None:
    """After ``program``: the tensors of a run as ``mine``, and as ``theirs`` with one wrong element; a proof."""
    from cvm.audit.trace_file import read_trace, write_trace

    run = ("run", "model.cvm", "-i", "photo.npy")
    command(folder, *run, "--codes", "--capture", "all", "-o", "mine.npz")
    command(folder, *run, "--receipt", "own.receipt", "--trace-file", "mine.trace")
    with np.load(folder / "mine.npz") as data:
        tensors = dict(data)
    tensors["conv2"].flat[100] ^= 1
    (folder / "theirs.npz").write_bytes(npz_bytes(tensors))
    trace = read_trace(folder / "mine.trace")
    steps = [list(roots) for roots in trace.steps]
    steps[7][0] = bytes(32)
    write_trace(replace(trace, steps=tuple(map(tuple, steps))), folder / "theirs.trace")
    command(folder, "dispute", "step", "--program", "model.cvm", "-i", "photo.npy", "--op", "0", "-o", "a.step")


def generate(folder: Path) -> None:
    """``gpt.cvm``, a decode step with random weights, ``gpt_8.cvm`` to read 8 tokens, ``gpt.vocabulary.json``."""
    for name, tokens in (("gpt", 1), ("gpt_8", 8)):
        cached(tokens, size=len(CHARACTERS), width=8).save(folder / f"{name}.cvm")
    (folder / "gpt.vocabulary.json").write_text(json.dumps(list(CHARACTERS)), "utf-8")


def command(folder: Path, *arguments: str) -> None:
    """Run a command of cvm in a folder."""
    paths = {"PYTHONPATH": str(Path(cvm.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-m", "cvm", *arguments]
    subprocess.run(words, cwd=folder, env={**os.environ, **paths}, capture_output=True, check=True)


def cvm_runtime(folder: Path) -> None:
    """``model.json`` and ``model.params`` of cvm-runtime, written from the demo's program."""
    from cvm.export.cvm_runtime import saved

    for name, data in saved(cvm.compile(MODEL)).content.items():
        (folder / name).write_bytes(data)


SETS: dict[str, Callable[[Path], None]] = {
    "program": program,
    "nnef": nnef,
    "data": data,
    "onnx": onnx,
    "tflite": tflite,
    "tflite-float": tflite_float,
    "pair": pair,
    "receipts": receipts,
    "dispute": dispute,
    "cvm-runtime": cvm_runtime,
    "generate": generate,
}
"""For each set of files, the function that writes it into a folder."""


def make(sets: Sequence[str], folder: Path) -> None:
    """Write sets of files into a folder; of two files with one name, the later one stays.

    Raises:
        ValueError: a set does not exist.

    """
    for name in sets:
        if name not in SETS:
            raise ValueError(f"there is no set of files {name!r}: expected {', '.join(SETS)}")
        SETS[name](folder)
