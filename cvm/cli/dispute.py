"""``cvm dispute``: find where two runs first differ and who is right, and prove one step."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import Usage
from cvm.cli.options import Codes, Cycles, ExecutorName, Inputs, Json
from cvm.cli.output import counted, say, show, table, working, write_file
from cvm.cli.sides import ProgramOfRun, RunNumber, StateBefore, evidence_of, open_side, read_side
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.audit.dispute import Difference, OpenProgram, Outcome, StepProof
    from cvm.audit.dispute.questions import Question

__all__ = ["GROUP"]

_A: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="A", help="The evidence of one side: a trace file, or a .npz file of all tensors of the run."
    ),
]
_B: TypeAlias = Annotated[Path, typer.Argument(metavar="B", help="The evidence of the other side.")]


def locate(
    one: _A,
    other: _B,
    program: Annotated[
        Path | None, typer.Option("--program", metavar="PROGRAM", help="The program, or a model; .npz files need it.")
    ] = None,
    run: Annotated[
        int | None,
        typer.Option("--run", min=0, metavar="N", help="Only this run of the inputs, of several; the first one is 0."),
    ] = None,
    cycles: Cycles = False,
    as_json: Json = False,
) -> int:
    """Say where two runs of one program on one input first differ. The exit code is 1 if they do.

    Two traces tell only the op. All tensors of both runs (`cvm run --codes --capture all -o FILE.npz`) also tell the
    first 1 KiB and the first element that differ, and the right value, computed from the operands on which both
    agree. If the files hold several runs, the first run that differs is told, or the run that --run names.
    """
    from cvm.audit.dispute import OpenProgram
    from cvm.audit.dispute import locate as located
    from cvm.cli.models import open_program

    opened = None if program is None else OpenProgram(open_program(program).program)
    with working("comparing"):
        sides = [open_side(path, opened, cycles) for path in (one, other)]
        count = sides[0].runs
        if run is None and count != sides[1].runs:
            raise Usage(f"{one} is of {count} runs, {other} of {sides[1].runs}: say which one is meant, --run N")
        compared = range(count) if run is None else (run,)
        differences = ((number, located(*(side.read(number) for side in sides))) for number in compared)
        number, difference = next((item for item in differences if item[1] is not None), (None, None))
    told = None if difference is None else _described(difference, opened)
    document = {"equal": difference is None, "run": number, "compared": list(compared), "place": told}
    code = 0 if difference is None else 1
    return show(document, lambda console: _render_difference(console, told, number, len(compared)), as_json, code)


def _described(difference: Difference, program: OpenProgram | None) -> dict[str, Any]:
    node = (
        None if program is None or difference.op >= len(program.program.nodes) else program.program.nodes[difference.op]
    )
    value = None if node is None or difference.output >= len(node.outputs) else node.outputs[difference.output]
    return {
        "op": difference.op,
        "name": None if node is None else node.op,
        "output": difference.output,
        "tensor": None if value is None else value.name,
        "roots": [None if root is None else root.hex() for root in difference.roots],
        "leaf": difference.leaf,
        "element": difference.element,
        "index": None if value is None or difference.element is None else _index(difference.element, value.shape),
        "values": None if difference.values is None else list(difference.values),
        "steps": difference.steps,
        "follows": difference.follows,
        "right": None if difference.values is None else _right(difference.values, difference.follows),
    }


def _right(values: tuple[int, int], follows: int | None) -> list[str]:
    return [side for side, value in zip("AB", values, strict=True) if value == follows]


def _index(element: int, shape: tuple[int, ...]) -> list[int]:
    return [element // math.prod(shape[axis + 1 :]) % extent for axis, extent in enumerate(shape)]


def _render_difference(console: Console, difference: dict[str, Any] | None, run: int | None, compared: int) -> None:
    if difference is None:
        say(console, "EQUAL     every op gave the same" + (f" in each of {compared} runs" if compared > 1 else ""))
        return
    name = "" if difference["name"] is None else f" {difference['name']}"
    tensor = "" if difference["tensor"] is None else f", tensor {difference['tensor']!r}"
    say(console, f"DIFFER    from op {difference['op']}{name} on, output {difference['output']}{tensor}")
    if compared > 1:
        say(console, f"run       {run} is the first that differs, of {compared}")
    for side, root in zip("AB", difference["roots"], strict=True):
        say(console, f"{side}         {'has no such tensor' if root is None else root}")
    if difference["element"] is None:
        return
    first, second = difference["values"]
    say(console, f"leaf      {difference['leaf']}, 1 KiB each")
    say(console, f"element   {difference['element']}, index {difference['index']}: {first} (A) and {second} (B)")
    right = " and ".join(difference["right"]) or "neither"
    say(console, f"follows   {difference['follows']}, in {counted(difference['steps'], 'step')}: {right} is right")


def play(
    one: _A,
    other: _B,
    program: ProgramOfRun,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    state: StateBefore = None,
    run: RunNumber = 0,
    cycles: Cycles = False,
    codes: Codes = False,
    executor: ExecutorName = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write the winner's proof.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Play a dispute to its end, both sides simulated from their files, and say who wins.

    A side that has all tensors answers from them. A side that has only a trace can name the op on which it differs,
    and no more. If this trace is the true one, cvm computes the tensors for this side. The exit code is 1 if a
    game was played and nobody won it.
    """
    from cvm.audit.dispute import most_rounds, settle, side_of, statement_of

    with working("playing"):
        true = evidence_of(program, inputs, state, run, cycles, codes, executor)
        sides = tuple(side_of(true, read_side(path, true.program, run, cycles, true)) for path in (one, other))
        asked: list[Question] = []
        outcome = settle(statement_of(true), (sides[0].root, sides[1].root), (sides[0], sides[1]), asked.append)
    document = {
        "program": true.program.program.digest,
        "roots": [side.root.hex() for side in sides],
        "true": true.trace.root.hex(),
        "questions": [{"question": type(item).__name__, **_fields(item)} for item in asked],
        "most_rounds": most_rounds(true.program),
        **_outcome(outcome),
    }
    if output is not None and outcome.proof is not None:
        write_file(output, outcome.proof)
        document["file"] = {"path": str(output), "bytes": len(outcome.proof)}
    code = 1 if outcome.winner is None and outcome.rounds else 0
    return show(document, lambda console: _render_game(console, document), as_json, code)


def _fields(item: Any) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "winner": outcome.winner,
        "reason": outcome.reason,
        "rounds": outcome.rounds,
        "op": outcome.op,
        "target": outcome.target,
        "element": outcome.element,
        "step": outcome.step,
        "proof_bytes": None if outcome.proof is None else len(outcome.proof),
    }


def _render_game(console: Console, document: dict[str, Any]) -> None:
    rows = []
    for number, item in enumerate(document["questions"], 1):
        parts = " ".join(f"{key} {value}" for key, value in item.items() if key != "question")
        rows.append((number, item["question"], parts))
    if rows:
        table(console, ("round>", "question", "about"), rows)
    for side, root in zip("AB", document["roots"], strict=True):
        say(console, f"{side}         {root}{' (true)' if root == document['true'] else ''}")
    say(console, f"rounds    {document['rounds']} of {document['most_rounds']} at most")
    say(console, f"winner    {document['winner'] or 'none'}")
    say(console, f"because   {document['reason']}")
    if "file" in document:
        say(console, f"wrote     {document['file']['path']} ({document['file']['bytes']} bytes)")


# Steps


_Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the proof.")]
_Tensor = Annotated[str | None, typer.Option("--tensor", metavar="NAME", help="The tensor that the step is about.")]
_Op = Annotated[int | None, typer.Option("--op", min=0, metavar="N", help="Or the number of the op.")]
_Target = Annotated[
    int | None,
    typer.Option("--target", min=0, metavar="N", help="With --op: which target; by default the first output."),
]
_Element = Annotated[
    str, typer.Option("--element", metavar="N|I,J,..", help="The element: its number row-major, or its index.")
]
_Number = Annotated[
    int | None, typer.Option("--step", min=0, metavar="N", help="The step of the element; by default the last.")
]


def step(
    program: ProgramOfRun,
    output: _Output,
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    tensor: _Tensor = None,
    op: _Op = None,
    target: _Target = None,
    element: _Element = "0",
    number: _Number = None,
    state: StateBefore = None,
    run: RunNumber = 0,
    cycles: Cycles = False,
    codes: Codes = False,
    executor: ExecutorName = None,
    as_json: Json = False,
) -> int:
    """Prove one step of a run. `cvm dispute verify-step` or cvm.standalone.verify_step judges the file by itself."""
    from cvm.audit.dispute import encode_proof
    from cvm.audit.dispute.targets import auxiliary_count

    if (tensor is None) == (op is None) or (tensor is not None and target is not None):
        raise Usage("say what the step is about: --tensor NAME, or --op N and, if it has several targets, --target N")
    with working("running"):
        # One run: NumPy has finished it before machine code would be compiled.
        true = evidence_of(program, inputs, state, run, cycles, codes, executor or "numpy")
    nodes = true.program.program.nodes
    if tensor is not None:
        if tensor not in true.program.makers:
            raise Usage(f"no op gives the tensor {tensor!r}")
        op = true.program.makers[tensor]
        names = [value.name for value in nodes[op].outputs]
        target = auxiliary_count(nodes[op].op) + names.index(tensor)
    assert op is not None
    if op >= len(nodes):
        raise Usage(f"the program has {len(nodes)} ops, counted from 0: there is no op {op}")
    extra = auxiliary_count(nodes[op].op)
    chosen = extra if target is None else target
    if chosen >= extra + len(nodes[op].outputs):
        raise Usage(f"op {op}, {nodes[op].op}, has {extra + len(nodes[op].outputs)} targets: there is no {chosen}")
    item = _element(element, true.tensor(op, chosen).shape)
    partials = true.partials(op, chosen, item)
    if number is not None and number >= len(partials):
        raise Usage(f"the element takes {len(partials)} steps, counted from 0: there is no step {number}")
    proof = true.prove(op, chosen, item, len(partials) - 1 if number is None else number, partials)
    data = encode_proof(proof)
    write_file(output, data)
    document = {**_about(proof, len(data)), "steps": len(partials), "file": {"path": str(output), "bytes": len(data)}}
    return show(document, lambda console: _render_step(console, document), as_json)


def _element(words: str, shape: tuple[int, ...]) -> int:
    """The row-major number of the element that ``--element`` selects."""
    try:
        index = [int(word) for word in words.split(",")]
    except ValueError:
        raise Usage(f"expected --element N or --element I,J,.., found {words!r}") from None
    if len(index) == 1 and len(shape) > 1:
        index = _index(index[0], shape) if 0 <= index[0] < math.prod(shape) else [-1]
    if len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True)):
        raise Usage(f"the tensor has shape {list(shape)}: there is no element {words}")
    return sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(index))


def _about(proof: StepProof, size: int) -> dict[str, Any]:
    from cvm.program.commitments import ProgramClaim, counted_root

    claim, witness = proof.claim, proof.witness
    lists = [counted_root(item.count, item.root) for item in witness.lists]
    return {
        "program": ProgramClaim(witness.op_set, witness.limits, *lists).digest().hex(),
        "head": claim.head.hex(),
        "op": claim.op,
        "name": _name(witness.record),
        "target": claim.target,
        "element": claim.element,
        "step": claim.step,
        "before": witness.partial_before,
        "after": witness.partial_after,
        "bytes": size,
        "leaves": sum(len(operand.leaves) for operand in witness.operands),
    }


def _name(record: bytes) -> str | None:
    """The name of the op in a record; None if these bytes are no record of an op."""
    from cvm.audit.dispute.records import read_op_record
    from cvm.errors import CvmError

    try:
        return read_op_record(record).op
    except CvmError:
        return None


def _render_step(console: Console, document: dict[str, Any]) -> None:
    for key in ("program", "head"):
        say(console, f"{key:<9} {document[key]}")
    say(console, f"op        {document['op']} {document['name'] or '(no op)'}")
    say(console, f"element   {document['element']} of target {document['target']}")
    steps = f" of {document['steps']}" if "steps" in document else ""
    before = "the beginning" if document["before"] is None else document["before"]
    say(console, f"step      {document['step']}{steps}: from {before} to {document['after']}")
    say(console, f"opened    {counted(document['leaves'], 'leaf', 'leaves')}, {document['bytes']} bytes")
    if "file" in document:
        say(console, f"wrote     {document['file']['path']}")


def verify_step(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A one-step proof.")],
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HEX", help="The state before the op that both sides agree on."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option("--program", metavar="PROGRAM", help="The program, or a model, that the proof must be about."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge a proof of one step from the proof alone: ACCEPTED, or REFUSED (exit code 1).

    An accepted proof says that this step follows in runs with this head. Two things you must know yourself: the head,
    by --head or from a game, and that the program is valid; --program verifies a program and compares its digest.
    """
    from cvm.audit.dispute import decode_proof
    from cvm.audit.dispute import verify_step as judged
    from cvm.audit.dispute.proof import PROOF_BYTES
    from cvm.cli.models import open_program
    from cvm.errors import CvmError
    from cvm.formats import diagnosed, refuse_folder
    from cvm.program.reading import read_bytes

    refuse_folder(proof, "a proof of one step")
    try:
        data = read_bytes(proof, PROOF_BYTES, "proof")
        found = decode_proof(data)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("step.unreadable", message, Location(str(proof))) from None
    except CvmError as error:
        raise diagnosed(error.at(file=str(proof)), proof, "a proof of one step", ("step",)) from None
    verdict = judged(found.claim, found.witness)
    about = _about(found, len(data))
    reason = None if verdict.accepted else verdict.reason
    if reason is None and head is not None and about["head"] != head.lower():
        reason = "the head is another one"
    if reason is None and program is not None and about["program"] != open_program(program).program.digest:
        reason = "the program is another one"
    document = {"accepted": reason is None, "reason": reason or verdict.reason, **about}

    def render(console: Console) -> None:
        _render_step(console, document)
        say(console, f"{'ACCEPTED' if document['accepted'] else 'REFUSED'}: {document['reason']}")

    return show(document, render, as_json, 0 if document["accepted"] else 1)


GROUP = Group(
    "Find where two runs first differ, settle who is right, prove and judge single steps.",
    {
        "locate": Command(
            locate,
            (
                "cvm dispute locate mine.trace theirs.trace --program model.cvm",
                "cvm dispute locate mine.npz theirs.npz --program model.cvm",
            ),
        ),
        "play": Command(
            play, ("cvm dispute play mine.trace theirs.npz --program model.cvm -i photo.npy -o winner.step",)
        ),
        "step": Command(
            step,
            (
                "cvm dispute step --program model.cvm -i photo.npy --tensor conv1 --element 0,3,5,7 -o a.step",
                "cvm dispute step --program model.cvm -i photo.npy --op 15 --element 40 --step 1 -o a.step",
            ),
        ),
        "verify-step": Command(verify_step, ("cvm dispute verify-step a.step --program model.cvm",)),
    },
)
