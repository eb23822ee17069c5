"""Many random documents of one operation against the exact evaluator: how many differ, by how much, and the bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.executors import create
from cvm.executors.base import initial_state
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.program import Program, verify
from cvm.program.model import Exactness
from cvm.quantization import LinearQuantizer
from tests.lowering.documents import Document
from tests.lowering.draws import DRAWS
from tests.lowering.quantisers import requantise
from tests.oracle.exact import Evaluation

__all__ = ["Measured", "compare", "measure"]

Codes = npt.NDArray[np.int32]
Feed = dict[str, Codes]


@dataclass
class Measured:
    """What the cases of one operation showed."""

    operation: str
    cases: int = 0
    """Documents that compiled and of which at least one evaluation was compared."""
    refused: dict[str, int] = field(default_factory=dict)
    """Documents that did not compile, by the code of the error."""
    codes: int = 0
    """Codes, integers and truth values compared."""
    differing: int = 0
    worst: int = 0
    """The largest difference, in codes."""
    bound: Fraction = Fraction(0)
    """The largest bound that a report claims."""
    broken: list[str] = field(default_factory=list)
    """What is further off than its report claims, with the document."""

    def row(self) -> tuple[str, ...]:
        """For a table: operation, cases, refused, codes, differing, worst, bound."""
        refused = ", ".join(f"{count} {code.removeprefix('lowering.')}" for code, count in sorted(self.refused.items()))
        counts = (self.cases, refused or 0, self.codes, self.differing, self.worst, self.bound)
        return (self.operation, *map(str, counts))


def measure(operation: str, cases: int, seed: int = 0) -> Measured:
    """Draw documents until so many were compared; those that do not compile are counted by their error."""
    found = Measured(operation)
    number = 0
    while found.cases < cases and number < 8 * cases + 8:
        random = Random(f"{operation} {seed} {number}")
        number += 1
        document, output = DRAWS[operation](random)
        with TemporaryDirectory(dir=_memory()) as folder:
            if not document.inputs:  # a graph has one
                document.external((1,))
            document.write(Path(folder), output)
            requantise(document, nnef.load(folder, quant=False).tensors)
            compare(document, output, Path(folder), found)
    return found


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def compare(document: Document, output: str, folder: Path, found: Measured) -> None:
    """Add what the evaluations of one document show, on the extremes of its inputs and on random ones."""
    document.write(folder, output)
    graph = nnef.load(folder)
    for name in document.inputs:
        quantizer = graph.tensors[name].quantizer
        if isinstance(quantizer, LinearQuantizer):
            document.ranges[name] = quantizer.lo, quantizer.hi
    try:
        program = lower(graph)
    except Unsupported as error:
        found.refused[error.code] = found.refused.get(error.code, 0) + 1
        return
    feeds = document.feeds(2)
    sequences = [feeds] if document.cycles > 1 else [[feed] for feed in feeds]
    oracle, compared = document.oracle(output), False
    for sequence in sequences:
        try:
            evaluations = oracle.run_cycles(sequence)
        except ValueError as error:
            # A number that does not exist, as the logarithm of zero: its limit clamps, and the evaluator has no limits.
            if "not satisfied" not in str(error):
                raise
            continue
        for expected, values in zip(evaluations, _executed(program, sequence), strict=True):
            _add(program, expected, values, document.text(output) + document.quantisation(), found)
        compared = True
    found.cases += compared


def _executed(program: Program, feeds: list[Feed]) -> list[dict[str, Codes]]:
    executor, state = create("numpy", verify(program)), initial_state(program)
    found = []
    for feed in feeds:
        codes = {item.value.name: feed[item.value.name].reshape(item.value.shape) for item in program.inputs}
        result = executor.run(codes, state, "all")
        state = dict(result.state)
        found.append(dict(result.values))
    return found


def _add(program: Program, expected: Evaluation, values: dict[str, Codes], text: str, found: Measured) -> None:
    """Compare what the report names, and the outputs that it does not: integers and truth values."""
    compared = [item for item in program.provenance.exactness if item.value]
    reported = {item.tensor for item in compared}
    compared += [Exactness(o.name, o.value, Fraction(0)) for o in program.outputs if o.name not in reported]
    assert {item.tensor for item in compared} >= {o.name for o in program.outputs}
    for item in compared:
        quantised = item.tensor in expected.codes
        exact = expected.codes[item.tensor] if quantised else expected.values[item.tensor].integers()
        difference = np.abs(values[item.value].reshape(exact.shape).astype(np.int64) - exact)
        found.codes += difference.size
        found.differing += int(np.count_nonzero(difference))
        found.worst = max(found.worst, int(difference.max()))
        found.bound = max(found.bound, item.bound)
        if int(difference.max()) > item.bound:
            found.broken.append(f"{item}\n{text}")
