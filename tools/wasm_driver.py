"""Runs exported modules of WebAssembly in engines: Node and Chromium by the JavaScript that a user gets, and wasmtime.

They share the method ``run(code, feeds)``: the tensors of each run by name, outputs under the names of
the outputs, and every tensor of a traced module under the name of its value.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgpack
import numpy as np
import numpy.typing as npt

from cvm.export.wasm import loader
from cvm.export.wasm.binary import Cursor
from cvm.export.wasm.writing import SECTION
from tools.chromium import Browser

__all__ = ["MAKERS", "Chromium", "Engine", "Node", "Ran", "Wasmtime", "description", "engines"]

Array = npt.NDArray[np.int32]
Ran = tuple[dict[str, Array], dict[str, Array]]
"""The outputs of a run by name, and the tensors of a traced run by the names of their values."""
ROOT = Path(__file__).parents[1]


class Engine(Protocol):
    """What runs modules."""

    def run(self, code: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[Ran]:
        """Runs of one module, one after the other. Raises RuntimeError."""


def description(code: bytes) -> dict[str, Any]:
    """What a module says of itself."""
    cursor = Cursor(code, 8)
    while not cursor.done():
        kind, body = cursor.byte(), Cursor(cursor.take(cursor.unsigned()))
        if kind == 0 and body.text() == SECTION:
            found: dict[str, Any] = json.loads(body.rest())
            return found
    raise ValueError("the module has no description")


def _shaped(said: Mapping[str, Any], outputs: Mapping[str, bytes], tensors: Mapping[str, bytes]) -> Ran:
    def array(tensor: Mapping[str, Any], data: bytes) -> Array:
        return np.frombuffer(data, "<i4").reshape(tensor["shape"]).astype(np.int32)

    nodes = [one for node in said.get("nodes", ()) for one in node["outputs"]]
    return (
        {one["name"]: array(one, outputs[one["name"]]) for one in said["outputs"]},
        {one["name"]: array(one, tensors[one["name"]]) for one in nodes},
    )


class Node:
    """Node, which loads modules with the package's own JavaScript. One process runs all modules."""

    def __init__(self, command: str = "node") -> None:
        self._process = subprocess.Popen(
            [command, str(ROOT / "tools" / "wasm_run.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def run(self, code: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[Ran]:
        """See `Engine.run`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sent = [{name: np.ascontiguousarray(array, "<i4").tobytes() for name, array in feed.items()} for feed in feeds]
        content = msgpack.packb({"module": code, "feeds": sent})
        self._process.stdin.write(len(content).to_bytes(4, "little") + content)
        self._process.stdin.flush()
        head = self._process.stdout.read(4)
        if len(head) != 4:
            raise RuntimeError("Node has ended")
        answer = msgpack.unpackb(self._process.stdout.read(int.from_bytes(head, "little")))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        said = description(code)
        return [_shaped(said, run["outputs"], run.get("tensors", {})) for run in answer["runs"]]


class Wasmtime:
    """wasmtime (``pip install wasmtime``), with memory written and read from Python."""

    def __init__(self) -> None:
        import wasmtime  # type: ignore[import-not-found, unused-ignore]

        self._wasmtime: Any = wasmtime
        self._engine = wasmtime.Engine()

    def run(self, code: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[Ran]:
        """See `Engine.run`."""
        said, store = description(code), self._wasmtime.Store(self._engine)
        instance = self._wasmtime.Instance(store, self._wasmtime.Module(self._engine, code), [])
        exports = instance.exports(store)
        memory, run = exports["memory"], exports["run"]

        def read(at: int, shape: Sequence[int]) -> bytes:
            return bytes(memory.read(store, at, at + 4 * math.prod(shape)))

        found = []
        for feed in feeds:
            for one in said["inputs"]:
                memory.write(store, np.ascontiguousarray(feed[one["name"]], "<i4").tobytes(), one["at"])
            bad = run(store)
            if bad != -1:
                raise RuntimeError(f"the module refuses array {bad}")
            outputs = {one["name"]: read(one["at"], one["shape"]) for one in said["outputs"]}
            nodes = [one for node in said.get("nodes", ()) for one in node["outputs"]]
            tensors = {one["name"]: read(one["at"], one["shape"]) for one in nodes}
            found.append(_shaped(said, outputs, tensors))
            for one in said["state"]:
                memory.write(store, read(one["next"], one["shape"]), one["at"])
        return found


_IN_CHROMIUM = """import("data:text/javascript;base64,%s").then(async ({ load }) => {
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const text = (codes) => {
    const raw = new Uint8Array(codes.buffer);
    let found = "";
    for (let at = 0; at < raw.length; at += 4096) found += String.fromCharCode(...raw.subarray(at, at + 4096));
    return btoa(found);
  };
  const model = await load(bytes("%s"));
  return %s.map((feed) => {
    const given = Object.entries(feed).map(([name, one]) => [name, new Int32Array(bytes(one).buffer)]);
    const inputs = Object.fromEntries(given);
    const outputs = Object.entries(model.run(inputs)).map(([name, codes]) => [name, text(codes)]);
    const nodes = model.description.nodes === undefined ? [] : [...model.nodes()].flatMap((node) => node.outputs);
    return [Object.fromEntries(outputs), Object.fromEntries(nodes.map((one) => [one.name, text(one.codes)]))];
  });
})"""


class Chromium:
    """Chromium without a window, which loads modules with the package's own JavaScript."""

    def __init__(self) -> None:
        self._browser = Browser()

    def close(self) -> None:
        """End the browser."""
        self._browser.close()

    def run(self, code: bytes, feeds: Sequence[Mapping[str, Array]]) -> list[Ran]:
        """See `Engine.run`."""

        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        sent = [
            {name: text(np.ascontiguousarray(array, "<i4").tobytes()) for name, array in feed.items()} for feed in feeds
        ]
        found = self._browser.run(_IN_CHROMIUM % (text(loader().encode()), text(code), json.dumps(sent)))
        said = description(code)
        decoded = [[{name: base64.b64decode(one) for name, one in part.items()} for part in run] for run in found]
        return [_shaped(said, *run) for run in decoded]


MAKERS: dict[str, Callable[[], Engine]] = {"node": Node, "wasmtime": Wasmtime, "chromium": Chromium}
"""The engines by name."""


def engines() -> list[str]:
    """The engines that this machine has, but for Chromium, which takes a second to start."""
    found = ["node"] if shutil.which("node") is not None else []
    return [*found, *(["wasmtime"] if importlib.util.find_spec("wasmtime") is not None else [])]
