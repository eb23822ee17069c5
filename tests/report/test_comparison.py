import math
from pathlib import Path

import numpy as np
import pytest

import cvm.inputs
from cvm.arrays import read_npy, read_npz
from cvm.demo import IMAGES, MODEL
from cvm.errors import Invalid
from cvm.executors import create
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.program import verify
from cvm.reference import Reference
from cvm.report import check_source, compare, document
from cvm.session import Session
from tests.report.brute_force import Expected
from tests.report.documents import CHAIN, chain, chain_floats, memory

DIGITS = Path(__file__).parents[3] / "shared" / "models" / "digits"


def report(model, arrays, **options):
    graph = nnef.load(model)
    verified = verify(lower(graph))
    source = check_source(verified, graph, itself=True)
    return compare(verified, graph, source, create("numpy", verified), arrays, **options)


@pytest.fixture
def samples():
    random = np.random.default_rng(3)
    return {"x": random.uniform(-1.1, 1.1, (40, 1, 4)), "y": random.uniform(-0.2, 2.2, (40, 1, 4))}


def test_a_whole_model_is_measured_as_defined(tmp_path, samples):
    model = chain(tmp_path)
    found = document(report(model, samples))
    session, graph = Session(lower(nnef.load(model))), nnef.load(model)
    codes = session.run(samples, capture="all", out_of_range="clamp")
    measured = {item["tensor"]: item for item in found["tensors"]}
    assert set(measured) == {"x", "y", "scaled", "shifted", "active", "same", "sharp", "above", "scores"}
    for name, item in measured.items():
        expected, quantizer = Expected(), graph.tensors[name].quantizer
        for sample in range(40):
            floats = chain_floats(samples["x"][sample, 0].tolist(), samples["y"][sample, 0].tolist())[name]
            for real, code in zip(floats, codes[item["value"]][sample, 0].tolist(), strict=True):
                expected.add(real, code, quantizer, 0, sample)
        assert item["elements"] == 160
        assert item["differing"] == expected.differing
        assert item["sqnr_db"] == pytest.approx(expected.sqnr, abs=6e-4)
        assert item["codes"] == [min(expected.codes), max(expected.codes)]
        assert item["max_error_sample"] == expected.worst_sample
        histogram = item["histogram"]
        assert (histogram["below"], histogram["above"]) == (expected.below, expected.above)
        for key, seen in (("program", expected.codes), ("float", expected.float_codes)):
            bins = [0] * len(histogram[key])
            for code, count in seen.items():
                bins[(code - histogram["first"]) // histogram["width"]] += count
            assert histogram[key] == bins
        if quantizer is None:
            assert item["saturation"] is item["clipped"] is item["quantizer"] is None
        else:
            shares = [expected.codes[quantizer.lo], expected.codes[quantizer.hi], expected.below, expected.above]
            listed = [*item["saturation"].values(), *item["clipped"].values()]
            assert listed == pytest.approx([count / 160 for count in shares], rel=1e-5)
        lo, hi = item["interval"]
        assert item["used"] == pytest.approx((item["codes"][1] - item["codes"][0]) / (hi - lo), rel=1e-5)
        assert -(2 ** (31 - item["headroom"])) < lo <= hi < 2 ** (31 - item["headroom"])
        assert item["headroom"] == 31 or max(-lo, hi) >= 2 ** (30 - item["headroom"])
    assert measured["active"]["clipped"]["above"] > 0 < measured["shifted"]["clipped"]["below"]
    drop = min(measured["sharp"]["sqnr_db"], measured["y"]["sqnr_db"]) - measured["scores"]["sqnr_db"]
    assert measured["scores"]["drop_db"] == pytest.approx(drop, abs=2e-3)
    through = measured["x"]["sqnr_db"] - measured["scaled"]["sqnr_db"]  # through a tensor that is not materialised
    assert measured["scaled"]["drop_db"] == pytest.approx(through, abs=2e-3)
    assert measured["x"]["drop_db"] is None


def test_every_tensor_is_measured_or_accounted_for(tmp_path, samples):
    found = document(report(chain(tmp_path), samples))
    lists = ("tensors", "variables", "not_materialised")
    names = [item["tensor"] for key in lists for item in found[key]]
    assert sorted(names) == sorted(line.split(" = ")[0].strip() for line in CHAIN.splitlines() if " = " in line)
    numbers = [item["number"] for key in lists for item in found[key]]
    assert sorted(numbers) == list(range(len(numbers)))
    assert sorted(item["order"] for item in found["tensors"]) == list(range(len(found["tensors"])))
    reasons = {item["tensor"]: item["reason"] for item in found["not_materialised"]}
    assert set(reasons) == {"plain", "doubled", "unused", "table"}
    assert reasons["doubled"].startswith("no quantiser")
    assert reasons["unused"] == "no output needs it"
    assert reasons["plain"].startswith("constant")
    assert reasons["table"].startswith("constant")
    (variable,) = found["variables"]
    assert variable["tensor"] == "w"
    assert variable["codes"] == [0, 15]
    # 0.5 and 0.125 in steps of 4/15 from -1: 0.6 and 0.0667; the minimum stands for -1, the maximum is exact
    noise = (0.5 - 0.6) ** 2 + (-1.25 + 1) ** 2 + (0.125 - 1 / 15) ** 2
    signal = 0.5**2 + 1.25**2 + 3**2 + 0.125**2
    assert variable["sqnr_db"] == pytest.approx(10 * math.log10(signal / noise), abs=1e-3)
    assert variable["clipped"] == {"below": 0.25, "above": 0.0}


def test_the_worst_stand_first(tmp_path, samples):
    found = document(report(chain(tmp_path), samples))
    ratios = [item["sqnr_db"] for item in found["tensors"]]
    assert all(isinstance(ratio, float) for ratio in ratios)
    assert ratios == sorted(ratios)
    assert len(set(ratios)) > 5


def test_codes_as_inputs_are_the_numbers_that_they_stand_for(tmp_path):
    random = np.random.default_rng(5)
    codes = {"x": random.integers(0, 256, (6, 1, 4)), "y": random.integers(0, 16, (6, 1, 4))}
    found = {item["tensor"]: item for item in document(report(chain(tmp_path), codes))["tensors"]}
    for name in ("x", "y", "above"):
        assert (found[name]["sqnr_db"], found[name]["differing"]) == ("inf", 0)
    assert found["scaled"]["drop_db"] == "inf"
    assert list(found)[-3:] == ["x", "y", "above"]


def test_state_is_kept_along_cycles_and_reset_for_every_sample(tmp_path):
    steps = np.random.default_rng(2).uniform(0, 1, (3, 5, 1, 2))
    comparison = report(memory(tmp_path), {"step": steps}, cycles=True)
    found = {item["tensor"]: item for item in document(comparison)["tensors"]}
    assert set(found) == {"step", "held", "sum", "level"}
    assert (comparison.samples, comparison.cycles) == (3, 5)
    sums = np.array([0.5, 1.0]) + np.concatenate([np.zeros((3, 1, 1, 2)), steps.cumsum(axis=1)], axis=1)
    assert found["held"]["float_range"] == pytest.approx([sums[:, :5].min(), sums[:, :5].max()], rel=1e-5)
    assert found["sum"]["float_range"] == pytest.approx([sums[:, 1:].min(), sums[:, 1:].max()], rel=1e-5)
    session = Session(lower(nnef.load(tmp_path)))
    level = session.run({"step": steps}, cycles=True)["level"]
    assert found["level"]["codes"] == [level.min(), level.max()]
    noise = np.square(level * (8 / 255) - sums[:, 1:]).sum()
    assert found["level"]["sqnr_db"] == pytest.approx(10 * math.log10(np.square(sums[:, 1:]).sum() / noise), abs=1e-3)


def test_the_parts_in_which_data_are_read_do_not_matter(tmp_path, samples, monkeypatch):
    whole = document(report(chain(tmp_path), samples))
    monkeypatch.setattr(cvm.inputs, "_PART", 1)
    assert document(report(chain(tmp_path), samples)) == whole


def test_one_sample_needs_no_batch_axis(tmp_path, samples):
    one = {name: array[:1] for name, array in samples.items()}
    plain = {name: array[0] for name, array in samples.items()}
    assert document(report(chain(tmp_path), one)) == document(report(chain(tmp_path), plain))


def test_progress_is_told(tmp_path, samples):
    told = []
    report(chain(tmp_path), samples, progress=lambda total: told.append(total) or told.append)
    assert told == [40, *range(1, 41)]


def test_accuracy_is_that_of_the_program_and_of_the_float_model():
    images, labels = read_npz(IMAGES, "image"), read_npz(IMAGES, "label")
    wrong = labels.copy()
    wrong[::4] = (wrong[::4] + 1) % 10
    found = document(report(MODEL, {"image": images}, labels=wrong))["classes"]
    graph = nnef.load(MODEL)
    program = Session(lower(graph)).run({"image": images})["probs"].argmax(axis=1)
    reals = Reference(graph).run({"image": images})["probs"].reshape(40, 10).argmax(axis=1)
    assert found["labels"]["runs"] == found["runs"] == 40
    assert found["labels"]["program_right"] == (program == wrong).sum() < 40
    assert found["labels"]["float_right"] == (reals == wrong).sum()
    assert found["agreeing"] == (program == reals).sum()


@pytest.mark.sweep
@pytest.mark.skipif(not DIGITS.is_dir(), reason="../shared/models/digits is not there")
@pytest.mark.parametrize("name", ["lenet_digits_logw", "mobilenet_digits", "rnn_digits"])
def test_the_float_model_is_that_of_the_digits(name):
    """The float outputs that lie beside the networks, and the classes that both take the images for."""
    folder = DIGITS / name
    images, labels = read_npy(folder / "test_inputs.npy")[:60], read_npy(folder / "test_labels.npy")[:60]
    cycles = name == "rnn_digits"
    key, array = ("row", images[:, :, np.newaxis, :]) if cycles else ("image", images)
    comparison = report(folder, {key: array}, labels=labels, cycles=cycles)
    expected = read_npy(folder / "float_probs.npy")[:60].argmax(axis=1)
    found = document(comparison)["classes"]
    assert found["runs"] == 60
    assert found["labels"]["float_right"] == (expected == labels).sum()
    for item in found["changed"]:
        assert item["float"] == expected[item["sample"]]
        assert item["cycle"] == (7 if cycles else None)
    program = Session(lower(nnef.load(folder))).run({key: array}, cycles=cycles)["probs"]
    classes = (program[:, -1] if cycles else program).reshape(60, 10).argmax(axis=1)
    assert found["labels"]["program_right"] == (classes == labels).sum()
    assert [item["sample"] for item in found["changed"]] == np.flatnonzero(classes != expected).tolist()
    assert name != "lenet_digits_logw" or len(found["changed"]) > 0


def test_scores_must_be_real_numbers_along_one_axis(tmp_path, samples):
    model, labels = chain(tmp_path), np.zeros(40, int)
    assert report(model, samples).classes is None  # two outputs
    assert report(model, samples, scores="scores", labels=labels).classes.output == "scores"
    for scores in ("above", "nothing", None):
        with pytest.raises(Invalid) as caught:
            report(model, samples, scores=scores, labels=labels)
        assert caught.value.code == "report.classes"


def test_bad_numbers_are_refused_with_their_location(tmp_path, samples, monkeypatch):
    monkeypatch.setattr(cvm.inputs, "_PART", 8)
    samples["x"][33, 0, 2] = np.nan
    with pytest.raises(Invalid, match=r"found nan at \[33, 0, 2\]"):
        report(chain(tmp_path), samples)
    codes = {name: np.zeros((40, 1, 4), int) for name in ("x", "y")}
    codes["y"][37, 0, 1] = 16
    with pytest.raises(Invalid, match=r"found 16 at \[37, 0, 1\]"):
        report(chain(tmp_path), codes)
