"""Files are known by their first bytes, and whoever is given the wrong one says what it is and what to do."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.audit.receipt import load_receipt
from cvm.audit.trace_file import read_trace
from cvm.errors import CvmError, Invalid, Malformed
from cvm.formats import model_format, recognised
from tests.api import small


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
    "ort": b"\x10\0\0\0ORTM",
    "openvino": b'<?xml version="1.0"?>\n<net name="a" version="11">',
    "picture": b"\x89PNG\r\n\x1a\n",
    "web_page": b"\n<!DOCTYPE html><html>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    "zip": zipped("readme.txt"),
    "cvm_runtime": b'{"nodes": []}',
}
MODELS = {"onnx", "tflite", "tensor", "archive"}


@pytest.mark.parametrize("key", STARTS)
def test_a_file_is_known_by_what_it_begins_with(tmp_path: Path, key: str) -> None:
    file = tmp_path / "file.bin"
    file.write_bytes(STARTS[key])
    found = recognised(file)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize("key", sorted(set(STARTS) - MODELS))
def test_what_is_no_model_is_not_compiled_or_quantised(tmp_path: Path, key: str) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(STARTS[key])
    found = recognised(file)
    assert found is not None
    for call in (cvm.compile, lambda path: cvm.quantize(path, {}), lambda path: cvm.quantize_program(path, {})):
        with pytest.raises(Invalid) as caught:
            call(file)
        assert caught.value.code == "format.other"
        assert caught.value.location.file == str(file)
        assert (
            caught.value.message == f"expected a model of NNEF, ONNX or TFLite, found {found.words}; {found.next_step}"
        )


@pytest.mark.parametrize("key", sorted(set(STARTS) - {"program"}))
def test_what_is_no_program_is_not_loaded(tmp_path: Path, key: str) -> None:
    file = tmp_path / "model.cvm"
    file.write_bytes(STARTS[key])
    with pytest.raises(Malformed, match="expected a program of cvm") as caught:
        cvm.load(file)
    assert caught.value.code.startswith("program.")


def test_a_program_is_no_receipt_and_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "a.receipt"
    small.pair().save(file)
    with pytest.raises(Malformed, match="expected a receipt, found a program of cvm; `cvm run`") as caught:
        load_receipt(file)
    assert caught.value.code == "receipt.format"
    with pytest.raises(Malformed, match="expected a trace, found a program of cvm"):
        read_trace(file)


def test_a_damaged_file_of_the_right_kind_keeps_its_own_message(tmp_path: Path) -> None:
    file = tmp_path / "a.cvm"
    file.write_bytes(small.pair().to_bytes()[:-3])
    with pytest.raises(CvmError) as caught:
        cvm.load(file)
    assert "expected a program" not in caught.value.message


def test_folders_and_names(tmp_path: Path) -> None:
    assert model_format(tmp_path) == "nnef"
    assert recognised(tmp_path) is None
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(Invalid, match=r"found a SavedModel of TensorFlow; convert it, tf\.lite.*from_saved_model"):
        model_format(tmp_path)
    (tmp_path / "graph.nnef").write_bytes(b"version 1.0;")
    assert [model_format(tmp_path / name) for name in ("no.onnx", "no.tflite", "graph.nnef")] == [
        "onnx",
        "tflite",
        "nnef",
    ]


def test_what_begins_like_a_torch_file_but_is_cut_off_is_still_one_file(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    for length in range(60):
        file.write_bytes(STARTS["torch"][:length])
        found = recognised(file)
        assert found is None or found.key in ("zip", "torch")


def test_bytes_of_no_known_format_are_refused_as_such(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(b"\x7fELF\x02\x01\x01\0\0")
    with pytest.raises(Invalid, match="begins with the bytes 7f 45 4c 46 02 01 01 00; models are NNEF") as caught:
        cvm.compile(file)
    assert caught.value.code == "format.unknown"
