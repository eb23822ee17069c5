"""A node that is asked over JSON-RPC, and is not believed more than needed.

What it can do to its user is bounded. An answer has a largest size and must carry the id of its question; the chain
must be the expected one; a transaction is signed here, for that chain, and costs at most the limits; a receipt must be
that of the transaction that was sent. What a node says of the state of the chain has to be believed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from cvm.audit.chain.interface import Interface, required
from cvm.audit.chain.json_text import read_json
from cvm.errors import Invalid, LimitExceeded, Malformed, Mismatch
from cvm.records import dataclass

__all__ = ["Account", "Limits", "Lost", "Mined", "Node", "Reverted", "Sending"]

ANSWER_BYTES = 2**24
"""The most bytes of an answer of a node that are read."""
_SECONDS = 60
_ATTEMPTS = 5
"""How often a question is put to a node whose connections fail."""
_SEND = "eth_sendRawTransaction"


class Unreachable(Invalid):
    """A connection to the node failed."""

    def __init__(self, message: str) -> None:
        super().__init__("chain.connection", message)


class Lost(Unreachable):
    """The connection failed while a transaction was sent, and the node does not know the transaction."""


class Reverted(Invalid):
    """A contract refused a call, for ``reason``: the name of its error, and the error's arguments."""

    def __init__(self, reason: str) -> None:
        super().__init__("chain.reverted", f"the contract refuses this: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a transaction may cost."""

    fee: int = 200 * 10**9
    """Wei for each unit of gas."""
    gas: int = 16_000_000


@dataclass(frozen=True, slots=True)
class Sending:
    """A transaction that is about to be sent."""

    function: str
    to: str | None
    value: int
    """Wei."""
    gas: int
    """The gas that it is expected to take."""
    fee: int
    """The most wei for each unit of gas."""


@dataclass(frozen=True, slots=True)
class Mined:
    """A transaction in its block."""

    hash: str
    block: int
    gas: int
    contract: str | None
    """The address of the contract that it made."""


class Account:
    """An account, whose key signs transactions. The key is in no text that this class gives."""

    def __init__(self, key: str) -> None:
        accounts = required("eth_account")
        try:
            self._account = accounts.Account.from_key(key.strip())
        except Exception as error:  # the library raises several classes, and some messages quote the key
            del error
            raise Invalid("chain.key", "expected a secret key: 32 bytes in hexadecimal") from None

    @property
    def address(self) -> str:
        """The address, with the checksum of EIP-55."""
        return str(self._account.address)

    def __repr__(self) -> str:
        return f"Account({self.address})"

    def signed(self, transaction: dict[str, Any]) -> tuple[bytes, str]:
        """The bytes of a signed transaction, and its hash."""
        made = self._account.sign_transaction(transaction)
        return bytes(made.raw_transaction), f"0x{bytes(made.hash).hex()}"


class Transport:
    """Requests to the URL of a node, one connection each."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Invalid("chain.url", f"expected the URL of a node, http://.. or https://.., found {url!r}")
        self._parts = parts
        self._id = 0

    def answer(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        """The answer to one request. Raises `Unreachable`, `LimitExceeded` and `Malformed`."""
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": list(params)}
        try:
            data = self._post(json.dumps(request).encode())
        except (OSError, HTTPException) as error:
            raise Unreachable(f"the node does not answer: {error or type(error).__name__}") from None
        try:
            found = read_json(data)
        except ValueError:
            raise Malformed("chain.answer", "the node's answer is no JSON") from None
        if not isinstance(found, dict) or found.get("id") != self._id or ("result" in found) == ("error" in found):
            raise Malformed("chain.answer", f"the node's answer is none to {method}")
        return found

    def _post(self, body: bytes) -> bytes:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_SECONDS)
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                data = response.read(ANSWER_BYTES + 1)
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES:
            raise LimitExceeded("chain.answer_bytes", f"the node's answer has more than {ANSWER_BYTES} bytes")
        return data


class Node:
    """A node of one chain.

    ``told`` is called before each transaction, and ``warned`` with a sentence before a question is repeated because a
    connection failed; ``pause`` is how it waits (seconds). Once the node has named its chain, a question is asked up to
    five times. A transaction is sent once.
    """

    def __init__(
        self,
        url: str,
        chain: int | None = None,
        *,
        limits: Limits | None = None,
        told: Callable[[Sending], None] = lambda _: None,
        warned: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = Transport(url)
        self._limits = Limits() if limits is None else limits
        self._told = told
        self._warned = warned
        self.pause = pause
        self._attempts = 1
        self.chain = self._integer("eth_chainId")
        self._attempts = _ATTEMPTS
        if chain is not None and self.chain != chain:
            raise Mismatch("chain.id", f"the node is one of chain {self.chain}, not of chain {chain}")

    # Requests

    def _ask(self, method: str, *params: Any, contract: Interface | None = None) -> Any:
        found = self._answer(method, params)
        if "error" not in found:
            return found["result"]
        error = found["error"]
        if not isinstance(error, dict):
            raise Malformed("chain.answer", f"the node's answer is none to {method}")
        message, data = str(error.get("message", ""))[:200], error.get("data")
        if "revert" in message.lower() or error.get("code") == 3:
            said = _bytes(data) if isinstance(data, str) else b""
            raise Reverted(contract.refusal(said) if contract is not None and said else message)
        raise Invalid("chain.refused", f"the node refuses {method}: {message}")

    def _answer(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        """The answer to a request; a question is repeated if the connection fails, as those of busy nodes do."""
        for attempt in range(1, 1 if method == _SEND else self._attempts):
            try:
                return self._transport.answer(method, params)
            except Unreachable as error:
                self._warned(f"{error.message}: asking again ({attempt + 1} of {self._attempts})")
                self.pause(_INTERVAL)
        return self._transport.answer(method, params)

    def _integer(self, method: str, *params: Any) -> int:
        return _number(self._ask(method, *params))

    def _record(self, method: str, *params: Any) -> dict[str, Any]:
        found = self._ask(method, *params)
        if not isinstance(found, dict):
            raise Malformed("chain.answer", f"the node's answer is none to {method}")
        return found

    # State

    def time(self) -> int:
        """The time of the latest block, in seconds since 1970."""
        return _number(self._record("eth_getBlockByNumber", "latest", False).get("timestamp"))

    def block(self) -> int:
        """The number of the latest block."""
        return self._integer("eth_blockNumber")

    def balance(self, account: str) -> int:
        """The wei of an account."""
        return self._integer("eth_getBalance", account, "latest")

    def code(self, account: str) -> bytes:
        """The code of a contract; empty if there is none."""
        return _bytes(self._ask("eth_getCode", account, "latest"))

    def made(self, contract: Interface, arguments: Sequence[Any]) -> bytes:
        """The code that a contract has on a chain when it is made with these arguments."""
        return _bytes(self._ask("eth_call", {"data": _hex(contract.creation(arguments))}, "latest"))

    def read(self, address: str, contract: Interface, function: str, *arguments: Any) -> Any:
        """The result of a view function. Raises `Reverted`."""
        call = {"to": address, "data": _hex(contract.call(function, arguments))}
        return contract.result(function, _bytes(self._ask("eth_call", call, "latest", contract=contract)))

    def events(
        self, address: str, contract: Interface, event: str, topics: Sequence[int | None] = (), first: int = 0
    ) -> list[dict[str, Any]]:
        """The events of a contract since block ``first``; ``topics`` are their first indexed arguments (None: any)."""
        wanted = [None if topic is None else f"0x{topic:064x}" for topic in topics]
        names = [_hex(contract.topic(event)), *wanted]
        query = {"address": address, "topics": names, "fromBlock": hex(first), "toBlock": "latest"}
        found = self._ask("eth_getLogs", query)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise Malformed("chain.answer", "the node's answer is none to eth_getLogs")
        logs = [item for item in found if str(item.get("address", "")).lower() == address.lower()]
        return [
            contract.event(event, [_bytes(topic) for topic in log.get("topics", [])], _bytes(log.get("data")))
            for log in logs
        ]

    # Transactions

    def send(
        self,
        account: Account,
        to: str | None,
        contract: Interface,
        function: str,
        data: bytes,
        value: int = 0,
    ) -> Mined:
        """Send a transaction and wait for its block.

        Raises `Reverted` if the contract refuses it, before anything is sent if the node can tell, and `LimitExceeded`
        (``chain.gas``, ``chain.fee``) if it costs more than the limits. If the connection fails while the transaction
        is sent, the node is asked whether it has it; raises `Lost` if not. Another one then has the same nonce, so that
        at most one of the two can be in a block.
        """
        self.await_sent(account)
        call = {"from": account.address, "data": _hex(data), "value": hex(value)} | ({"to": to} if to else {})
        gas = _number(self._ask("eth_estimateGas", call, contract=contract))
        if gas > self._limits.gas:
            raise LimitExceeded("chain.gas", f"{function} takes {gas} gas; {self._limits.gas} are the most")
        fee, tip = self._fees()
        self._told(Sending(function, to, value, gas, fee))
        transaction = {
            "chainId": self.chain,
            "nonce": self._integer("eth_getTransactionCount", account.address, "latest"),
            "gas": min(gas + gas // 4 + 20_000, self._limits.gas),
            "maxFeePerGas": fee,
            "maxPriorityFeePerGas": tip,
            "value": value,
            "data": data,
        } | ({"to": to} if to else {})
        raw, identity = account.signed(transaction)
        try:
            named = self._ask(_SEND, _hex(raw), contract=contract)
        except Unreachable as error:
            self._warned(f"{error.message}: asking whether the node has the transaction {identity}")
            self._require_known(identity, function)
        else:
            if named != identity:
                raise Mismatch("chain.transaction", "the node names another transaction than the one that was sent")
        return self._await(identity, function)

    def _require_known(self, identity: str, function: str) -> None:
        for _ in range(_ATTEMPTS):
            if self._ask("eth_getTransactionByHash", identity) is not None:
                return
            self.pause(_INTERVAL)
        raise Lost(f"{function} did not reach the node: the command can be repeated")

    def _fees(self) -> tuple[int, int]:
        """The most wei for each unit of gas, and how much of it may go to who makes the block."""
        base = _number(self._record("eth_getBlockByNumber", "latest", False).get("baseFeePerGas", "0x0"))
        tip = self._integer("eth_maxPriorityFeePerGas")
        if base + tip > self._limits.fee:
            message = f"gas costs {base + tip} wei; {self._limits.fee} are the most (--max-fee)"
            raise LimitExceeded("chain.fee", message)
        return min(2 * base + tip, self._limits.fee), tip

    def await_sent(self, account: Account) -> None:
        """Wait until every transaction that the account has sent is in a block, also one of an earlier process."""
        for _ in range(_PATIENCE):
            counts = [self._integer("eth_getTransactionCount", account.address, tag) for tag in ("latest", "pending")]
            if counts[0] >= counts[1]:
                return
            self.pause(_INTERVAL)
        raise Invalid("chain.pending", f"a transaction of {account.address} waits: send it again with a higher fee")

    def _await(self, identity: str, function: str) -> Mined:
        for _ in range(_PATIENCE):
            found = self._ask("eth_getTransactionReceipt", identity)
            if isinstance(found, dict):
                if found.get("transactionHash") != identity:
                    raise Mismatch("chain.transaction", "the node gives the receipt of another transaction")
                if _number(found.get("status")) != 1:
                    raise Reverted(f"{function} failed in block {_number(found.get('blockNumber'))}")
                made = found.get("contractAddress")
                where, gas = _number(found.get("blockNumber")), _number(found.get("gasUsed"))
                return Mined(identity, where, gas, str(made) if made else None)
            self.pause(_INTERVAL)
        raise Invalid("chain.pending", f"the transaction {identity} is in no block yet; the command can be repeated")


_INTERVAL = 1.0
"""Seconds between two looks at the chain."""
_PATIENCE = 600


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def _bytes(value: Any) -> bytes:
    try:
        return bytes.fromhex(value.removeprefix("0x"))
    except (AttributeError, ValueError):
        raise Malformed("chain.answer", "the node's answer holds no bytes where bytes are expected") from None


def _number(value: Any) -> int:
    try:
        found = int(value, 16)
    except (TypeError, ValueError):
        raise Malformed("chain.answer", "the node's answer holds no number where a number is expected") from None
    if not 0 <= found < 2**256:
        raise Malformed("chain.answer", "the node's answer holds a number beyond 256 bits")
    return found
