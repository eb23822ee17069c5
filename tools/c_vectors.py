"""Exported C as an implementation under test: answers the questions of the vectors' protocol.

    cvm vectors check spec_vectors --command "python -m tools.c_vectors [--target gcc] [--options=-O1]"

For each question the op or program is exported, compiled, run with every tensor shown, and run as it is; both must give
the same outputs. What must be refused never becomes C: the verifier, which stands before the export, refuses it, and
that is the answer. Questions about the verifier itself are answered as unsupported, since C has none.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.program import Output, ProgramBuilder, decode, verify
from cvm.program.verifier import VerifiedProgram
from tools.c_driver import Member, build_all
from tools.c_targets import TARGETS, Target

__all__ = ["answered", "main"]

Array = npt.NDArray[Any]
Tree = dict[str, Any]

_VERDICTS: dict[type[CvmError], str] = {Invalid: "invalid", LimitExceeded: "limit", Malformed: "malformed"}
_DTYPES = {"int32": "<i4", "int64": "<i8"}


def answered(question: Mapping[str, Any], target: Target, options: Sequence[str]) -> Tree:
    """The answer to a question, without its number."""
    try:
        if question["kind"] == "op":
            verified, names = _of_op(question)
            (values,) = _computed(verified, [{}], target, options)
            return {"verdict": "value", "outputs": [_tree(values[name]) for name in names]}
        if question["kind"] == "program":
            verified = verify(decode(question["program"]))
            feeds = [{name: _array(tree) for name, tree in run.items()} for run in question["runs"]]
            runs = _computed(verified, feeds, target, options)
            shown = [{name: _tree(array) for name, array in run.items()} for run in runs]
            return {"verdict": "value", "runs": shown, "digest": verified.program.digest}
    except CvmError as error:
        return {"verdict": _VERDICTS.get(type(error), "error"), "code": error.code, "message": error.message}
    except (RuntimeError, ValueError) as error:
        return {"verdict": "error", "message": str(error)[:2000]}
    return {"verdict": "unsupported", "message": "C has no verifier"}


def _of_op(question: Mapping[str, Any]) -> tuple[VerifiedProgram, Sequence[str]]:
    """A program that applies the op to constants, and the names of its results."""
    builder = ProgramBuilder()
    arrays = [(tree[0], _array(tree)) for tree in question["inputs"]]
    names = [builder.parameter(array) if kind == "int64" else builder.constant(array) for kind, array in arrays]
    attributes = {
        name: tuple(item) if isinstance(item, list) else item for name, item in question["attributes"].items()
    }
    results = builder.add(question["op"], names, attributes)
    return verify(builder.build([Output(result, result) for result in results])), results


def _computed(
    verified: VerifiedProgram, feeds: Sequence[Mapping[str, Array]], target: Target, options: Sequence[str]
) -> list[dict[str, Array]]:
    """Every tensor of each run by the name of its value. Raises RuntimeError, also if the two exports disagree."""
    with tempfile.TemporaryDirectory(prefix="cvm-c-") as folder:
        batch = build_all([Member(verified), Member(verified, traced=True)], Path(folder), target, options)
        plain, traced = batch.run([feeds, feeds])
    for outputs, every in zip(plain, traced, strict=True):
        for item in verified.program.outputs:
            if not np.array_equal(outputs[item.name], every.setdefault(item.value, outputs[item.name])):
                raise RuntimeError(f"output {item.name!r} depends on whether tensors are shown")
    return traced


def _array(tree: Sequence[Any]) -> Array:
    kind, shape, data = tree
    return np.frombuffer(data, _DTYPES[kind]).reshape(shape).astype(np.int64 if kind == "int64" else np.int32)


def _tree(array: Array) -> list[Any]:
    return ["int32", list(array.shape), np.ascontiguousarray(array, "<i4").tobytes()]


def serve(source: BinaryIO, sink: BinaryIO, target: Target, options: Sequence[str]) -> None:
    """Answer questions until there are no more."""
    while header := source.read(4):
        question = msgpack.unpackb(source.read(*struct.unpack("<I", header)))
        frame = msgpack.packb({"id": question["id"], **answered(question, target, options)})
        sink.write(struct.pack("<I", len(frame)) + frame)
        sink.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=list(TARGETS), default="gcc")
    parser.add_argument("--options", default="-O1")
    options = parser.parse_args(arguments)
    target = TARGETS[options.target]
    if target.missing():
        print(f"{target.name}: {target.missing()}", file=sys.stderr)
        return 2
    serve(sys.stdin.buffer, sys.stdout.buffer, target, options.options.split())
    return 0


if __name__ == "__main__":
    sys.exit(main())
