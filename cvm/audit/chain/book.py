"""The book of claims, as an account uses it: claim, challenge, settle, be paid."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from cvm.audit.chain.deployment import Deployment
from cvm.audit.chain.interface import interface, required
from cvm.audit.chain.moves import Position
from cvm.audit.chain.node import Account, Mined, Node
from cvm.audit.receipt import Claim, Run
from cvm.errors import Invalid, Malformed
from cvm.program.merkle import Tree
from cvm.records import dataclass

__all__ = ["Book", "Challenge", "Entry", "Status"]


class Status(IntEnum):
    """What has become of a claim, as ``ClaimBook.Status`` counts."""

    NONE = 0
    OPEN = 1
    FINAL = 2
    REJECTED = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim in the book."""

    number: int
    claimant: str
    until: int
    """The last second in which it can be challenged."""
    status: Status
    open: int
    """How many challenges are not settled."""
    receipt: bytes
    index: int
    program: bytes
    run: bytes
    """The record of the run."""

    @property
    def trace(self) -> bytes:
        """The trace root that is claimed."""
        return self.run[-32:]


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge of a claim."""

    number: int
    claim: int
    challenger: str
    game: int
    settled: bool


class Book:
    """One book of claims, seen through a node."""

    def __init__(self, node: Node, deployment: Deployment) -> None:
        self.node = node
        self.deployment = deployment
        self.contract = interface("ClaimBook")
        """The contract of the book."""
        self._game = interface("DisputeGame")

    # Reading

    def _read(self, function: str, *arguments: Any) -> Any:
        return self.node.read(self.deployment.address("ClaimBook"), self.contract, function, *arguments)

    def _events(self, event: str, *topics: int | None) -> list[dict[str, Any]]:
        deployment = self.deployment
        return self.node.events(deployment.address("ClaimBook"), self.contract, event, topics, deployment.block)

    def claims(self) -> int:
        """How many claims there are."""
        return int(self._read("claimCount"))

    def entry(self, number: int) -> Entry:
        """A claim. Raises `Invalid` (``chain.claim``) if there is none with that number."""
        names = self.contract.members("claim")
        found = dict(zip(names, self._read("claim", number), strict=True))
        if Status(found["status"]) is Status.NONE:
            raise Invalid("chain.claim", f"there is no claim {number}")
        events = self._events("Claimed", number)
        runs = [event["run"] for event in events if required("eth_utils").keccak(event["run"]) == found["run"]]
        if not runs:
            raise Malformed("chain.answer", f"the node does not give the record of claim {number}")
        same = {name: found[name] for name in ("claimant", "until", "open", "receipt", "index", "program")}
        return Entry(number=number, status=Status(found["status"]), run=runs[0], **same)

    def challenges(self, claim: int) -> list[Challenge]:
        """The challenges of a claim."""
        numbers = sorted({event["id"] for event in self._events("Challenged", claim)})
        return [self._challenge(number) for number in numbers]

    def _challenge(self, number: int) -> Challenge:
        found = dict(zip(self.contract.members("challenge"), self._read("challenge", number), strict=True))
        return Challenge(number, found["claim"], found["challenger"], found["game"], found["settled"])

    def due(self, account: str) -> int:
        """The wei that the book owes to an account."""
        return int(self._read("due", account))

    def position(self, game: int) -> Position:
        """A game as it stands."""
        address = self.deployment.address("DisputeGame")
        return Position.of(self._game.members("game"), self.node.read(address, self._game, "game", game))

    def outcome(self, game: int) -> tuple[bool, int]:
        """Whether a game is over, and who won: 1 is the claimant, 2 the challenger, 0 nobody."""
        address = self.deployment.address("DisputeGame")
        over, winner = self.node.read(address, self._game, "outcome", game)
        return bool(over), int(winner)

    def shown(self, game: int, side: int) -> bytes | None:
        """What a side showed last (the event ``Opened``); None if it has shown nothing."""
        deployment = self.deployment
        events = self.node.events(deployment.address("DisputeGame"), self._game, "Opened", (game,), deployment.block)
        found = [event["answer"] for event in events if event["side"] == side]
        return found[-1] if found else None

    # Sending

    def _send(self, account: Account, function: str, arguments: Sequence[Any], bonded: bool = False) -> Mined:
        value = self.deployment.terms.bond if bonded else 0
        data = self.contract.call(function, arguments)
        return self.node.send(account, self.deployment.address("ClaimBook"), self.contract, function, data, value)

    def claim(self, account: Account, receipt: Claim, index: int) -> tuple[int, Mined]:
        """Claim a run of a receipt. Raises `Invalid` (``chain.trace``) if the run has no trace."""
        if not 0 <= index < len(receipt.runs):
            raise Invalid("chain.run", f"the receipt has {len(receipt.runs)} runs: there is no run {index}")
        run = receipt.runs[index]
        if run.trace is None:
            raise Invalid("chain.trace", "the run has no trace: make the receipt with `cvm run --receipt FILE --trace`")
        head, path = receipt.preimage()[:-32], _path(receipt.runs, index)
        arguments = (head, run.preimage(), index, len(receipt.runs), path)
        mined = self._send(account, "claimRun", arguments, bonded=True)
        numbers = self._claimed(account, receipt, index)
        if not numbers:
            raise Malformed("chain.answer", "the node does not give the claim that was made")
        return max(numbers), mined

    def _claimed(self, account: Account, receipt: Claim, index: int) -> list[int]:
        mine = [event for event in self._events("Claimed") if event["claimant"].lower() == account.address.lower()]
        return [event["id"] for event in mine if event["receipt"] == receipt.id() and event["index"] == index]

    def open_claim(self, account: Account, receipt: Claim, index: int) -> int | None:
        """The last open claim that this account has made about a run of a receipt; None if there is none."""
        numbers = sorted(self._claimed(account, receipt, index), reverse=True)
        return next((number for number in numbers if self.entry(number).status is Status.OPEN), None)

    def challenge(self, account: Account, entry: Entry, trace: bytes) -> Mined:
        """Challenge a claim with another trace root."""
        return self._send(account, "challengeRun", (entry.number, entry.run, trace), bonded=True)

    def answer(self, account: Account, game: int, function: str, arguments: Sequence[Any]) -> Mined:
        """Answer a question of a game."""
        data = self._game.call(function, (game, *arguments))
        return self.node.send(account, self.deployment.address("DisputeGame"), self._game, function, data)

    def settle(self, account: Account, challenge: int) -> Mined:
        """Settle a challenge whose game is over."""
        return self._send(account, "settle", (challenge,))

    def finalize(self, account: Account, claim: int) -> Mined:
        """Make a claim final."""
        return self._send(account, "finalize", (claim,))

    def withdraw(self, account: Account) -> Mined:
        """Be paid what is due."""
        return self._send(account, "withdraw", ())

    def announce(self, account: Account, commitment: bytes) -> Mined:
        """Announce a refutation."""
        return self._send(account, "announce", (commitment,))

    def refute(self, account: Account, entry: Entry, state: bool, opening: tuple[Any, ...], salt: bytes) -> Mined:
        """Show that a claim contradicts its own trace."""
        return self._send(account, "refute", (entry.number, entry.run, state, opening, salt))


def _path(runs: Sequence[Run], index: int) -> tuple[bytes, ...]:
    return Tree.of([run.preimage() for run in runs]).prove(index).path
