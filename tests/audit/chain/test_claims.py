"""The book of claims: who is paid what, and that no wei is lost or made, in any order of what people do."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

pytest.importorskip("pyrevm", reason="pyrevm executes the contracts")
pytest.importorskip("eth_abi", reason="the extra chain is not installed")

from eth_abi import encode
from eth_utils import keccak

from cvm.audit.chain.interface import interface
from cvm.audit.chain.refutation import refutation
from cvm.audit.dispute.party import Witnessed
from cvm.program.merkle import Tree
from tests.audit.chain.arena import Reverted
from tests.audit.chain.claims import BOND, TERMS, arena_of, claim, head_of, liar_of, run_of
from tests.audit.dispute.games import vector_programs
from tests.audit.dispute.liars import LIARS, wrong_element
from tests.selection import examples

OPEN, FINAL, REJECTED = 1, 2, 3
REFUTED = (
    "tiny_cnn",
    "detection",
    "accumulator",
    "delay_line",
    "exchanged_states",
    "constants_only",
    "direct",
    "two_results",
)
"""Programs whose outputs and states are results, inputs, constants and states."""


def refused(reason):
    return pytest.raises(Reverted, match=f"^{reason}")


@pytest.fixture
def true():
    return vector_programs()["tiny_cnn"]


@pytest.fixture
def arena(true):
    return arena_of(true)


def due(arena, account):
    return arena.read("ClaimBook", "due", account)


# Claims


def test_a_claim_that_nobody_challenges_becomes_final_and_its_bond_is_returned(arena, true):
    _, claimant, other, _ = arena.accounts
    number = claim(arena, claimant, true, run_of(true))
    with refused("WindowOpen"):
        arena.send(other, "ClaimBook", "finalize", number)
    arena.time += TERMS.window + 1
    arena.send(other, "ClaimBook", "finalize", number)
    assert arena.member("claim", number)["status"] == FINAL
    with refused("WrongStatus"):
        arena.send(other, "ClaimBook", "finalize", number)
    before = arena.balance(claimant)
    arena.send(claimant, "ClaimBook", "withdraw")
    assert arena.balance(claimant) == before + BOND
    with refused("NothingDue"):
        arena.send(claimant, "ClaimBook", "withdraw")


def test_the_receipt_of_a_claim_is_computed_from_what_is_claimed(arena, true):
    from cvm.audit.receipt import Claim

    program, run = true.program.program, run_of(true)
    runs = (replace(run, trace=bytes(32)), run, run)
    head = head_of(true)
    receipt = Claim(true.trace.program, program.op_set, program.limits, int.from_bytes(head[-8:], "little"), runs)
    assert receipt.preimage()[:-32] == head
    path = Tree.of([item.preimage() for item in runs]).prove(1).path
    send = (arena.accounts[1], "ClaimBook", "claimRun", head, run.preimage(), 1, 3, path)
    number = arena.send(*send, value=BOND)
    assert arena.member("claim", number)["receipt"] == receipt.id()
    assert arena.member("claim", number)["index"] == 1
    with refused("BadPath"):
        arena.send(*send[:-1], path[:1], value=BOND)


def test_a_claim_needs_its_bond_a_known_program_and_a_trace(arena, true):
    run = run_of(true)
    for wrong in (0, BOND - 1, BOND + 1):
        with refused("WrongBond"):
            arena.send(arena.accounts[1], "ClaimBook", "claimRun", head_of(true), run.preimage(), 0, 1, (), value=wrong)
    for head in (b"", head_of(true)[:-1] + b"\1", head_of(vector_programs()["movements"])):
        with refused("UnknownProgram"):
            arena.send(arena.accounts[1], "ClaimBook", "claimRun", head, run.preimage(), 0, 1, (), value=BOND)
    for record in (replace(run, trace=None).preimage(), run.preimage() + b"\0", run.preimage()[:-1], b""):
        with refused("(NotARun|Truncated)"):
            arena.send(arena.accounts[1], "ClaimBook", "claimRun", head_of(true), record, 0, 1, (), value=BOND)


def test_a_challenge_needs_its_bond_another_root_another_account_and_an_open_window(arena, true):
    _, claimant, other, _ = arena.accounts
    run = run_of(true)
    number = claim(arena, claimant, true, run)
    rejected = (
        (number, run.preimage(), bytes(32)),
        (number, replace(run, trace=bytes(32)).preimage(), bytes(31) + b"1"),
    )
    with refused("WrongBond"):
        arena.send(other, "ClaimBook", "challengeRun", *rejected[0], value=1)
    with refused("NotARun"):
        arena.send(other, "ClaimBook", "challengeRun", *rejected[1], value=BOND)
    with refused("SameRoot"):
        arena.send(other, "ClaimBook", "challengeRun", number, run.preimage(), run.trace, value=BOND)
    with refused("OwnClaim"):
        arena.send(claimant, "ClaimBook", "challengeRun", *rejected[0], value=BOND)
    with refused("WrongStatus"):
        arena.send(other, "ClaimBook", "challengeRun", number + 1, *rejected[0][1:], value=BOND)
    arena.time = arena.member("claim", number)["until"]  # the block is one second later
    with refused("WindowClosed"):
        arena.send(other, "ClaimBook", "challengeRun", *rejected[0], value=BOND)


# Who plays both sides


def test_a_challenger_who_loses_on_purpose_does_not_make_a_false_claim_final(arena, true):
    """The liar challenges itself and loses. The honest challenger comes after that, and wins."""
    _, liar, accomplice, honest = arena.accounts
    lies = wrong_element(true, Random(3))
    run = replace(run_of(true), trace=lies.root)
    number = claim(arena, liar, true, run)
    first = arena.send(accomplice, "ClaimBook", "challengeRun", number, run.preimage(), bytes(32), value=BOND)
    arena.turn(arena.member("challenge", first)["game"], 0, lies)
    arena.time += TERMS.move_time + 1
    arena.send(liar, "ClaimBook", "settle", first)
    assert due(arena, liar) == BOND // 2
    assert arena.member("claim", number)["status"] == OPEN
    second = arena.send(honest, "ClaimBook", "challengeRun", number, run.preimage(), true.trace.root, value=BOND)
    assert arena.play(arena.member("challenge", second)["game"], (lies, Witnessed(true)), Random(1)) == 2
    arena.send(honest, "ClaimBook", "settle", second)
    assert arena.member("claim", number)["status"] == REJECTED
    assert due(arena, honest) == BOND + BOND // 2
    assert arena.read("ClaimBook", "burnt") == BOND  # one half of the liar's, one of the accomplice's
    assert arena.balance(arena.contracts["ClaimBook"]) == arena.debts()


def test_a_liar_who_is_beaten_by_an_accomplice_still_loses_half_a_bond(arena, true):
    """An honest challenger who is not first has lost nothing."""
    _, liar, accomplice, honest = arena.accounts
    lies = wrong_element(true, Random(3))
    run = replace(run_of(true), trace=lies.root)
    number = claim(arena, liar, true, run)
    mine, his = (
        arena.send(account, "ClaimBook", "challengeRun", number, run.preimage(), true.trace.root, value=BOND)
        for account in (honest, accomplice)
    )
    game = arena.member("challenge", his)["game"]
    arena.turn(game, 1, Witnessed(true))
    arena.time += TERMS.move_time + 1
    arena.send(accomplice, "ClaimBook", "settle", his)
    arena.send(liar, "ClaimBook", "settle", mine)
    assert [due(arena, account) for account in (liar, accomplice, honest)] == [0, BOND + BOND // 2, BOND]
    assert arena.read("ClaimBook", "burnt") == BOND // 2


def test_a_claim_is_final_only_when_all_its_games_are_settled(arena, true):
    _, honest, first, second = arena.accounts
    run = run_of(true)
    number = claim(arena, honest, true, run)
    challenges = [
        arena.send(account, "ClaimBook", "challengeRun", number, run.preimage(), bytes([seed]) * 32, value=BOND)
        for seed, account in enumerate((first, second))
    ]
    for challenge in challenges:
        with refused("GameRunning"):
            arena.send(first, "ClaimBook", "settle", challenge)
        arena.turn(arena.member("challenge", challenge)["game"], 0, Witnessed(true))
    arena.time += TERMS.window + 1
    arena.send(second, "ClaimBook", "settle", challenges[0])
    with refused("ChallengesOpen"):
        arena.send(honest, "ClaimBook", "finalize", number)
    arena.send(second, "ClaimBook", "settle", challenges[1])
    with refused("AlreadySettled"):
        arena.send(second, "ClaimBook", "settle", challenges[1])
    arena.send(honest, "ClaimBook", "finalize", number)
    assert due(arena, honest) == 2 * BOND


def test_two_who_do_not_answer_both_lose_everything(arena, true):
    _, claimant, challenger, _ = arena.accounts
    run = run_of(true)
    number = claim(arena, claimant, true, run)
    challenge = arena.send(challenger, "ClaimBook", "challengeRun", number, run.preimage(), bytes(32), value=BOND)
    arena.time += TERMS.move_time + 1
    arena.send(challenger, "ClaimBook", "settle", challenge)
    assert arena.member("claim", number)["status"] == REJECTED
    assert arena.read("ClaimBook", "burnt") == 2 * BOND == arena.debts()


# Refutations


def announced(arena, account, number, found, salt=bytes(32), sender=None):
    opening = interface("ClaimBook").encoded("refute", "opening", found.opening)
    types = ["address", "uint256", "bool", "bytes32", "bytes32"]
    hash_ = keccak(encode(types, [sender or account, number, found.state, keccak(opening), salt]))
    arena.send(account, "ClaimBook", "announce", hash_)


def refute(arena, account, number, run, found, salt=bytes(32)):
    arena.send(account, "ClaimBook", "refute", number, run.preimage(), found.state, found.opening, salt)


@pytest.mark.parametrize("name", REFUTED)
def test_a_claim_that_contradicts_its_own_trace_is_refuted(name):
    true = vector_programs()[name]
    arena = arena_of(true)
    _, liar, honest, thief = arena.accounts
    run = run_of(true)
    assert refutation(true.program, true.trace, run) is None
    lies = [replace(run, outputs=(*run.outputs[:i], bytes(32), *run.outputs[i + 1 :])) for i in range(len(run.outputs))]
    lies += [replace(run, after=(*run.after[:i], bytes(32), *run.after[i + 1 :])) for i in range(len(run.after))]
    lies += [replace(run, outputs=(*run.outputs, bytes(32))), replace(run, after=(*run.after, bytes(32)))]
    for lie in lies:
        number = claim(arena, liar, true, lie)
        found = refutation(true.program, true.trace, lie)
        assert found is not None
        before = due(arena, honest)
        with refused("NotAnnounced"):
            refute(arena, honest, number, lie, found)
        announced(arena, honest, number, found)
        with refused("NotAnnounced"):  # a copy: the announcement names its sender
            refute(arena, thief, number, lie, found)
        refute(arena, honest, number, lie, found)
        assert arena.member("claim", number)["status"] == REJECTED
        assert due(arena, honest) == before + BOND // 2
        assert due(arena, thief) == 0
    assert arena.balance(arena.contracts["ClaimBook"]) == arena.debts()


def test_a_true_claim_cannot_be_refuted(arena, true):
    """Openings of a false claim, and of every output with parts exchanged, show nothing about the true one."""
    _, claimant, griefer, _ = arena.accounts
    run = run_of(true)
    number = claim(arena, claimant, true, run)
    lie = replace(run, outputs=(bytes(32), *run.outputs[1:]))
    found = refutation(true.program, true.trace, lie)
    assert found is not None
    openings = [found.opening]
    for place, value in enumerate(found.opening):
        if isinstance(value, bytes) and value:
            openings.append((*found.opening[:place], value[:-1] + bytes([value[-1] ^ 1]), *found.opening[place + 1 :]))
        if isinstance(value, tuple) and value:
            openings.append((*found.opening[:place], (value[0], *value) if place != 1 else value[::-1],
                             *found.opening[place + 1 :]))  # fmt: skip
        if isinstance(value, int):
            openings.append((*found.opening[:place], value + 1, *found.opening[place + 1 :]))
    for opening in openings:
        for state in (False, True):
            forged = replace(found, opening=opening, state=state)
            announced(arena, griefer, number, forged)
            with pytest.raises(Reverted):
                refute(arena, griefer, number, run, forged)
    assert arena.member("claim", number)["status"] == OPEN


# Payment


def code_of(book, greedy):
    """Code that withdraws from the book when it is called without data, and passes on other calls.

    It fails if what it calls fails. If it is greedy, it withdraws when it is paid as well.
    """
    selector = interface("ClaimBook").call("withdraw").hex()
    to = f"73{book.removeprefix('0x')}5af1"  # call(gas, book, ..
    withdraws = f"63{selector}60e01b5f52" + f"5f5f60045f5f{to}"
    passes_on = "5b365f5f37" + f"5f5f365f34{to}"
    begin = 0 if greedy else 9
    start = (
        begin + 4 + len(withdraws) // 2 + 6
    )  # of what passes on: after the first jump, and after the end of a withdrawal
    done = start + len(passes_on) // 2 + 6
    end = f"60{done:02x}575f5ffd"  # jump if it was a success, else revert
    paid = "" if greedy else f"36153415151660{done:02x}57"  # if there is a value and no data, jump to the end
    return bytes.fromhex(paid + f"3660{start:02x}57" + withdraws + end + passes_on + end + "5b00")


@pytest.mark.parametrize("greedy", [False, True])
def test_a_contract_that_withdraws_again_while_it_is_paid_gets_nothing(arena, true, greedy):
    """The second call finds nothing due and fails, so the payment fails too, and the debt remains."""
    book, caller = arena.contracts["ClaimBook"], arena.accounts[1]
    code = code_of(book, greedy)
    account = arena.put(caller, bytes.fromhex(f"60{len(code):02x}600c60003960{len(code):02x}6000f3") + code)
    claims = interface("ClaimBook").call("claimRun", (head_of(true), run_of(true).preimage(), 0, 1, ()))
    arena.raw(caller, account, claims, BOND)
    arena.time += TERMS.window + 1
    arena.send(caller, "ClaimBook", "finalize", 0)
    assert due(arena, account) == arena.balance(book) == BOND
    if greedy:
        with pytest.raises(Reverted):
            arena.raw(caller, account, b"")
    else:
        arena.raw(caller, account, b"")
    left = BOND if greedy else 0
    assert due(arena, account) == arena.balance(book) == left
    assert arena.balance(account) == BOND - left


# Anybody does anything, in any order


class Everything(RuleBasedStateMachine):
    """Honest and lying claimants and challengers, who act in any order; the honest ones act in time."""

    def __init__(self):
        super().__init__()
        self.true = vector_programs()["tiny_cnn"]
        self.arena = arena_of(self.true, accounts=6)
        self.honest = set(self.arena.accounts[1:3])
        self.parties = {}  # (game, side): who plays there
        self.runs = {}
        self.total = self._total()

    def _total(self):
        return sum(map(self.arena.balance, [*self.arena.accounts, self.arena.contracts["ClaimBook"]]))

    def _send(self, account, function, *arguments, value=0):
        try:
            return self.arena.send(account, "ClaimBook", function, *arguments, value=value)
        except Reverted:
            return None

    def _says(self, account, kind, seed):
        if account in self.honest:
            return Witnessed(self.true)
        return liar_of(kind, self.true, Random(seed)) or wrong_element(self.true, Random(seed))

    @rule(who=st.integers(1, 5), kind=st.sampled_from(sorted(LIARS)), seed=st.integers(0, 99))
    def claims(self, who, kind, seed):
        account = self.arena.accounts[who]
        says = self._says(account, kind, seed)
        run = replace(run_of(self.true), trace=says.root)
        number = claim(self.arena, account, self.true, run)
        self.runs[number] = (run, says)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), who=st.integers(1, 5), kind=st.sampled_from(sorted(LIARS)), seed=st.integers(0, 99))
    def challenges(self, data, who, kind, seed):
        number = data.draw(st.sampled_from(sorted(self.runs)))
        account = self.arena.accounts[who]
        says = self._says(account, kind, seed)
        run, claimant = self.runs[number]
        made = self._send(account, "challengeRun", number, run.preimage(), says.root, value=BOND)
        if made is not None:
            game = self.arena.member("challenge", made)["game"]
            self.parties[game, 0], self.parties[game, 1] = claimant, says

    @precondition(lambda self: self.parties)
    @rule(data=st.data(), moves=st.integers(1, 8))
    def moves(self, data, moves):
        for _ in range(moves):
            game, side = data.draw(st.sampled_from(sorted(self.parties)))
            self.arena.turn(game, side, self.parties[game, side])

    def _honest_turns(self):
        """Honest parties answer whatever they are asked, until it is somebody else's turn everywhere."""
        honest = [(*place, party) for place, party in self.parties.items() if party.root == self.true.trace.root]
        answered = [True]
        while any(answered):
            answered = [self.arena.turn(*turn) for turn in honest]

    @rule(seconds=st.sampled_from((1, TERMS.move_time - 200, TERMS.move_time + 1, TERMS.window)))
    def time_passes(self, seconds):
        self._honest_turns()
        self.arena.time += seconds

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), who=st.integers(1, 5))
    def settles(self, data, who):
        challenges = self.arena.read("ClaimBook", "challengeCount")
        self._send(self.arena.accounts[who], "settle", data.draw(st.integers(0, challenges)))
        self._send(self.arena.accounts[who], "finalize", data.draw(st.sampled_from(sorted(self.runs))))

    @rule(who=st.integers(1, 5))
    def withdraws(self, who):
        self._send(self.arena.accounts[who], "withdraw")

    @invariant()
    def no_wei_is_lost_or_made(self):
        assert self._total() == self.total
        assert self.arena.balance(self.arena.contracts["ClaimBook"]) == self.arena.debts()

    @invariant()
    def no_true_claim_is_rejected_and_no_honest_party_has_lost(self):
        for number, (_, says) in self.runs.items():
            if says.root == self.true.trace.root:
                assert self.arena.member("claim", number)["status"] != REJECTED
        for (game, side), party in self.parties.items():
            over, winner = self.arena.read("DisputeGame", "outcome", game)
            if over and party.root == self.true.trace.root:
                assert winner == side + 1

    def teardown(self):
        """In the end, every game is over, and no honest account has less than it began with."""
        while any(not self.arena.read("DisputeGame", "outcome", game)[0] for game, _ in self.parties):
            self._honest_turns()
            self.arena.time += TERMS.move_time - 200
        self.arena.time += TERMS.window + 1
        for number in range(self.arena.read("ClaimBook", "challengeCount")):
            self._send(self.arena.accounts[0], "settle", number)
        for number in self.runs:
            self._send(self.arena.accounts[0], "finalize", number)
        for account in self.arena.accounts:
            self._send(account, "withdraw")
        assert all(self.arena.member("claim", number)["status"] in (FINAL, REJECTED) for number in self.runs)
        assert all(self.arena.balance(account) >= 10**24 for account in self.honest)
        self.no_wei_is_lost_or_made()
        assert self.arena.balance(self.arena.contracts["ClaimBook"]) == self.arena.read("ClaimBook", "burnt")


def orders(count, steps):
    """Without shrinking, which takes minutes here: an order of few steps is short enough to be read."""
    phases = [phase for phase in Phase if phase is not Phase.shrink]
    return settings(max_examples=count, stateful_step_count=steps, deadline=None, phases=phases)


def test_no_wei_is_lost_and_no_honest_party_loses_in_any_order():
    run_state_machine_as_test(Everything, settings=orders(examples(20), 25))


@pytest.mark.long
def test_no_wei_is_lost_in_500_orders():
    run_state_machine_as_test(Everything, settings=orders(500, 50))
