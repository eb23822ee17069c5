"""``cvm chain``: claims about runs on a chain, their challenges, and the games that decide them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import Usage
from cvm.cli.options import Codes, Cycles, ExecutorName, Inputs, Json
from cvm.cli.output import counted, printable, say, show, table, working
from cvm.cli.sides import ProgramOfRun, RunNumber, StateBefore, evidence_of
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.audit.chain import Account, Book, Done, Node, Sending
    from cvm.audit.dispute import Evidence

__all__ = ["GROUP"]

_KEY_BYTES = 4096
_GWEI = 10**9

_Url: TypeAlias = Annotated[
    str, typer.Option("--node", envvar="CVM_CHAIN_NODE", metavar="URL", help="The node to ask: http://.. or https://..")
]
_KeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The secret key of the account, 32 bytes in hexadecimal, in a file that nobody else can read. "
        "Without it, the environment variable CVM_CHAIN_KEY holds the key.",
    ),
]
_DeploymentFile: TypeAlias = Annotated[
    Path, typer.Option("--deployment", "-d", metavar="FILE", help="The contracts, as `cvm chain deploy` wrote them.")
]
_MaxFee: TypeAlias = Annotated[
    int, typer.Option("--max-fee", min=1, metavar="GWEI", help="The most gwei that a unit of gas may cost.")
]
_Number: TypeAlias = Annotated[int, typer.Argument(metavar="CLAIM", min=0, help="The number of the claim in the book.")]


# What all commands share


def _account(file: Path | None) -> Account:
    """The account whose key is in a file, or in the environment."""
    from cvm.audit.chain import Account
    from cvm.program.reading import read_bytes

    if file is None:
        key = os.environ.get("CVM_CHAIN_KEY", "")
        if not key:
            raise Usage("expected the key of an account: --key-file FILE, or the environment variable CVM_CHAIN_KEY")
        return Account(key)
    where = Location(str(file))
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise Invalid("chain.key_file", "other users can read this key: `chmod 600` the file", where)
        return Account(read_bytes(file, _KEY_BYTES, "key").decode("ascii", "replace"))
    except OSError as error:
        raise Invalid("chain.key_file", f"cannot be read: {error.strerror or error}", where) from None


def _told(sending: Sending) -> None:
    """Say on stderr what is about to be sent."""
    to = "a new contract" if sending.to is None else sending.to
    value = f", {sending.value} wei with it" if sending.value else ""
    cost = f"{sending.gas} gas at no more than {sending.fee} wei"
    print(printable(f"sending {sending.function} to {to}: {cost}{value}"), file=sys.stderr)


def _warned(message: str) -> None:
    """Say on stderr why a node is asked again."""
    print(printable(message), file=sys.stderr)


def _node(url: str, max_fee: int, chain: int | None = None) -> Node:
    from cvm.audit.chain import Limits, Node

    return Node(url, chain, limits=Limits(fee=max_fee * _GWEI), told=_told, warned=_warned)


def _book(url: str, deployment: Path, max_fee: int) -> Book:
    """The book of a deployment, whose contracts are those of this version."""
    from cvm.audit.chain import Book, load_deployment, verify_deployment

    found = load_deployment(deployment)
    node = _node(url, max_fee, found.chain)
    verify_deployment(node, found)
    return Book(node, found)


# Commands


def deploy(
    programs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM..", help="The programs about which the book takes claims.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the addresses.")],
    node: _Url,
    bond: Annotated[int, typer.Option("--bond", min=2, metavar="WEI", help="What a claim and a challenge leave.")],
    window: Annotated[
        int, typer.Option("--window", min=1, metavar="SECONDS", help="How long a claim can be challenged.")
    ] = 86_400,
    move_time: Annotated[
        int, typer.Option("--move-time", min=1, max=2**32 - 1, metavar="SECONDS", help="The time for each answer.")
    ] = 3_600,
    key_file: _KeyFile = None,
    max_fee: _MaxFee = 200,
    as_json: Json = False,
) -> int:
    """Make the judge, the game and a book of claims on a chain.

    The book takes claims about these programs alone, which are verified here: the contracts take them to be valid. If
    the file is there already, the contracts that it lacks are made.
    """
    from cvm.audit.chain import Terms, deploy_contracts, load_deployment, save_deployment
    from cvm.cli.models import open_program

    account = _account(key_file)
    with working("verifying"):
        verified = [open_program(path) for path in programs]
    begun = load_deployment(output) if output.exists() else None
    terms = Terms(bond, window, move_time)
    made = deploy_contracts(
        _node(node, max_fee), account, terms, verified, begun, lambda found: save_deployment(output, found)
    )
    document = {
        "chain": made.chain,
        "contracts": dict(made.contracts),
        "programs": [item.program.digest for item in verified],
        "file": str(output),
    }

    def render(console: Console) -> None:
        table(console, ("", ""), made.contracts.items())
        say(console, f"wrote     {output}")

    return show(document, render, as_json)


def claim(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt whose runs have traces.")],
    node: _Url,
    deployment: _DeploymentFile,
    run: Annotated[int, typer.Option("--run", min=0, metavar="N", help="Which run of the receipt.")] = 0,
    key_file: _KeyFile = None,
    max_fee: _MaxFee = 200,
    as_json: Json = False,
) -> int:
    """Claim one run of a receipt, and leave a bond. `cvm chain play` then defends the claim.

    If this account has an open claim about the run already, as after a command that was stopped, nothing is sent.
    """
    from cvm.cli.feeds import read_receipt

    found = read_receipt(receipt)
    account, book = _account(key_file), _book(node, deployment, max_fee)
    number, gas, transaction = book.open_claim(account, found.claim, run), 0, None
    if number is None:
        number, mined = book.claim(account, found.claim, run)
        gas, transaction = mined.gas, mined.hash
    document = {"claim": number, "gas": gas, "transaction": transaction, "until": book.entry(number).until}

    def render(console: Console) -> None:
        say(console, f"claim     {number}, open to challenges until {document['until']}")
        say(console, f"gas       {gas}" if transaction else "nothing is sent: the run has been claimed")

    return show(document, render, as_json)


def challenge(
    number: _Number,
    program: ProgramOfRun,
    node: _Url,
    deployment: _DeploymentFile,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    state: StateBefore = None,
    run: RunNumber = 0,
    cycles: Cycles = False,
    codes: Codes = False,
    executor: ExecutorName = None,
    key_file: _KeyFile = None,
    max_fee: _MaxFee = 200,
    as_json: Json = False,
) -> int:
    """Run the program and challenge a claim if it says something else.

    If the trace differs, a game begins, which `cvm chain play` plays. If the claim contradicts its own trace, this is
    shown at once. The exit code is 1 if the claim is right, since nothing is sent then. Nothing is sent either if
    this account plays a game about the claim already.
    """
    from cvm.audit.chain import read_run, refutation, refute

    with working("running"):
        true = evidence_of(program, inputs, state, run, cycles, codes, executor)
    account, book = _account(key_file), _book(node, deployment, max_fee)
    entry = book.entry(number)
    claimed = read_run(entry.run)
    _require_same_run(true, entry.program, claimed.inputs, claimed.before)
    document: dict[str, Any] = {"claim": number, "claimed": entry.trace.hex(), "true": true.trace.root.hex()}
    if entry.trace != true.trace.root:
        running = _games(book, account, number)
        gas = 0 if running else book.challenge(account, entry, true.trace.root).gas
        game = (running or _games(book, account, number))[-1]
        return _told_challenge(document | {"did": "challenged", "game": game, "gas": gas}, as_json)
    found = refutation(true.program, true.trace, claimed)
    if found is None:
        return _told_challenge(document | {"did": "nothing", "game": None, "gas": 0}, as_json)
    done = refute(book, account, entry, found)
    gas = sum(item.gas for item in done)
    return _told_challenge(document | {"did": "refuted", "game": None, "gas": gas}, as_json)


def _games(book: Book, account: Account, number: int) -> list[int]:
    """The games about a claim in which this account challenges, and which are not settled."""
    mine = [item for item in book.challenges(number) if item.challenger.lower() == account.address.lower()]
    return [item.game for item in mine if not item.settled]


def _require_same_run(true: Evidence, program: bytes, inputs: tuple[bytes, ...], before: tuple[bytes, ...]) -> None:
    """A claim about other inputs is not refuted by this run."""
    trace = true.trace
    for what, mine, claimed in (
        ("program", trace.program, program), ("inputs", trace.inputs, inputs), ("state", trace.before, before)
    ):  # fmt: skip
        if mine != claimed:
            raise Invalid("chain.run", f"the claim is about another {what}: this run says nothing about it")


def _told_challenge(document: dict[str, Any], as_json: bool) -> int:
    words = {"challenged": "a game begins", "refuted": "the claim is rejected", "nothing": "the claim is right"}

    def render(console: Console) -> None:
        say(console, f"claimed   {document['claimed']}")
        say(console, f"true      {document['true']}")
        game = "" if document["game"] is None else f", game {document['game']}"
        say(console, f"{words[document['did']]}{game}; {document['gas']} gas")

    return show(document, render, as_json, 1 if document["did"] == "nothing" else 0)


def play(
    number: _Number,
    program: ProgramOfRun,
    node: _Url,
    deployment: _DeploymentFile,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    state: StateBefore = None,
    run: RunNumber = 0,
    cycles: Cycles = False,
    codes: Codes = False,
    executor: ExecutorName = None,
    interval: Annotated[
        float, typer.Option("--interval", min=0.01, metavar="SECONDS", help="The time between two looks at the chain.")
    ] = 2.0,
    key_file: _KeyFile = None,
    max_fee: _MaxFee = 200,
    as_json: Json = False,
) -> int:
    """Watch a claim and do what is this account's turn, until nothing is left to do.

    A claimant answers in every game about the claim, makes the claim final, and is paid. A challenger plays its own
    games. Nothing is kept between two looks: a command that was stopped is started again. The exit code is 1 if the
    side of this account has lost.
    """
    from cvm.audit.chain import Player, Status
    from cvm.audit.dispute import Witnessed

    with working("running"):
        true = evidence_of(program, inputs, state, run, cycles, codes, executor)
    account, book = _account(key_file), _book(node, deployment, max_fee)
    claims = book.entry(number).claimant.lower() == account.address.lower()
    done: list[dict[str, Any]] = []

    def noted(item: Done) -> None:
        done.append({"what": item.what, "game": item.game, "gas": item.gas})

    status = Player(book, account, Witnessed(true), noted).play(number, interval=interval)
    lost = status is (Status.REJECTED if claims else Status.FINAL)
    document = {"claim": number, "status": status.name.lower(), "done": done, "gas": sum(item["gas"] for item in done)}

    def render(console: Console) -> None:
        rows = [(item["what"], "" if item["game"] is None else item["game"], item["gas"]) for item in done]
        table(console, ("move", "game>", "gas>"), rows)
        say(console, f"claim     {number} is {document['status']}; {document['gas']} gas")

    return show(document, render, as_json, 1 if lost else 0)


def status(
    node: _Url,
    deployment: _DeploymentFile,
    number: Annotated[
        int | None, typer.Argument(metavar="[CLAIM]", min=0, help="The number of a claim; without it, the last ones.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the claims of a book, and the games about one."""
    book = _book(node, deployment, 1)
    count = book.claims()
    numbers = range(max(0, count - _SHOWN), count) if number is None else (number,)
    found = [_described(book, item) for item in numbers]
    document = {"time": book.node.time(), "count": count, "claims": found}

    def render(console: Console) -> None:
        say(console, f"{counted(count, 'claim')}; the chain's time is {document['time']}")
        for item in found:
            say(console, f"claim {item['claim']}  {item['status']}, run {item['index']} of receipt {item['receipt']}")
            say(console, f"  by {item['claimant']}, open to challenges until {item['until']}")
            for game in item["games"]:
                say(console, f"  game {game['game']}: {game['stage']}, round {game['rounds']}, by {game['challenger']}")

    return show(document, render, as_json)


_SHOWN = 20
"""Claims that `cvm chain status` shows if none is named."""


def _described(book: Book, number: int) -> dict[str, Any]:
    entry = book.entry(number)
    games = []
    for item in book.challenges(number):
        position = book.position(item.game)
        over, winner = book.outcome(item.game)
        stage = ("both have lost", "the claimant has won", "the challenger has won")[winner] if over else position.stage
        games.append({
            "challenge": item.number,
            "game": item.game,
            "challenger": item.challenger,
            "settled": item.settled,
            "over": over,
            "winner": winner if over else None,
            "stage": stage if isinstance(stage, str) else stage.name.lower(),
            "rounds": position.rounds,
            "deadline": position.deadline,
            "answered": [position.has_answered(side) for side in (0, 1)],
        })  # fmt: skip
    return {
        "claim": number,
        "status": entry.status.name.lower(),
        "claimant": entry.claimant,
        "until": entry.until,
        "receipt": entry.receipt.hex(),
        "index": entry.index,
        "program": entry.program.hex(),
        "trace": entry.trace.hex(),
        "games": games,
    }


def demo(as_json: Json = False) -> int:
    """Play a dispute on a chain of this process: an honest claim, a liar's claim, the game, the payment.

    The exit code is 1 if the honest side does not win, which must not happen.
    """
    import cvm
    from cvm.arrays import read_npz
    from cvm.audit import Recorder
    from cvm.audit.chain import play_demo
    from cvm.audit.dispute import computed
    from cvm.demo import IMAGES, MODEL
    from cvm.executors import choose_executor
    from cvm.program.verifier import verify

    with working("playing"):
        verified = verify(cvm.compile(MODEL))
        images = {"image": read_npz(IMAGES, "image")[:1]}
        recorder = Recorder(verified, trace=True)
        cvm.Session(verified, choose_executor()[0]).run(images, witness=recorder)
        document = {"model": MODEL.name, **play_demo(verified, computed(verified, images), recorder.claim())}
    return show(document, lambda console: _render_demo(console, document), as_json, _demo_code(document))


def _demo_code(document: dict[str, Any]) -> int:
    won = document["honest_claim"]["status"] == "FINAL" and document["false_claim"]["winner"] == "honest"
    return 0 if won else 1


def _render_demo(console: Console, document: dict[str, Any]) -> None:
    honest, false = document["honest_claim"], document["false_claim"]
    gas = ", ".join(f"{what} {cost}" for what, cost in honest["gas"].items())
    say(
        console,
        f"A true claim about {document['model']} that nobody challenges: {honest['status'].lower()}. Gas: {gas}\n",
    )
    gas = ", ".join(f"{what} {cost}" for what, cost in false["gas"].items())
    say(console, f"A false claim, and a challenge. Gas: {gas}")
    rows = [(number, item["by"], item["what"], item["gas"]) for number, item in enumerate(false["moves"], 1)]
    table(console, ("", "who", "what", "gas>"), rows)
    place = f"op {false['op']}, element {false['element']}, step {false['step']}"
    say(console, f"rounds    {false['rounds']} of {document['most_rounds']} at most, to {place}")
    say(console, f"gas       {false['gas_of_game']} for the whole game, both sides")
    say(
        console,
        f"winner    {false['winner']}: paid {false['won']} wei more than it left, {false['burnt']} wei are burnt",
    )


GROUP = Group(
    "Claim runs on a chain, challenge claims, and play the games that decide them.",
    {
        "deploy": Command(
            deploy, ("cvm chain deploy model.cvm --node http://127.0.0.1:8545 --bond 1000000000000000000 -o book.json",)
        ),
        "claim": Command(claim, ("cvm chain claim run.receipt -d book.json --node http://127.0.0.1:8545",)),
        "challenge": Command(
            challenge,
            ("cvm chain challenge 0 --program model.cvm -i photo.npy -d book.json --node http://127.0.0.1:8545",),
        ),
        "play": Command(
            play, ("cvm chain play 0 --program model.cvm -i photo.npy -d book.json --node http://127.0.0.1:8545",)
        ),
        "status": Command(status, ("cvm chain status -d book.json --node http://127.0.0.1:8545",)),
        "demo": Command(demo, ("cvm chain demo",)),
    },
)
