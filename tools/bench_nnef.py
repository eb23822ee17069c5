"""The speed of reading documents: ``python -m tools.bench_nnef`` prints the seconds that each large document takes.

Each is checked as ``cvm nnef check`` checks it, in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

__all__ = ["DOCUMENTS", "operations"]


def _document(body: str, extensions: str = "", fragments: str = "") -> str:
    head = f"version 1.0;\n{extensions}\n{fragments}graph net( x ) -> ( y )\n"
    return f"{head}{{\n    x = external(shape = [1,4]);\n{body}}}\n"


def operations(count: int) -> str:
    """A flat document of ``count`` operations, with all kinds of arguments."""
    kinds = ("relu({0})", "add({0}, x)", "mul({0}, 0.5)", "clamp({0}, -1.0, 1.0)", "softmax({0}, axes = [1])")
    names = ["x", *(f"t{index}" for index in range(1, count)), "y"]
    lines = (
        f"    {new} = {kinds[index % len(kinds)].format(old)};\n" for index, (old, new) in enumerate(pairwise(names))
    )
    return _document("".join(lines))


def literals(count: int) -> str:
    """A constant of ``count`` scalars."""
    numbers = ", ".join(f"{index % 1000}.{index % 7}e-{index % 5}" for index in range(count))
    return _document(f"    c = constant(shape = [{count}], value = [{numbers}]);\n    y = add_n([x, x]);\n")


def integers(count: int) -> str:
    """A constant of ``count`` integers, some of them negative."""
    numbers = ",".join(str(index % 2001 - 1000) for index in range(count))
    return _document(f"    c = constant<integer>(shape = [{count}], value = [{numbers}]);\n    y = relu(x);\n")


def expansions(count: int) -> str:
    """A fragment of ten operations, invoked ``count`` times."""
    extensions = "extension KHR_enable_fragment_definitions KHR_enable_operator_expressions;"
    chain = "".join(f"t{index + 1} = t{index} * 0.5 + x; " for index in range(5))
    fragment = f"fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> )\n{{ t0 = x; {chain}y = t5; }}\n"
    names = ["x", *(f"u{index}" for index in range(1, count)), "y"]
    body = "".join(f"    {new} = f({old});\n" for old, new in pairwise(names))
    return _document(body, extensions, fragment)


DOCUMENTS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "a flat document of 100,000 operations": lambda: operations(100_000),
        "a document of 1,000,000 literals": lambda: literals(1_000_000),
        "a document of 1,000,000 integers": lambda: integers(1_000_000),
        "65,000 operations from 6,500 fragments": lambda: expansions(6_500),
    }
)


def _measure(path: Path) -> None:
    from cvm.frontends import nnef

    begun, used = time.perf_counter(), time.process_time()
    report = nnef.check(path)
    seconds, used = time.perf_counter() - begun, time.process_time() - used
    if not report.valid:
        sys.exit(str(report))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{seconds:7.2f} s ({used:.2f} s of the processor)  {peak:4} MiB", end="")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    path = parser.parse_args().measure
    if path is not None:
        _measure(path)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in DOCUMENTS.items():
            document = Path(folder) / "graph.nnef"
            document.write_text(make(), encoding="ascii")
            command = [sys.executable, "-m", "tools.bench_nnef", "--measure", str(document)]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"{result.stdout}  {document.stat().st_size / 2**20:5.1f} MiB of text  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
