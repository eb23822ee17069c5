"""From networks and refused programs to vector files."""

from __future__ import annotations

import formal.executor
from cvm.errors import CvmError
from cvm.program import decode, verify
from cvm.program.model import OP_SET
from cvm.vectors.format import ProgramCase, Run, VectorFile, VectorTensor
from formal.tensor import Tensor as FormalTensor
from formal.tensor import elements
from tools.vector_cases.answers import GENERATOR, VERDICTS, vector_tensor
from tools.vector_cases.case import Tensor
from tools.vector_cases.networks import NETWORKS, Network, network
from tools.vector_cases.refusals import REFUSALS
from tools.vector_cases.stream import SEED

__all__ = ["program_files"]


def program_files() -> dict[str, VectorFile]:
    """The files of whole programs by their paths under the folder of vectors."""
    files: dict[str, tuple[ProgramCase, ...]] = {
        f"programs/{name}.msgpack": (_valued(name, network(name)),) for name in NETWORKS
    }
    for name, refusals in REFUSALS.items():
        files[f"programs/refused_{name}.msgpack"] = tuple(_refused(*refusal) for refusal in refusals())
    return {path: VectorFile(OP_SET, GENERATOR, SEED, cases) for path, cases in files.items()}


def _valued(name: str, item: Network) -> ProgramCase:
    """The vector of a network: FORMAL's tensors, for every run from the state that the run before left."""
    data = item.program.to_bytes()
    program = verify(decode(data)).program
    state: dict[str, list[int]] = {}
    runs = []
    for inputs in item.runs:
        given = {key: list(tensor.elements) for key, tensor in inputs.items()}
        tensors = formal.executor.run(program, given, state)
        state = formal.executor.next_state(program, tensors)
        kept = [held.value.name for held in program.state]
        kept += [value.name for node in program.nodes for value in node.outputs]
        kept += [output.value for output in program.outputs]
        values = {key: _answer(tensors[key]) for key in kept}
        runs.append(Run({key: vector_tensor(tensor) for key, tensor in inputs.items()}, values))
    outputs = tuple(dict.fromkeys(output.value for output in program.outputs))
    return ProgramCase(name, item.aim, data, "value", "", program.digest, outputs, tuple(runs))


def _answer(found: FormalTensor) -> VectorTensor:
    return vector_tensor(Tensor(found.shape, tuple(elements(found))))


def _refused(name: str, code: str, aim: str, data: bytes) -> ProgramCase:
    """The vector of a refused program: loading it must fail with the code that its author expected."""
    try:
        verify(decode(data))
    except CvmError as error:
        if error.code != code:
            raise SystemExit(f"program {name}: expected {code}, found {error}") from None
        return ProgramCase(name, aim, data, VERDICTS[type(error)], code)
    raise SystemExit(f"program {name}: expected {code}, found a valid program")
