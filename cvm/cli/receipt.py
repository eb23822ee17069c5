"""``cvm receipt``: show, verify, compare and sign receipts, and make pages of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli import receipt_page, verify
from cvm.cli.declaration import Command, Group
from cvm.cli.options import Json
from cvm.cli.output import say, show, table, write_file
from cvm.cli.verdicts import PRINTED
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.audit.receipt import Receipt

__all__ = ["GROUP"]

_ReceiptFile = Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt file.")]


def show_receipt(receipt: _ReceiptFile, as_json: Json = False) -> int:
    """Show what a receipt claims, its id, its signatures, and what the host said of itself.

    Nothing is verified, except that the file is whole and canonical. The id is computed from the claim.
    """
    from cvm.cli.feeds import read_receipt

    document = describe(read_receipt(receipt))
    return show(document, lambda console: _render_receipt(console, document), as_json)


def describe(receipt: Receipt) -> dict[str, Any]:
    """A receipt as a document."""
    claim, host = receipt.claim, receipt.host
    return {
        "id": receipt.id,
        "claim": {
            "program": claim.program.hex(),
            "op_set": claim.op_set,
            "limits": claim.limits,
            "gas": claim.gas,
            "runs": [
                {
                    "inputs": [root.hex() for root in run.inputs],
                    "before": [root.hex() for root in run.before],
                    "outputs": [root.hex() for root in run.outputs],
                    "after": [root.hex() for root in run.after],
                    "trace": None if run.trace is None else run.trace.hex(),
                }
                for run in claim.runs
            ],
        },
        "signatures": [{"key": item.key.hex(), "signature": item.signature.hex()} for item in receipt.signatures],
        "not_authenticated": {
            "executor": host.executor,
            "version": host.version,
            "machine": host.machine,
            "time": host.time,
        },
    }


def _render_receipt(console: Console, document: dict[str, Any]) -> None:
    claim = document["claim"]
    say(console, f"receipt   {document['id']}")
    say(console, f"program   {claim['program']}")
    say(console, f"op-set    {claim['op_set']}, limits {claim['limits']}, gas {claim['gas']} per run")
    for number, run in enumerate(claim["runs"][:PRINTED]):
        for what in ("inputs", "before", "outputs", "after"):
            for index, root in enumerate(run[what]):
                say(console, f"run {number:<5} {what.removesuffix('s')} {index}: {root}")
        if run["trace"] is not None:
            say(console, f"run {number:<5} trace: {run['trace']}")
    if len(claim["runs"]) > PRINTED:
        say(console, f"... {len(claim['runs'])} runs in all; --json shows every one")
    for item in document["signatures"]:
        say(console, f"signed by {item['key']} (not verified)")
    said = [value for value in document["not_authenticated"].values() if value]
    say(console, f"the host said (not authenticated): {', '.join(said) or 'nothing'}")


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="A receipt file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: Json = False,
) -> int:
    """Compare the claims of two receipts: each field that differs, first to last. The exit code is 1 if any does.

    Signatures, and what the hosts say of themselves, are not compared.
    """
    from cvm.cli.feeds import read_receipt

    one, other = describe(read_receipt(first)), describe(read_receipt(second))
    differences = list(_differences("", one["claim"], other["claim"]))
    document = {"equal": not differences, "ids": [one["id"], other["id"]], "differences": differences}

    def render(console: Console) -> None:
        if not differences:
            say(console, f"EQUAL    {one['id']}")
            return
        say(console, f"DIFFER   {one['id']}, {other['id']}")
        rows = ((item["field"], item["first"], item["second"]) for item in differences[:PRINTED])
        table(console, ("field", "first", "second"), rows)
        if len(differences) > PRINTED:
            say(console, f"... and {len(differences) - PRINTED} more; --json shows every one")

    return show(document, render, as_json, 1 if differences else 0)


def _differences(name: str, one: Any, other: Any) -> list[dict[str, Any]]:
    """The leaves that differ between two documents of the same form."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [item for key in one for item in _differences(f"{name}.{key}" if name else key, one[key], other[key])]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [item for index, (a, b) in pairs for item in _differences(f"{name}[{index}]", a, b)]
    if one == other:
        return []
    said: Callable[[Any], Any] = lambda value: f"{len(value)} items" if isinstance(value, list) else value  # noqa: E731
    return [{"field": name, "first": said(one), "second": said(other)}]


def sign(
    receipt: _ReceiptFile,
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="An Ed25519 private key: PEM, PKCS #8, not encrypted.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The file to write; by default in place.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Sign a receipt with an Ed25519 key, in place; `openssl genpkey -algorithm ed25519` makes one.

    The signature covers the claim's id. It says who vouches for the claim, not that the claim is true.
    """
    from cvm.audit import encode_receipt
    from cvm.audit import sign as signed_with
    from cvm.cli.feeds import read_receipt
    from cvm.program.reading import read_bytes

    try:
        pem = read_bytes(key, 2**16, "key")
    except OSError as error:
        raise Invalid("sign.key", f"cannot be read: {error.strerror or error}", Location(str(key))) from None
    try:
        signed = signed_with(read_receipt(receipt), pem)
    except Invalid as error:
        raise error.at(file=str(key)) if error.code == "sign.key" else error from None
    target = receipt if output is None else output
    write_file(target, encode_receipt(signed))
    keys = [item.key.hex() for item in signed.signatures]
    document = {"receipt": signed.id, "path": str(target), "signers": keys}

    def render(console: Console) -> None:
        say(console, f"receipt   {signed.id}")
        for item in keys:
            say(console, f"signed by {item}")
        say(console, f"wrote     {target}")

    return show(document, render, as_json)


GROUP = Group(
    "Show, verify, compare and sign receipts of runs, and make pages that verify them.",
    {
        "show": Command(show_receipt, ("cvm receipt show result.receipt",)),
        "verify": Command(
            verify.command,
            (
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy",
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy --level formal --sample 100",
                "cvm receipt verify result.receipt --program model.cvm -i photo.npy --trace-file result.trace",
                "cvm receipt verify receipts/ --program model.cvm --resume audit.log",
                "cvm receipt verify receipts/ --program model.cvm --resume audit.log --ray 10.0.0.1:6379",
            ),
        ),
        "page": Command(
            receipt_page.command,
            ("cvm receipt page result.receipt --program model.cvm -i photo.npy -o page.html",),
        ),
        "diff": Command(diff, ("cvm receipt diff mine.receipt theirs.receipt",)),
        "sign": Command(sign, ("cvm receipt sign result.receipt --key key.pem",)),
    },
)
