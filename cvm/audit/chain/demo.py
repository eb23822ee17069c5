"""An honest claim, a liar's claim, the dispute and the payment, on a chain of this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from cvm.audit.chain.book import Book, Status
from cvm.audit.chain.deployment import Terms, deploy, verify
from cvm.audit.chain.local import LocalChain
from cvm.audit.chain.node import Account, Node, Sending
from cvm.audit.chain.play import Done, Player
from cvm.audit.dispute import Evidence, Witnessed, most_rounds
from cvm.audit.receipt import Claim, Run
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["play_demo"]

_TERMS = Terms(bond=10**18, window=3600, move_time=600)


@dataclass(frozen=True)
class _Party:
    """Somebody on the chain, with what he says of the run."""

    name: str
    account: Account
    says: Witnessed


def play_demo(
    verified: VerifiedProgram, true: Evidence, claim: Claim, told: Callable[[Sending], None] = lambda _: None
) -> dict[str, Any]:
    """Play it. ``claim`` is that of a receipt of one run, whose evidence is ``true``."""
    chain = LocalChain()
    names = ("deployer", "honest", "liar")
    truth, lie = Witnessed(true), Witnessed(_changed(true))
    parties = [
        _Party(name, Account(key), lie if name == "liar" else truth)
        for name, key in zip(names, chain.keys, strict=False)
    ]
    deployer, honest, liar = parties
    with chain.serve() as url:
        node = Node(url, told=told, pause=lambda _: None)
        deployment = deploy(node, deployer.account, _TERMS, [verified])
        verify(node, deployment)
        book = Book(node, deployment)
        first = _honest_claim(chain, book, honest, claim)
        second = _false_claim(chain, book, (liar, honest), claim)
    return {
        "program": verified.program.digest,
        "bond": _TERMS.bond,
        "contracts": dict(deployment.contracts),
        "honest_claim": first,
        "false_claim": second,
        "most_rounds": most_rounds(true.program),
    }


def _changed(true: Evidence) -> Evidence:
    """The evidence with another last element in the output of the middle op."""
    nodes = true.program.program.nodes
    name = nodes[len(nodes) // 2].outputs[0].name
    array = true.values[name].copy()
    array.flat[-1] ^= 1
    return Evidence(true.program, {**true.values, name: array})


def _honest_claim(chain: LocalChain, book: Book, party: _Party, claim: Claim) -> dict[str, Any]:
    """A true claim that nobody challenges."""
    done: list[Done] = []
    number, mined = book.claim(party.account, claim, 0)
    chain.advance(_TERMS.window + 1)
    status = Player(book, party.account, party.says, done.append).play(number, looks=0)
    return {
        "claim": number,
        "status": status.name,
        "gas": {"claimRun": mined.gas, **{item.what: item.gas for item in done}},
    }


def _false_claim(chain: LocalChain, book: Book, parties: tuple[_Party, _Party], claim: Claim) -> dict[str, Any]:
    """A false claim, which is challenged."""
    liar, honest = parties
    run: Run = replace(claim.runs[0], trace=liar.says.root)
    number, claimed = book.claim(liar.account, replace(claim, runs=(run,)), 0)
    balance = book.node.balance(honest.account.address)
    challenged = book.challenge(honest.account, book.entry(number), honest.says.root)
    moves: list[dict[str, Any]] = []

    def player(party: _Party) -> Player:
        return Player(book, party.account, party.says, lambda done: moves.append({"by": party.name, **asdict(done)}))

    players = [player(party) for party in parties]
    game = book.challenges(number)[0].game
    status = Status.OPEN
    while book.challenges(number)[0].settled is False:
        before = len(moves)
        for each in players:
            status = each.play(number, looks=0)
        if len(moves) == before:
            chain.advance(_TERMS.move_time + 1)  # nobody moves: the time of somebody runs out
    status = players[1].play(number, looks=0)
    position = book.position(game)
    return {
        "claim": number,
        "status": status.name,
        "winner": ("none", *(party.name for party in parties))[book.outcome(game)[1]],
        "rounds": position.rounds,
        "op": position.op,
        "element": position.element,
        "step": position.step,
        "gas": {"claimRun": claimed.gas, "challengeRun": challenged.gas},
        "moves": moves,
        "gas_of_game": sum(item["gas"] for item in moves if item["what"] not in ("settle", "withdraw")),
        "burnt": book.node.read(book.deployment.address("ClaimBook"), book.contract, "burnt"),
        "won": book.node.balance(honest.account.address) - balance,
    }
