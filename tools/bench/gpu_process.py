"""An engine on a GPU in a process of its own, which times calls when it is asked to.

    python -m tools.bench.gpu_process ENGINE NETWORK BATCH DEVICE [NAME=FILE.cvm]..

The process opens the engine, answers that it is ready, and then answers each line of its standard input: a number of
seconds, or ``layers``. An answer is a line that begins with `MARK`, then JSON; everything else that it prints is an
engine's own.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cvm.audit.costs import macs
from cvm.bench.engines import random_inputs
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.program.files import load_verified
from cvm.program.verifier import VerifiedProgram, verify
from cvm.session import Session
from tools.bench.gpu_layers import layers
from tools.bench.gpu_peers import PEERS
from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of
from tools.bench.transformer import BASE, encoder

__all__ = ["NAMES", "Failure", "Opened", "main"]

MARK = "@answer "
TRANSFORMERS = {"bert_base": BASE}
NAMES = (*NETWORKS, *TRANSFORMERS)
"""The networks that are known by name."""
ENDING = 10.0
"""The most seconds to wait for a process that was ended."""
WARM = 3
"""The calls before those that count."""


class Failure(Exception):
    """An engine that is not there, has failed, or has not answered in time."""


class Opened:
    """An engine in a process. Use it in a ``with`` statement, at whose end the process is ended."""

    def __init__(
        self, engine: str, network: str, batch: int, device: int, programs: Sequence[str], command: Sequence[str] = ()
    ) -> None:
        words = [sys.executable, "-m", "tools.bench.gpu_process", engine, network, str(batch), str(device), *programs]
        self._command = [*command] or words
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._last = ""
        self.macs = 0
        """The multiply-adds of a sample, when it is ready."""

    def __enter__(self) -> Opened:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it may wait for a driver that hangs
            self._process.wait(ENDING)
        self._reader.join(ENDING)
        if self._reader.is_alive():
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not read any more
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._answers.put(line.removeprefix(MARK))
            elif line.strip():
                self._last = line.strip()
        self._answers.put(None)

    def _answer(self, limit: float) -> Any:
        """The next answer. Raises `Failure` if it says so, or does not come."""
        try:
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self._process.kill()
            raise Failure(f"it had not answered after {limit:.0f} s") from None
        if line is None:
            raise Failure(f"its process ended with {self._process.wait()}: {self._last}")
        answer = json.loads(line)
        if "failure" in answer:
            raise Failure(answer["failure"])
        return answer

    def _ask(self, line: str, limit: float) -> Any:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process has ended, and the answer says so
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self._answer(limit)

    def ready(self, limit: float) -> None:
        """Wait until the engine is ready."""
        self.macs = int(self._answer(limit)["macs"])

    def timed(self, seconds: float, limit: float) -> tuple[list[float], float | None]:
        """The times of calls during so many seconds, and the joules of a call, if the GPU counts them."""
        answer = self._ask(str(seconds), limit)
        return answer["times"], answer["joules"]

    def layers(self, limit: float) -> tuple[list[dict[str, Any]], float]:
        """The launches of cvm as data, and the seconds of the whole run."""
        answer = self._ask("layers", limit)
        return answer["launches"], answer["run"]


# In the process -----------------------------------------------------------------------------------------------------


def _verified(name: str, programs: Sequence[str]) -> VerifiedProgram:
    files = dict(item.split("=", 1) for item in programs)
    if name in files:
        return load_verified(Path(files[name]))
    return verify(encoder(TRANSFORMERS[name]) if name in TRANSFORMERS else program_of(NETWORKS[name]()))


def _opened(engine: str, name: str, batch: int, device: Driver, verified: VerifiedProgram) -> Callable[[], object]:
    """A call of an engine on one batch. Raises what the engine raises."""
    if engine != "cvm":
        network = NETWORKS[name]() if name in NETWORKS else TRANSFORMERS.get(name)
        if network is None:
            raise ImportError("this network is a program of cvm alone")
        return PEERS[engine](network, batch, device)
    inputs = random_inputs(verified.program.inputs, batch)
    ours, numpy = Session(verified, "cuda", device=device.found.index), Session(verified, "numpy")
    few = random_inputs(verified.program.inputs, min(batch, 2))
    expected, found = numpy.run(few, codes=True), ours.run(few, codes=True)
    if any("no kernels are used" in line for line in ours.explain()):
        raise RuntimeError(ours.explain()[1])
    if any(not np.array_equal(found[name], expected[name]) for name in expected):
        raise RuntimeError("the bytes are not those of the NumPy executor")
    return lambda: ours.run(inputs, codes=True)


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """The times of calls during so many seconds, after some that are not counted."""
    for _ in range(WARM):
        run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def energy(index: int) -> Callable[[], float] | None:
    """A function that gives the joules that a GPU has used so far; None if they cannot be read."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # the package has an error of its own for each reason, and none matters here
        return None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000


def _say(answer: dict[str, Any]) -> None:
    print(f"{MARK}{json.dumps(answer)}", flush=True)


def _round(run: Callable[[], object], seconds: float, meter: Callable[[], float] | None) -> dict[str, Any]:
    before = None if meter is None else meter()
    times = timed(run, seconds)
    joules = None if meter is None or before is None else (meter() - before) / (len(times) + WARM)
    return {"times": times, "joules": joules}


def main(arguments: Sequence[str]) -> int:
    """The process: see the module."""
    engine, name, samples, number, *programs = arguments
    batch = int(samples)
    try:
        device = Driver(int(number), ptx.assembled)
        verified = _verified(name, programs)
        run = _opened(engine, name, batch, device, verified)
        run()
        meter = energy(device.found.index)
        _say({"macs": sum(macs(verified))})
        for line in sys.stdin:
            if line.strip() == "layers":
                launches, whole = layers(device, verified, batch)
                _say({"launches": [asdict(one) for one in launches], "run": whole})
            else:
                _say(_round(run, float(line), meter))
    except ImportError as error:
        _say({"failure": f"not there: {error}"})
    except Exception as error:  # an engine may raise anything, and the table names it
        _say({"failure": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
