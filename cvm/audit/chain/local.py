"""A chain on this machine, for the demo and the tests: `eth-tester` with `py-evm`, and a server that speaks JSON-RPC.

It executes and charges what Ethereum does since Prague, and makes a block for every transaction. It listens on this
machine alone. Its accounts have money from nowhere, so it is no place for anything of value.
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cvm.audit.chain.interface import required

__all__ = ["LocalChain"]

_REQUEST_BYTES = 2**22


class LocalChain:
    """The chain. ``keys`` are the secret keys of accounts that have money."""

    def __init__(self) -> None:
        tester, web3 = required("eth_tester"), required("web3")
        backend = tester.PyEVMBackend()
        self._tester = tester.EthereumTester(backend)
        self._provider = web3.EthereumTesterProvider(self._tester)
        w3 = web3.Web3(self._provider)
        w3.middleware_onion.clear()  # what is for callers in Python, such as the resolution of names
        self._ask = self._provider.request_func(w3, w3.middleware_onion)
        self._errors = required("web3.exceptions").Web3Exception, tester.exceptions.TransactionFailed
        self._lock = threading.Lock()
        self.keys: tuple[str, ...] = tuple(key.to_hex() for key in backend.account_keys)

    def advance(self, seconds: int) -> None:
        """Let time pass, and make a block."""
        with self._lock:
            now = self._tester.get_block_by_number("latest")["timestamp"]
            self._tester.time_travel(now + seconds)
            self._tester.mine_block()

    def answer(self, method: str, params: Any) -> dict[str, Any]:
        """The answer to a request, without its id: a result or an error, as JSON has it."""
        try:
            with self._lock:
                found = self._ask(method, params)
        except self._errors as error:
            return {"error": {"code": 3, "message": "execution reverted", "data": f"0x{_said(str(error)).hex()}"}}
        except Exception as error:
            # Whatever a request makes the tester raise is the answer to this request, and no end of the server.
            return {"error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}
        return {"error": found["error"]} if "error" in found else {"result": _as_json(found["result"])}

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve requests until the block ends; yields the URL."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _said(text: str) -> bytes:
    """What a contract said when it failed: the tester gives it as a Python literal in a text."""
    try:
        found = ast.literal_eval(text.removeprefix("execution reverted: "))
    except (ValueError, SyntaxError):
        return b""
    return found if isinstance(found, bytes) else b""


def _as_json(value: Any) -> Any:
    """A result as JSON-RPC writes it: integers and bytes in hexadecimal."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value]


def _handler(chain: LocalChain) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            if not 0 < size <= _REQUEST_BYTES:
                self.send_error(413)
                return
            try:
                request = json.loads(self.rfile.read(size))
                answer = chain.answer(request["method"], request.get("params", []))
            except (ValueError, KeyError, TypeError):
                self.send_error(400)
                return
            body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    return Handler
