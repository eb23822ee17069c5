"""A party on a chain: it watches one claim and does what is its turn.

Everything is read from the chain at each look, and nothing is kept, so a player that was killed goes on when it is
started again. A move that the other party's transaction has overtaken is refused by the contract, and made again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from cvm.audit.chain.book import Book, Challenge, Entry, Status
from cvm.audit.chain.interface import interface, required
from cvm.audit.chain.moves import Move, move
from cvm.audit.chain.node import Account, Lost, Mined, Reverted
from cvm.audit.chain.refutation import Refutation
from cvm.audit.dispute import questions as q
from cvm.records import dataclass

__all__ = ["Done", "Player", "refute"]

INTERVAL = 2.0
"""Seconds between two looks at the chain, while there is nothing to do."""
_LOSSES = 5
"""Transactions one after the other that do not reach the node, after which a player gives up."""
_BLOCKS = 300
"""Looks at the chain until the block after an announcement must be there."""


@dataclass(frozen=True, slots=True)
class Done:
    """Something that a player has done: an answer in a game, or a call of the book."""

    what: str
    gas: int
    game: int | None = None


class Player:
    """One account that watches one claim, as the claimant or as a challenger."""

    def __init__(
        self, book: Book, account: Account, party: q.Party, noted: Callable[[Done], None] = lambda _: None
    ) -> None:
        self._book = book
        self._account = account
        self._me = account.address.lower()
        self._party = party
        self._noted = noted

    def play(self, claim: int, *, looks: int | None = None, interval: float = INTERVAL) -> Status:
        """Play until nothing is left to do about a claim, or for so many looks at the chain without anything to do.

        Returns what has become of the claim. Raises `Lost` when five transactions in a row did not reach the node.
        """
        idle = lost = 0
        while True:
            entry = self._book.entry(claim)
            mine = self._mine(entry)
            try:
                acted = self._act(entry, mine)
            except Lost:
                lost += 1
                if lost == _LOSSES:
                    raise
                continue  # the next look shows what is to be done
            if acted:
                idle = lost = 0
                continue
            if self._finished(entry, mine) or idle == looks:
                return entry.status
            idle += 1
            self._book.node.pause(interval)

    def _mine(self, entry: Entry) -> list[Challenge]:
        """The challenges that are not settled and in which this account plays."""
        claims = entry.claimant.lower() == self._me
        found = self._book.challenges(entry.number)
        return [item for item in found if not item.settled and (claims or item.challenger.lower() == self._me)]

    def _finished(self, entry: Entry, mine: list[Challenge]) -> bool:
        return entry.status is not Status.OPEN if entry.claimant.lower() == self._me else not mine

    def _act(self, entry: Entry, mine: list[Challenge]) -> bool:
        """Do one thing that can be done now; whether there was one."""
        for challenge in mine:
            try:
                if self._attend(entry, challenge):
                    return True
            except Reverted:
                pass  # somebody was first: the next look shows it
        try:
            return self._close(entry, mine)
        except Reverted:
            return False

    def _attend(self, entry: Entry, challenge: Challenge) -> bool:
        over, _ = self._book.outcome(challenge.game)
        if entry.status is Status.REJECTED:
            return challenge.challenger.lower() == self._me and self._settle(challenge)
        if over:
            return self._settle(challenge)
        side = 0 if entry.claimant.lower() == self._me else 1
        made = self._next(challenge.game, side)
        if made is None:
            return False
        mined = self._book.answer(self._account, challenge.game, made.function, made.arguments)
        self._note(type(made.question).__name__, mined, challenge.game)
        return True

    def _next(self, game: int, side: int) -> Move | None:
        position = self._book.position(game)
        if position.has_answered(side):
            return None
        shown = self._book.shown(game, 1 - side) if position.has_answered(1 - side) else None
        return move(self._party, position, shown)

    def _settle(self, challenge: Challenge) -> bool:
        self._note("settle", self._book.settle(self._account, challenge.number), challenge.game)
        return True

    def _close(self, entry: Entry, mine: list[Challenge]) -> bool:
        """Make a claim final, and be paid."""
        claims = entry.claimant.lower() == self._me
        if claims and entry.status is Status.OPEN and not entry.open and self._book.node.time() > entry.until:
            self._note("finalize", self._book.finalize(self._account, entry.number))
            return True
        if self._finished(entry, mine) and self._book.due(self._account.address):
            self._note("withdraw", self._book.withdraw(self._account))
            return True
        return False

    def _note(self, what: str, mined: Mined, game: int | None = None) -> None:
        self._noted(Done(what, mined.gas, game))


def refute(book: Book, account: Account, entry: Entry, found: Refutation) -> list[Done]:
    """Announce a refutation, wait for the next block, and give it."""
    keccak, abi = required("eth_utils").keccak, required("eth_abi")
    opening = interface("ClaimBook").encoded("refute", "opening", found.opening)
    salt = secrets.token_bytes(32)
    types = ["address", "uint256", "bool", "bytes32", "bytes32"]
    values = [account.address, entry.number, found.state, keccak(opening), salt]
    announced = book.announce(account, keccak(abi.encode(types, values)))
    for left in reversed(range(_BLOCKS)):
        try:
            given = book.refute(account, entry, found.state, found.opening, salt)
            return [Done("announce", announced.gas), Done("refute", given.gas)]
        except Reverted as error:
            if error.reason != "NotAnnounced" or not left:
                raise
            book.node.pause(INTERVAL)  # no block has been made since
    raise AssertionError("the last attempt returns or raises")
