import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.report.classes import ClassMeter, check_labels


@given(seed=st.integers(0, 2**32 - 1), labelled=st.booleans())
def test_classes_are_counted(seed, labelled):
    random = np.random.default_rng(seed)
    scores = random.integers(0, 4, (2, 30, 5)).astype(float)
    labels = random.integers(0, 5, 30) if labelled else None
    meter = ClassMeter("y", 5, None, labels)
    for sample in range(30):
        meter.add(sample, 0, scores[0, sample].reshape(1, 5, 1), scores[1, sample])
    found = meter.result()
    first = [[list(row).index(max(row)) for row in part] for part in scores.tolist()]
    assert found.runs == 30
    assert found.agreeing == sum(a == b for a, b in zip(*first, strict=True))
    assert found.ties == sum(list(row).count(max(row)) > 1 for row in scores[1].tolist())
    changed = [sample for sample in range(30) if first[0][sample] != first[1][sample]]
    assert [item.sample for item in found.changed] == changed
    for item in found.changed:
        assert (item.float_class, item.program_class) == (first[0][item.sample], first[1][item.sample])
        assert item.label == (labels[item.sample] if labelled else None)
        assert item.cycle is None
        assert item.float_scores == tuple(scores[0, item.sample, [item.float_class, item.program_class]])
        assert item.program_scores == tuple(scores[1, item.sample, [item.float_class, item.program_class]])
    assert sum(row[3] for row in found.confusion) == len(changed)
    counts = [row[3] for row in found.confusion]
    assert counts == sorted(counts, reverse=True)
    if not labelled:
        assert found.correctness is None
        return
    right = [[a == b for a, b in zip(part, labels, strict=True)] for part in first]
    assert found.correctness.runs == 30
    assert found.correctness.float_right == sum(right[0])
    assert found.correctness.program_right == sum(right[1])
    assert found.correctness.both == sum(a and b for a, b in zip(*right, strict=True))
    assert found.correctness.neither == sum(not a and not b for a, b in zip(*right, strict=True))


def test_a_label_for_all_cycles_judges_the_last_one():
    for labels, judged in ((None, 6), (np.array([1, 1]), 2), (np.array([[1, 1, 1], [0, 0, 0]]), 6)):
        meter = ClassMeter("y", 2, 3, labels)
        for sample in range(2):
            for cycle in range(3):
                meter.add(sample, cycle, np.array([0.0, 1.0]), np.array([float(cycle < 2), 0.5]))
        found = meter.result()
        assert found.runs == judged
        assert found.agreeing == (2 if judged == 6 or labels is not None else 0)
        assert all(item.cycle in (0, 1) for item in found.changed)


@pytest.mark.parametrize(
    ("labels", "samples", "cycles"),
    [
        (np.array(3), None, None),
        (np.array([3]), None, None),
        (np.array([3, 0]), 2, None),
        (np.array([3, 0]), 2, 4),
        (np.array([[3, 0]] * 2), 2, 2),
        (np.array([3, 0, 1]), None, 3),
        (np.array(3), None, 3),
        (np.array([3, 0], np.uint8), 2, None),
    ],
)
def test_labels_fit_samples_or_cycles(labels, samples, cycles):
    found = check_labels(labels, samples, cycles, 4)
    assert found.dtype == np.int64
    assert found.shape in ((samples or 1,), (samples or 1, cycles))
    assert found.ravel().tolist() == labels.ravel().tolist()


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        (np.array([0.0, 1.0]), "integers"),
        (np.array([0, 1, 1]), r"expected labels of shape \[2\] or \[2, 5\], found \[3\]"),
        (np.array([[0, 1]]), "shape"),
        (np.array([0, 4]), r"expected labels in \[0, 3\], found 4 at \[1\]"),
        (np.array([-1, 0]), r"found -1 at \[0\]"),
    ],
)
def test_other_labels_are_refused(labels, what):
    with pytest.raises(Invalid, match=what) as caught:
        check_labels(labels, 2, 5, 4)
    assert caught.value.code == "report.labels"
