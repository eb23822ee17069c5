"""Parties that do not say what follows, at every level of a dispute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from cvm.audit.dispute import questions as q
from cvm.audit.dispute.evidence import Evidence
from cvm.audit.dispute.folds import SEARCHING
from cvm.audit.dispute.party import Witnessed
from cvm.audit.dispute.targets import auxiliary_count
from cvm.audit.trace import Trace

__all__ = ["LIARS", "Liar"]

Answering = Callable[[q.Question, q.Answer], q.Answer]


class Liar(Witnessed):
    """Has false evidence, and may answer with something else than this says."""

    def __init__(self, evidence: Evidence, answering: Answering = lambda _, answer: answer) -> None:
        super().__init__(evidence)
        self._answering = answering

    def answer(self, question: q.Question) -> q.Answer:
        """What it says."""
        return self._answering(question, super().answer(question))


def changed(
    true: Evidence, random: Random, change: Callable[[np.ndarray], np.ndarray], later: bool = False
) -> Evidence:
    """Evidence with another tensor for one output of an op; with ``later``, noise in all that follows."""
    values = dict(true.values)
    nodes = true.program.program.nodes
    op = random.randrange(len(nodes))
    value = random.choice(nodes[op].outputs)
    values[value.name] = change(values[value.name])
    if later:
        for node in nodes[op + 1 :]:
            values |= {item.name: shaken(values[item.name], random) for item in node.outputs}
    return Evidence(true.program, values)


def shaken(array: np.ndarray, random: Random) -> np.ndarray:
    """Other elements, of any size."""
    noise = [random.choice((0, 1, -1, random.randint(-(2**31), 2**31 - 1))) for _ in range(min(array.size, 50))]
    found = array.ravel().copy()
    indices = [random.randrange(array.size) for _ in noise]
    found[indices] = np.array(noise, np.int32)
    return found.reshape(array.shape)


def one(array: np.ndarray, random: Random) -> np.ndarray:
    """One other element."""
    found = array.ravel().copy()
    index = random.randrange(array.size)
    other = int(found[index]) + random.choice((-1, 1, 7, -(2**20)))
    found[index] = other if -(2**31) <= other < 2**31 else 0
    return found.reshape(array.shape)


# The liars


def wrong_output(true: Evidence, random: Random) -> Witnessed:
    """Many elements of what an op gave."""
    return Witnessed(changed(true, random, lambda array: shaken(array, random)))


def wrong_from_an_op_on(true: Evidence, random: Random) -> Witnessed:
    """The same, and everything after."""
    return Witnessed(changed(true, random, lambda array: one(array, random), later=True))


def wrong_element(true: Evidence, random: Random) -> Witnessed:
    """One element."""
    return Witnessed(changed(true, random, lambda array: one(array, random)))


class WrongChunk(Witnessed):
    """One element, whose partials are wrong from some step on."""

    def __init__(self, evidence: Evidence, share: float) -> None:
        super().__init__(evidence)
        self._share = share

    def partials(self, op: int, target: int, element: int) -> list[int]:
        """True ones, then false ones, the last of them the element."""
        course, _ = self.evidence.fold(op, target, element)
        *found, last = super().partials(op, target, element)
        true = course.step(course.count - 1, found[-1] if found else course.start)
        wrong = int(self._share * course.count)
        return [*found[:wrong], *(partial + last - true for partial in found[wrong:]), last]


def wrong_chunk(true: Evidence, random: Random) -> Witnessed:
    """One element, wrong from some step on."""
    return WrongChunk(wrong_element(true, random).evidence, random.random())


def wrong_number_of_steps(true: Evidence, random: Random) -> Witnessed:
    """One element, that is said to take another number of steps."""

    class Longer(Witnessed):
        def partials(self, op: int, target: int, element: int) -> list[int]:
            partials = super().partials(op, target, element)
            return partials[-1:] if len(partials) > 1 and random.random() < 0.5 else [SEARCHING, *partials]

    return Longer(wrong_element(true, random).evidence)


def partials_of_something_else(true: Evidence, random: Random) -> Witnessed:
    """One element, with the true partials: they do not end with it."""

    class Truthful(Witnessed):
        def partials(self, op: int, target: int, element: int) -> list[int]:
            *found, last = super().partials(op, target, element)
            return [*found, last + random.choice((1, -1))]

    return Truthful(wrong_element(true, random).evidence)


class WrongAuxiliaries(Evidence):
    """Certificates that are not those of the op."""

    def __init__(self, true: Evidence, random: Random) -> None:
        super().__init__(true.program, true.values)
        self._random = random
        self._wrong: dict[int, tuple[np.ndarray, ...]] = {}

    def auxiliaries(self, op: int) -> tuple[np.ndarray, ...]:
        """One of them is another one."""
        if op not in self._wrong:
            found = list(super().auxiliaries(op))
            if found:
                index = self._random.randrange(len(found))
                found[index] = one(found[index], self._random)
            self._wrong[op] = tuple(found)
        return self._wrong[op]


def wrong_certificate(true: Evidence, random: Random) -> Witnessed:
    """The output of a certified op, if there is one, with a certificate of its own; else any element."""
    nodes = true.program.program.nodes
    certified = [number for number, node in enumerate(nodes) if auxiliary_count(node.op)]
    evidence = wrong_element(true, random).evidence
    if certified:
        name = nodes[random.choice(certified)].outputs[0].name
        evidence = Evidence(true.program, true.values | {name: one(true.values[name], random)})
    return Witnessed(WrongAuxiliaries(evidence, random))


def wrong_tree(true: Evidence, random: Random) -> Witnessed:
    """Nodes that are not those of any tree, from some round on."""
    kinds = random.choice((q.LogNode, q.TensorNode, q.PartialNode))
    sound = random.randint(0, 2)

    def answering(question: q.Question, answer: q.Answer) -> q.Answer:
        nonlocal sound
        if not isinstance(answer, q.Children) or not isinstance(question, kinds):
            return answer
        sound -= 1
        if sound >= 0:
            return answer
        return random.choice((
            q.Children(random.randbytes(32), answer.right),
            q.Children(answer.left, random.randbytes(32)),
            q.Children(answer.right, answer.left) if answer.left != answer.right else None,
            q.Children(answer.left[:-1], answer.right),
        ))  # fmt: skip

    return Liar(wrong_element(true, random).evidence, answering)


def wrong_length(true: Evidence, random: Random) -> Witnessed:
    """A tensor of another shape."""
    change = random.choice((
        lambda array: np.append(array.ravel(), np.int32(0)),
        lambda array: array[np.newaxis] if array.ndim < 8 else array.ravel(),
        lambda array: array.ravel()[: max(1, array.size - 1)][np.newaxis],
    ))  # fmt: skip
    return Witnessed(changed(true, random, change))


def withheld(true: Evidence, random: Random) -> Witnessed:
    """No answer, from some round on."""
    left = random.randint(0, 8)

    def answering(_: q.Question, answer: q.Answer) -> q.Answer:
        nonlocal left
        left -= 1
        return answer if left >= 0 else None

    return Liar(wrong_element(true, random).evidence, answering)


class OtherTrace(Witnessed):
    """A trace that is not one of the run: of another program, other inputs, or of another number of ops."""

    def __init__(self, evidence: Evidence, trace: Trace) -> None:
        super().__init__(Evidence(evidence.program, evidence.values))
        self.evidence.__dict__["trace"] = trace  # instead of the cached property


def wrong_status(true: Evidence, random: Random) -> Witnessed:
    """The run is said to have ended early or late, to be another one, or not to be one at all."""
    trace = true.trace
    other = random.randbytes(32)
    kind = random.randrange(6)
    if kind == 0 and trace.steps:
        return Liar(wrong_element(true, random).evidence, lambda _, __: None)
    if kind == 1 and trace.steps:
        return OtherTrace(true, replace(trace, steps=trace.steps[: random.randrange(len(trace.steps))]))
    if kind == 2:
        return OtherTrace(true, replace(trace, steps=(*trace.steps, (other,))))
    if kind == 3:
        return OtherTrace(true, replace(trace, program=other))
    if kind == 4 and trace.inputs:
        return OtherTrace(true, replace(trace, inputs=(other, *trace.inputs[1:])))
    return OtherTrace(true, replace(trace, before=(*trace.before, other)))


def wrong_outputs_of_an_op(true: Evidence, random: Random) -> Witnessed:
    """Roots of no tensor, or of more tensors than the op has outputs."""
    steps = list(true.trace.steps)
    op = random.randrange(len(steps))
    steps[op] = random.choice(((random.randbytes(32), *steps[op][1:]), (*steps[op], bytes(32)), steps[op][1:]))
    return OtherTrace(true, replace(true.trace, steps=tuple(steps)))


def forged(true: Evidence, random: Random) -> Witnessed:
    """A proof that was changed, is that of another step, or is the one of the other side."""

    def answering(question: q.Question, answer: q.Answer) -> q.Answer:
        if not isinstance(question, q.ProveStep):
            return answer
        honest = Witnessed(true).answer(question)
        base = answer if isinstance(answer, bytes) and random.random() < 0.5 else honest
        assert isinstance(base, bytes)
        index = random.randrange(len(base))
        changes = (
            base[:index] + bytes([base[index] ^ 1 << random.randrange(8)]) + base[index + 1 :],
            base[:index],
            base,
        )
        return random.choice(changes)

    return Liar(wrong_element(true, random).evidence, answering)


def nonsense(true: Evidence, random: Random) -> Witnessed:
    """Answers of the wrong kind, or with anything in them, at some round."""
    round_ = random.randint(0, 9)
    answers: tuple[Any, ...] = (
        0, b"", "yes", (), [b""], q.Children(b"", b""), q.Children(None, 0), q.TensorOpening((), b""),  # type: ignore[arg-type]
        q.PartialsOpening(2**70, b"", ()), q.PartialsOpening(0, b"", ()), q.PartialsOpening(-1, bytes(32), (b"",)),
        q.OpOpening(b"", (), ()), q.OpOpening(b"cvm1:op\0" + b"\xff" * 40, (), ()),
        q.TensorOpening((2**63,) * 9, bytes(32)),
        q.TraceOpening(1, "", (), (), (), 0, b""), q.TraceOpening(-1, "\ud800", (), (), (), 2**70, b""), object(),
    )  # fmt: skip

    def answering(_: q.Question, answer: q.Answer) -> q.Answer:
        nonlocal round_
        round_ -= 1
        return answer if round_ >= 0 else random.choice(answers)

    return Liar(wrong_element(true, random).evidence, answering)


LIARS: dict[str, Callable[[Evidence, Random], Witnessed]] = {
    liar.__name__: liar
    for liar in (
        wrong_output,
        wrong_from_an_op_on,
        wrong_element,
        wrong_chunk,
        wrong_number_of_steps,
        partials_of_something_else,
        wrong_certificate,
        wrong_tree,
        wrong_length,
        withheld,
        wrong_status,
        wrong_outputs_of_an_op,
        forged,
        nonsense,
    )
}
"""A liar of every kind, from what is true."""
