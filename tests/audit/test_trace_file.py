"""Files of traces: read as written, nothing hostile gets through, and no byte can be changed without notice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from cvm.audit import Recorder, Trace, encode_receipt, encode_trace, read_trace, verify, write_trace
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.limits import DEFAULT
from cvm.program.wire import pack
from cvm.session import Session
from tests.audit.examples import SUBJECTS, subject

ROOT = bytes(range(32))
(TRACE,) = subject("pair").traces()
BYTES = encode_trace(TRACE)


def read(folder: Path, data: bytes) -> Trace:
    path = folder / "x.trace"
    path.write_bytes(data)
    return read_trace(path)


def answer(name: str, *traces: Trace, **options: Any) -> tuple[str, str, str]:
    item = subject(name)
    found = verify(item.receipt(), item.verified, item.inputs, cycles=item.cycles, traces=traces, **options, codes=True)
    return found.answer, found.level, found.reason


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_trace_is_read_as_it_was_written(tmp_path, name):
    item = subject(name)
    traces = item.traces()
    assert [trace.root for trace in traces] == [run.trace for run in item.receipt().claim.runs]
    for trace in traces:
        write_trace(trace, tmp_path / "a.trace")
        assert read_trace(tmp_path / "a.trace") == trace
        assert (tmp_path / "a.trace").read_bytes() == encode_trace(trace)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_traces_of_a_receipt_are_reproduced(name):
    assert answer(name, *subject(name).traces())[:2] == ("REPRODUCED", "trace")
    assert answer(name, *subject(name).traces("formal"), level="formal")[:2] == ("REPRODUCED", "formal")


def test_a_recorder_keeps_traces_only_if_asked():
    item = subject("batch")
    recorder = Recorder(item.verified, trace=True)
    Session(item.verified).run(item.inputs, witness=recorder, codes=True)
    assert recorder.traces == ()
    assert recorder.receipt().traced


def test_every_changed_byte_is_refused_or_not_reproduced(tmp_path):
    answers = set()
    for index in range(len(BYTES)):
        for flip in (1, 128):
            changed = bytearray(BYTES)
            changed[index] ^= flip
            try:
                found = read(tmp_path, bytes(changed))
            except CvmError as error:
                answers.add(type(error).__name__)
                continue
            assert found != TRACE
            said = answer("pair", found)[0]
            answers.add(said)
            assert said in ("DIVERGED", "CANNOT_RECOMPUTE")
    assert answers == {"DIVERGED", "CANNOT_RECOMPUTE", "Malformed"}


def test_every_truncation_and_extension_is_malformed(tmp_path):
    for data in (*(BYTES[:length] for length in range(len(BYTES))), BYTES + b"\0"):
        with pytest.raises(Malformed) as caught:
            read(tmp_path, data)
        assert caught.value.code.startswith("trace.")


def mutants(trace: Trace) -> Iterator[tuple[str, Trace]]:
    """Every single field of a trace, changed."""
    yield "program", replace(trace, program=ROOT)
    for field in ("inputs", "before"):
        roots = getattr(trace, field)
        for index in range(len(roots)):
            yield f"{field}[{index}]", replace(trace, **{field: (*roots[:index], ROOT, *roots[index + 1 :])})
        yield f"{field} and one", replace(trace, **{field: (*roots, ROOT)})
        if roots:
            yield f"{field} less one", replace(trace, **{field: roots[:-1]})
    steps = trace.steps
    for number, step in enumerate(steps):
        others = [(*step[:index], ROOT, *step[index + 1 :]) for index in range(len(step))]
        for other in (*others, (), (*step, ROOT)):
            yield f"steps[{number}]", replace(trace, steps=(*steps[:number], other, *steps[number + 1 :]))
        yield f"steps[{number}:]", replace(trace, steps=steps[:number])
    yield "a step more", replace(trace, steps=(*steps, (ROOT,)))


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_of_a_given_trace_can_be_changed(name):
    traces = subject(name).traces()
    for number, trace in enumerate(traces):
        for what, mutant in mutants(trace):
            given = (*traces[:number], mutant, *traces[number + 1 :])
            said, _, reason = answer(name, *given)
            assert said == ("DIVERGED" if what.startswith(("steps", "a step")) else "CANNOT_RECOMPUTE"), (what, reason)


def test_the_first_op_that_differs_is_named():
    item = subject("example")
    (trace,) = item.traces()
    nodes = item.verified.program.nodes
    for number, node in enumerate(nodes):
        steps = (*trace.steps[:number], *[(ROOT,)] * (len(nodes) - number))
        said, level, reason = answer("example", replace(trace, steps=steps))
        assert (said, level) == ("DIVERGED", "outputs")
        named = f"run 0: op {number}, the {node.op} that gives {node.outputs[0].name!r}, is the first that differs"
        assert reason.startswith(named)
        assert trace.steps[number][0].hex() in reason
        assert reason.endswith(f"the given trace says {ROOT.hex()}")
        shorter = replace(trace, steps=trace.steps[:number])
        assert answer("example", shorter)[2].endswith("the given trace ends before it")
    longer = replace(trace, steps=(*trace.steps, (ROOT,)))
    assert answer("example", longer)[2] == "run 0: the given trace has 4 ops, the program 3"


def test_an_untraced_receipt_can_be_compared_with_given_traces():
    item = subject("batch")
    receipt, traces = item.receipt(trace=False), item.traces()
    assert verify(receipt, item.verified, item.inputs, traces=traces, codes=True).answer == "REPRODUCED"
    wrong = replace(traces[1], steps=((ROOT,), *traces[1].steps[1:]))
    found = verify(receipt, item.verified, item.inputs, traces=(traces[0], wrong), codes=True)
    assert (found.answer, found.reason.startswith("run 1: op 0, ")) == ("DIVERGED", True)
    # At level trace, what is neither claimed nor given is missing.
    found = verify(receipt, item.verified, item.inputs, traces=traces[:1], codes=True)
    assert (found.answer, found.reason) == ("CANNOT_RECOMPUTE", "the receipt names no trace of run 1")


def test_a_trace_is_not_compared_where_none_is_computed():
    for level in ("structure", "roots", "outputs"):
        with pytest.raises(Invalid) as caught:
            answer("pair", TRACE, level=level)
        assert caught.value.code == "verify.level"


HOSTILE = {
    "nothing": (b"", "trace.truncated"),
    "a receipt": (encode_receipt(subject("pair").receipt()), "trace.format"),
    "another version": (BYTES.replace(b"trace\x01", b"trace\x02", 1), "trace.version"),
    "a list that claims 2^32 - 1 ops": (BYTES.replace(b"\xa5steps", b"\xa5steps\xdd\xff\xff\xff\xff", 1), None),
    "a root that claims 2^32 - 1 bytes": (BYTES.replace(b"\xc4\x20", b"\xc6\xff\xff\xff\xff", 1), None),
    "a length in its longer form": (BYTES.replace(b"\xc4\x20", b"\xc5\x00\x20", 1), "trace.canonical"),
    "nesting without end": (b"\x93\xa9cvm-trace\x01" + b"\x91" * 10_000, "trace.type"),
    "nil": (b"\x93\xa9cvm-trace\x01\xc0", "trace.type"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(tmp_path, name):
    data, code = HOSTILE[name]
    with pytest.raises(Malformed) as caught:
        read(tmp_path, data)
    assert caught.value.code == (code or "trace.truncated")


def tree() -> Any:
    return msgpack.unpackb(BYTES)[2]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"program": bytes(31)}, "trace.root"),
        ({"inputs": [bytes(33)]}, "trace.root"),
        ({"before": [b""]}, "trace.root"),
        ({"steps": [[bytes(64)]]}, "trace.root"),
        ({"steps": [bytes(32)]}, "trace.type"),
        ({"steps": {}}, "trace.type"),
        ({"inputs": "text"}, "trace.type"),
        ({"program": 7}, "trace.type"),
        ({"zz": 1}, "trace.key"),
    ],
    ids=str,
)
def test_impossible_parts_are_refused(tmp_path, change, code):
    with pytest.raises(CvmError) as caught:
        read(tmp_path, pack(["cvm-trace", 1, {**tree(), **change}], "trace"))
    assert caught.value.code == code


@pytest.mark.parametrize("key", ["before", "inputs", "program", "steps"])
def test_no_key_may_be_missing(tmp_path, key):
    body = tree()
    del body[key]
    with pytest.raises(Malformed) as caught:
        read(tmp_path, pack(["cvm-trace", 1, body], "trace"))
    assert caught.value.code == "trace.key"


def test_more_ops_than_any_program_has_are_refused_before_they_are_read(tmp_path):
    count = 2**20 + 1
    data = BYTES[: BYTES.index(b"\xa5steps") + 6] + b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    with pytest.raises(LimitExceeded) as caught:
        read(tmp_path, data)
    assert caught.value.code == "limit.items"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "x.trace", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(LimitExceeded) as caught:
        read_trace(tmp_path / "x.trace")
    assert (caught.value.code, caught.value.location.file) == ("limit.trace_bytes", str(tmp_path / "x.trace"))


def test_what_could_not_be_read_is_not_written(tmp_path):
    with pytest.raises(LimitExceeded) as caught:
        write_trace(TRACE, tmp_path / "x.trace", replace(DEFAULT, receipt_bytes=len(BYTES) - 1))
    assert caught.value.code == "limit.trace_bytes"
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_is_said(tmp_path):
    for path, code in ((tmp_path, "format.other"), (tmp_path / "nothing.trace", "trace.unreadable")):
        with pytest.raises(CvmError) as caught:
            read_trace(path)
        assert (caught.value.code, caught.value.location.file) == (code, str(path))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_trace_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "a.trace"
    write_trace(TRACE, path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_trace(replace(TRACE, program=ROOT), path)
    assert os.listdir(tmp_path) == ["a.trace"]
    assert read_trace(path) == TRACE
