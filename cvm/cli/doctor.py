"""``cvm doctor``: the hardware and software of this machine, and whether it computes exactly."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from cvm.cli.declaration import Command
from cvm.cli.options import Json
from cvm.cli.output import say, show, table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]

_PACKAGES = ("cvm", "numpy", "pydantic", "msgpack", "lark", "typer", "rich", "llvmlite")


def command(as_json: Json = False) -> int:
    """Show versions, the CPU, the BLAS library, the code cache and the executors; test every executor against FORMAL.

    The test is on cases where float arithmetic, wrong rounding or a wrong border would show. The exit code is 1 if an
    executor fails it.
    """
    from cvm.executors import EXECUTORS
    from cvm.executors.base import cores
    from cvm.selftest import run_selftest
    from cvm.session import choose_executor

    default, why = choose_executor()
    results = run_selftest([name for name in EXECUTORS if name != "formal"])
    failed = {result.executor for result in results if not result.agrees}
    document = {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "cpu": _cpu(),
            "cores": cores(),
            "blas": _blas(),
            "code cache": _cache(),
        },
        "executors": [
            {"name": name, "default": name == default, "why": why if name == default else "", "ok": name not in failed}
            for name in EXECUTORS
        ],
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


def _cache() -> str:
    """The folder of compiled code, or why there is none."""
    from cvm.executors.native.runtime import cache

    found = cache.trouble()
    return str(cache.folder()) if found is None else f"not used: {found}"


def _render(console: Console, document: dict[str, Any]) -> None:
    versions = ((name, found or "not installed") for name, found in document["versions"].items())
    table(console, ("", ""), [*versions, *document["machine"].items()])
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
