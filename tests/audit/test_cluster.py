"""A folder of receipts on a Ray cluster of two workers: the answers of one machine, also when a worker is killed.

``pip install 'cvm[cluster]'``, then ``pytest tests/audit/test_cluster.py -m 'long or not long'``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cvm.audit.batch import Finished, receipts_in, verify_all
from cvm.audit.batch.log import Log
from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.workers import cluster as clusters
from cvm.workers.cluster import Cluster
from cvm.workers.processes import Processes
from tests.audit.test_batch import EXPECTED, ORDER, PROGRAM, folder

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]

try:
    import ray
    from ray.cluster_utils import Cluster as Machines
except ImportError:
    ray = None

needs_ray = pytest.mark.skipif(ray is None, reason="Ray is not installed (pip install 'cvm[cluster]')")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster whose head computes nothing, and its two workers of one processor each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "3")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = Machines(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield made, [made.add_node(num_cpus=1) for _ in range(2)]
    finally:
        made.shutdown()


def many(folder: Path, count: int) -> list[str]:
    """The paths of so many receipts, most of them true, and those of `EXPECTED`."""
    for number in range(100, 100 + count):
        for suffix in ("receipt", "npz"):
            (folder / f"{number}.{suffix}").write_bytes((folder / f"06.{suffix}").read_bytes())
    return receipts_in(folder)


def expected(path: str) -> str:
    return EXPECTED.get(path, "REPRODUCED")


@needs_ray
def test_a_worker_that_is_killed_loses_no_receipt(machines: Any, folder: Path, tmp_path: Path) -> None:
    made, workers = machines
    paths, log = many(folder, 120), tmp_path / "log"
    found: list[Finished] = []
    for finished in verify_all(folder, paths, ORDER, log, Cluster(made.address)):
        found.append(finished)
        if len(found) == 20:  # both have receipts before them
            assert ray.cluster_resources()["CPU"] == 2
            assert all(worker.remaining_processes_alive() for worker in workers)
            made.remove_node(workers[0], allow_graceful=False)
            assert [bool(worker.any_processes_alive()) for worker in workers] == [False, True]
    assert {item.path: item.answer for item in found} == {path: expected(path) for path in paths}
    assert len(found) == len(paths)
    # The log is one that this machine goes on with, and the answers are its own.
    assert set(Log.read(log, ORDER).results) == set(paths)
    alone = verify_all(folder, paths, ORDER, None, Processes(1))
    assert sorted(found, key=lambda item: item.path) == sorted(alone, key=lambda item: item.path)
    assert all(item.resumed for item in verify_all(folder, paths, ORDER, log, Processes(1)))


@needs_ray
@pytest.mark.long
def test_the_command_line_goes_on_after_it_was_killed(machines: Any, folder: Path, tmp_path: Path) -> None:
    made, _ = machines
    paths, log = many(folder, 60), tmp_path / "log"
    PROGRAM.program.save(tmp_path / "m.cvm")
    command = [sys.executable, "-m", "cvm", "receipt", "verify", folder, "--codes", "--program", tmp_path / "m.cvm"]
    command += ["--ray", made.address, "--resume", log, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*map(str, command)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and log.read_bytes().count(b"\n") > 3:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    process.wait()
    known = len(Log.read(log, ORDER).results)
    assert known >= 3
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["receipts"], document["resumed"]) == (1, len(paths), known)
    assert {item["path"]: item["answer"] for item in document["results"]} == {path: expected(path) for path in paths}
    assert "Traceback" not in done.stderr


@needs_ray
@pytest.mark.long
def test_a_cluster_without_processors_is_given_up(machines: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, workers = machines
    monkeypatch.setattr(clusters, "PATIENCE", 2.0)
    for worker in workers:
        made.remove_node(worker, allow_graceful=False)
    with pytest.raises(LimitExceeded) as caught:
        list(verify_all(folder, receipts_in(folder), ORDER, None, Cluster(made.address)))
    assert caught.value.code == "limit.workers"
    assert not ray.is_initialized()


@needs_ray
@pytest.mark.long
def test_a_node_with_another_version_of_cvm_is_refused(
    machines: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = machines
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.0.0")
    with pytest.raises(CvmError) as caught:
        list(verify_all(folder, receipts_in(folder), ORDER, None, Cluster(made.address)))
    assert caught.value.code == "cluster.version"


def test_without_ray_there_is_no_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Unsupported) as caught:
        list(verify_all(folder, receipts_in(folder), ORDER, None, Cluster("auto")))
    assert caught.value.code == "cluster.ray"
    assert "cvm[cluster]" in caught.value.message


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere.invalid:6379", "x:y", "a:99999999"])
def test_an_address_that_does_not_answer_is_said(folder: Path, address: str) -> None:
    begin = time.monotonic()
    with pytest.raises(Invalid) as caught:
        list(verify_all(folder, receipts_in(folder), ORDER, None, Cluster(address)))
    assert caught.value.code == "cluster.address"
    assert address in caught.value.message
    assert time.monotonic() - begin < 20


@needs_ray
@pytest.mark.parametrize("says", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"", b"\x04"])
def test_what_answers_and_is_no_cluster_is_said(folder: Path, says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(says)

        address = f"127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Invalid) as caught:
            list(verify_all(folder, receipts_in(folder), ORDER, None, Cluster(address)))
        thread.join()
    assert caught.value.code == "cluster.address"
