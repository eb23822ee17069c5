"""The contracts in an EVM of this process, without a node: fast enough for hundreds of games.

pyrevm keeps accounts and slots warm from call to call, so the gas that it reports is too low, and no test reads it. Gas
is measured on `cvm.audit.chain.local`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyrevm

from cvm.audit.chain.deployment import Terms, parts
from cvm.audit.chain.interface import Interface, interface
from cvm.audit.chain.moves import Position, move
from cvm.audit.dispute import questions as q
from cvm.errors import Invalid

__all__ = ["Arena", "Log", "Reverted"]

_WEI = 10**24
_CALL_GAS = 30_000_000


class Reverted(Exception):
    """A contract refused a call."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Log:
    """An event."""

    address: str
    topics: tuple[bytes, ...]
    data: bytes


class Arena:
    """Accounts, contracts and a clock."""

    def __init__(self) -> None:
        self._evm = pyrevm.EVM(spec_id="CANCUN")
        self.time = 1_000_000
        self.block = 1
        self.logs: list[Log] = []
        self.accounts: list[str] = []
        self.contracts: dict[str, str] = {}

    def account(self) -> str:
        """A new account, with money."""
        address = f"0x{len(self.accounts) + 1:040x}".replace("0x0000", "0xacc0")
        self._evm.set_balance(address, _WEI)
        self.accounts.append(address)
        return address

    def balance(self, account: str) -> int:
        """The wei of an account or a contract."""
        return int(self._evm.get_balance(account))

    def put(self, account: str, code: bytes) -> str:
        """Deploy bare code."""
        return str(self._evm.deploy(account, code))

    def deploy(self, name: str, *arguments: Any) -> str:
        """Deploy a contract of the project."""
        self._enter()
        made = self.put(self.accounts[0], interface(name).creation(arguments))
        self.contracts[name] = made
        return made

    def _enter(self) -> None:
        block = pyrevm.BlockEnv(number=self.block, timestamp=self.time, gas_limit=_CALL_GAS, basefee=0)
        self._evm.set_block_env(block)

    def raw(self, sender: str, to: str, data: bytes, value: int = 0) -> bytes:
        """A transaction in a block of its own. Raises `Reverted` with the name of the contract's error."""
        self.block += 1
        self.time += 1
        self._enter()
        try:
            result = bytes(self._evm.message_call(sender, to, calldata=data, value=value, gas=_CALL_GAS))
        except RuntimeError as error:
            raise Reverted(self._reason(str(error))) from None
        assert self._evm.result is not None
        for log in self._evm.result.logs:
            topics = tuple(bytes.fromhex(topic.removeprefix("0x")) for topic in log.topics)
            self.logs.append(Log(log.address.lower(), topics, bytes(log.data[1])))
        return result

    def _reason(self, text: str) -> str:
        said = re.search(r"Revert .*output: 0x([0-9a-f]*)", text)
        if said is None:
            return text
        reasons = [interface(name).refusal(bytes.fromhex(said[1])) for name in self.contracts]
        return next((reason for reason in reasons if not reason.startswith("0x")), f"0x{said[1]}")

    def send(self, sender: str, name: str, function: str, *arguments: Any, value: int = 0) -> Any:
        """A transaction to a contract of the project."""
        contract = interface(name)
        result = self.raw(sender, self.contracts[name], contract.call(function, arguments), value)
        return contract.result(function, result) if contract.returns(function) else None

    def read(self, name: str, function: str, *arguments: Any) -> Any:
        """The result of a view function."""
        self._enter()
        contract = interface(name)
        data = contract.call(function, arguments)
        found = self._evm.message_call(self.accounts[0], self.contracts[name], calldata=data, is_static=True)
        return contract.result(function, bytes(found))

    # Claims

    def found(self, terms: Terms, heads: Sequence[bytes]) -> None:
        """Make the judge, the game and a book."""
        for part in parts(terms, heads):
            self.deploy(part.name, *part.arguments(self.contracts))

    def member(self, kind: str, number: int) -> dict[str, Any]:
        """A claim or a challenge of the book, by the names of its members."""
        return dict(zip(interface("ClaimBook").members(kind), self.read("ClaimBook", kind, number), strict=True))

    def debts(self) -> int:
        """What the book owes to somebody, or keeps: all dues, all bonds, and what is burnt."""
        total = sum(self.read("ClaimBook", "due", account) for account in self.accounts)
        claims = [self.member("claim", number) for number in range(self.read("ClaimBook", "claimCount"))]
        challenges = [self.member("challenge", number) for number in range(self.read("ClaimBook", "challengeCount"))]
        bonds = sum(claim["status"] == 1 for claim in claims) + sum(not item["settled"] for item in challenges)
        return int(total + self.read("ClaimBook", "burnt") + bonds * self.read("ClaimBook", "bond"))

    # Games

    def position(self, game: int) -> Position:
        """A game as it stands."""
        return Position.of(interface("DisputeGame").members("game"), self.read("DisputeGame", "game", game))

    def shown(self, game: int) -> bytes | None:
        """What the latest event `Opened` of a game showed."""
        contract: Interface = interface("DisputeGame")
        for log in reversed(self.logs):
            if log.topics[0] == contract.topic("Opened") and int.from_bytes(log.topics[1]) == game:
                answer: bytes = contract.event("Opened", log.topics, log.data)["answer"]
                return answer
        return None

    def turn(self, game: int, side: int, party: q.Party) -> bool:
        """Let a party answer, if it has to; whether it has."""
        position = self.position(game)
        if position.has_answered(side):
            return False
        made = move(party, position, self.shown(game) if position.has_answered(1 - side) else None)
        if made is None:
            return False
        try:
            self.send(position.parties[side], "DisputeGame", made.function, game, *made.arguments)
        except (Reverted, Invalid):  # refused by the contract, or nothing that a call can hold
            return False
        return True

    def play(self, game: int, parties: tuple[q.Party, q.Party], random: Random) -> int:
        """Play a game to its end, in a random order of moves: 1 or 2 has won, or 0, nobody."""
        while not self.read("DisputeGame", "outcome", game)[0]:
            order = random.sample((0, 1), 2)
            answered = [self.turn(game, side, parties[side]) for side in order]
            if not any(answered):
                self.time = self.position(game).deadline + 1
        winner: int = self.read("DisputeGame", "outcome", game)[1]
        return winner
