"""An external program under test, through the protocol of ``spec_vectors/README.md``.

The program is started once and asked case by case through its standard input and output; a frame is the length (u32,
little-endian) and that many bytes of msgpack. A program that does not answer in time, breaks the protocol or dies fails
the case and is started again. After three such failures it is given up, and fails all further cases.
"""

from __future__ import annotations

import shlex
import struct
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Thread
from types import TracebackType
from typing import Any

import msgpack

from cvm.errors import Invalid
from cvm.program.wire import Tree, pack
from cvm.vectors.answer import VERDICTS, Answer
from cvm.vectors.format import (
    Bounds,
    OpCase,
    ProgramCase,
    VectorTensor,
    VerdictCase,
    tree_of_attributes,
    tree_of_tensor,
    tree_of_tensors,
)

__all__ = ["PROTOCOL", "CommandRunner"]

PROTOCOL = 1
"""The version of the protocol, in every request."""

_NO_ANSWER = "the program ended without an answer"
_FRAME_BYTES = 2**28
_ATTEMPTS = 3
_PATIENCE = 1
"""The seconds that a program that has ended gets for the rest of its standard error."""
_LINES, _LINE_BYTES = 1_000, 4_096
"""The most lines of a program's standard error that are remembered, and the longest piece that is passed on at once."""
_ITEM_BYTES = {"int32": 4, "int64": 8}


class _Broken(Exception):
    """The program broke the protocol; the message says how."""


class CommandRunner:
    """The program that ``command`` starts (split as a shell would, run without one); a context manager.

    ``timeout`` is the number of seconds for one answer. Raises `Invalid` (code ``vectors.command``) for a command that
    cannot be started.
    """

    def __init__(self, command: str, timeout: float = 60) -> None:
        self.name = command
        self._timeout = timeout
        self._failures = 0
        self._last = ""
        self._count = 0
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            raise Invalid("vectors.command", f"the command {command!r} cannot be read: {error}") from None
        self._said: set[bytes] = set()
        self._process: subprocess.Popen[bytes] | None = self._started()
        self._worker = ThreadPoolExecutor(1)

    def __enter__(self) -> CommandRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program: its standard input is closed; if it does not exit within five seconds, it is killed."""
        process, self._process = self._process, None
        if process is not None:
            _end(process, 5)
        self._listener.join(_PATIENCE)
        self._worker.shutdown()

    def op(self, case: OpCase) -> Answer:
        """See `Runner.op`."""
        return self._asked({
            "kind": "op",
            "op": case.op,
            "attributes": tree_of_attributes(case.attributes),
            "inputs": [tree_of_tensor(tensor) for tensor in case.inputs],
        })  # fmt: skip

    def program(self, case: ProgramCase) -> Answer:
        """See `Runner.program`."""
        runs: list[Tree] = [tree_of_tensors(run.inputs) for run in case.runs]
        return self._asked({"kind": "program", "program": case.program, "runs": runs})

    def verdict(self, case: VerdictCase) -> Answer:
        """See `Runner.verdict`."""
        return self._asked({"kind": "verdict", "program": case.program})

    @property
    def given_up(self) -> str:
        """Why the program is no longer asked; empty while it is."""
        return self._last if self._failures >= _ATTEMPTS else ""

    def _started(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(self._arguments, stdin=pipe, stdout=pipe, stderr=pipe)
        except (OSError, ValueError, IndexError) as error:
            raise Invalid("vectors.command", f"the command {self.name!r} cannot be started: {error}") from None
        self._listener = Thread(target=_forward, args=(process, self._said), daemon=True)
        self._listener.start()
        return process

    def _asked(self, request: dict[str, Tree]) -> Answer:
        if self._failures >= _ATTEMPTS:
            return Answer("error", message=f"the program was given up after {_ATTEMPTS} failures")
        self._count += 1
        try:
            if self._process is None:
                self._process = self._started()
            frame = pack({**request, "id": self._count, "version": PROTOCOL}, "vectors")
            answer = self._worker.submit(_exchange, self._process, frame)
            return _read(answer.result(self._timeout), self._count)
        except FutureTimeout:
            return self._failed(f"no answer within {self._timeout} seconds")
        except BrokenPipeError:  # it ended before it took all of the question
            return self._failed(_NO_ANSWER)
        except (_Broken, OSError, Invalid) as error:
            return self._failed(str(error))

    def _failed(self, message: str) -> Answer:
        self._failures += 1
        self._last = message
        process, self._process = self._process, None
        if process is not None:
            _end(process, 0)
            self._listener.join(_PATIENCE)
        return Answer("error", message=message)


def _forward(process: subprocess.Popen[bytes], said: set[bytes]) -> None:
    """Pass on what a program writes to its standard error, line by line, without the lines of its earlier starts."""
    assert process.stderr is not None, "started with pipes"
    before = frozenset(said)
    with process.stderr as lines:
        while line := lines.readline(_LINE_BYTES):
            if len(said) < _LINES:
                said.add(line)
            if line not in before:
                sys.stderr.write(line.decode("utf-8", "replace"))
                sys.stderr.flush()


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Close the program's input, wait ``seconds`` seconds, then kill it."""
    if seconds == 0:
        process.kill()
    try:
        if process.stdin is not None:
            process.stdin.close()
    except OSError:  # the program has exited already
        pass
    try:
        process.wait(seconds or None)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _exchange(process: subprocess.Popen[bytes], frame: bytes) -> bytes:
    """Send one frame, receive one."""
    assert process.stdin is not None, "started with pipes"
    assert process.stdout is not None, "started with pipes"
    process.stdin.write(struct.pack("<I", len(frame)) + frame)
    process.stdin.flush()
    header = process.stdout.read(4)
    if len(header) < 4:
        raise _Broken(_NO_ANSWER)
    (length,) = struct.unpack("<I", header)
    if length > _FRAME_BYTES:
        raise _Broken(f"the program announced a frame of {length} bytes; {_FRAME_BYTES} are allowed")
    body = process.stdout.read(length)
    if len(body) < length:
        raise _Broken(f"the program ended after {len(body)} of {length} bytes")
    return body


def _read(body: bytes, number: int) -> Answer:
    """The answer in a frame."""
    try:
        fields = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise _Broken(f"the answer is not msgpack: {error}") from None
    if not isinstance(fields, dict) or fields.get("id") != number:
        raise _Broken(f"the answer is no map with id {number}")
    if fields.get("verdict") not in VERDICTS:
        raise _Broken(f"the verdict is none of {', '.join(VERDICTS)}")
    runs = _expected(list, fields.get("runs", []), "runs")
    return Answer(
        fields["verdict"],
        _expected(str, fields.get("code", ""), "code"),
        _expected(str, fields.get("message", ""), "message"),
        tuple(_tensor(item) for item in _expected(list, fields.get("outputs", []), "outputs")),
        _expected(str, fields.get("digest", ""), "digest"),
        tuple(_named(run) for run in runs),
        tuple(_integer(item) for item in _expected(list, fields.get("gas", []), "gas")),
        {name: _bounds(item) for name, item in _expected(dict, fields.get("ranges", {}), "ranges").items()},
    )


def _integer(item: Any) -> int:
    if type(item) is not int:
        raise _Broken(f"expected an integer, found {item!r:.80}")
    return item


def _bounds(item: Any) -> Bounds:
    runs = [
        tuple(_integer(number) for number in _expected(list, run, "bounds")) for run in _expected(list, item, "bounds")
    ]
    if any(len(run) != 3 for run in runs):
        raise _Broken("equal bounds are [lo, hi, how many]")
    return tuple((lo, hi, count) for lo, hi, count in runs)


def _named(run: Any) -> Mapping[str, VectorTensor]:
    return {name: _tensor(item) for name, item in _expected(dict, run, "a run").items()}


def _tensor(item: Any) -> VectorTensor:
    match item:
        case [str(dtype), list(extents), bytes(data)] if dtype in _ITEM_BYTES:
            size = _ITEM_BYTES[dtype]
            for extent in extents:
                if type(extent) is not int or extent < 1:
                    raise _Broken(f"a tensor has the shape {extents!r}")
                size *= extent
            if len(data) != size or not 1 <= len(extents) <= 8:
                raise _Broken(f"a tensor has {len(data)} bytes for {dtype} elements of shape {extents}")
            return VectorTensor(dtype, tuple(extents), data)
    raise _Broken("a tensor is [dtype, shape, data] with dtype int32 or int64")


def _expected(kind: type[Any], item: Any, what: str) -> Any:
    if not isinstance(item, kind):
        raise _Broken(f"{what} has the type {type(item).__name__}, expected {kind.__name__}")
    return item
