"""Claims about runs in a book of an `Arena`, and the games about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random

from cvm.audit.chain.deployment import Terms, receipt_head
from cvm.audit.chain.moves import Position
from cvm.audit.dispute.evidence import Evidence
from cvm.audit.dispute.party import Witnessed
from cvm.audit.receipt import Run
from cvm.program import verify
from tests.audit.chain.arena import Arena
from tests.audit.dispute.games import vector_programs
from tests.audit.dispute.liars import LIARS

__all__ = ["BOND", "NAMES", "TERMS", "Quarrel", "arena_of", "head_of", "quarrel", "run_of"]

BOND = 10**18
TERMS = Terms(BOND, window=100_000, move_time=1_000)
NAMES = ("detection", "valid_rows", "tiny_cnn", "movements")


def run_of(true: Evidence) -> Run:
    """The record of a run, with its trace."""
    program, values = true.program.program, true.trace
    roots = {value.name: root for node, made in zip(program.nodes, values.steps, strict=True)
             for value, root in zip(node.outputs, made, strict=True)}  # fmt: skip
    roots |= {item.value.name: root for item, root in zip(program.inputs, values.inputs, strict=True)}
    roots |= {item.value.name: root for item, root in zip(program.state, values.before, strict=True)}
    for constant in program.constants:
        if constant.name not in roots and constant.array().itemsize == 4:
            from cvm.program.commitments import tensor_root

            roots[constant.name] = tensor_root(constant.array())
    return Run(
        values.inputs,
        values.before,
        tuple(roots[item.value] for item in program.outputs),
        tuple(roots[item.update] for item in program.state),
        values.root,
    )


def head_of(true: Evidence) -> bytes:
    """What the receipts of a program hash before their runs."""
    return receipt_head(verify(true.program.program))


def arena_of(*truths: Evidence, accounts: int = 4) -> Arena:
    """An arena with a book for the programs of these runs."""
    arena = Arena()
    for _ in range(accounts):
        arena.account()
    arena.found(TERMS, [head_of(true) for true in truths])
    return arena


def claim(arena: Arena, account: str, true: Evidence, run: Run) -> int:
    """Claim a run, as the only one of its receipt."""
    number: int = arena.send(account, "ClaimBook", "claimRun", head_of(true), run.preimage(), 0, 1, (), value=BOND)
    return number


@dataclass(frozen=True)
class Quarrel:
    """How a claim and its challenge ended."""

    position: Position
    winner: int
    status: int
    paid: tuple[int, int]
    """What the claimant and the challenger have more than before, in wei."""


def quarrel(arena: Arena, true: Evidence, parties: tuple[Witnessed, Witnessed], random: Random) -> Quarrel:
    """A claim of the first party, a challenge of the second, the game, and the payment of both."""
    accounts = arena.accounts[1:3]
    before = [arena.balance(account) for account in accounts]
    run = replace(run_of(true), trace=parties[0].root)
    number = claim(arena, accounts[0], true, run)
    challenge = arena.send(
        accounts[1], "ClaimBook", "challengeRun", number, run.preimage(), parties[1].root, value=BOND
    )
    game = arena.member("challenge", challenge)["game"]
    winner = arena.play(game, parties, random)
    arena.send(accounts[random.randrange(2)], "ClaimBook", "settle", challenge)
    if arena.member("claim", number)["status"] == 1:
        arena.time = arena.member("claim", number)["until"] + 1
        arena.send(accounts[random.randrange(2)], "ClaimBook", "finalize", number)
    for account in accounts:
        if arena.read("ClaimBook", "due", account):
            arena.send(account, "ClaimBook", "withdraw")
    paid = [arena.balance(account) - had for account, had in zip(accounts, before, strict=True)]
    status = arena.member("claim", number)["status"]
    return Quarrel(arena.position(game), winner, status, (paid[0], paid[1]))


def liar_of(kind: str, true: Evidence, random: Random) -> Witnessed | None:
    """A liar of that kind; None if this one happens to tell the truth, or there is nothing to lie about."""
    if not true.trace.steps and kind != "wrong_status":
        return None
    liar = LIARS[kind](true, random)
    return None if liar.root == true.trace.root else liar


def small_programs() -> dict[str, Evidence]:
    """Runs of a few programs of the test vectors."""
    return {name: vector_programs()[name] for name in NAMES}


def salted(*parts: bytes) -> bytes:
    """A salt that a test repeats."""
    return sha256(b"".join(parts)).digest()
