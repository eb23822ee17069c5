"""Hostile files for cvm/standalone/verify_receipt.py: each is answered within 256 MiB and ten seconds, and says why."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit import encode_receipt
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.api.test_zip_directory import HEAD, directory, end, end_64
from tests.audit.examples import Subject, subject
from tests.selection import mostly_long
from tools.fuzz.mutation import packed_tree
from tools.fuzz.receipt_tool import MEBIBYTES

TOOL = Path(__file__).parents[2] / "cvm" / "standalone" / "verify_receipt.py"
SECONDS = 10.0


LIMITED = f'ulimit -v {MEBIBYTES * 1024} && exec "$@"'
"""With so many KiB of address space, of which memory is a part."""


def answered(*arguments: object, cwd: Path) -> tuple[int, str]:
    """The exit code and the last line, of a process that has neither more memory nor more time."""
    command = ["sh", "-c", LIMITED, "sh", sys.executable, "-I", "-S", str(TOOL), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        killer = threading.Timer(6 * SECONDS, process.kill)
        killer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        killer.cancel()
    assert err == ""
    assert usage.ru_utime + usage.ru_stime <= SECONDS
    said = out.splitlines()[-1]
    assert "MemoryError" not in said, "a bound is there to prevent this"
    return process.returncode, said


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A true receipt, its program and inputs: the arguments that verify it."""
    item = subject("batch")
    (tmp_path / "r").write_bytes(encode_receipt(item.receipt()))
    item.verified.program.save(tmp_path / "p")
    (tmp_path / "i").write_bytes(npz_bytes(dict(item.inputs)))
    return ["r", "--program", "p", "-i", "i"]


def test_what_is_within_the_limits_is_verified(files: list[str], tmp_path: Path) -> None:
    assert answered(*files, cwd=tmp_path) == (0, "REPRODUCED at level trace: 3 runs")


@cache
def deflated(size: int, chunk: bytes = bytes(2**20)) -> bytes:
    """The deflated bytes of a .npy file of so many zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|i1", "fortran_order": False, "shape": (size,)})
    packer = zlib.compressobj(9, wbits=-15)
    parts = [packer.compress(header.getvalue())]
    parts += [packer.compress(chunk[: min(len(chunk), size - at)]) for at in range(0, size, len(chunk))]
    return b"".join([*parts, packer.flush()])


def bomb(claimed: int | None = None) -> bytes:
    """An archive of 1 MB that inflates to a gigabyte, or claims to inflate to less."""
    size = 2**30
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("image.npy", deflated(size))
    data = bytearray(buffer.getvalue())
    offset = int.from_bytes(data[-6:-2], "little")
    for at in (0, offset + 2):
        data[at + 8 : at + 10] = b"\x08\0"  # deflated
        data[at + 22 : at + 26] = (size + 128 if claimed is None else claimed).to_bytes(4, "little")
    return bytes(data)


def many(count: int) -> bytes:
    listed = directory([b"%x.npy" % number for number in range(count)])
    return HEAD + listed + end_64(count, len(listed), len(HEAD))


def lying(count: int) -> bytes:
    listed = directory([b"%x.npy" % number for number in range(count)])
    return HEAD + listed + end(1, len(listed), len(HEAD))


ARCHIVES: dict[str, tuple[Callable[[], bytes], int]] = {
    "a bomb": (bomb, 4),
    "a bomb that claims to be small": (lambda: bomb(1000), 3),
    "a bomb that claims as much as may be": (lambda: bomb(2**24), 3),
    "a million members": (lambda: many(1_000_000), 4),
    "a hundred thousand members": (lambda: many(100_000), 4),
    "a hundred thousand members that are not claimed": (lambda: lying(100_000), 3),
    "a large file": (lambda: npz_bytes({"image": np.zeros(2**21, np.int64)}), 4),
    "many floats": (lambda: npz_bytes({"image": np.full(2**20, 5e-324)}), 4),
    "many small arrays": (lambda: npz_bytes({f"a{n}": np.zeros(100_000, np.int8) for n in range(50)}), 4),
    "as many floats as may be": (lambda: npz_bytes({"image": np.full(120_000, 5e-324)}), 5),
    "a header of many brackets": (lambda: npy(b"(" * 9000), 3),
    "a header of a long number": (lambda: npy(b"{'shape': (" + b"9" * 9000 + b",)}"), 3),
    "a shape of many factors": (
        lambda: npy(b"{'descr': '<i4', 'fortran_order': 0, 'shape': (" + b"9999," * 999 + b")}"),
        3,
    ),
    "a shape of large factors": (lambda: npy(b"{'descr': '<i4', 'fortran_order': 0, 'shape': (%d,)}" % 10**99), 4),
    "nothing": (lambda: b"", 3),
}


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("what", ARCHIVES)
def test_hostile_arrays(files: list[str], tmp_path: Path, what: str) -> None:
    made, code = ARCHIVES[what]
    (tmp_path / "i").write_bytes(made())
    found, said = answered(*files, cwd=tmp_path)
    assert found == code, said
    assert said.startswith({3: "MALFORMED: ", 4: "TOO_LARGE: ", 5: "CANNOT_RECOMPUTE "}[code])


@pytest.mark.parametrize("name", ["r", "p", "i", "t"])
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "a sparse file"])
def test_what_is_no_file_or_too_large_is_refused_without_waiting(
    files: list[str], tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"")
        os.truncate(path, 2**40)
    trace = ["--trace-file", "t"] if name == "t" else []
    code, said = answered(*files, *trace, cwd=tmp_path)
    assert (code, said.split(":")[0]) == ((4, "TOO_LARGE") if kind == "a sparse file" else (3, "MALFORMED"))


SIZE = 2**23 - 100
ITEMS: dict[str, tuple[bytes, int]] = {
    "empty lists": (b"\xdd" + SIZE.to_bytes(4, "big") + b"\x90" * SIZE, 4),
    "empty maps": (b"\xdd" + SIZE.to_bytes(4, "big") + b"\x80" * SIZE, 4),
    "numbers": (b"\xdd" + SIZE.to_bytes(4, "big") + b"\0" * SIZE, 4),
    "long numbers": (b"\xdd" + (SIZE // 9).to_bytes(4, "big") + (b"\xcf" + b"\xff" * 8) * (SIZE // 9), 4),
    "lists in lists": (b"\x91" * SIZE, 3),
    "a list of more than there is": (b"\xdd\xff\xff\xff\xff", 3),
    "a text of more than there is": (b"\xdb\xff\xff\xff\xff", 3),
    "one long text": (b"\xdb" + SIZE.to_bytes(4, "big") + b"x" * SIZE, 3),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["r", "p", "t"])
@pytest.mark.parametrize("what", ITEMS)
def test_hostile_items(files: list[str], tmp_path: Path, what: str, name: str) -> None:
    data, code = ITEMS[what]
    names = {"r": b"\x93\xabcvm-receipt\1", "p": b"\x93\xabcvm-program\1", "t": b"\x93\xa9cvm-trace\1"}
    (tmp_path / name).write_bytes(names[name] + data)
    trace = ["--trace-file", "t"] if name == "t" else []
    assert answered(*files, *trace, cwd=tmp_path)[0] == code


def changed(program: Program, change: Callable[[dict[str, Any]], object]) -> bytes:
    tree = msgpack.unpackb(program.to_bytes(), strict_map_key=False)
    change(tree[2])
    return packed_tree(tree)


def claimed(**fields: object) -> bytes:
    """The receipt of a subject, made one of other fields."""
    tree = msgpack.unpackb(encode_receipt(subject("batch").receipt()), strict_map_key=False)
    tree[2]["claim"].update(fields)
    return packed_tree(tree)


def vast(name: str, width: int) -> dict[str, Any]:
    size = SIZE // width * width - 1024
    return {"name": name, "kind": "tensor", "shape": [size // width], "width": width, "data": b"\1" * size}


PROGRAMS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a constant of small integers": lambda p: p["constants"].append(vast("c", 1)),
    "a constant of integers": lambda p: p["constants"].append(vast("c", 4)),
    "a constant of an unknown width": lambda p: p["constants"].append({**vast("c", 1), "width": 3}),
    "a shape of many extents": lambda p: p["inputs"][0]["value"].update(shape=[2**62] * 100_000),
    "a huge shape": lambda p: p["inputs"][0]["value"].update(shape=[2**30] * 8),
    "a result of a huge shape": lambda p: p["nodes"][0]["outputs"][0].update(shape=[2**30] * 8),
    "a scale of many digits": lambda p: p["inputs"][0].update(quantizer=scaled("9" * 4000)),
    "a scale with an exponent": lambda p: p["inputs"][0].update(quantizer=scaled("1e999999999")),
    "a logarithm of many bits": lambda p: p["inputs"][0].update(quantizer={"top": 0, "bits": 255}),
    "a logarithm of a vast top": lambda p: p["inputs"][0].update(quantizer={"top": 2**62, "bits": 8}),
}


QUANTIZERS: dict[str, dict[str, Any]] = {
    "of long fractions": {
        "rounding": "half_even", "lo": 0, "hi": 255, "scale": ["1" * 120 + "/" + "7" * 119],
        "offset": ["-" + "3" * 120 + "/" + "9" * 118 + "7"],
    },
    "of logarithms": {"top": 1024, "bits": 16},
}  # fmt: skip


@pytest.mark.parametrize("number", mostly_long([5e-324, 1.7e308, 0.1, 0.0], [5e-324]))
@pytest.mark.parametrize("what", QUANTIZERS)
def test_costly_quantizers(files: list[str], tmp_path: Path, what: str, number: float) -> None:
    """Numbers are quantised before it is known whether the receipt is one of this program."""

    def change(p: dict[str, Any]) -> None:
        p["inputs"][0]["value"]["shape"] = [40_000]
        p["inputs"][0]["quantizer"] = QUANTIZERS[what]

    (tmp_path / "p").write_bytes(changed(subject("batch").verified.program, change))
    (tmp_path / "i").write_bytes(npz_bytes({"image": np.full((3, 40_000), number)}))
    code, said = answered(*files, cwd=tmp_path)
    assert code == 5, said
    assert "of another program" in said


def scaled(text: str) -> dict[str, Any]:
    return {"rounding": "half_up", "lo": 0, "hi": 255, "scale": [text], "offset": ["0"]}


@pytest.mark.parametrize("what", PROGRAMS)
def test_hostile_programs(files: list[str], tmp_path: Path, what: str) -> None:
    (tmp_path / "p").write_bytes(changed(subject("batch").verified.program, PROGRAMS[what]))
    (tmp_path / "i").write_bytes(npz_bytes({"image": np.full((3, 2, 3), 0.3)}))
    code, said = answered(*files, cwd=tmp_path)
    assert code in (3, 5), said


OPS: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "a repeat of very many": ("repeat", {"axis": 0, "repeats": 2**31 - 1}, [1]),
    "tiles of very many": ("tile", {"reps": [2**31 - 1, 2**31 - 1]}, [1]),
    "very many new axes": ("expand_dims", {"axis": 0, "num_newaxis": 2**31 - 1}, [1]),
    "a shift of very many bits": ("cvm_left_shift", {"precision": 32, "shift_bit": 2**31 - 1}, [1, 2, 3]),
    "a precision of very many bits": ("cvm_clip", {"precision": 2**31 - 1}, [1, 2, 3]),
    "a large result": ("upsampling", {"scale": 2**31 - 1}, [1]),
    "another shape": ("flatten", {}, [1]),
    "an attribute beyond all integers": ("clip", {"a_min": -(2**63), "a_max": 2**63 - 1}, [1, 2, 3]),
}


@pytest.mark.parametrize("what", OPS)
def test_hostile_ops(tmp_path: Path, what: str) -> None:
    """A node in a program whose receipt fits to it in everything that is looked at before anything is computed."""
    from cvm.standalone import verify_receipt as tool

    op, attributes, shape = OPS[what]
    node = {"op": op, "attributes": attributes, "inputs": [0]}

    def change(p: dict[str, Any]) -> None:
        node["outputs"] = [{"name": "z", "shape": shape, "lo": 0, "hi": 1}]
        p["nodes"] = [node]
        p["outputs"] = [{"name": "z", "value": len(p["inputs"]) + len(p["constants"])}]

    data = changed(subject("batch").verified.program, change)
    tree = msgpack.unpackb(data, strict_map_key=False)[2]
    inputs = subject("batch").inputs["image"].reshape(3, 1, 2, 3).tolist()
    roots = [tool.root([1, 2, 3], np.ravel(x).tolist()) for x in inputs]
    runs = [{"inputs": [root], "before": [], "outputs": [bytes(32)], "after": []} for root in roots]
    fields = {"program": tool.digest(tree), "gas": tool.gas(tree), "runs": runs}
    (tmp_path / "r").write_bytes(claimed(**fields))
    (tmp_path / "p").write_bytes(data)
    (tmp_path / "i").write_bytes(npz_bytes(dict(subject("batch").inputs)))
    assert answered("r", "--program", "p", "-i", "i", cwd=tmp_path)[0] == 3


def test_many_signatures_are_not_verified(files: list[str], tmp_path: Path) -> None:
    tree = msgpack.unpackb((tmp_path / "r").read_bytes(), strict_map_key=False)
    tree[2]["signatures"] = [{"key": n.to_bytes(32, "big"), "signature": bytes(64)} for n in range(2000)]
    (tmp_path / "r").write_bytes(packed_tree(tree))
    assert answered(*files, cwd=tmp_path) == (4, "TOO_LARGE: signatures of a receipt: 2000, more than 32")


def test_very_many_runs_are_not_computed(files: list[str], tmp_path: Path) -> None:
    tree = msgpack.unpackb((tmp_path / "r").read_bytes(), strict_map_key=False)
    tree[2]["claim"]["runs"] *= 6000
    (tmp_path / "r").write_bytes(packed_tree(tree))
    (tmp_path / "i").write_bytes(npz_bytes({"image": np.tile(subject("batch").inputs["image"], (6000, 1, 1))}))
    code, answer = answered(*files, cwd=tmp_path)
    assert (code, answer.partition(" (gas ")[0]) == (5, "CANNOT_RECOMPUTE at level outputs: too large for plain Python")
    assert answer.endswith(", at most 1000000): `cvm receipt verify` runs it")


def test_as_much_as_may_be_is_computed(tmp_path: Path) -> None:
    builder = ProgramBuilder()
    y = builder.input("x", (1,) * 7 + (55_000,), 0, 255)
    for number in range(8):
        (y,) = builder.add("broadcast_add", [y, builder.constant([number])])
    item = Subject(verify(builder.build([Output("y", y)])), {"x": np.arange(55_000).reshape((1,) * 7 + (-1,)) % 256})
    assert 8 * 10**5 < item.verified.gas < 10**6
    (tmp_path / "r").write_bytes(encode_receipt(item.receipt()))
    item.verified.program.save(tmp_path / "p")
    (tmp_path / "i").write_bytes(npz_bytes(dict(item.inputs)))
    assert answered("r", "--program", "p", "-i", "i", cwd=tmp_path)[0] == 0


def test_the_logarithm_is_the_one_of_the_definition() -> None:
    from cvm.standalone import verify_receipt as tool

    z = {"top": 3, "bits": 4}
    low = z["top"] - (1 << z["bits"]) + 1
    numbers = [tool.Fraction(n, d) for n in (*range(-40, 41), 10**6, 2**40) for d in (1, 2, 3, 7, 64, 10**5, 2**50)]
    for x in numbers:
        q = z["top"]
        while q > low and 2 * x * x < tool.Fraction(2) ** (2 * q):
            q -= 1
        assert tool.code(x, z, 0) == ((x > 0) - (x < 0)) * (q - low + 1), x
