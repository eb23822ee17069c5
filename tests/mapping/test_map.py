"""One program over a data set: the same bytes by whatever workers, in order, and nothing lost or done twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_arrays, npz_bytes, npz_members, read_npz
from cvm.audit import load_receipt, verify
from cvm.errors import Invalid, Malformed
from cvm.executors import EXECUTORS
from cvm.inputs import Intake, arrange
from cvm.mapping import chunk_size, map_dataset
from cvm.mapping.files import open_dataset
from cvm.mapping.job import MapJob
from cvm.session import Session
from cvm.workers import AHEAD
from cvm.workers.processes import Processes
from tests.audit.examples import subject

pyarrow = pytest.importorskip("pyarrow", reason="Parquet's library is not installed (pip install 'cvm[parquet]')")
parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet's library is not installed")

PROGRAM = subject("negated").verified
ITEMS = 300
JOB = MapJob(PROGRAM.program.to_bytes(), PROGRAM.program.digest, 48, "numpy", input_codes=True)


class Here:
    """A scheduler without processes: it answers the tasks in another order than they are given."""

    def answers(self, job, tasks):
        worker = job.worker()
        for name, task in reversed(list(tasks)):
            yield name, worker(task)


@pytest.fixture
def images(tmp_path):
    """The items of one data set in each of its forms, and what the program makes of them."""
    codes = np.random.default_rng(1).integers(0, 256, (ITEMS, 1, 2, 3)).astype(np.int32)
    forms = tmp_path / "forms"
    (forms / "folder").mkdir(parents=True)
    for number, item in enumerate(codes):
        (forms / "folder" / f"{number:03}.npz").write_bytes(npz_bytes({"image": item}))
    (forms / "all.npz").write_bytes(npz_bytes({"image": codes}))
    (forms / "in_place.npz").write_bytes(npz_bytes({"image": codes.reshape(ITEMS, 2, 3)}))
    np.save(forms / "one.npy", codes)
    column = pyarrow.array(codes.reshape(ITEMS, -1).tolist())
    parquet.write_table(pyarrow.table({"image": column}), forms / "rows.parquet", row_group_size=77)
    nested = pyarrow.array(codes.tolist())
    parquet.write_table(
        pyarrow.table({"image": nested, "label": pyarrow.array(["x"] * ITEMS)}), forms / "nested.parquet"
    )
    expected = Session(PROGRAM, "numpy").run({"image": codes}, codes=True)
    return forms, codes, expected


def mapped(dataset: Path, output: Path, job: MapJob = JOB, scheduler=None, progress=None):
    return map_dataset(job, open_dataset(dataset, PROGRAM.program.inputs), output, scheduler or Here(), progress)


@pytest.mark.parametrize("form", ["folder", "all.npz", "in_place.npz", "one.npy", "rows.parquet", "nested.parquet"])
def test_every_form_of_a_data_set_gives_the_same_bytes(images, tmp_path, form):
    forms, _, expected = images
    for codes in (True, False):
        output = tmp_path / f"{codes}.npz"
        counts: list[int] = []
        done = mapped(forms / form, output, replace(JOB, codes=codes), progress=counts.append)
        assert (done.items, done.resumed, counts[-1]) == (ITEMS, 0, ITEMS)
        arrays = {
            name: expected[name] if codes or not expected.has_real(name) else expected.real(name) for name in expected
        }
        assert output.read_bytes() == npz_bytes(arrays)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(str(codes))) == [output.name]


def test_a_folder_of_results_and_a_table_hold_the_same_numbers(images, tmp_path):
    forms, _, expected = images
    job = replace(JOB, codes=True)
    mapped(forms / "folder", tmp_path / "out", job)
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(forms / "folder"))
    for number in range(ITEMS):
        for name in expected:
            assert np.array_equal(read_npz(tmp_path / "out" / f"{number:03}.npz", name), expected[name][number])
    mapped(forms / "all.npz", tmp_path / "out.parquet", job)
    table = parquet.read_table(tmp_path / "out.parquet")
    for name in expected:
        assert table.schema.field(name).metadata[b"shape"] == str(list(expected[name].shape[1:])).encode()
        assert table[name].to_pylist() == expected[name].reshape(ITEMS, -1).tolist()


def test_one_process_two_and_a_killed_one_give_the_same_bytes(images, tmp_path):
    forms, _, expected = images

    class Unlucky(Processes):
        def __init__(self):
            super().__init__(2)
            self.rounds: list[int] = []

        def _round(self, job, given, waiting):
            self.rounds.append(len(given))
            return super()._round(job, given, waiting)

    def kill(count: int) -> None:
        if not killed:
            (victim, *_) = multiprocessing.active_children()
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    killed: list[int] = []
    unlucky = Unlucky()
    done = mapped(forms / "all.npz", tmp_path / "two.npz", scheduler=unlucky, progress=kill)
    assert (done.items, done.resumed, len(killed)) == (ITEMS, 0, 1)
    assert unlucky.rounds[0] == 0 < unlucky.rounds[-1] <= 2 * AHEAD
    mapped(forms / "all.npz", tmp_path / "one.npz", scheduler=Processes(1))
    arrays = {name: expected.real(name) if expected.has_real(name) else expected[name] for name in expected}
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes() == npz_bytes(arrays)


class Interrupted:
    """A scheduler that is interrupted after some chunks."""

    def __init__(self, after: int) -> None:
        self.left, self.answered = after, 0

    def answers(self, job, tasks):
        worker = job.worker()
        for name, task in tasks:
            if self.answered == self.left:
                raise KeyboardInterrupt
            self.answered += 1
            yield name, worker(task)


def test_an_interrupted_map_goes_on_where_it_was(images, tmp_path):
    forms, _, _ = images
    output, whole = tmp_path / "out.npz", tmp_path / "whole.npz"
    mapped(forms / "all.npz", whole)
    with pytest.raises(KeyboardInterrupt):
        mapped(forms / "all.npz", output, scheduler=Interrupted(40))
    assert not output.exists()
    size = chunk_size(ITEMS, JOB.item_bytes)
    rest = Interrupted(10**9)
    done = mapped(forms / "all.npz", output, scheduler=rest)
    assert (done.resumed, rest.answered) == (40 * size, -(-ITEMS // size) - 40)
    assert output.read_bytes() == whole.read_bytes()
    assert not output.with_name("out.npz.parts").exists()


def test_what_an_interruption_left_serves_the_same_numbers_and_options_only(images, tmp_path):
    forms, codes, _ = images
    output = tmp_path / "out.npz"
    with pytest.raises(KeyboardInterrupt):
        mapped(forms / "all.npz", output, scheduler=Interrupted(20))
    other = Interrupted(0)
    with pytest.raises(KeyboardInterrupt):
        mapped(forms / "all.npz", output, replace(JOB, codes=True), scheduler=other)
    changed = codes.copy()
    changed[0, 0, 0, 0] ^= 1
    (tmp_path / "changed.npz").write_bytes(npz_bytes({"image": changed}))
    done = mapped(tmp_path / "changed.npz", output)
    assert done.resumed == 19 * chunk_size(ITEMS, JOB.item_bytes)  # the first chunk has another number
    mapped(tmp_path / "changed.npz", tmp_path / "fresh.npz")
    assert output.read_bytes() == (tmp_path / "fresh.npz").read_bytes()


@pytest.mark.parametrize("trace", [False, True])
def test_each_receipt_is_that_of_its_item(images, tmp_path, trace):
    _, codes, _ = images
    few = tmp_path / "few.npz"
    few.write_bytes(npz_bytes({"image": codes[:7]}))
    mapped(few, tmp_path / "out.npz", replace(JOB, receipts=True, trace=trace))
    folder = tmp_path / "out.npz.receipts"
    assert sorted(path.name for path in folder.glob("*.receipt")) == [f"{number}.receipt" for number in range(7)]
    for number in range(7):
        receipt = load_receipt(folder / f"{number}.receipt")
        inputs = npz_arrays((folder / f"{number}.npz").read_bytes())
        assert np.array_equal(inputs["image"], codes[number])
        verdict = verify(receipt, PROGRAM, inputs, codes=True)
        assert (verdict.answer, receipt.traced) == ("REPRODUCED", trace)
    plain = tmp_path / "plain.npz"
    mapped(few, plain)
    assert plain.read_bytes() == (tmp_path / "out.npz").read_bytes()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_gives_the_same_bytes(images, tmp_path, executor):
    _, codes, _ = images
    few = tmp_path / "few.npz"
    few.write_bytes(npz_bytes({"image": codes[:20]}))
    mapped(few, tmp_path / "out.npz", replace(JOB, executor=executor))
    mapped(few, tmp_path / "numpy.npz")
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "numpy.npz").read_bytes()


def test_a_program_with_state_begins_anew_with_each_item(tmp_path):
    program = subject("counter").verified
    (item,) = program.program.inputs
    codes = np.arange(5 * int(np.prod(item.value.shape))).reshape(5, *item.value.shape) % 3
    (tmp_path / "in.npz").write_bytes(npz_bytes({item.value.name: codes}))
    job = MapJob(program.program.to_bytes(), program.program.digest, 8, "numpy", True, True)
    map_dataset(job, open_dataset(tmp_path / "in.npz", program.program.inputs), tmp_path / "out.npz", Here())
    for number in range(5):
        alone = Session(program, "numpy").run({item.value.name: codes[number]}, codes=True)
        for name in npz_members(tmp_path / "out.npz"):
            assert np.array_equal(read_npz(tmp_path / "out.npz", name)[number], alone[name])


def test_a_refused_item_is_named_and_what_is_finished_is_kept(images, tmp_path):
    _, codes, _ = images
    wrong = codes.copy()
    wrong[-1, 0, 1, 1] = 10**6
    (tmp_path / "wrong.npz").write_bytes(npz_bytes({"image": wrong}))
    with pytest.raises(Invalid) as caught:
        mapped(tmp_path / "wrong.npz", tmp_path / "out.npz", scheduler=Interrupted(10**9))
    assert caught.value.code == "input.code"
    with pytest.raises(Invalid) as direct:
        arrange(PROGRAM.program, {"image": wrong[-1]}, intake=Intake(codes=True))
    assert caught.value.message == f"item {ITEMS - 1}: {direct.value.message}"
    (tmp_path / "right.npz").write_bytes(npz_bytes({"image": codes}))
    done = mapped(tmp_path / "right.npz", tmp_path / "out.npz")
    assert done.resumed == ITEMS - chunk_size(ITEMS, JOB.item_bytes)


def folder_of(tmp_path, **files):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


GOOD = np.zeros((1, 2, 3), np.int32)


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, "map.empty", "has no items"),
        (
            {"a_npz": npz_bytes({"image": GOOD[0]})},
            "map.shape",
            "expected an array of [1, 2, 3], one item, found [2, 3]",
        ),
        ({"a_npz": npz_bytes({"a": GOOD, "b": GOOD})}, "map.inputs", "no array for the input 'image'; there are a, b"),
        ({"a_npz": npz_bytes({"image": GOOD}), "a_npy": b""}, "map.dataset", "two items have one name"),
        (
            {"a_npz": npz_bytes({"image": GOOD}), "b_npz": npz_bytes({"image": GOOD * 0.5})},
            "map.types",
            "found float64, and the items before have int32",
        ),
        ({"a_npz": b"PK\x03\x04 and no more"}, "array.archive", "not a whole"),
        ({"a_npy": b"\x93NUMPY"}, "array.header", "expected a .npy header"),
    ],
)
def test_a_wrong_folder_is_refused_in_words(tmp_path, files, code, words):
    with pytest.raises((Invalid, Malformed)) as caught:
        mapped(folder_of(tmp_path, **files), tmp_path / "out.npz")
    assert caught.value.code == code
    assert words in caught.value.message


def test_wrong_files_are_refused_in_words(images, tmp_path):
    forms, codes, _ = images
    text = tmp_path / "text.csv"
    text.write_text("1,2,3")
    short = tmp_path / "short.parquet"
    short.write_bytes((forms / "rows.parquet").read_bytes()[:200])
    for name, table in {
        "words": {"image": ["a", "b"]},
        "missing": {"image": [[1] * 6, None]},
        "length": {"image": [[1] * 6, [1] * 7]},
        "columns": {"a": [[1] * 6], "b": [[1] * 6]},
    }.items():
        parquet.write_table(pyarrow.table(table), tmp_path / f"{name}.parquet")
    (tmp_path / "flat.npz").write_bytes(npz_bytes({"image": codes.reshape(-1)}))
    for path, code in {
        text: "array.kind",
        short: "map.dataset",
        tmp_path / "nowhere": "array.unreadable",
        tmp_path / "words.parquet": "map.types",
        tmp_path / "missing.parquet": "map.shape",
        tmp_path / "length.parquet": "map.shape",
        tmp_path / "columns.parquet": "map.inputs",
        tmp_path / "flat.npz": "map.shape",
    }.items():
        with pytest.raises((Invalid, Malformed)) as caught:
            mapped(path, tmp_path / "out.npz")
        assert (path.name, caught.value.code) == (path.name, code)
        assert caught.value.location.file == str(path)


def test_an_output_of_another_form_is_refused_before_anything_runs(images, tmp_path):
    forms, _, _ = images
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.npz").mkdir()
    for output in ("out.csv", "file", "folder.npz"):
        with pytest.raises(Invalid) as caught:
            mapped(forms / "all.npz", tmp_path / output)
        assert caught.value.code == "map.output"
    with pytest.raises(Invalid) as caught:
        mapped(forms / "all.npz", tmp_path / "nowhere" / "out.npz")
    assert caught.value.code == "output.unwritable"
    with pytest.raises(Invalid) as caught:
        mapped(forms / "all.npz", tmp_path / "out.npz", replace(JOB, executor="abacus"))
    assert caught.value.code == "executors.unknown"
