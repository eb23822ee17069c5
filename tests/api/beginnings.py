"""What files of all formats begin with, cut off after it."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile

import numpy as np

__all__ = ["STARTS", "zipped"]


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"0")
    return buffer.getvalue()


def arrays(**items: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **items)  # type: ignore[arg-type]
    return buffer.getvalue()


def packed() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("graph.nnef"), io.BytesIO())
    return buffer.getvalue()


def array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


STARTS = {
    "onnx": b"\x08\x08\x12\x07pytorch",
    "tflite": b"\x1c\0\0\0TFL3",
    "program": b"\x93\xabcvm-program\x01",
    "receipt": b"\x93\xabcvm-receipt\x01",
    "trace": b"\x93\xa9cvm-trace\x01",
    "step": b"cvm1:step-proof\0\x01",
    "vectors": b"\x94\xabcvm-vectors\x01",
    "npy": array(),
    "npz": arrays(x=np.zeros(3)),
    "tensor": b"N\xef\x01\0",
    "archive": packed(),
    "torch": zipped("archive/data.pkl", "archive/version"),
    "pickle": pickle.dumps({"weight": [1.0]}),
    "keras": zipped("metadata.json", "config.json", "model.weights.h5"),
    "hdf5": b"\x89HDF\r\n\x1a\n\0\0",
    "safetensors": (40).to_bytes(8, "little") + b'{"weight":{"dtype":"F32"}}',
    "gguf": b"GGUF\x03\0\0\0",
    "parquet": b"PAR1\x15\0",
    "ort": b"\x10\0\0\0ORTM",
    "openvino": b'<?xml version="1.0"?>\n<net name="a" version="11">',
    "picture": b"\x89PNG\r\n\x1a\n",
    "web_page": b"\n<!DOCTYPE html><html>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    "zip": zipped("readme.txt"),
    "cvm_runtime": b'{"nodes": []}',
}
