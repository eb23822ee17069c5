"""The executors of cvm as implementations under test."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.executors import Executor, Int32Array, create, initial_state
from cvm.ops import Range, get
from cvm.program import Output, Program, ProgramBuilder, VerifiedProgram, decode, verify
from cvm.vectors.answer import UNSUPPORTED, Answer
from cvm.vectors.format import Bounds, OpCase, ProgramCase, VectorTensor, VerdictCase

__all__ = ["ExecutorRunner", "accepted", "program_of_op", "runs_of"]

_VERDICTS: dict[type[CvmError], str] = {Invalid: "invalid", LimitExceeded: "limit", Malformed: "malformed"}


class ExecutorRunner:
    """The executor called ``name``, behind the builder, the codec and the verifier, as programs meet it.

    An op is applied twice: to its inputs as constants and, if the verifier accepts it, to the same tensors as inputs of
    a program with the least intervals that hold them, since an executor may then choose another method. Both
    results must be the same. FORMAL reads no intervals, so it is asked once. ``make`` makes the executor of a program
    otherwise than by its name.
    """

    def __init__(self, name: str, make: Callable[[VerifiedProgram], Executor] | None = None) -> None:
        self.name = name
        self._make = make or (lambda verified: create(name, verified))

    def op(self, case: OpCase) -> Answer:
        """See `Runner.op`."""
        return _answered(lambda: self._op(case))

    def program(self, case: ProgramCase) -> Answer:
        """See `Runner.program`."""
        return _answered(lambda: self._program(case))

    def verdict(self, case: VerdictCase) -> Answer:
        """See `Runner.verdict`; all executors share one verifier."""
        return _answered(lambda: accepted(verify(decode(case.program))))

    def _op(self, case: OpCase) -> Answer:
        outputs = self._applied(case, constant=True)
        if self.name == "formal":
            return Answer("value", outputs=outputs)
        try:
            again = self._applied(case, constant=False)
        except CvmError:  # the intervals of inputs can prove less than the values of constants
            return Answer("value", outputs=outputs)
        if again != outputs:
            return Answer("error", message="another result for inputs of the same values", outputs=again)
        return Answer("value", outputs=outputs)

    def _applied(self, case: OpCase, constant: bool) -> tuple[VectorTensor, ...]:
        program, feeds = program_of_op(case, constant)
        values = self._make(verify(program)).run(feeds, {}).values
        return tuple(VectorTensor.of(values[output.value]) for output in program.outputs)

    def _program(self, case: ProgramCase) -> Answer:
        verified = verify(decode(case.program))
        executor = self._make(verified)
        state, runs = initial_state(verified.program), []
        for run in case.runs:
            feeds = {name: tensor.array() for name, tensor in run.inputs.items()}
            result = executor.run(feeds, state, capture="all")
            state = result.state
            runs.append({name: VectorTensor.of(array) for name, array in result.values.items()})
        return Answer("value", digest=verified.program.digest, runs=tuple(runs))


def accepted(verified: VerifiedProgram) -> Answer:
    """The answer about a program that the verifier accepts."""
    program = verified.program
    constants = {constant.name for constant in program.constants}
    names = [name for name in program.value_names() if name not in constants]
    return Answer(
        "value",
        digest=program.digest,
        gas=tuple(get(node.op).gas(call) for node, call in zip(program.nodes, verified.calls, strict=True)),
        ranges={name: runs_of(verified.ranges[name]) for name in names},
    )


def program_of_op(case: OpCase, constant: bool) -> tuple[Program, dict[str, Int32Array]]:
    """The program of one op, and its inputs: the operands are constants, or inputs with the least intervals that hold
    them. Raises the errors of the builder.
    """
    builder, feeds, names = ProgramBuilder(), {}, []
    for index, tensor in enumerate(case.inputs):
        array = tensor.array()
        if tensor.dtype == "int64":
            names.append(builder.parameter(array))
        elif constant:
            names.append(builder.constant(array))
        else:
            names.append(builder.input(f"x{index}", array.shape, int(array.min()), int(array.max())))
            feeds[names[-1]] = array
    results = builder.add(case.op, names, case.attributes)
    return builder.build([Output(result, result) for result in results]), feeds


def runs_of(bounds: Range) -> Bounds:
    """Bounds that are kept per channel, as runs of equal bounds."""
    pairs = zip(bounds.lo.ravel().tolist(), bounds.hi.ravel().tolist(), strict=True)
    return tuple((lo, hi, len(list(group))) for (lo, hi), group in groupby(pairs))


def _answered(ask: Callable[[], Answer]) -> Answer:
    """The answer, with every exception turned into one: a refusal into its verdict, anything else into an error."""
    try:
        return ask()
    except CvmError as error:
        return Answer(_VERDICTS.get(type(error), UNSUPPORTED), error.code, error.message)
    except Exception as error:
        return Answer("error", message=f"{type(error).__name__}: {error}")
