"""The fuzzer of native code: what it draws, how it makes failures small, and that it finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cvm.errors import CvmError
from cvm.executors.native.emit import requantize
from cvm.executors.native.runtime import networks
from cvm.executors.native.runtime.select import available
from cvm.program import Output, Program, ProgramBuilder, verify
from cvm.program.merging import merged
from tools.fuzz.chains import OPS, chained
from tools.fuzz.edge_feeds import feeds
from tools.fuzz.edge_programs import drawn_aim, family
from tools.fuzz.edges import CHANNELS, FORMATS, NUMBERS, WILD, Term, parameters
from tools.fuzz.growth import Seeded
from tools.fuzz.layouts import laid_out
from tools.fuzz.merging import pruned, with_all_outputs
from tools.fuzz.native_agreement import Difference, Way, differences, formal_differences, known_results, prepared
from tools.fuzz.native_cells import stored_as
from tools.fuzz.native_programs import examined, pack, read, smallest, ways, write
from tools.fuzz.session_agreement import session_differences
from tools.fuzz.shrinking import Case, regression_test, shrunk
from tools.fuzz.wide_documents import compiled, document

GENERIC = available()[-1]
ROOT = Path(__file__).parents[2]


def test_edges_hold_the_powers_of_two_and_what_lies_beside_them() -> None:
    assert {0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**53 + 1, 255, 256, 2**16} <= set(NUMBERS)
    assert {width + d for width in (4, 8, 16, 32, 64, 128) for d in (0, 1)} - {5} <= set(CHANNELS)


def test_intervals_are_stored_as_they_are_named() -> None:
    from cvm.executors.native.descriptions.formats import Format

    assert {(name, stored_as(Format.of(lo, hi))) for name, ends in FORMATS.items() for lo, hi in ends} == {
        (name, name) for name in FORMATS
    }


@pytest.mark.parametrize("arithmetic", ["narrow", "high", "fused", "wide"])
def test_all_parameters_fit(arithmetic: str) -> None:
    random = Random(arithmetic)
    for number in range(2000):
        ends = [random.choice(random.choice(tuple(FORMATS.values()))) for _ in range(random.choice((1, 1, 2, 8)))]
        terms = [Term(lo, hi) for lo, hi in ends]
        shift = random.choice((None, None, 0, 31, 60))
        kind = random.choice(WILD) if number % 2 else "steps"
        found = parameters(random, terms, -128, 127, arithmetic, kind, random.randrange(10**6), shift)
        assert found.fit(terms)


def test_packs_are_made_from_their_seed_and_number_alone() -> None:
    first, again, other = pack(3, 5), pack(3, 5), pack(3, 6)
    assert first.program.digest == again.program.digest != other.program.digest
    for run, same in zip(first.runs, again.runs, strict=True):
        assert all(np.array_equal(run[name], same[name]) for name in run)
    assert document(Random(4)).text == document(Random(4)).text


def test_chains_hold_every_op_of_op_set_2_often_and_in_a_row() -> None:
    uses, pairs, with_state = Counter[str](), Counter[tuple[str, str]](), 0
    for number in range(60):
        found = chained(Seeded(Random(number)))
        uses.update(set(found.ops))
        makers = {value.name: node.op for node in found.program.nodes for value in node.outputs}
        pairs.update({(makers.get(name, ""), node.op) for node in found.program.nodes for name in node.inputs})
        with_state += bool(found.program.state)
        read = {name for node in found.program.nodes for name in node.inputs}
        read |= {output.value for output in found.program.outputs} | {one.update for one in found.program.state}
        assert set(makers) <= read, "a node is without effect"
    assert all(uses[op] >= 25 for op in OPS), uses
    assert with_state >= 30
    for pair in (("matmul", "requantize"), ("sum", "quotient"), ("quotient", "matmul"), ("normalize", "dense"),
                 ("normalize", "matmul"), ("update_slice", "update_slice"), ("elemwise_add", "normalize")):  # fmt: skip
        assert pairs[pair] > 0, pair


def test_numpy_gives_the_tensors_of_formal_on_chains() -> None:
    for number in range(3):
        found = pack(19, number, "chains")
        assert found.whole
        verified = verify(found.program)
        assert formal_differences(verified, found.runs[:2], known_results(verified, found.runs[:2])) == ()


@pytest.mark.slow
def test_native_code_gives_the_tensors_of_numpy_on_chains() -> None:
    found = pack(19, 3, "chains")
    with prepared(level=0):
        wrong, unlike = examined(found, ways(available()[:1], 0, thorough=True))
    assert (wrong, unlike) == ([], ())


def test_packs_of_ops_between_computed_tensors_hold_all_of_them() -> None:
    """They are made from their number alone; NumPy gives what FORMAL gives."""
    first, again = pack(3, 5, "computed"), pack(3, 5, "computed")
    assert first.program.digest == again.program.digest
    ops = Counter(node.op for node in first.program.nodes)
    assert min(ops[op] for op in ("matmul", "quotient", "normalize", "update_slice", "cvm_lut")) > 0
    assert first.programs == 40
    assert examined(first, [])[1] == ()


def test_programs_of_many_layouts_read_and_return_moved_tensors_in_every_way() -> None:
    """Ops that move elements stand before all kinds of readers, and states and outputs are views of others."""
    moving = ("transpose", "reshape", "slice", "repeat", "tile", "concatenate")
    pairs, found = Counter[tuple[str, str]](), Counter[str]()
    for number in range(100):
        program = laid_out(Seeded(Random(number)))
        made = {value.name: node for node in program.nodes for value in node.outputs}
        reads = [(name, node) for node in program.nodes for name in node.inputs]
        pairs.update({(made[name].op, node.op) for name, node in reads if name in made})
        constants, states = {one.name for one in program.constants}, {one.value.name for one in program.state}
        uses = Counter(name for name, _ in reads)
        found["constants that several nodes read"] += any(uses[name] > 1 for name in constants)
        outputs = [output.value for output in program.outputs]
        found["outputs that are operands"] += any(uses[name] and name in made for name in outputs)
        found["states that are outputs"] += bool(states & set(outputs))
        found["inputs that are outputs"] += any(one.value.name in outputs for one in program.inputs)
        found["outputs that are there twice"] += len(set(outputs)) < len(outputs)
        updates = {one.update for one in program.state}
        found["states that become states"] += bool(updates & states)
        found["states that become views"] += any(made[name].op in moving for name in updates & set(made))
        shapes = [value.shape for node in program.nodes for value in node.outputs]
        found["axes of one element"] += any(1 in shape for shape in shapes)
        found["long rows"] += any(shape[-1] > 16 for shape in shapes)
        found["intervals at the limits"] += any(one.value.hi == 2**31 - 1 for one in program.inputs)
    readers = ("transpose", "reshape", "slice", "concatenate", "take", "conv2d", "dense", "matmul", "requantize")
    assert all(sum(pairs[one, other] for one in moving) >= 5 for other in readers), pairs
    assert all(sum(pairs[one, other] > 0 for other in readers) >= 4 for one in moving), pairs
    assert min(found.values()) >= 5, found


def test_numpy_gives_the_tensors_of_formal_on_many_layouts() -> None:
    for number in range(2):
        assert examined(pack(23, number, "layouts"), [])[1] == ()


@pytest.mark.slow
def test_native_code_gives_the_tensors_of_numpy_on_many_layouts() -> None:
    with prepared(level=0):
        assert examined(pack(23, 2, "layouts"), ways(available()[:1], 0, thorough=False))[0] == []


@pytest.mark.parametrize("kept", [pytest.param("with state", marks=pytest.mark.long), "without state"])
@pytest.mark.slow
def test_sessions_give_what_is_known_in_all_ways_of_calling_them(kept: str) -> None:
    random = Random(0)
    program = laid_out(Seeded(random))
    while bool(program.state) != (kept == "with state"):
        program = laid_out(Seeded(random))
    verified = verify(program)
    runs = feeds(program, 4, random)
    with prepared(level=0):
        assert session_differences(verified, runs, known_results(verified, runs), random) == []


def test_wrong_results_of_sessions_and_outputs_in_the_memory_of_inputs_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every way reports a result that is not the known one; an output over an input that is accepted is reported."""
    program = chain()
    verified, runs = verify(program), feeds(program, 3, Random(0))
    known = known_results(verified, runs)
    name = program.outputs[0].value
    changed = [type(one)({**one.values, name: one.values[name] + 1}, one.state) for one in known]
    with prepared(level=0):
        wrong = session_differences(verified, runs, changed, Random(0), [2])
        ways_of_calling = ("singly", "into given arrays", "bound", "as a batch", "as a list", "together")
        assert {line.split(", ")[1].split(":")[0] for line in wrong} == set(ways_of_calling)
        assert all(line.endswith("output 'long'") for line in wrong), wrong
        assert session_differences(verified, runs, known, Random(0), [1]) == []
        monkeypatch.setattr(np, "may_share_memory", lambda *_: False)
        accepted = session_differences(verified, runs, known, Random(0), [1])
    assert accepted
    assert all(line.endswith(": accepted") for line in accepted), accepted


def test_most_drawn_programs_and_documents_are_valid() -> None:
    drawn = Counter[str]()
    random = Random(0)
    for _ in range(60):
        try:
            found = family(random, drawn_aim(random), 5, 0.4)
        except CvmError:
            drawn["refused"] += 5
            continue
        verify(found.program)
        drawn["valid"] += found.members - found.refused
        drawn["refused"] += found.refused
    assert drawn["valid"] > 0.6 * drawn.total()
    for number in range(20):
        try:
            verify(compiled(document(Random(number))))
            drawn["documents"] += 1
        except CvmError:
            continue
    assert drawn["documents"] > 12


def test_results_are_mostly_neither_all_clipped_nor_all_the_same() -> None:
    random, various, total = Random(1), 0, 0
    for _ in range(30):
        program = family(random, drawn_aim(random), 3, 0.0).program
        known = known_results(verify(program), feeds(program, 6, random))
        for output in program.outputs:
            total += 1
            various += len({int(x) for run in known for x in run.values[output.value].flat}) > 1
    assert various > 0.6 * total


def test_inputs_lie_beside_where_codes_change() -> None:
    """The first operand of every code of a coarse requantize is among the inputs, and the one before it."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 64), 0, 65535)
    m, c, s = (builder.parameter([number]) for number in (1, 0, 14))
    (y,) = builder.add("requantize", [x, m, c, s], {"rounding": "half_up", "lo": 0, "hi": 4})
    program = builder.build([Output("y", y)])
    seen = {int(x) for feed in feeds(program, 40, Random(0)) for x in feed["x"].flat}
    firsts = {(code << 14) - (1 << 13) for code in (1, 2, 3, 4)}
    assert firsts | {first - 1 for first in firsts} <= seen


def chain() -> Program:
    """Two outputs, one of which is a long way from a product that is wrong in the test below."""
    builder = ProgramBuilder()
    x, y = builder.input("x", (2, 6, 5, 5), -50, 50), builder.input("y", (2, 6, 5, 5), -50, 50)
    (product,) = builder.add("broadcast_mul", [x, y])
    (clipped,) = builder.add("clip", [product], {"a_min": -2000, "a_max": 2000})
    (negated,) = builder.add("negative", [clipped])
    (other,) = builder.add("elemwise_add", [x, y])
    return builder.build([Output("long", negated), Output("other", other)])


def test_parts_of_merged_programs_give_what_they_gave() -> None:
    program = chain()
    whole = merged([program, program])
    part = pruned(whole, ["p1.other"])
    assert [node.op for node in part.nodes] == ["elemwise_add"]
    assert len(with_all_outputs(whole).outputs) == 2 * 4
    run = feeds(program, 3, Random(0))[2]
    right = known_results(verify(program), [run])[0]
    found = known_results(verify(part), [{f"p1.{name}": fed for name, fed in run.items()}])[0]
    np.testing.assert_array_equal(found.values["p1." + program.outputs[1].value],
                                  right.values[program.outputs[1].value])  # fmt: skip


def test_a_failure_is_made_as_small_as_can_be() -> None:
    """Whatever multiplies a number above 40 fails: one product of two single elements is left."""

    def fails(case: Case) -> bool:
        known = known_results(verify(case.program), case.runs)
        products = [node for node in case.program.nodes if node.op == "broadcast_mul"]
        return any(int(abs(run.values[node.outputs[0].name]).max()) > 40 for run in known for node in products)

    program = chain()
    case = shrunk(Case(program, tuple(feeds(program, 5, Random(0)))), fails)
    assert fails(case)
    assert [node.op for node in case.program.nodes] == ["broadcast_mul"]
    assert {value.shape for node in case.program.nodes for value in node.outputs} == {(1, 1, 1, 1)}
    assert len(case.runs) == 1


def test_what_is_written_of_a_failure_builds_it_again(tmp_path: Path) -> None:
    program = chain()
    case = Case(program, tuple(feeds(program, 2, Random(0))))
    name = write(case, Difference(Way(GENERIC, 1, False), ("x",)), tmp_path)
    stored = read(tmp_path / f"{name}.cvm")
    assert stored.program.digest == program.digest
    assert all((stored.runs[1][key] == case.runs[1][key]).all() for key in case.runs[1])
    compared: list[Case] = []
    scope = {"np": np, "ProgramBuilder": ProgramBuilder, "Output": Output,
             "compare": lambda built, runs: compared.append(Case(built, tuple(runs)))}  # fmt: skip
    exec(regression_test(case, "built_again") + "test_built_again()\n", scope)
    assert [(node.op, dict(node.attributes)) for node in compared[0].program.nodes] == [
        (node.op, dict(node.attributes)) for node in program.nodes
    ]
    assert all((compared[0].runs[0][key] == case.runs[0][key]).all() for key in case.runs[0])


def test_wrong_code_is_found_and_an_exception_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    program = chain()
    runs = feeds(program, 3, Random(0))
    known = known_results(verify(program), runs)
    every = ways([GENERIC], 0, thorough=True)
    assert {(way.threads, way.captured) for way in every} == {(1, False), (1, True), (2, False), (2, True)}
    with prepared(level=0):
        assert differences(program, runs, known, every) == []
        changed = [type(one)({**one.values, "negative": one.values["negative"] + 1}, one.state) for one in known]
        wrong = differences(program, runs, changed, every)
        assert [(one.kind, one.values) for one in wrong] == [("wrong bytes", ("negative",))] * 4
        case = smallest(Case(program, tuple(runs)), Difference(every[0], error="RuntimeError: no"), tries=20)
        assert case.program is program  # it does not fail that way, so nothing smaller does

        def broken(*arguments: object) -> bytes:
            raise RuntimeError("no\nsecond line")

        monkeypatch.setattr(networks, "compiled", broken)
        assert {one.kind for one in differences(program, runs, known, every)} == {
            "error: refused: the code generator refuses the code: no"
        }
    assert networks.WORTH > 0


@pytest.mark.long
def test_a_run_is_logged_and_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.fuzz.native_programs", "--count", "100", "--seed", "2", "--machines",
               GENERIC.name, "--failures", str(tmp_path / "failures"), "--log", str(tmp_path / "log")]  # fmt: skip
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "in 2 packs" in first.stdout, first.stderr
    lines = (tmp_path / "log").read_text()
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert first.stdout.split(" a second")[0] == second.stdout.split(" a second")[0]
    assert (tmp_path / "log").read_text() == lines


@pytest.mark.parametrize("broken", ["offset", "shift"])
def test_planted_defects_are_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that are one too small, and shifts that end at 30: a few families are enough."""
    right = requantize.terms

    def wrong(magnitudes, multipliers, offset, shift, rounding, lo, hi):  # type: ignore[no-untyped-def]
        found = right(magnitudes, multipliers, offset, shift, rounding, lo, hi)
        if broken == "offset":
            return type(found)(found.rule, found.multipliers, found.offset - 1, found.shift)
        return type(found)(found.rule, found.multipliers, found.offset, np.minimum(found.shift, 30))

    from cvm.executors.native.kernels import formulas

    monkeypatch.setattr(formulas, "terms", wrong)
    random = Random(0)
    with prepared(level=0):
        for _ in range(12):
            program = family(random, drawn_aim(random), 3, 0.2, small=True).program
            runs = feeds(program, 10, random)
            if differences(program, runs, known_results(verify(program), runs), [Way(GENERIC, 1, False)]):
                return
    pytest.fail(f"the defect was not found: {broken}")
