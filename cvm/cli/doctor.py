"""``cvm doctor``: the hardware and software of this machine, and whether it computes exactly."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from cvm.cli.cache import cache_document, in_words
from cvm.cli.declaration import Command
from cvm.cli.options import Json
from cvm.cli.output import say, show, table, working

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]

_PACKAGES = ("cvm", "numpy", "pydantic", "msgpack", "lark", "typer", "rich", "llvmlite")

_EXTRAS = {
    "onnx": (("onnx",), "read and write models of ONNX"),
    "tflite": (("tflite", "flatbuffers"), "read models of TFLite"),
    "report": (("matplotlib", "jinja2"), "make pages with `cvm report`"),
    "sign": (("cryptography",), "sign receipts; verifying signatures needs no extra"),
    "cuda": (("cuda-bindings",), "run programs on NVIDIA GPUs with --executor cuda; needs their driver"),
    "cluster": (("ray",), "verify receipts on a cluster"),
    "bench": (("onnxruntime", "openvino", "ai-edge-litert"), "time other engines with `cvm bench --compare`"),
}
"""The packages of each extra, and what the extra is for."""


def command(as_json: Json = False) -> int:
    """Show versions, extras, the machine, its code cache, GPUs and executors; test these against FORMAL.

    The self-test uses cases in which float arithmetic, wrong rounding or a wrong border would show. The exit code is 1
    if an executor fails it.
    """
    from cvm.executors import DEVICES, EXECUTORS, devices, examined
    from cvm.executors.base import cores
    from cvm.selftest import run_selftest

    with working("testing the executors"):
        default, why = examined()
        gpus, without = devices()
        names = [*EXECUTORS, *(DEVICES if gpus else ())]
        results = run_selftest([name for name in names if name != "formal"])
    cached = cache_document()
    failed = {result.executor for result in results if not result.agrees}
    document = {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "cpu": _cpu(),
            "cores": cores(),
            "threads": cores(),
            "blas": _blas(),
            "code cache": cached["folder"] if cached["trouble"] is None else in_words(cached),
        },
        "cache": cached,
        "extras": [_extra(name) for name in _EXTRAS],
        "executors": [
            {"name": name, "default": name == default, "why": why if name == default else "", "ok": name not in failed}
            for name in names
        ],
        "gpus": {"found": list(gpus), "without": without},
        "self_test": [
            {"executor": result.executor, "op": result.op, "what": result.what, "agrees": result.agrees}
            for result in results
        ],
        "ok": not failed,
    }
    return show(document, lambda console: _render(console, document), as_json, 1 if failed else 0)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or "unknown"


def _blas() -> str:
    import numpy

    config: Any = numpy.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return " ".join(str(blas[key]) for key in ("name", "version") if key in blas) or "unknown"


def _extra(name: str) -> dict[str, Any]:
    """An extra: its packages, its purpose, and which packages are missing."""
    packages, purpose = _EXTRAS[name]
    missing = [package for package in packages if _version(package) is None]
    return {"name": name, "packages": list(packages), "purpose": purpose, "missing": missing}


def _render(console: Console, document: dict[str, Any]) -> None:
    versions = ((name, found or "not installed") for name, found in document["versions"].items())
    gpus = document["gpus"]
    machine = document["machine"] | {"code cache": in_words(document["cache"])}
    machine["GPUs"] = "\n".join(gpus["found"]) or f"none: {gpus['without']}"
    table(console, ("", ""), [*versions, *machine.items()])
    say(console)
    extras = (
        (e["name"], e["purpose"], f"pip install 'cvm[{e['name']}]'" if e["missing"] else "installed")
        for e in document["extras"]
    )
    table(console, ("extra", "to", ""), extras)
    say(console)
    table(
        console,
        ("executor", "", "self-test"),
        (
            (item["name"], f"default ({item['why']})" if item["default"] else "", "passed" if item["ok"] else "FAILED")
            for item in document["executors"]
        ),
    )
    say(console)
    rows = ((t["executor"], t["op"], t["what"], "agrees" if t["agrees"] else "DIFFERS") for t in document["self_test"])
    table(console, ("executor", "op", "with", "formal"), rows)


COMMAND = Command(command, ("cvm doctor",))
