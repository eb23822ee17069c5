from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.program import Program
from cvm.program.model import Constant, Input, Node, Output, State, Value
from formal.executor import FormalError, apply, element, next_state, run
from formal.tensor import Tensor, elements, indices, stored

WIDE = 2**31 - 1


def value(name: str, *shape: int, lo: int = -WIDE, hi: int = WIDE) -> Value:
    return Value(name, shape, lo, hi)


def node(op: str, inputs: str, output: Value, **attributes: Any) -> Node:
    return Node(op, tuple(inputs.split()), (output,), attributes)


def small_network() -> tuple[Program, dict[str, list[int]]]:
    """Convolution, requantisation, pooling and a fully connected layer."""
    rng = np.random.default_rng(0)
    program = Program(
        inputs=(Input(value("x", 1, 2, 5, 5, lo=-128, hi=127)),),
        outputs=(Output("logits", "logits"),),
        constants=(
            Constant.of("w", rng.integers(-128, 128, (3, 2, 3, 3))),
            Constant.of("b", rng.integers(-1000, 1000, 3)),
            Constant.of("m", np.array([[[2**34]], [[3]], [[-7]]]), "parameter"),
            Constant.of("c", np.array([5]), "parameter"),
            Constant.of("s", np.array([[[46]], [[14]], [[15]]]), "parameter"),
            Constant.of("fc", rng.integers(-128, 128, (4, 12))),
        ),
        nodes=(
            node(
                "conv2d", "x w b", value("conv", 1, 3, 5, 5), padding=(1, 1), stride=(1, 1), dilation=(1, 1), groups=1
            ),
            node("requantize", "conv m c s", value("q", 1, 3, 5, 5, lo=-9, hi=9), rounding="half_even", lo=-9, hi=9),
            node(
                "max_pool2d",
                "q",
                value("pool", 1, 3, 2, 2, lo=-9, hi=9),
                pool_size=(2, 2),
                padding=(0, 0),
                strides=(2, 2),
                ceil_mode=False,
            ),
            node("flatten", "pool", value("flat", 12, lo=-9, hi=9)),
            node("expand_dims", "flat", value("row", 1, 12, lo=-9, hi=9), axis=0, num_newaxis=1),
            node("dense", "row fc", value("logits", 1, 4)),
        ),
    )
    return program, {"x": rng.integers(-128, 128, 50).tolist()}


def data_dependent() -> tuple[Program, dict[str, list[int]]]:
    """Indices that are computed, and selection of whole rows: what an element needs depends on data."""
    rng = np.random.default_rng(1)
    N = 6
    program = Program(
        inputs=(Input(value("x", 2, N, 6, lo=-20, hi=20)),),
        outputs=(Output("y", "y"),),
        constants=(Constant.of("table", np.arange(41) * 3 - 60),),
        nodes=(
            node("abs", "x", value("a", 2, N, 6, lo=0, hi=20)),
            node("cvm_lut", "table a", value("boxes", 2, N, 6, lo=-60, hi=60)),
            Node(
                "get_valid_count",
                ("boxes",),
                (value("count", 2, lo=0, hi=N), value("valid", 2, N, 6, lo=-60, hi=60)),
                {"score_threshold": -40},
            ),
            node("cvm_right_shift", "valid", value("labelled", 2, N, 6, lo=-31, hi=31), precision=6, shift_bit=1),
            node("relu", "labelled", value("positive", 2, N, 6, lo=0, hi=31)),
            node(
                "non_max_suppression",
                "positive count",
                value("kept", 2, N, 6, lo=-1, hi=31),
                iou_threshold=1,
                max_output_size=-1,
                force_suppress=True,
                top_k=-1,
            ),
            node("take", "kept count", value("y", 2, 2, 6, lo=-1, hi=31), axis=1),
        ),
    )
    return program, {"x": rng.integers(-20, 21, 2 * N * 6).tolist()}


@pytest.mark.parametrize("make", [small_network, data_dependent])
def test_every_element_by_itself_equals_the_run(make: Any) -> None:
    program, inputs = make()
    tensors = run(program, inputs)
    assert list(tensors) == list(program.value_names())
    for name, tensor in tensors.items():
        for d in indices(tensor.shape):
            assert element(program, inputs, name, d) == tensor[d], (name, d)


def test_a_run_equals_numpy() -> None:
    program, inputs = small_network()
    tensors = run(program, inputs)
    q = np.array(elements(tensors["q"])).reshape(3, 5, 5)
    flat = q[:, :4, :4].reshape(3, 2, 2, 2, 2).max(axis=(2, 4)).ravel()
    assert elements(tensors["logits"]) == (program.constants[5].array() @ flat).tolist()
    assert len(set(q.ravel().tolist())) > 5


def test_the_judge_of_one_node_reads_only_what_the_element_depends_on() -> None:
    program, _ = small_network()
    asked: list[tuple[int, ...]] = []

    def rule(d: tuple[int, ...]) -> int:
        asked.append(d)
        return 9 - len(asked)

    pool = program.nodes[2]
    (Y,) = apply(pool, [Tensor((1, 3, 5, 5), rule)])
    assert asked == []
    assert Y[0, 2, 1, 0] == 8
    assert asked == [(0, 2, 2, 0), (0, 2, 2, 1), (0, 2, 3, 0), (0, 2, 3, 1)]


@pytest.mark.parametrize("length", [3_000])
def test_a_long_chain_needs_no_recursion(length: int) -> None:
    nodes = [node("elemwise_add", "x x", value("v0", 2))]
    nodes += [
        node("elemwise_sub" if i % 2 else "elemwise_add", f"v{i - 1} x", value(f"v{i}", 2)) for i in range(1, length)
    ]
    last = f"v{length - 1}"
    program = Program((Input(value("x", 2)),), (Output("y", last),), nodes=tuple(nodes))
    inputs = {"x": [7, -5]}
    tensors = run(program, inputs)
    assert elements(tensors[last]) == [7, -5]
    assert [element(program, inputs, last, (i,)) for i in range(2)] == [7, -5]


def test_shared_operands_are_computed_once() -> None:
    # Without memory 2^60 additions; 2 * x, 4 * x, .. clipped on the way.
    nodes = []
    for i in range(60):
        nodes.append(node("elemwise_add", f"c{i} c{i}", value(f"d{i}", 1)))
        nodes.append(node("clip", f"d{i}", value(f"c{i + 1}", 1, lo=-100, hi=100), a_min=-100, a_max=100))
    program = Program((Input(value("c0", 1)),), (Output("y", "c60"),), nodes=tuple(nodes))
    assert element(program, {"c0": [3]}, "c60", (0,)) == 100


def counter() -> Program:
    """Adds its input to a state, and counts the runs in another."""
    return Program(
        inputs=(Input(value("x", 2)),),
        outputs=(Output("y", "total"),),
        constants=(Constant.of("zero", np.array([10, 20])), Constant.of("one", np.array([1]))),
        state=(State(value("memory", 2), "zero", "total"), State(value("runs", 1), "one", "more")),
        nodes=(
            node("elemwise_add", "memory x", value("total", 2)),
            node("elemwise_add", "runs one", value("more", 1)),
        ),
    )


def test_state_starts_with_its_constant_and_continues_with_its_update() -> None:
    program = counter()
    first = run(program, {"x": [1, 2]})
    assert list(first) == ["x", "zero", "one", "memory", "runs", "total", "more"]
    assert elements(first["memory"]) == [10, 20]
    assert elements(first["total"]) == [11, 22]
    state = next_state(program, first)
    assert state == {"memory": [11, 22], "runs": [2]}
    second = run(program, {"x": [100, 200]}, state)
    assert elements(second["total"]) == [111, 222]
    assert element(program, {"x": [100, 200]}, "total", (1,), state) == 222
    assert element(program, {"x": [100, 200]}, "memory", (1,), state) == 22
    assert next_state(program, second) == {"memory": [111, 222], "runs": [3]}


def one_node(output: Value) -> Program:
    return Program(
        (Input(value("x", 3, lo=-5, hi=5)),),
        (Output("y", "y"),),
        nodes=(node("negative", "x", output),),
    )


@pytest.mark.parametrize("how", [run, lambda program, inputs: element(program, inputs, "y", (1,))])
@pytest.mark.parametrize(
    ("output", "inputs", "message"),
    [
        (value("y", 3, lo=-4, hi=5), {"x": [0, 5, 1]}, r"negative: 'y' has -5 at \(1,\), proven is \[-4, 5\]"),
        (value("y", 3, lo=-5, hi=4), {"x": [0, -5, 1]}, r"negative: 'y' has 5 at \(1,\), proven is \[-5, 4\]"),
        (value("y", 1, 3), {"x": [0, 5, 1]}, r"negative: 'y' has the shape \(3,\), declared is \(1, 3\)"),
        (value("y", 3), {"x": [0, 6, 1]}, r"input: 'x' has 6 at \(1,\), proven is \[-5, 5\]"),
        (value("y", 3), {"x": [0, 1]}, "input: 'x': 2 elements for the shape"),
        (value("y", 3), {"x": [0, 1.0, 2]}, "input: 'x': 'float' object cannot be interpreted as an integer"),
        (value("y", 3), {}, "the input 'x' is missing"),
        (value("y", 3), {"x": [0, 1, 2], "z": [1]}, "the program has no input or state 'z'"),
    ],
)
def test_what_the_program_promises_is_checked(how: Any, output: Value, inputs: Any, message: str) -> None:
    with pytest.raises(FormalError, match=message):
        how(one_node(output), inputs)


def test_a_state_outside_its_interval_or_unknown_is_an_error() -> None:
    with pytest.raises(FormalError, match="state: 'memory' has 2147483648"):
        run(counter(), {"x": [1, 2]}, {"memory": [0, 2**31]})
    with pytest.raises(FormalError, match="no input or state 'total'"):
        run(counter(), {"x": [1, 2]}, {"total": [0, 0]})


def test_an_unknown_tensor_or_an_index_outside_its_shape_is_an_error() -> None:
    program = one_node(value("y", 3))
    with pytest.raises(FormalError, match="no tensor 'z'"):
        element(program, {"x": [1, 2, 3]}, "z", (0,))
    with pytest.raises(IndexError):
        element(program, {"x": [1, 2, 3]}, "y", (3,))


def test_integers_of_any_kind_are_accepted_and_become_python_integers() -> None:
    program = one_node(value("y", 3))
    items: Any = np.array([1, 2, 3], dtype=np.int8)
    found = elements(run(program, {"x": items})["y"])
    assert found == [-1, -2, -3]
    assert {type(item) for item in found} == {int}


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_constants_of_every_width_are_read_alike_whole_and_by_element(bits: int) -> None:
    items = np.array([[-(2 ** (bits - 1)), -1, 0], [1, 2 ** (bits - 1) - 1, 5]])
    constant = Constant.of("k", items, "parameter")
    assert constant.width == bits // 8
    program = Program((Input(value("x", 1)),), (Output("y", "x"),), constants=(constant,))
    assert elements(run(program, {"x": [0]})["k"]) == items.ravel().tolist()
    assert [element(program, {"x": [0]}, "k", d) for d in indices((2, 3))] == items.ravel().tolist()


def test_two_outputs_are_told_apart() -> None:
    X = stored((1, 2, 2), [1, 5, 2, -5])
    op = Node("get_valid_count", ("x",), (value("n", 1), value("rows", 1, 2, 2)), {"score_threshold": 0})
    count, Y = apply(op, [X])
    assert elements(count) == [1]
    assert elements(Y) == [1, 5, -1, -1]
