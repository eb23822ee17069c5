"""Whoever says what follows wins every game on a chain, keeps its bond, and is paid."""

from __future__ import annotations

from itertools import cycle
from random import Random

import pytest

pytest.importorskip("pyrevm", reason="pyrevm executes the contracts")
pytest.importorskip("eth_abi", reason="the extra chain is not installed")

from eth_utils import keccak

from cvm.audit.chain.moves import Stage, move
from cvm.audit.dispute.bounds import most_rounds
from cvm.audit.dispute.party import Witnessed
from cvm.audit.dispute.sides import statement_of
from cvm.audit.trace import head_of
from cvm.program.commitments import ProgramClaim, counted_root
from cvm.program.merkle import root
from cvm.program.preimage import listed
from tests.audit.chain.arena import Arena, Reverted
from tests.audit.chain.claims import BOND, arena_of, liar_of, quarrel, small_programs
from tests.audit.dispute.games import MODELS, model, vector_programs
from tests.audit.dispute.liars import LIARS, wrong_element


class Silent(Witnessed):
    """Never answers: a griefer who hopes that the other side forgets the time."""

    def answer(self, question):
        return None


class Late(Witnessed):
    """Answers for a while, and then lets the time run out."""

    def __init__(self, evidence, moves):
        super().__init__(evidence)
        self.moves = moves

    def answer(self, question):
        self.moves -= 1
        return super().answer(question) if self.moves >= 0 else None


KINDS = (*LIARS, "silent", "late")


def griefer(kind, true, random):
    if not true.trace.steps:
        return liar_of("wrong_status", true, random)
    if kind == "silent":
        return Silent(wrong_element(true, random).evidence)
    if kind == "late":
        return Late(wrong_element(true, random).evidence, random.randint(0, 20))
    return liar_of(kind, true, random)


def game(arena, true, kind, random):
    """A game in which the claimant or the challenger lies; what is required of it."""
    liar = griefer(kind, true, random)
    if liar is None or liar.root == true.trace.root:
        return None
    honest, side = Witnessed(true), random.randrange(2)
    total = sum(arena.balance(account) for account in arena.accounts) + arena.balance(arena.contracts["ClaimBook"])
    found = quarrel(arena, true, (honest, liar) if side == 0 else (liar, honest), random)
    assert found.winner == side + 1, (kind, found)
    assert found.status == (2 if side == 0 else 3)
    assert found.paid[side] == BOND // 2
    assert found.paid[1 - side] == -BOND
    assert found.position.rounds <= most_rounds(true.program)
    assert arena.balance(arena.contracts["ClaimBook"]) == arena.debts()
    assert total == sum(map(arena.balance, arena.accounts)) + arena.balance(arena.contracts["ClaimBook"])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_liar_of_every_kind_loses_and_pays(kind):
    random, programs = Random(kind), small_programs()
    arena = arena_of(*programs.values())
    played = [game(arena, true, kind, random) for true in programs.values()]
    assert any(played)


@pytest.mark.long
def test_the_honest_side_wins_300_games_on_chain_and_is_paid():
    """`python -m pytest -m long -s tests/audit/chain/test_game.py` plays them and prints what happened."""
    runs = dict(vector_programs()) | {name: model(name) for name, folder in MODELS.items() if folder.is_dir()}
    played, proven, longest = 0, 0, 0
    for name, true in runs.items():
        arena, random, kinds = arena_of(true), Random(name), cycle(KINDS)
        for _ in range(len(KINDS)):
            found = game(arena, true, next(kinds), random)
            if found is not None:
                played += 1
                proven += found.position.stage is Stage.OVER
                longest = max(longest, found.position.rounds)
    print(f"\n{played} games about {len(runs)} runs, {proven} up to a proof, at most {longest} rounds")
    assert played >= 300
    assert proven >= 100


# Rules


@pytest.fixture
def table():
    """A game that has begun, its parties, and the honest one's side."""
    true = vector_programs()["tiny_cnn"]
    arena = arena_of(true)
    return Table(arena, true, Witnessed(true), wrong_element(true, Random(2)))


class Table:
    def __init__(self, arena: Arena, true, honest, liar):
        self.arena, self.parties = arena, (honest, liar)
        self.accounts = arena.accounts[1:3]
        agreed = statement_of(true)
        self.statement = keccak(agreed.program + listed(agreed.inputs) + listed(agreed.before))
        self.game = self.start(*self.accounts, honest.root, liar.root)

    def start(self, *arguments, time=1_000):
        return self.arena.send(self.accounts[0], "DisputeGame", "start", *arguments, self.statement, time)

    def move(self, side, shown=None):
        position = self.arena.position(self.game)
        if position.has_answered(1 - side):
            shown = self.arena.shown(self.game)
        return move(self.parties[side], position, shown)

    def send(self, side, made, account=None):
        sender = account or self.accounts[side]
        return self.arena.send(sender, "DisputeGame", made.function, self.game, *made.arguments)

    def until(self, stage):
        while self.arena.position(self.game).stage is not stage:
            for side in (0, 1):
                self.send(side, self.move(side))


def refused(reason):
    return pytest.raises(Reverted, match=f"^{reason}")


def test_nobody_but_the_parties_can_answer(table):
    with refused("NotAParty"):
        table.send(0, table.move(0), table.arena.accounts[3])


def test_an_answer_is_given_once(table):
    made = table.move(0)
    table.send(0, made)
    with refused("AlreadyAnswered"):
        table.send(0, made)


def test_a_question_that_was_not_asked_is_not_answered(table):
    with refused("NotAsked"):
        table.arena.send(table.accounts[0], "DisputeGame", "children", table.game, bytes(32), bytes(32))
    with refused("NotAsked"):
        table.arena.send(table.accounts[0], "DisputeGame", "commit", table.game, 1, bytes(32), ())


def test_after_the_deadline_nobody_can_answer_and_who_has_answered_has_won(table):
    table.send(1, table.move(1))
    table.arena.time = table.arena.position(table.game).deadline - 1
    late = table.move(0)
    assert table.arena.read("DisputeGame", "outcome", table.game) == (False, 0)
    table.arena.time += 1
    with refused("TooLate"):
        table.send(0, late)
    assert table.arena.read("DisputeGame", "outcome", table.game) == (True, 2)


def test_if_nobody_answers_both_have_lost(table):
    table.arena.time = table.arena.position(table.game).deadline + 1
    assert table.arena.read("DisputeGame", "outcome", table.game) == (True, 0)


def test_the_last_second_counts(table):
    table.arena.time = table.arena.position(table.game).deadline - 1  # the block of the move is one second later
    table.send(0, table.move(0))
    assert table.arena.position(table.game).has_answered(0)


def test_a_copied_answer_or_proof_helps_nobody(table):
    with refused("WrongTrace"):
        table.send(1, table.move(0))
    table.until(Stage.PROVE_STEP)
    proof = table.move(0)
    with refused("NotTheStep"):
        table.send(1, proof)
    table.send(0, proof)
    assert table.arena.read("DisputeGame", "outcome", table.game) == (True, 1)
    with refused("NotAsked"):
        table.send(1, proof)


@pytest.mark.parametrize("stage", [Stage.OPEN_OP, Stage.OPEN_LEAF])
def test_what_the_other_party_showed_must_be_given_as_it_was(table, stage):
    table.until(stage)
    table.send(1, table.move(1))
    made = table.move(0)
    for wrong in (b"", made.arguments[-1][:-1] + bytes([made.arguments[-1][-1] ^ 1])):
        with refused("NotTheOther"):
            table.arena.send(table.accounts[0], "DisputeGame", made.function, table.game, *made.arguments[:-1], wrong)
    table.send(0, made)


def test_every_argument_of_every_answer_is_checked(table):
    """One flipped bit in any argument of any move is refused, and the move itself is accepted after that."""
    random = Random(1)
    while not table.arena.read("DisputeGame", "outcome", table.game)[0]:
        for side in (0, 1):
            made = table.move(side)
            if made is None:
                continue
            for number, value in enumerate(made.arguments):
                wrong = flipped(value, random)
                if wrong is None:
                    continue
                arguments = (*made.arguments[:number], wrong, *made.arguments[number + 1 :])
                with pytest.raises(Reverted):
                    table.arena.send(table.accounts[side], "DisputeGame", made.function, table.game, *arguments)
            table.send(side, made)
            if table.arena.read("DisputeGame", "outcome", table.game)[0]:
                break
    assert table.arena.read("DisputeGame", "outcome", table.game) == (True, 1)


def flipped(value, random):
    """The value with one bit or one item changed; None if it is empty, and then says nothing."""
    if isinstance(value, int):
        return value ^ 1
    if isinstance(value, bytes):
        if not value:
            return None
        place = random.randrange(len(value))
        return value[:place] + bytes([value[place] ^ 1 << random.randrange(8)]) + value[place + 1 :]
    if not value:
        return (bytes(32),)
    return value[:-1]


def test_a_game_needs_two_parties_two_roots_and_time(table):
    a, b = table.accounts
    with refused("SameRoot"):
        table.start(a, b, bytes(32), bytes(32))
    with refused("SameParty"):
        table.start(a, a, bytes(32), b"\1" * 32)
    with refused("NoTime"):
        table.start(a, b, bytes(32), b"\1" * 32, time=0)


def test_every_revert_has_a_reason(table):
    """Answers of random arguments are refused by name, or as bytes that are no arguments."""
    random = Random(5)
    for _ in range(200):
        function, arguments = random.choice((
            ("openTrace", (random.randbytes(random.randrange(40)), 1, bytes(32), b"", bytes(32))),
            ("openOp", (random.randbytes(9), (), b"", b"")),
            ("openAuxiliaries", (b"", b"", b"")),
            ("openTensor", (b"", bytes(32))),
            ("openLeaf", (b"", b"")),
            ("commit", (0, bytes(32), ())),
            ("proveStep", (bytes(32), b"", (), b"", random.randbytes(50))),
        ))  # fmt: skip
        with pytest.raises(Reverted, match=r"^(NotAsked|WrongStatement)"):
            table.arena.send(table.accounts[0], "DisputeGame", function, table.game, *arguments)


def test_of_a_program_without_ops_only_the_true_trace_can_be_opened(table):
    """Otherwise two roots could differ although no record differs, and nobody would win."""
    lists = [counted_root(0, root([]))] * 5
    program = ProgramClaim(1, "default", *lists)
    beginning = listed(()) + listed(())
    logs = (root([]), b"\1" * 32)
    roots = [head_of(program.digest(), (), (), counted_root(0, log)) for log in logs]
    table.statement = keccak(program.digest() + beginning)
    number = table.start(*table.accounts, *roots)
    opening = (number, program.preimage(), 0, root([]), beginning)
    with refused("WrongTrace"):
        table.arena.send(table.accounts[1], "DisputeGame", "openTrace", *opening, logs[1])
    table.arena.send(table.accounts[0], "DisputeGame", "openTrace", *opening, logs[0])
    table.arena.time += 2_000
    assert table.arena.read("DisputeGame", "outcome", number) == (True, 1)
