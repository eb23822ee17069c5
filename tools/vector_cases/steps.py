"""One-step proofs as test vectors: one or two of every target of every op, and proofs that must be refused.

The product proves them from FORMAL's tensors: the tensors of the vectors of ops and programs, and those of one program
with reductions so long that they take several steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import formal.executor
from cvm.audit.dispute.evidence import Evidence, OpenProgram
from cvm.audit.dispute.proof import GivenSource, OperandOpening, StepProof, encode_proof
from cvm.audit.dispute.targets import auxiliary_count
from cvm.executors import initial_state
from cvm.ops import REGISTRY
from cvm.program import Output, Program, ProgramBuilder, decode, verify
from cvm.vectors.format import OpCase, ProgramCase, VectorFile, VectorTensor
from tools.vector_cases.stream import Stream

__all__ = ["op_evidence", "step_files"]

LARGEST = 600
"""The most elements of a tensor in an op's vector about which a proof is made."""


def step_files(files: dict[str, VectorFile]) -> dict[str, bytes]:
    """The files of proofs by their paths under the folder of vectors, from the vector files."""
    made: dict[str, StepProof] = {}
    for true in (_long(), *_programs(files), *map(op_evidence, _telling(files))):
        for op, node in enumerate(true.program.program.nodes):
            for target in range(auxiliary_count(node.op) + len(node.outputs)):
                for name, proof in _proofs(true, op, target):
                    made.setdefault(name, proof)
    proofs = {f"steps/{name}.step": encode_proof(proof) for name, proof in sorted(made.items())}
    return proofs | {f"steps/refused_{name}.step": data for name, data in _refused(made)}


def _proofs(true: Evidence, op: int, target: int) -> Iterator[tuple[str, StepProof]]:
    """Proofs of the last element: its last step and, if there are several, the first and one between."""
    name = f"{true.program.program.nodes[op].op}_{target}"
    element = true.tensor(op, target).size - 1
    partials = true.partials(op, target, element)
    yield f"{name}_last", true.prove(op, target, element, len(partials) - 1, partials)
    if len(partials) > 1:
        yield f"{name}_first", true.prove(op, target, element, 0, partials)
    if len(partials) > 2:
        yield f"{name}_between", true.prove(op, target, element, len(partials) // 2, partials)


# Evidence


def _array(tensor: VectorTensor) -> np.ndarray:
    return np.frombuffer(tensor.data, f"<i{4 if tensor.dtype == 'int32' else 8}").reshape(tensor.shape)


def _programs(files: dict[str, VectorFile]) -> Iterator[Evidence]:
    """The first runs of the programs that have vectors."""
    for file in files.values():
        case = file.cases[0]
        if isinstance(case, ProgramCase) and case.verdict == "value":
            program, run = decode(case.program), case.runs[0]
            tensors = {name: _array(tensor) for name, tensor in (*run.inputs.items(), *run.values.items())}
            yield Evidence(OpenProgram(program), {**initial_state(program), **tensors})


def _telling(files: dict[str, VectorFile]) -> Iterator[OpCase]:
    """For every op, the vector with the largest tensor that is not too large."""
    for op in REGISTRY:
        sized = []
        for path, file in files.items():
            for case in file.cases if path.endswith(f"/{op}.msgpack") else ():
                assert isinstance(case, OpCase)
                size = max((_array(tensor).size for tensor in (*case.inputs, *case.outputs)), default=0)
                if case.verdict == "value" and size <= LARGEST:
                    sized.append((size, case.id, case))
        yield max(sized)[2]


def op_evidence(case: OpCase) -> Evidence:
    """A program of one node, the op of a vector on its tensors; every third of these is a constant."""
    builder, values, names = ProgramBuilder(), {}, []
    for index, tensor in enumerate(case.inputs):
        array = _array(tensor)
        if tensor.dtype == "int64":
            names.append(builder.parameter(array))
        elif index % 3 == 1:
            names.append(builder.constant(array))
        else:
            values[f"x{index}"] = array
            names.append(builder.input(f"x{index}", array.shape, int(array.min()), int(array.max())))
    given = builder.add(case.op, names, case.attributes)
    values |= {name: _array(tensor) for name, tensor in zip(given, case.outputs, strict=True)}
    return Evidence(OpenProgram(builder.build([Output(name, name) for name in given])), values)


def _long() -> Evidence:
    """Reductions and searches of several steps, on drawn elements."""
    stream, builder = Stream("steps/long"), ProgramBuilder()
    image = builder.input("image", (1, 20, 16, 16), -128, 127)
    flat = builder.add("reshape", [image], {"target_shape": (5, 1024)})[0]
    weights = builder.constant(_drawn(stream, (3, 1024), -128, 127), "weights")
    window = {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    kernel = builder.constant(_drawn(stream, (2, 20, 3, 3), -128, 127), "kernel")
    given = [
        *builder.add("dense", [flat, weights, builder.constant([1, -2, 3], "bias")]),
        *builder.add("conv2d", [image, kernel], window),
        *builder.add("sum", [image], {"axes": (0, 1), "keepdims": False, "exclude": False}),
        *builder.add("max", [flat], {"axes": (0,), "keepdims": True, "exclude": True}),
        *builder.add("concatenate", [image] * 20, {"axis": 1}),
    ]
    large = builder.input("large", (1, 1, 40, 40), -(2**31) + 1, 2**31 - 1)
    pool = {"pool_size": (20, 20), "padding": (3, 3), "strides": (4, 4), "ceil_mode": False}
    given += builder.add("max_pool2d", [large], pool)
    boxes = builder.input("boxes", (1, 120, 6), -1, 100)
    count, valid = builder.add("get_valid_count", [boxes], {"score_threshold": 20})
    overlap = {"iou_threshold": 30, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    given += [count, valid, *builder.add("non_max_suppression", [valid, count], overlap)]
    program = builder.build([Output(name, name) for name in given])
    return _run(program, stream)


def _drawn(stream: Stream, shape: tuple[int, ...], lo: int, hi: int) -> np.ndarray:
    items = [stream.between(lo, hi) for _ in range(int(np.prod(shape)))]
    return np.array(items, np.int32).reshape(shape)


def _run(program: Program, stream: Stream) -> Evidence:
    inputs = {
        item.value.name: _drawn(stream, item.value.shape, item.value.lo, item.value.hi) for item in program.inputs
    }
    tensors = formal.executor.run(verify(program).program, {name: x.ravel().tolist() for name, x in inputs.items()})
    values = {
        value.name: np.array([tensors[value.name][d] for d in np.ndindex(value.shape)], np.int32).reshape(value.shape)
        for node in program.nodes
        for value in node.outputs
    }
    return Evidence(OpenProgram(program), {**inputs, **values})


# Proofs of nothing


def _refused(made: dict[str, StepProof]) -> Iterator[tuple[str, bytes]]:
    """Proofs that are true except for one thing."""
    proof = made["dense_0_between"]
    claim, witness, data = proof.claim, proof.witness, encode_proof(proof)
    assert witness.partial_before is not None
    claims: tuple[tuple[str, Any], ...] = (
        ("head", bytes(32)), ("op", claim.op + 1), ("target", claim.target + 1), ("auxiliaries", (bytes(32),)),
        ("element", claim.element - 1), ("step", claim.step + 1), ("partials", bytes(32)),
    )  # fmt: skip
    for field, value in claims:
        yield f"claim_{field}", encode_proof(replace(proof, claim=replace(claim, **{field: value})))
    first, second = witness.operands[0], witness.operands[1]
    number, leaf = first.leaves[0]
    for name, changed in (
        ("limits", {"limits": "large"}),
        ("inputs", {"inputs": witness.inputs[::-1]}),
        ("before", {"partial_before": witness.partial_before + 1}),
        ("after", {"partial_after": witness.partial_after + 1}),
        ("no_before", {"partial_before": None}),
        ("path", {"partials_path": witness.partials_path[:-1]}),
        ("record", {"record": witness.record.replace(b"dense", b"dance")}),
        ("leaf", {"operands": (replace(first, leaves=((number, leaf[:-1] + b"\x7f"), *first.leaves[1:])), second)}),
        ("leaf_number", {"operands": (replace(first, leaves=((number + 1, leaf), *first.leaves[1:])), second)}),
        ("closed", {"operands": (first,)}),
        ("order", {"operands": (second, first)}),
        ("source", {"operands": (replace(first, source=GivenSource()), second)}),
        ("shape", {"operands": (replace(first, shape=first.shape[::-1]), second)}),
    ):
        yield f"witness_{name}", encode_proof(replace(proof, witness=replace(witness, **changed)))
    yield "false_step", encode_proof(_false_step())
    yield "spare_operand", encode_proof(_with_spare_operand(made["dense_0_first"], made["dense_0_last"]))
    yield "truncated", data[:-1]
    yield "trailing", data + b"\0"
    yield "huge_list", data[:-4] + b"\xff\xff\xff\xff"


def _false_step() -> StepProof:
    """All hashes are right, and so is the last partial: only the step is false."""
    true = _long()
    partials = true.partials(1, 0, 0)
    return true.prove(1, 0, 0, 1, [partials[0], partials[1] + 1, *partials[2:]])


def _with_spare_operand(proof: StepProof, other: StepProof) -> StepProof:
    """A proof whose first step also opens the bias, which only the last step reads."""
    bias: OperandOpening = other.witness.operands[2]
    return replace(proof, witness=replace(proof.witness, operands=(*proof.witness.operands, bias)))
