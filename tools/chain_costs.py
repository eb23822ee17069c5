"""Gas of whole games on a chain of this process: for docs/chain.md.

    python tools/chain_costs.py [MODEL..] [--games N] [--longest]

A MODEL is a model or a program (by default the one that comes with cvm). The liar of each game has changed one element
in the output of one op: the ops that read most, the first, the last, and others drawn. Each transaction of both sides
is counted, from the first question to the proof. With `--longest`, one more game is played that takes as many rounds as
any game about the program can take.
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
from cvm.audit.dispute.targets import auxiliary_count
from cvm.audit.receipt import Claim, Run
from cvm.demo import MODEL
from cvm.executors import choose_executor, create, initial_state
from cvm.program.merkle import LEAF_BYTES, Tree
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


class FromTheStart(Evidence):
    """Evidence of a liar whose partials are wrong from the first step on, in all elements of one op."""

    def __init__(self, false: Evidence, op: int) -> None:
        super().__init__(false.program, false.values)
        self.op = op

    def partials(self, op: int, target: int, element: int) -> list[int]:
        """The partials of the element, all but the last with another lowest bit."""
        true = super().partials(op, target, element)
        return [*(partial ^ (op == self.op) for partial in true[:-1]), true[-1]]


def longest(true: Evidence) -> FromTheStart:
    """The evidence of a liar about whom a game takes the most rounds.

    In each of the three trees, the first leaf is as deep as any. Where an op has one step, the last partial is also the
    first one.
    """

    def depth(op: int) -> int:
        node = true.program.program.nodes[op]
        target = auxiliary_count(node.op)
        leaves = -(-true.tensor(op, target).size * 4 // LEAF_BYTES)
        steps = len(true.partials(op, target, 0))
        return len(ops.prove(op).path) + (leaves - 1).bit_length() + (steps - 1).bit_length() + min(target, 1)

    nodes = true.program.program.nodes
    ops = Tree.of(bytes(1) for _ in nodes)
    op = max(range(len(nodes)), key=depth)
    name = nodes[op].outputs[0].name
    array = true.values[name].copy()
    array.flat[0] ^= 1
    return FromTheStart(Evidence(true.program, {**true.values, name: array}), op)


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


def measured(verified: VerifiedProgram, count: int, with_longest: bool = False) -> dict[str, Any]:
    """The gas of so many games about a run of a program, and of the longest one if it is asked for."""
    true, random = evidence_of(verified), Random(0)
    nodes = verified.program.nodes
    heavy = [number for number, node in enumerate(nodes) if node.op in ("conv2d", "dense", "matmul")]
    chosen = [*heavy[:1], *heavy[-1:], 0, len(nodes) - 1][:count]
    chosen += [random.randrange(len(nodes)) for _ in range(count - len(chosen))]
    chain, games, moves = LocalChain(), list[tuple[int, int, int]](), defaultdict[str, list[int]](list)
    with chain.serve() as url:
        table = Games(verified, url, chain.keys)
        liars = [(op, lie(true, op, random)) for op in chosen]
        if with_longest:
            liar = longest(true)
            liars.append((liar.op, liar))
        for op, false in liars:
            rounds, done = table.play(verified, true, false)
            games.append((sum(item.gas for item in done), rounds, op))
            for item in done:
                moves[item.what].append(item.gas)
    return {"games": games, "moves": dict(moves), "most_rounds": most_rounds(true.program)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=[str(MODEL)])
    parser.add_argument("--games", type=int, default=8, metavar="N")
    parser.add_argument("--longest", action="store_true", help="one more game, as long as any can be")
    options = parser.parse_args()
    for model in options.models:
        program = cvm.load(model) if Path(model).suffix == ".cvm" else cvm.compile(model)
        found = measured(verify(program), options.games, options.longest)
        print(f"\n{Path(model).name}: at most {found['most_rounds']} rounds\n\n| op | rounds | gas |\n|---|---:|---:|")
        for gas, rounds, op in sorted(found["games"], reverse=True):
            print(f"| {op} `{program.nodes[op].op}` | {rounds} | {gas:,} |")
        print("\n| move | least | most |\n|---|---:|---:|")
        for what, gases in found["moves"].items():
            print(f"| `{what}` | {min(gases):,} | {max(gases):,} |")


if __name__ == "__main__":
    main()
