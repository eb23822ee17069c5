"""A node is believed no more than needed, and two parties in two processes play a whole game through one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("eth_tester") is None:
    pytest.skip("the extra chain is not installed", allow_module_level=True)

import cvm
from cvm.arrays import read_npz
from cvm.audit.chain import (
    Account,
    Limits,
    Lost,
    Node,
    Player,
    Reverted,
    Terms,
    deploy_contracts,
    load_deployment,
    save_deployment,
    verify_deployment,
)
from cvm.audit.chain.interface import interface
from cvm.audit.chain.local import LocalChain
from cvm.audit.chain.node import ANSWER_BYTES, Unreachable
from cvm.errors import Invalid, LimitExceeded, Malformed, Mismatch
from cvm.program import verify
from tests.audit.dispute.games import vector_programs

KEY = "0x" + "11" * 32
TERMS = Terms(10**18, window=600, move_time=60)


def test_the_limit_on_recursion_stays_as_it_is() -> None:
    before = sys.getrecursionlimit()
    LocalChain()
    assert "eth" in sys.modules  # py-evm, which raises it
    assert sys.getrecursionlimit() == before


@contextmanager
def answering(answer):
    """A node that answers a request (method, id) with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = answer(request["method"], request["id"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def result(value, **other):
    return lambda method, number: json.dumps({"jsonrpc": "2.0", "id": number, "result": value, **other}).encode()


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (result("0x1", id=77), Malformed, "chain.answer"),
        (result("0x1", error={}), Malformed, "chain.answer"),
        (result("ten"), Malformed, "chain.answer"),
        (result(None), Malformed, "chain.answer"),
        (result(["0x1"]), Malformed, "chain.answer"),
        (result("0x" + "f" * 65), Malformed, "chain.answer"),
        (result("-0x1"), Malformed, "chain.answer"),
        (lambda *_: b"<html>", Malformed, "chain.answer"),
        (lambda *_: b"[" * 100_000, Malformed, "chain.answer"),
        (lambda *_: b"", Malformed, "chain.answer"),
        (lambda *_: b" " * (ANSWER_BYTES + 1), LimitExceeded, "chain.answer_bytes"),
        (lambda _, i: json.dumps({"id": i, "error": {"code": 1, "message": "no"}}).encode(), Invalid, "chain.refused"),
        (lambda _, i: json.dumps({"id": i, "error": "no"}).encode(), Malformed, "chain.answer"),
        (result("0x2"), Mismatch, "chain.id"),
    ],
)
def test_a_hostile_node_is_refused(answer, error, code):
    with answering(answer) as url, pytest.raises(error) as caught:
        Node(url, 1)
    assert caught.value.code == code


@pytest.mark.parametrize("url", ["", "localhost:8545", "file:///etc/passwd", "ftp://host/", "http://"])
def test_what_is_no_url_of_a_node_is_refused(url):
    with pytest.raises(Invalid, match="expected the URL of a node"):
        Node(url)


def test_a_node_that_is_not_there_is_an_error_of_its_own():
    with pytest.raises(Invalid, match="the node does not answer"):
        Node("http://127.0.0.1:1")


@pytest.mark.parametrize("key", ["", "0x12", "no key", "0x" + "00" * 32, "11" * 33])
def test_what_is_no_key_is_refused_without_being_quoted(key):
    with pytest.raises(Invalid) as caught:
        Account(key)
    assert not key or key not in str(caught.value)
    assert KEY not in repr(Account(KEY))


@pytest.fixture(scope="module")
def chain():
    made = LocalChain()
    with made.serve() as url:
        yield made, url


def hostile(url, method, answer):
    """A node that passes requests on, and changes the answers to one method."""
    node = Node(url, pause=lambda _: None)
    passed = node._transport.answer
    node._transport.answer = lambda asked, params: answer if asked == method else passed(asked, params)
    return node


@pytest.mark.parametrize(
    ("method", "answer", "error", "code"),
    [
        ("eth_sendRawTransaction", {"result": "0x" + "00" * 32}, Mismatch, "chain.transaction"),
        ("eth_getTransactionReceipt", {"result": {"transactionHash": "0x12"}}, Mismatch, "chain.transaction"),
        ("eth_getTransactionReceipt", {"result": None}, Invalid, "chain.pending"),
        ("eth_estimateGas", {"result": hex(10**9)}, LimitExceeded, "chain.gas"),
        ("eth_maxPriorityFeePerGas", {"result": hex(10**15)}, LimitExceeded, "chain.fee"),
        ("eth_getTransactionCount", {"result": "0x"}, Malformed, "chain.answer"),
    ],
)
def test_a_node_cannot_make_a_transaction_cost_more_or_be_another(chain, method, answer, error, code):
    local, url = chain
    account, contract = Account(local.keys[5]), interface("DisputeGame")
    node = hostile(url, method, answer)
    with pytest.raises(error) as caught:
        node.send(account, None, contract, "DisputeGame", contract.creation((account.address,)))
    assert caught.value.code == code


def failing(url, fails):
    """A node whose connections fail where `fails` of the method and the number of its requests so far is "before" or
    "after" the node has the request; the methods of all requests; and what it warns of."""
    asked, warned = [], []
    node = Node(url, pause=lambda _: None, warned=warned.append)
    passed = node._transport.answer

    def answer(method, params):
        when = fails(method, asked.count(method))
        asked.append(method)
        found = None if when == "before" else passed(method, params)
        if when:
            raise Unreachable("the node does not answer: reset")
        return found

    node._transport.answer = answer
    return node, asked, warned


def test_a_question_is_asked_again_when_the_connection_fails(chain):
    node, asked, warned = failing(chain[1], lambda _, number: "before" if number < 4 else "")
    assert node.block() >= 0
    assert asked == ["eth_blockNumber"] * 5
    assert warned == [f"the node does not answer: reset: asking again ({number} of 5)" for number in (2, 3, 4, 5)]


def test_a_question_is_asked_five_times_at_most(chain):
    node, asked, _ = failing(chain[1], lambda *_: "before")
    with pytest.raises(Unreachable):
        node.block()
    assert asked == ["eth_blockNumber"] * 5


SEND = "eth_sendRawTransaction"


@pytest.mark.parametrize("reaches", [True, False])
def test_a_transaction_is_sent_once_though_the_connection_fails(chain, reaches):
    local, url = chain
    account, contract = Account(local.keys[6]), interface("DisputeGame")
    when = "after" if reaches else "before"
    node, asked, warned = failing(url, lambda method, _: when if method == SEND else "")
    count = node._integer("eth_getTransactionCount", account.address, "latest")
    data = contract.creation((account.address,))
    if reaches:
        made = node.send(account, None, contract, "DisputeGame", data)
        assert node.code(made.contract)
    else:
        with pytest.raises(Lost, match="DisputeGame did not reach the node"):
            node.send(account, None, contract, "DisputeGame", data)
    assert node._integer("eth_getTransactionCount", account.address, "latest") == count + reaches
    assert asked.count(SEND) == 1
    assert "asking whether the node has the transaction 0x" in warned[0]


@pytest.mark.parametrize(("losses", "goes_on"), [(4, True), (5, False)])
def test_a_player_looks_again_when_its_move_did_not_reach_the_node(losses, goes_on):
    left = [*[Lost("lost")] * losses, True, *[Lost("lost")] * 4, False]

    class Playing(Player):
        def _mine(self, entry):
            return []

        def _finished(self, entry, mine):
            return True

        def _act(self, entry, mine):
            found = left.pop(0)
            if isinstance(found, Lost):
                raise found
            return found

    class Looking:
        def entry(self, number):
            return self

        status = "a status"

    player = Playing(Looking(), Account(KEY), None)
    if goes_on:
        assert player.play(0) == "a status"
        assert left == []
    else:
        with pytest.raises(Lost):
            player.play(0)


def test_a_deployment_is_verified_and_resumed(chain, tmp_path):
    local, url = chain
    account, node = Account(local.keys[0]), Node(url)
    verified = verify(vector_programs()["tiny_cnn"].program.program)
    kept = []

    class Killed(Exception):
        pass

    def killed(found):
        kept.append(found)
        if len(kept) == 2:
            raise Killed

    with pytest.raises(Killed):
        deploy_contracts(node, account, TERMS, [verified], None, killed)
    with pytest.raises(Mismatch, match="it was not finished"):
        verify_deployment(node, kept[-1])
    made = deploy_contracts(node, account, TERMS, [verified], kept[-1])
    assert all(made.contracts[name] == address for name, address in kept[-1].contracts.items())
    save_deployment(tmp_path / "book.json", made)
    assert load_deployment(tmp_path / "book.json") == made
    verify_deployment(node, made)
    with pytest.raises(Mismatch):
        deploy_contracts(node, account, Terms(5, 6, 7), [verified], made)
    for change in (
        {"heads": [*made.heads, "00" * 60]},
        {"terms": {"bond": 5, "window": 6, "move_time": 7}},
        {"contracts": {**made.contracts, "DisputeGame": made.contracts["ClaimBook"]}},
        {"contracts": {**made.contracts, "ClaimBook": account.address}},
    ):
        document = json.loads((tmp_path / "book.json").read_text()) | change
        (tmp_path / "wrong.json").write_text(json.dumps(document))
        with pytest.raises(Mismatch):
            verify_deployment(node, load_deployment(tmp_path / "wrong.json"))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"version": 2}', '{"version": 1, "chain": true}', "[" * 100_000, '{"version": []}'],
)
def test_a_file_that_is_no_deployment_is_refused(tmp_path, text):
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(Malformed) as caught:
        load_deployment(tmp_path / "book.json")
    assert caught.value.code == "chain.deployment"


def test_a_refusal_of_a_contract_is_told_by_its_name(chain):
    local, url = chain
    account, node = Account(local.keys[2]), Node(url)
    contract = interface("DisputeGame")
    made = node.send(account, None, contract, "DisputeGame", contract.creation((account.address,))).contract
    arguments = (account.address, made, bytes(32), bytes(32), bytes(32), 9)
    with pytest.raises(Reverted) as caught:
        node.send(account, made, contract, "start", contract.call("start", arguments))
    assert caught.value.reason == "SameRoot"
    data = contract.call("start", (*arguments[:2], b"1" * 32, *arguments[3:]))
    with pytest.raises(LimitExceeded):
        Node(url, limits=Limits(fee=1)).send(account, made, contract, "start", data)


# Two processes


def run(folder: Path, url: str, key: str, *words: str, **other):
    environment = {**os.environ, "CVM_CHAIN_NODE": url, "CVM_CHAIN_KEY": key, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **other
    )


def output(process, code=0):
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return json.loads(out), err


@pytest.mark.slow
def test_two_parties_in_two_processes_play_a_whole_game(tmp_path, chain):
    """The liar plays from evidence of its own; the honest side with the commands, and is killed once on the way.

    Either side may settle, whichever is first: the other one then has nothing to settle. The honest side is paid.
    """
    from cvm.demo import IMAGES, MODEL

    local, url = chain
    liar, honest = local.keys[3], local.keys[4]
    program = cvm.compile(MODEL)
    program.save(tmp_path / "m.cvm")
    import numpy as np

    np.save(tmp_path / "x.npy", read_npz(IMAGES, "image")[:1])
    (tmp_path / "lie.py").write_text(LIE)
    deployed, told = output(
        run(tmp_path, url, liar, "cvm", "chain", "deploy", "m.cvm", "--bond", "1000", "-o", "book.json", "--json")
    )
    assert told.count("sending") == len(deployed["contracts"])
    claimed, _ = output(run(tmp_path, url, liar, "lie", "claim"))
    assert claimed == {"claim": 0}
    about = ("--program", "m.cvm", "-i", "x.npy", "-d", "book.json", "--json")
    challenged, told = output(run(tmp_path, url, honest, "cvm", "chain", "challenge", "0", *about))
    assert challenged["did"] == "challenged"
    assert honest.removeprefix("0x") not in told
    playing = [
        run(tmp_path, url, liar, "lie", "play"),
        run(tmp_path, url, honest, "cvm", "chain", "play", "0", *about, "--interval", "0.05"),
    ]
    for _ in range(4):
        playing[1].stderr.readline()
    playing[1].kill()
    playing[1].communicate()
    again = run(tmp_path, url, honest, "cvm", "chain", "play", "0", *about, "--interval", "0.05")
    found, _ = output(again)
    playing[0].kill()
    playing[0].communicate()
    assert found["status"] == "rejected"
    did = [item["what"] for item in found["done"]]
    assert did.index("withdraw") == len(did) - 1
    assert did.count("settle") == (did[-2:-1] == ["settle"])
    node, book = Node(url), deployed["contracts"]["ClaimBook"]
    settled = node.events(book, interface("ClaimBook"), "Settled")
    assert [item["winner"] for item in settled] == [2]
    assert node.balance(book) == 500, "of two bonds of 1000, half a one is nobody's"
    state, _ = output(run(tmp_path, url, honest, "cvm", "chain", "status", "-d", "book.json", "--json"))
    assert state["claims"][0]["games"][0]["winner"] == 2


LIE = """
import json, os, sys
from dataclasses import replace
from random import Random
import cvm
from cvm.audit import Recorder
from cvm.audit.chain import Account, Book, Node, Player, load_deployment
from cvm.audit.dispute.sides import computed
from cvm.arrays import read_npy
from cvm.program.verifier import verify
from tests.audit.dispute.liars import wrong_element

verified = verify(cvm.load("m.cvm"))
inputs = {"image": read_npy("x.npy")}
lies = wrong_element(computed(verified, inputs), Random(1))
deployment = load_deployment("book.json")
book = Book(Node(os.environ["CVM_CHAIN_NODE"], deployment.chain), deployment)
account = Account(os.environ["CVM_CHAIN_KEY"])
if sys.argv[1] == "play":
    Player(book, account, lies).play(0, interval=0.05)
else:
    recorder = Recorder(verified, trace=True)
    cvm.Session(verified).run(inputs, witness=recorder)
    claim = recorder.claim()
    number, _ = book.claim(account, replace(claim, runs=(replace(claim.runs[0], trace=lies.root),)), 0)
    print(json.dumps({"claim": number}))
"""
