"""The page of a receipt: one HTML file that loads nothing, with receipt, program, module, inputs and the script.

A content security policy allows the page's own script and style, by their hashes, and the compilation of WebAssembly;
everything else is forbidden, the network included. Texts from files reach the page as JSON or base64, and the script
writes them as text. The same receipt, program and inputs give the same bytes.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.audit.receipt import Receipt, encode_receipt
from cvm.errors import Invalid
from cvm.executors.base import Int32Array
from cvm.export.wasm import loader, module
from cvm.inputs import Feed
from cvm.program.verifier import VerifiedProgram
from cvm.receipt_page.bundle import bundled

__all__ = ["page"]

_SCRIPTS = ("wire.js", "hashing.js", "signatures.js", "program.js", "receipt.js", "arrays.js", "page.js")
_TYPES = (np.dtype("u1"), np.dtype("i1"), np.dtype("<u2"), np.dtype("<i2"), np.dtype("<i4"))
_NAMES = {"|u1": "uint8", "|i1": "int8", "<u2": "uint16", "<i2": "int16", "<i4": "int32"}


def page(
    receipt: Receipt,
    verified: VerifiedProgram,
    samples: Sequence[Sequence[Feed]],
    state: Mapping[str, Int32Array] | None = None,
    labels: Sequence[str] = (),
) -> bytes:
    """The page of a receipt, in UTF-8.

    ``samples`` are the inputs of the runs, sample by sample and cycle by cycle; ``state`` is the state before each
    sample, if not the initial one. ``labels`` name the classes. Nothing that the receipt claims is verified here.
    Raises `Invalid` (``page.program``, ``page.runs``) if program or inputs cannot be those of the receipt, and what
    `cvm.export.wasm.module` raises.
    """
    claim, program = receipt.claim, verified.program
    if claim.program.hex() != program.digest:
        raise Invalid("page.program", f"the receipt is of the program {claim.program.hex()}, this is {program.digest}")
    runs = [feed for cycles in samples for feed in cycles]
    if len(runs) != len(claim.runs):
        raise Invalid("page.runs", f"the receipt is of {len(claim.runs)} runs, the inputs are those of {len(runs)}")
    blocks: dict[str, bytes] = {
        "receipt": encode_receipt(receipt),
        "program": program.to_bytes(),
        "module": module(verified, receipt.traced).code,
    }
    names = [item.value.name for item in program.inputs]
    facts: dict[str, Any] = {
        "samples": [len(cycles) for cycles in samples],
        "labels": list(labels),
        "inputs": [_stored(blocks, "input", name, np.stack([feed[name] for feed in runs])) for name in names],
        "state": [_stored(blocks, "state", name, array) for name, array in sorted((state or {}).items())],
    }
    return _written(facts, blocks, receipt)


def _stored(blocks: dict[str, bytes], kind: str, name: str, codes: npt.NDArray[np.int32]) -> dict[str, str]:
    """Store codes in the narrowest type that holds them; return how the script finds them."""
    lo, hi = int(codes.min()), int(codes.max())
    found = next(one for one in _TYPES if np.iinfo(one).min <= lo and hi <= np.iinfo(one).max)
    identity = f"{kind}-{len(blocks)}"
    blocks[identity] = codes.astype(found).tobytes()
    return {"name": name, "type": _NAMES[found.str], "id": identity}


def _written(facts: Mapping[str, Any], blocks: Mapping[str, bytes], receipt: Receipt) -> bytes:
    scripts = {"index.js": loader(), **{name: _resource(f"scripts/{name}") for name in _SCRIPTS}}
    script, style = bundled(scripts), _resource("page.css")
    data = [f'<script type="application/json" id="facts">{_json(facts)}</script>']
    data += [
        f'<script type="application/octet-stream" id="{name}">{base64.b64encode(content).decode()}</script>'
        for name, content in blocks.items()
    ]
    filled = {
        "policy": f"default-src 'none'; script-src {_hash(script)} 'wasm-unsafe-eval'; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        "tool": html.escape(f"cvm {version('cvm')}"),
        "trace": " --trace" if receipt.traced else "",
        "style": style,
        "script": script,
        "data": "\n".join(data),
    }
    text = _resource("page.html")
    for name, content in filled.items():
        head, _, tail = text.partition(f"{{{{{name}}}}}")
        text = head + content + tail
    return text.encode()


def _json(facts: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element: no text in it ends the element."""
    return json.dumps(facts, ensure_ascii=True, sort_keys=True).replace("<", "\\u003c")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return resources.files("cvm.receipt_page").joinpath(name).read_text("utf-8")
