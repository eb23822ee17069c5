"""Program files: whole or not at all; checked before they are believed."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest

from cvm.errors import Invalid, LimitExceeded, Malformed
from cvm.limits import DEFAULT
from cvm.program import Output, ProgramBuilder, load, load_verified, verify
from cvm.writing import write_atomically
from tests.program.examples import example


def test_a_saved_program_loads(tmp_path):
    program = example()
    program.save(tmp_path / "m.cvm")
    assert load(tmp_path / "m.cvm").digest == program.digest
    assert load(str(tmp_path / "m.cvm")).to_bytes() == program.to_bytes()
    assert load_verified(tmp_path / "m.cvm").ranges["sum"].hull() == (-100, 100)
    assert os.listdir(tmp_path) == ["m.cvm"]


def test_saving_replaces_what_was_there(tmp_path):
    path = tmp_path / "m.cvm"
    path.write_bytes(b"old")
    example().save(path)
    assert path.read_bytes() == example().to_bytes()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_saving_into_a_pipe_leaves_it_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        example().save(path)
        assert os.read(reader, 2**16) == example().to_bytes()
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(os.lstat(path).st_mode)


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("reason", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, reason):
    path = tmp_path / "m.cvm"
    path.write_bytes(b"old")

    def fail(*_):
        raise reason

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(reason)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.cvm"]


def test_a_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_size_is_checked_before_reading(tmp_path):
    path = tmp_path / "huge.cvm"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(LimitExceeded) as caught:
        load(path)
    assert caught.value.code == "limit.program_bytes"
    assert caught.value.location.file == str(path)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "m.cvm"
    path.write_bytes(example().to_bytes()[:-1])
    with pytest.raises(Malformed) as caught:
        load(path)
    assert str(path) in str(caught.value)
    replace(example(), op_set=2).save(path)
    with pytest.raises(Invalid) as invalid:
        load(path)
    assert invalid.value.location.file == str(path)


def test_loading_applies_the_callers_limits(tmp_path):
    path = tmp_path / "m.cvm"
    example().save(path)
    with pytest.raises(LimitExceeded):
        load(path, replace(DEFAULT, work=1))


def test_a_link_to_a_program_loads(tmp_path):
    example().save(tmp_path / "m.cvm")
    (tmp_path / "link.cvm").symlink_to("m.cvm")
    assert load(tmp_path / "link.cvm").digest == example().digest


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.cvm")


@pytest.mark.parametrize("path", [".", "/"])
def test_a_path_without_a_name_is_an_operating_system_error(path: str) -> None:
    with pytest.raises(IsADirectoryError):
        write_atomically(path, b"")


def test_what_was_proven_of_a_loaded_program_is_kept(tmp_path):
    builder = ProgramBuilder()
    (y,) = builder.add("clip", [builder.input("x", (2,), -9, 9)], {"a_min": -3, "a_max": 3})
    builder.build([Output("y", y)]).save(tmp_path / "a.cvm")
    program = load(tmp_path / "a.cvm")
    assert verify(program).ranges is verify(program).ranges
    assert verify(program).limits == DEFAULT
    assert verify(program, replace(DEFAULT, name="mine", nodes=7)).limits.name == "mine"
    attributes = program.nodes[0].attributes
    assert isinstance(attributes, dict)
    attributes["a_max"] = 4  # its interval is wrong now
    with pytest.raises(Invalid):
        verify(program)
    attributes["a_max"] = 3
    assert verify(program).gas > 0
    with pytest.raises(LimitExceeded):
        verify(program, replace(DEFAULT, name="mine", entries=0))
