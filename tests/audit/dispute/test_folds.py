"""Every element of every op, computed in small steps, is FORMAL's; the steps read what FORMAL reads."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from cvm.audit.dispute import chunks, folds, vision
from cvm.audit.dispute.chunks import Chunks, most_leaves
from cvm.audit.dispute.folds import Fold
from cvm.audit.dispute.targets import auxiliary_count, fold
from cvm.ops import REGISTRY
from tests.audit.dispute.folding import Application, cases, united

SIZES = {"whole": None, "small": 3, "single": 1}
"""The terms of a step: as it is, and so few that small tensors take many steps."""


@pytest.fixture(params=SIZES)
def terms(request, monkeypatch):
    size = SIZES[request.param]
    if size is not None:
        monkeypatch.setattr(chunks, "TERMS", size)
        monkeypatch.setattr(vision, "TERMS", size)
        monkeypatch.setattr(folds, "PARTS", size)
    return size


def chosen(size: int, seed: int, most: int = 24) -> list[int]:
    """All elements of a small tensor; of a larger one the first, the last, and some."""
    return list(range(size)) if size <= most else sorted({0, size - 1, *Random(seed).sample(range(size), most)})


@pytest.mark.sweep
@pytest.mark.parametrize("op", REGISTRY)
def test_the_steps_give_what_the_vectors_say_and_read_what_formal_reads(op, terms):
    assert cases()[op]
    for index, case in enumerate(cases()[op]):
        applied = Application.of(op, [tensor.array() for tensor in case.inputs], case.attributes)
        for output, expected in enumerate(tensor.array() for tensor in case.outputs):
            target = auxiliary_count(op) + output
            for element in chosen(expected.size, index):
                found, reads = applied.folded(target, element)
                assert found == int(expected.flat[element]), (case.id, element)
                if op not in ("get_valid_count", "non_max_suppression"):
                    assert united(reads) == applied.formal_reads(output, element), (case.id, element)


def require_declared(course: Fold, reads: dict[int, set[int]], op: str) -> None:
    """What a step reads is within what the fold says of all its steps, and that within the budgets."""
    touched = {}
    for position, numbers in reads.items():
        assert len(numbers) <= chunks.TERMS + (op == "non_max_suppression")
        kinds = REGISTRY[op].input_kinds(len(course.leaves))
        item = 8 if position < len(kinds) and kinds[position] == "parameter" else 4
        touched[position] = len({number * item // 1024 for number in numbers})
        assert touched[position] <= course.leaves[position] <= chunks.LEAVES
    assert course.all_leaves is None or sum(touched.values()) <= course.all_leaves
    assert not course.groups or any(set(reads) <= set(group) for group in course.groups)


@pytest.mark.parametrize("op", REGISTRY)
def test_no_step_reads_more_than_its_fold_says(op):
    for index, case in enumerate(cases()[op]):
        applied = Application.of(op, [tensor.array() for tensor in case.inputs], case.attributes)
        for target in range(auxiliary_count(op) + len(case.outputs)):
            shape = case.outputs[0].array().shape[:2] if target < auxiliary_count(op) else None
            size = int(np.prod(shape)) if shape else case.outputs[target - auxiliary_count(op)].array().size
            for element in chosen(size, index, 8):
                course = fold(applied.record, target, element, applied.operands())
                for reads in applied.folded(target, element)[1]:
                    require_declared(course, reads, op)


def test_all_small_reductions_are_formals():
    random = np.random.default_rng(1)
    for rank in (1, 2, 3):
        for shape in product((1, 2, 3) if rank < 3 else (1, 2), repeat=rank):
            x = random.integers(-50, 50, shape)
            for axes in (a for n in range(rank + 1) for a in product(range(-rank, rank), repeat=n)):
                if len({a % rank for a in axes}) < len(axes):
                    continue
                for op, keepdims, exclude in product(("sum", "max"), (False, True), (False, True)):
                    attributes = {"axes": axes, "keepdims": keepdims, "exclude": exclude}
                    applied = Application.of(op, [x], attributes)
                    (expected,) = applied.formal()
                    assert [applied.folded(0, e)[0] for e in range(len(expected))] == expected


@pytest.mark.parametrize("terms", ["single", "small"], indirect=True)
def test_all_small_convolutions_are_formals(terms):
    random = np.random.default_rng(2)
    windows = product((1, 2), (0, 1), (1, 2), (1, 2))
    for (kernel, padding, stride, dilation), groups, bias in product(windows, (1, 2), (False, True)):
        x = random.integers(-9, 9, (1, 2 * groups, 3, 4))
        w = random.integers(-9, 9, (2 * groups, 2, kernel, 3 - kernel))
        arrays = [x, w, random.integers(-9, 9, 2 * groups)][: 3 if bias else 2]
        attributes = {"padding": (padding, 1), "stride": (stride, 1), "dilation": (1, dilation), "groups": groups}
        applied = Application.of("conv2d", arrays, attributes)
        (expected,) = applied.formal()
        for element in range(len(expected)):
            found, reads = applied.folded(0, element)
            assert found == expected[element]
            assert united(reads) == applied.formal_reads(0, element)


def boxes(random: Random, count: int, b: int) -> np.ndarray:
    corners = [
        [random.randint(-1, 1), random.randint(0, 3), *(random.randint(0, 9) for _ in range(4))]
        for _ in range(b * count)
    ]
    return np.array(corners).reshape(b, count, 6)


def test_suppression_in_small_steps_is_formals(terms):
    random = Random(3)
    for _ in range(25):
        b, n = random.randint(1, 2), random.randint(1, 6)
        attributes = {
            "iou_threshold": random.choice((1, 30, 60, 101)),
            "max_output_size": random.choice((-1, 0, 1, 3)),
            "force_suppress": random.random() < 0.5,
            "top_k": random.choice((-1, 0, 2, 4)),
        }
        valid = np.array([random.randint(-1, n + 1) for _ in range(b)])
        applied = Application.of("non_max_suppression", [boxes(random, n, b), valid], attributes)
        for target, tensor in enumerate(applied.auxiliaries()):
            assert [applied.folded(target, e)[0] for e in range(tensor.size)] == tensor.ravel().tolist()
        (expected,) = applied.formal()
        assert [applied.folded(3, e)[0] for e in range(len(expected))] == expected


# Chunks


def test_chunks_are_a_partition_and_touch_no_more_leaves_than_they_may():
    random = Random(4)
    for _ in range(400):
        shape = [random.choice((1, 2, 3, 7, 49, 56, 300, 1000)) for _ in range(random.randint(1, 4))]
        strides = folds.strides_of(tuple(shape))
        axes = sorted(random.sample(range(len(shape)), random.randint(0, len(shape))))
        parts = Chunks([shape[a] for a in axes], [[strides[a] for a in axes]])
        space = int(np.prod([shape[a] for a in axes]))
        if space > 60_000:
            assert parts.count * chunks.TERMS >= space
            continue
        seen = [index for number in range(parts.count) for index in parts.indices(number)]
        assert len(seen) == len(set(seen)) == space
        for number in (0, parts.count // 2, parts.count - 1):
            begin = random.randrange(256)
            touched = {
                (begin + sum(strides[a] * i for a, i in zip(axes, index, strict=True))) // 256
                for index in parts.indices(number)
            }
            assert len(list(parts.indices(number))) <= chunks.TERMS
            assert len(touched) <= chunks.LEAVES


def test_the_bound_on_leaves_holds_wherever_a_box_begins():
    for strides, extents in product(product((1, 3, 100, 300), repeat=2), product((1, 2, 5, 9), repeat=2)):
        bound = most_leaves(strides, extents)
        found = max(
            len({(begin + sum(s * i for s, i in zip(strides, index, strict=True))) // 256
                 for index in product(*map(range, extents))})
            for begin in range(256)
        )  # fmt: skip
        assert found <= bound
