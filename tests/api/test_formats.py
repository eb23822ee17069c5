"""Files are known by their first bytes, and whoever is given the wrong one says what it is and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cvm
from cvm.audit.receipt import load_receipt
from cvm.audit.trace_file import read_trace
from cvm.errors import CvmError, Invalid, Malformed
from cvm.formats import model_format, recognised
from tests.api import small
from tests.api.beginnings import STARTS

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


@pytest.mark.parametrize("call", [cvm.load, cvm.Session, cvm.Receipt.load, read_trace])
def test_a_folder_is_no_file(tmp_path: Path, call: Callable[[Path], object]) -> None:
    with pytest.raises(Invalid, match="found a folder") as caught:
        call(tmp_path)
    assert caught.value.code == "format.other"
    (tmp_path / "graph.nnef").write_bytes(b"version 1.0;")
    with pytest.raises(Invalid, match="found a model of NNEF; `cvm compile`"):
        call(tmp_path)


@pytest.mark.parametrize("call", [cvm.load, cvm.Session, cvm.Receipt.load, read_trace])
@pytest.mark.parametrize("name", ["file", "file.cvm"])
def test_a_file_of_no_known_format_does_not_begin_as_one(
    tmp_path: Path, call: Callable[[Path], object], name: str
) -> None:
    file = tmp_path / name
    file.write_bytes(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(Malformed, match=r"expected a (program|receipt|trace)") as caught:
        call(file)
    assert "byte" not in caught.value.message
