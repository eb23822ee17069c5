"""Whether a network still fails: executors, an engine or a command of the user, in a process that may crash."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cvm.arrays import npz_bytes
from cvm.comparison.engines import Setting
from cvm.comparison.running import checked
from cvm.errors import Invalid, Unsupported
from cvm.records import dataclass
from cvm.reduction.network import Array, Network
from cvm.reduction.opening import AnyForm

__all__ = ["Comparison", "Judge", "stacked"]

_WORKER = "cvm.reduction.worker"
_LONGEST = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared: executors with each other, an engine with the exact codes, or nothing but a command's word."""

    executors: tuple[str, ...] = ()
    engine: Setting | None = None
    command: tuple[str, ...] = ()

    def require(self, form: AnyForm) -> None:
        """Raise `Unsupported` for an engine that is missing or does not fit, `Invalid` for an unknown executor."""
        from cvm.executors import EXECUTORS

        unknown = next((name for name in self.executors if name not in EXECUTORS), None)
        if unknown is not None:
            message = f"there is no executor {unknown!r}; there are {', '.join(EXECUTORS)}"
            raise Invalid("executors.unknown", message)
        if self.engine is not None:
            checked(self.engine, form.format)


def stacked(network: Network) -> dict[str, Array]:
    """The data of all runs, along a further first axis of each input."""
    return {name: np.stack([run[name] for run in network.runs]) for name in network.inputs}


@dataclass(slots=True)
class Judge:
    """Says how a network fails. A context: leaving it ends its process and removes its files."""

    form: AnyForm
    comparison: Comparison
    seconds: float = _LONGEST
    """A run that takes longer is ended, and counts as one that does not fail."""
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cvm-reduce-")))
    process: subprocess.Popen[bytes] | None = None
    """The process that runs candidates; None until the first one, and after one that died."""
    _number: int = 0

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def outcome(self, network: Network) -> str:
        """How a network fails; "" if it does not. A crash and an error are failures, too."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        try:
            model, inputs = folder / f"model{self.form.suffix}", folder / "inputs.npz"
            self.form.save(network, model)
            inputs.write_bytes(npz_bytes(stacked(network)))
            if self.comparison.command:
                return self._command(model, inputs)
            asked: dict[str, Any] = {
                "model": str(model),
                "inputs": str(inputs),
                "names": list(network.inputs),
                "cycles": bool(network.state),
            }
            if self.comparison.engine is not None:
                exact = self.form.tensors(network)
                expected = folder / "expected.npz"
                names = [name for name in network.outputs if all(name in each for each in exact)]
                expected.write_bytes(
                    npz_bytes({f"output{n}": np.stack([e[name] for e in exact]) for n, name in enumerate(names)})
                )
                asked |= {"expected": str(expected), "outputs": names}
            return self._ask(asked)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _command(self, model: Path, inputs: Path) -> str:
        words = [*self.comparison.command, str(model), str(inputs)]
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
        except OSError as error:
            message = f"{words[0]} cannot be run: {error.strerror or error}"
            raise Invalid("reduce.command", message) from None
        return _ended(done.returncode) if done.returncode else ""

    def _ask(self, asked: dict[str, Any]) -> str:
        if self.process is None:
            self.process = self._started()
        process = self.process
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which the answer says
        line = self._line(process, self.seconds)
        if line is None:
            self._end()
            return ""
        if not line:
            code = process.wait()
            self._end()
            return _ended(code)
        return str(json.loads(line)["outcome"])

    def _started(self) -> subprocess.Popen[bytes]:
        engine = self.comparison.engine
        document: dict[str, Any] = {"executors": list(self.comparison.executors), "engine": None}
        words, environment = [sys.executable, "-m", _WORKER], {**os.environ}
        if engine is not None:
            document["engine"] = engine.document()
            words, environment = engine.process(_WORKER)
        path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(path)  # the process imports this cvm, whatever the folder
        process = subprocess.Popen(
            [*words, json.dumps(document)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        if not self._line(process, _LONGEST):
            process.kill()
            process.wait()
            raise Unsupported("reduce.process", f"the process that runs candidates does not start: {sys.executable}")
        return process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """The next line; None if it does not come in time, no bytes if the process has ended."""
        assert process.stdout is not None
        until, found = time.monotonic() + seconds, b""
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            more = os.read(process.stdout.fileno(), 65536)
            if not more:
                return b""
            found += more
        return found

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _ended(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
