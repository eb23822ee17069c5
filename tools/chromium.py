"""Chromium without a window, driven through a pipe (the DevTools protocol): pages opened, read, used and drawn."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Browser", "found"]


def found() -> str | None:
    """The command of Chromium on this machine, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A Chromium with one page and without a network. Raises RuntimeError for errors of the page."""

    def __init__(self, width: int = 1000, height: int = 1400) -> None:
        command = found()
        if command is None:
            raise RuntimeError("Chromium is not installed")
        self._folder = tempfile.TemporaryDirectory(prefix="cvm-chromium-", ignore_cleanup_errors=True)
        there, self._to = os.pipe()
        self._from, back = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]

        def placed() -> None:
            first, second = os.dup(there), os.dup(back)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [command, *flags, f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=placed, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self._left, self._number, self._session = b"", 0, ""
        self.violations: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "DOM", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.violations.append(json.dumps(answer["params"])[:500])
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._from, 2**20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self._left += part
        whole, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(whole)
        return message

    def open(self, path: Path) -> None:
        """Open a file as a page, and wait until it has been read."""
        self.run("window.left = true")
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("window.left === undefined && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"].get("exception", found["exceptionDetails"])))
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression holds. Raises RuntimeError after so many seconds."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"after {seconds} s this does not hold: {condition}")
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        """The size of the page's window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, value: bool) -> None:
        """Whether the reader prefers dark pages."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if value else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str) -> None:
        """Press a key, by its name in the DOM."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes[key], text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes[key])

    def choose(self, selector: str, *paths: Path) -> None:
        """Choose files for an input of files, as a reader does."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path.resolve()) for path in paths])

    def draw(self, path: Path) -> None:
        """Write the page as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
