"""Gas of whole games on a chain of this process: for docs/chain.md.

    python tools/chain_costs.py [MODEL..] [--games N]

A MODEL is a model or a program (by default the one that comes with cvm). The liar of each game has changed one element
in the output of one op: the ops that read most, the first, the last, and others drawn. Each transaction of both sides
is counted, from the first question to the proof.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import cvm
from cvm.audit.chain.book import Book
from cvm.audit.chain.deployment import Terms, deploy
from cvm.audit.chain.local import LocalChain
from cvm.audit.chain.node import Account, Node
from cvm.audit.chain.play import Done, Player
from cvm.audit.dispute import Evidence, OpenProgram, Witnessed, most_rounds
from cvm.audit.receipt import Claim, Run
from cvm.demo import MODEL
from cvm.executors import choose_executor, create, initial_state
from cvm.program.verifier import VerifiedProgram, verify

_TERMS = Terms(bond=10**18, window=10**9, move_time=10**6)


def evidence_of(verified: VerifiedProgram) -> Evidence:
    """A run on inputs that are drawn."""
    random, program = np.random.default_rng(0), verified.program
    feed = {
        item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
        for item in program.inputs
    }
    state = initial_state(program)
    result = create(choose_executor(None)[0], verified).run(feed, state, "all")
    return Evidence(OpenProgram(program), {**state, **feed, **result.values})


def lie(true: Evidence, op: int, random: Random) -> Evidence:
    """The evidence with one other element in the output of an op."""
    name = true.program.program.nodes[op].outputs[0].name
    array = true.values[name].copy()
    array.flat[random.randrange(array.size)] ^= 1
    return Evidence(true.program, {**true.values, name: array})


class Games:
    """A chain with a book for one program."""

    def __init__(self, verified: VerifiedProgram, url: str, keys: tuple[str, ...]) -> None:
        self.node = Node(url, pause=lambda _: None)
        self.accounts = [Account(key) for key in keys[:2]]
        self.deployment = deploy(self.node, self.accounts[0], _TERMS, [verified])

    def play(self, verified: VerifiedProgram, true: Evidence, false: Evidence) -> tuple[int, list[Done]]:
        """A false claim, its challenge, and the game: its rounds, and what both sides did."""
        liar, honest, program = Witnessed(false), Witnessed(true), verified.program
        trace = true.trace
        run = Run(trace.inputs, trace.before, (bytes(32),) * len(program.outputs), trace.before, liar.root)
        claim = Claim(trace.program, program.op_set, program.limits, verified.gas, (run,))
        book = Book(self.node, replace(self.deployment, block=self.node.block()))  # no events of earlier games are read
        number, _ = book.claim(self.accounts[0], claim, 0)
        book.challenge(self.accounts[1], book.entry(number), honest.root)
        game, done = book.challenges(number)[0].game, list[Done]()
        players = [
            Player(book, account, party, done.append)
            for account, party in zip(self.accounts, (liar, honest), strict=True)
        ]
        while not book.outcome(game)[0]:
            for player in players:
                player.play(number, looks=0)
        assert book.outcome(game)[1] == 2, "the honest side wins"
        return book.position(game).rounds, [item for item in done if item.game == game and item.what != "settle"]


def measured(verified: VerifiedProgram, count: int) -> dict[str, Any]:
    """The gas of so many games about a run of a program."""
    true, random = evidence_of(verified), Random(0)
    nodes = verified.program.nodes
    heavy = [number for number, node in enumerate(nodes) if node.op in ("conv2d", "dense", "matmul")]
    chosen = [*heavy[:1], *heavy[-1:], 0, len(nodes) - 1][:count]
    chosen += [random.randrange(len(nodes)) for _ in range(count - len(chosen))]
    chain, games, moves = LocalChain(), list[tuple[int, int, int]](), defaultdict[str, list[int]](list)
    with chain.serve() as url:
        table = Games(verified, url, chain.keys)
        for op in chosen:
            rounds, done = table.play(verified, true, lie(true, op, random))
            games.append((sum(item.gas for item in done), rounds, op))
            for item in done:
                moves[item.what].append(item.gas)
    return {"games": games, "moves": dict(moves), "most_rounds": most_rounds(true.program)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[str(MODEL)])
    parser.add_argument("--games", type=int, default=8, metavar="N")
    options = parser.parse_args()
    for model in options.models:
        program = cvm.load(model) if Path(model).suffix == ".cvm" else cvm.compile(model)
        found = measured(verify(program), options.games)
        print(f"\n{Path(model).name}: at most {found['most_rounds']} rounds\n\n| op | rounds | gas |\n|---|---:|---:|")
        for gas, rounds, op in sorted(found["games"], reverse=True):
            print(f"| {op} `{program.nodes[op].op}` | {rounds} | {gas:,} |")
        print("\n| move | least | most |\n|---|---:|---:|")
        for what, gases in found["moves"].items():
            print(f"| `{what}` | {min(gases):,} | {max(gases):,} |")


if __name__ == "__main__":
    main()
