"""``cvm digest``: the digest of a program, the id of a receipt, the root of a trace or of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.options import Json
from cvm.cli.output import say, show, working
from cvm.errors import Invalid, Location, Malformed

if TYPE_CHECKING:
    from cvm.arrays import Array

__all__ = ["COMMAND"]

_EXPECTED = "a program, a receipt, a trace, or an array of integers (.npy, .npz)"


def command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="A program, a receipt, a trace, or arrays of integers (.npy, .npz)."),
    ],
    as_json: Json = False,
) -> int:
    """Print the digest of a program, the id of a receipt, or the roots of tensors and traces.

    Each is computed from the file; nothing that the file says of itself is believed. The root of a tensor is computed
    from its int32 codes, as in receipts: arrays of real numbers have none. Every array of a .npz file has its own root.
    """
    with working("hashing"):
        found = [item for path in files for item in _identities(path)]
    lines = [f"{item['digest']}  {item['kind']}  {item['path']}{_member(item)}" for item in found]
    return show({"files": found}, lambda console: say(console, "\n".join(lines)), as_json)


def _member(item: dict[str, Any]) -> str:
    return "" if item["member"] is None else f":{item['member']}"


def _identities(path: Path) -> list[dict[str, Any]]:
    from cvm.arrays import npz_members, read_npy, read_npz
    from cvm.formats import recognised, refuse_folder

    refuse_folder(path, _EXPECTED)
    format_found = recognised(path)
    key = None if format_found is None else format_found.key
    try:
        if key == "npz":
            return [_entry(path, "tensor", _root(read_npz(path, name), path, name), name) for name in npz_members(path)]
        if key == "npy":
            return [_entry(path, "tensor", _root(read_npy(path), path, None))]
        return [_entry(path, *_identity(path, key))]
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("digest.unreadable", message, Location(str(path))) from None


def _identity(path: Path, key: str | None) -> tuple[str, str]:
    from cvm.api import load
    from cvm.audit import load_receipt, read_trace
    from cvm.formats import diagnosed

    if key == "program":
        return "program", load(path).digest
    if key == "receipt":
        return "receipt", load_receipt(path).id
    if key == "trace":
        return "trace", read_trace(path).root.hex()
    path.open("rb").close()  # raises the error of a file that cannot be read
    message = "expected a program, a receipt, a trace, or an array of integers (.npy, .npz)"
    raise diagnosed(Malformed("digest.format", message, Location(str(path))), path, _EXPECTED, ())


def _root(array: Array, path: Path, member: str | None) -> str:
    """The root of the int32 codes of an array. Raises `Invalid` (``digest.tensor``)."""
    import numpy as np

    from cvm.program.commitments import tensor_root

    limits = np.iinfo(np.int32)
    if array.dtype.kind not in "iu" or not array.size or not limits.min <= array.min() <= array.max() <= limits.max:
        message = f"expected integers that int32 holds, found an array of {array.dtype}, shape {list(array.shape)}"
        raise Invalid("digest.tensor", message, Location(str(path), tensor=member))
    return tensor_root(array.astype(np.int32)).hex()


def _entry(path: Path, kind: str, digest: str, member: str | None = None) -> dict[str, Any]:
    return {"path": str(path), "kind": kind, "member": member, "digest": digest}


COMMAND = Command(command, ("cvm digest model.cvm result.receipt", "cvm digest codes.npz"))
