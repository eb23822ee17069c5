"""Where the contracts are on a chain, and whether they are what this version of cvm takes them for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from cvm.audit.chain.interface import interface, required
from cvm.audit.chain.json_text import read_json
from cvm.audit.chain.judges import Part, judge_parts
from cvm.audit.chain.node import Account, Node
from cvm.errors import Invalid, Location, Malformed, Mismatch
from cvm.program.preimage import text, u32, u64
from cvm.program.reading import read_bytes
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass
from cvm.writing import write_file

__all__ = ["Deployment", "Terms", "deploy", "load", "receipt_head", "save", "verify"]

_VERSION = 1
_FILE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Terms:
    """What a book asks of its users."""

    bond: int
    """Wei of a claim, and of a challenge."""
    window: int
    """Seconds in which a claim can be challenged."""
    move_time: int
    """Seconds for each answer in a game."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The contracts on a chain."""

    chain: int
    block: int
    """No event of the contracts is in an earlier block."""
    terms: Terms
    heads: tuple[str, ...]
    """The programs of the book: what a receipt hashes before its list of runs, in hexadecimal."""
    contracts: Mapping[str, str]
    """The addresses by name."""

    def address(self, name: str) -> str:
        """The address of a contract."""
        return self.contracts[name]


def receipt_head(verified: VerifiedProgram) -> bytes:
    """What the receipts of a program hash before their list of runs (docs/commitments.md, section 8)."""
    program = verified.program
    named = u32(program.op_set) + text(program.limits) + u64(verified.gas)
    return b"cvm1:receipt\0" + bytes.fromhex(program.digest) + named


# Files


def save(path: str | PathLike[str], deployment: Deployment) -> None:
    """Write a deployment as JSON. Raises OSError."""
    document = {"version": _VERSION, **asdict(deployment)}
    write_file(path, (json.dumps(document, indent=2) + "\n").encode())


def load(path: str | PathLike[str]) -> Deployment:
    """Read a deployment. Raises `Malformed` (``chain.deployment``); an OSError becomes `Invalid`."""
    where = Location(str(path))
    try:
        data = read_bytes(Path(path), _FILE_BYTES, "deployment")
    except OSError as error:
        raise Invalid("chain.deployment", f"cannot be read: {error.strerror or error}", where) from None
    try:
        found = read_json(data)
        if found.pop("version") != _VERSION:
            raise ValueError("another version")
        terms = Terms(**{key: _natural(value) for key, value in found["terms"].items()})
        contracts = {str(name): _address(value) for name, value in found["contracts"].items()}
        heads = tuple(bytes.fromhex(head).hex() for head in found["heads"])
        return Deployment(_natural(found["chain"]), _natural(found["block"]), terms, heads, contracts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"this is no deployment: {error}"
        raise Malformed("chain.deployment", what, where) from None


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no natural number")
    return value


def _address(value: Any) -> str:
    if not isinstance(value, str) or not required("eth_utils").is_checksum_address(value):
        raise ValueError(f"{value!r} is no address with its checksum")
    return value


# On the chain


def parts(terms: Terms, heads: Sequence[bytes]) -> list[Part]:
    """The contracts in the order in which they are made."""
    book = (terms.bond, terms.window, terms.move_time, list(heads))
    return [
        *judge_parts(),
        Part("DisputeGame", lambda made: (made["StepJudge"],)),
        Part("ClaimBook", lambda made: (made["DisputeGame"], *book)),
    ]


def deploy(
    node: Node,
    account: Account,
    terms: Terms,
    programs: Sequence[VerifiedProgram],
    begun: Deployment | None = None,
    keep: Callable[[Deployment], None] = lambda _: None,
) -> Deployment:
    """Make the contracts that ``begun`` lacks. ``keep`` is called after each, so that nothing is made twice."""
    heads = tuple(receipt_head(verified) for verified in programs)
    named = tuple(head.hex() for head in heads)
    found = Deployment(node.chain, node.block(), terms, named, {}) if begun is None else begun
    if (found.chain, found.terms, found.heads) != (node.chain, terms, named):
        raise Mismatch("chain.terms", "the deployment was begun on other terms, or on another chain")
    for part in parts(terms, heads):
        if part.name in found.contracts:
            continue
        code = interface(part.name)
        data = code.creation(part.arguments(found.contracts))
        mined = node.send(account, None, code, part.name, data)
        if mined.contract is None:
            raise Malformed("chain.answer", "the node does not say where the contract is")
        address = str(required("eth_utils").to_checksum_address(mined.contract))
        found = replace(found, contracts={**found.contracts, part.name: address})
        keep(found)
    return found


def verify(node: Node, deployment: Deployment) -> None:
    """Require that every contract is the one of this version of cvm, made with the terms that the file states.

    Raises `Mismatch` (``chain.code``, ``chain.programs``).
    """
    heads = [bytes.fromhex(head) for head in deployment.heads]
    for part in parts(deployment.terms, heads):
        if part.name not in deployment.contracts:
            raise Mismatch("chain.code", f"the deployment has no {part.name}: it was not finished")
        expected = node.made(interface(part.name), part.arguments(deployment.contracts))
        if not expected or node.code(deployment.address(part.name)) != expected:
            raise Mismatch("chain.code", f"the code at {deployment.address(part.name)} is not that of {part.name}")
    keccak = required("eth_utils").keccak
    for head in heads:
        if not node.read(deployment.address("ClaimBook"), interface("ClaimBook"), "knows", keccak(head)):
            raise Mismatch("chain.programs", f"the book does not know the program {head[13:45].hex()}")
