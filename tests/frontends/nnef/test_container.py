"""Section 5.1: folders and archives, in order and hostile; names are keys, never paths."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends import nnef
from cvm.limits import Limits
from tests.frontends.nnef.documents import error_of, flat

DOCUMENT = flat("f = variable(shape = [1,3], label = 'fc\\\\w'); y = add(x, f);").encode()
WEIGHTS = nnef.write_tensor(np.array([[1.5, -2.0, 0.25]], np.float32))
QUANT = b'"y": linear_quantize(min = 0.0, max = 1.0, bits = 8);'
FILES = {"graph.nnef": DOCUMENT, "fc/w.dat": WEIGHTS, "graph.quant": QUANT}


def write_folder(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def tar_bytes(
    files: dict[str, bytes], extra: Callable[[tarfile.TarFile], None] | None = None, form: int = tarfile.PAX_FORMAT
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mtime = 1.5  # type: ignore[assignment]  # a fraction makes tarfile write an extended header
            archive.addfile(member, io.BytesIO(data))
        if extra is not None:
            extra(archive)
    return buffer.getvalue()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", ["folder", "tar", "tgz", "gnu", "renamed", "link"])
def test_a_model_is_the_same_from_every_container(tmp_path: Path, form: str) -> None:
    match form:
        case "folder":
            path = write_folder(tmp_path, FILES)
        case "tar":
            path = write(tmp_path / "m.tar", tar_bytes(FILES))
        case "tgz":
            path = write(tmp_path / "m.tgz", gzip.compress(tar_bytes({f"./{n}": d for n, d in FILES.items()})))
        case "gnu":
            path = write(tmp_path / "m.tar", tar_bytes(FILES | {"x" * 200: b"-"}, form=tarfile.GNU_FORMAT))
        case "renamed":
            path = write(tmp_path / "model", gzip.compress(tar_bytes(FILES)))
        case _:
            target = tmp_path / "real"
            target.mkdir()
            write_folder(target, FILES)
            path = tmp_path / "link"
            path.symlink_to(target)
    model = nnef.load(path)
    data = model.tensors["f"].data
    assert data is not None
    assert data.values.tolist() == [[1.5, -2.0, 0.25]]
    assert model.tensors["y"].quantizer is not None
    assert nnef.check(path).valid
    assert nnef.load(path, quant=False).tensors["y"].quantizer is None


def test_a_document_by_itself_has_neither_data_nor_quantisers(tmp_path: Path) -> None:
    write_folder(tmp_path, FILES)
    model = nnef.load(tmp_path / "graph.nnef")
    assert model.tensors["f"].data is None
    assert model.tensors["y"].quantizer is None


def test_a_folder_without_tensor_files_is_bare_and_with_one_all_are_required(tmp_path: Path) -> None:
    two = flat(
        "f = variable(shape = [1], label = 'a'); g = variable(shape = [1], label = 'b'); y = add(f, g);"
    ).encode()
    write_folder(tmp_path, {"graph.nnef": two})
    assert nnef.load(tmp_path).tensors["f"].data is None
    write_folder(tmp_path, {"sub/other.dat": b"anything"})
    error = error_of(lambda: nnef.load(tmp_path))
    assert (error.code, error.location.line, error.location.column) == ("nnef.container.data", 6, 9)
    assert nnef.check(tmp_path).class_ == "container"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("fc/w.dat", nnef.write_tensor(np.zeros(3, np.float32)), "nnef.tensor-file.shape"),
        ("fc/w.dat", b"", "nnef.tensor-file.magic"),
        ("fc/w.dat", WEIGHTS[:-1], "nnef.tensor-file.length"),
        (
            "fc/w.dat",
            nnef.write_tensor(np.zeros((1, 3), np.uint8), 8, nnef.ItemType.UNSIGNED_CODE),
            "nnef.tensor-file.codes",
        ),
        ("fc/w.dat", nnef.write_tensor(np.array([[np.nan, 0, 0]], np.float32)), "nnef.tensor-file.finite"),
        ("fc/w.dat", b"\x80", "nnef.tensor-file.magic"),
        ("graph.nnef", b"\xff", "nnef.lexical.encoding"),
        ("graph.nnef", b"", "nnef.syntax.end"),
        ("graph.quant", b"\xff", "nnef.lexical.encoding"),
    ],
)
@pytest.mark.parametrize("form", ["folder", "tgz"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, data: bytes, code: str, form: str) -> None:
    files = FILES | {name: data}
    path = (
        write_folder(tmp_path, files)
        if form == "folder"
        else write(tmp_path / "m.tgz", gzip.compress(tar_bytes(files)))
    )
    error = error_of(lambda: nnef.load(path))
    assert error.code == code
    assert (error.location.file or "").endswith(name)
    assert error.location.line is None or not name.endswith(".dat")


def test_checking_reads_headers_but_no_weights(tmp_path: Path) -> None:
    bad = nnef.write_tensor(np.array([[np.nan, 0, 0]], np.float32))
    assert nnef.check(write_folder(tmp_path, FILES | {"fc/w.dat": bad})).valid
    assert nnef.check(write(tmp_path / "m.tgz", gzip.compress(tar_bytes(FILES | {"fc/w.dat": bad})))).valid


def test_checking_does_not_read_weights_of_any_size(tmp_path: Path) -> None:
    """A quarter of a GiB of weights, most of it a hole in the file, costs a check and a print nothing."""
    count = 2**26
    text = flat(f"f = variable(shape = [{count}], label = 'w'); y = add(x, f);", shape="[1]")
    header = bytearray(nnef.write_tensor(np.zeros(1, np.float32))[:128])
    header[4:8] = (4 * count).to_bytes(4, "little")
    header[12:16] = count.to_bytes(4, "little")
    write_folder(tmp_path, {"graph.nnef": text.encode(), "w.dat": bytes(header)})
    os.truncate(tmp_path / "w.dat", 128 + 4 * count)
    tracemalloc.start()
    try:
        assert nnef.check(tmp_path).valid
        assert "variable" in nnef.flatten(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


SHARING = flat(
    "f = variable(shape = [2], label = 'A/W'); g = variable(shape = [2], label = 'a/w'); y = add(f, g);"
).encode()
ONE, OTHER = (nnef.write_tensor(np.array([1.0, last])) for last in (2.0, 3.0))


@pytest.mark.parametrize("form", ["folder", "tgz"])
@pytest.mark.parametrize("names", [["A/W.dat"], ["a/w.dat"], ["A/W.dat", "a/w.dat"]])
def test_labels_that_differ_in_case_share_the_file_of_any_spelling(tmp_path: Path, form: str, names: list[str]) -> None:
    files = {"graph.nnef": SHARING, **dict.fromkeys(names, ONE)}
    path = (
        write_folder(tmp_path, files)
        if form == "folder"
        else write(tmp_path / "m.tgz", gzip.compress(tar_bytes(files)))
    )
    assert nnef.check(path).valid
    model = nnef.load(path)
    for name in ("f", "g"):
        data = model.tensors[name].data
        assert data is not None
        assert data.values.tolist() == [1.0, 2.0]
    nnef.save(model, tmp_path / "saved")
    again = nnef.load(tmp_path / "saved").tensors["g"].data
    assert again is not None
    assert again.values.tolist() == [1.0, 2.0]


def test_labels_that_share_their_data_cannot_have_two_files_that_differ(tmp_path: Path) -> None:
    files = {"graph.nnef": SHARING, "A/W.dat": ONE, "a/w.dat": OTHER}
    error = error_of(lambda: nnef.load(write(tmp_path / "m.tar", tar_bytes(files))))
    assert error.code == "nnef.container.shared"
    assert (error.location.file or "").endswith("a/w.dat")
    files["z.dat"] = files.pop("A/W.dat")
    del files["a/w.dat"]
    errors = error_of(lambda: nnef.load(write(tmp_path / "m.tar", tar_bytes(files)))).errors
    assert [error.code for error in errors] == ["nnef.container.data"] * 2
    assert len(nnef.check(tmp_path / "m.tar").errors) == 2


def test_a_label_may_end_in_what_is_the_extension_of_another(tmp_path: Path) -> None:
    text = flat("f = variable(shape = [2], label = 'w'); g = variable(shape = [2], label = 'w.dat'); y = add(f, g);")
    model = nnef.load(write_folder(tmp_path, {"graph.nnef": text.encode(), "w.dat": ONE, "w.dat.dat": OTHER}))
    values = [tensor.data.values.tolist() for tensor in model.tensors.values() if tensor.data is not None]
    assert values == [[1.0, 2.0], [1.0, 3.0]]


@pytest.mark.parametrize("form", ["folder", "tgz"])
def test_a_version_of_the_data_is_taken_by_its_extension(tmp_path: Path, form: str) -> None:
    """Section 5.1: different versions of the same data have additional extensions after ``.dat``."""
    text = flat("f = variable(shape = [2], label = 'a/f'); g = variable(shape = [2], label = 'g'); y = add(f, g);")
    codes = nnef.write_tensor(np.array([0, 3], np.uint8), 2, nnef.ItemType.LINEAR, 0.0, 3.0)
    files = {"graph.nnef": text.encode(), "a/f.dat": ONE, "a/f.dat.2bit": codes, "g.dat": OTHER, "a/f.dat.old": b"N"}
    path = (
        write_folder(tmp_path, files)
        if form == "folder"
        else write(tmp_path / "m.tgz", gzip.compress(tar_bytes(files)))
    )

    def contents(variant: str | None) -> list[list[float]]:
        assert nnef.check(path, variant=variant).valid
        tensors = nnef.load(path, variant=variant).tensors
        return [tensor.data.values.tolist() for tensor in tensors.values() if tensor.data is not None]

    assert contents(None) == [[1.0, 2.0], [1.0, 3.0]]
    assert contents("2bit") == [[0, 3], [1.0, 3.0]]
    for variant, code in (
        ("8bit", "container.variant"),
        ("old", "tensor-file.truncated"),
        ("../x", "container.variant"),
        ("", "container.variant"),
    ):
        assert error_of(lambda v=variant: nnef.load(path, variant=v)).code == f"nnef.{code}"  # type: ignore[misc]
        assert nnef.check(path, variant=variant).errors[0].code == f"nnef.{code}"


def test_codes_belong_to_the_quantiser_of_the_quantization_file(tmp_path: Path) -> None:
    codes = nnef.write_tensor(np.array([[0, 15, 3]], np.uint8), 8, nnef.ItemType.UNSIGNED_CODE)
    quant = b'"f": linear_quantize(min = 0.0, max = 1.5, bits = 4);'
    model = nnef.load(write_folder(tmp_path, FILES | {"fc/w.dat": codes, "graph.quant": quant}))
    data = model.tensors["f"].data
    assert data is not None
    assert data.quantizer == model.tensors["f"].quantizer is not None
    write_folder(tmp_path, {"graph.quant": quant.replace(b"4", b"3")})
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.tensor-file.codes"


def test_logical_and_integer_variables_are_stored_as_such(tmp_path: Path) -> None:
    text = flat("f = variable<TYPE>(shape = [2], label = 'f'); y = relu(x);")
    for dtype, values, good in (
        ("logical", np.array([True, False]), True),
        ("logical", np.array([1, 2], np.uint8), False),
        ("logical", np.array([1.0, 0.0], np.float32), False),
        ("integer", np.array([-5, 7], np.int16), True),
        ("integer", np.array([1.0, 0.0], np.float32), False),
    ):
        write_folder(tmp_path, {"graph.nnef": text.replace("TYPE", dtype).encode(), "f.dat": nnef.write_tensor(values)})
        if good:
            assert nnef.load(tmp_path).tensors["f"].dtype == dtype
        else:
            assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.tensor-file.data-type"


@pytest.mark.parametrize("name", ["../evil.dat", "/etc/evil.dat", "a/../../evil", "a//b", "a/./b", "a\\b", "fc/w.dat/"])
def test_names_that_are_not_plain_paths_are_refused(tmp_path: Path, name: str) -> None:
    data = tar_bytes(FILES | {name: b"evil"}, form=tarfile.USTAR_FORMAT)
    error = error_of(lambda: nnef.load(write(tmp_path / "m.tar", data)))
    assert isinstance(error, Invalid | Malformed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.tar"]


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_devices_and_sparse_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    def extra(archive: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("fc/link.dat")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)

    error = error_of(lambda: nnef.load(write(tmp_path / "m.tar", tar_bytes(FILES, extra))))
    assert error.code == "nnef.container.special"


def test_duplicate_members_are_refused(tmp_path: Path) -> None:
    data = tar_bytes(FILES, lambda archive: archive.addfile(tarfile.TarInfo("graph.quant"), io.BytesIO()))
    assert error_of(lambda: nnef.load(write(tmp_path / "m.tar", data))).code == "nnef.container.duplicate"


def test_an_archive_of_a_folder_that_has_a_model_says_where_the_document_is(tmp_path: Path) -> None:
    files = {f"model/{name}": data for name, data in FILES.items()}
    error = error_of(lambda: nnef.load(write(tmp_path / "m.tar", tar_bytes(files))))
    assert error.code == "nnef.container.document"
    assert error.message == "there is no graph.nnef at the top of the archive, only 'model/graph.nnef'"
    assert nnef.check(tmp_path / "m.tar").errors[0].message == error.message


def test_trailing_data_is_refused(tmp_path: Path) -> None:
    for data in (
        tar_bytes(FILES) + b"x",
        gzip.compress(tar_bytes(FILES)) + b"x",
        gzip.compress(tar_bytes(FILES) + b"x"),
    ):
        assert isinstance(error_of(lambda data=data: nnef.load(write(tmp_path / "m.tar", data))), Malformed)


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.dat", WEIGHTS)
    model = tmp_path / "model"
    model.mkdir()
    write_folder(model, {"graph.nnef": DOCUMENT})
    (model / "fc").mkdir()
    (model / "fc" / "w.dat").symlink_to(outside)
    assert error_of(lambda: nnef.load(model)).code == "nnef.container.special"
    (model / "fc" / "w.dat").unlink()
    (model / "fc").rmdir()
    write_folder(tmp_path, {"elsewhere/w.dat": WEIGHTS})
    (model / "fc").symlink_to(tmp_path / "elsewhere")
    write_folder(model, {"other.dat": WEIGHTS})
    assert error_of(lambda: nnef.load(model)).code == "nnef.container.special"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_special_files_in_a_folder_do_not_block(tmp_path: Path) -> None:
    write_folder(tmp_path, FILES)
    (tmp_path / "fc" / "w.dat").unlink()
    os.mkfifo(tmp_path / "fc" / "w.dat")
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.container.special"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["pipe", "pipe.dat", "pipe.quant", "pipe.tgz"])
def test_a_path_that_is_no_file_does_not_block(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    report = nnef.check(path)
    assert report.errors[0].code == "nnef.container.special"
    for action in (nnef.load, nnef.flatten, nnef.upgrade):
        assert error_of(lambda action=action: action(path)).code == "nnef.container.special"
    document = write(tmp_path / "graph.nnef", DOCUMENT)
    assert error_of(lambda: nnef.load(document, quant=path)).code == "nnef.container.special"


BOMBS = [
    ("members", tar_bytes({f"f{i}": b"" for i in range(50)}), Limits("test", archive_members=20), "archive_members"),
    ("bytes", tar_bytes({"a": bytes(5000)}), Limits("test", archive_bytes=4000), "archive_bytes"),
    ("inflated", gzip.compress(tar_bytes({"a": bytes(50_000)})), Limits("test", archive_bytes=4000), "archive_bytes"),
    ("ratio", gzip.compress(tar_bytes({"a": bytes(8 << 20)})), Limits("test"), "archive_ratio"),
    ("text", tar_bytes({"graph.nnef": b" " * 5000}), Limits("test", text_bytes=4000), "text_bytes"),
    ("name", tar_bytes({"n" * 2000: b""}), Limits("test"), "name_bytes"),
    ("header", tar_bytes({"n" * 80_000: b""}), Limits("test"), "archive_name"),
]


@pytest.mark.parametrize(("data", "limits", "limit"), [b[1:] for b in BOMBS], ids=[b[0] for b in BOMBS])
def test_bombs_are_stopped_while_they_stream(tmp_path: Path, data: bytes, limits: Limits, limit: str) -> None:
    path = write(tmp_path / "m.tar", data)
    error = error_of(lambda: nnef.load(path, limits=limits))
    assert isinstance(error, LimitExceeded)
    assert error.code == f"limit.{limit}"
    assert nnef.check(path, limits=limits).class_ == "limit"


def test_a_declared_size_allocates_nothing(tmp_path: Path) -> None:
    data = bytearray(tar_bytes({"graph.nnef": b"x"}, form=tarfile.USTAR_FORMAT))
    data[124:136] = b"00000777777\0"
    checksum = sum(data[:148]) + 8 * 32 + sum(data[156:512])
    data[148:156] = f"{checksum:06o}\0 ".encode()
    assert error_of(lambda: nnef.load(write(tmp_path / "m.tar", bytes(data)))).code == "nnef.container.truncated"


def test_every_truncation_of_an_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.tgz"
    data = gzip.compress(tar_bytes(FILES))
    for length in range(len(data)):
        assert isinstance(error_of(lambda n=length: nnef.load(write(path, data[:n]))), CvmError)
    plain = tar_bytes(FILES)
    for length in range(0, len(plain.rstrip(b"\0")), 97):
        assert isinstance(error_of(lambda n=length: nnef.load(write(path, plain[:n]))), CvmError)


def test_every_flipped_bit_of_an_archive_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tgz"
    for data in (gzip.compress(tar_bytes(FILES)), tar_bytes(FILES, form=tarfile.USTAR_FORMAT)[:512]):
        refused = 0
        for bit in range(0, len(data) * 8, 3):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            try:
                nnef.load(write(path, bytes(damaged)))
            except (Malformed, Invalid, Unsupported, LimitExceeded):
                refused += 1
        assert refused > len(data)
