"""`--codes` and `--out-of-range`, on the commands that take data."""

import numpy as np
import pytest

RUN = ("run", "negated.cvm", "-i", "wide.npy")
SAID = (
    "cvm: warning: input 'image': 2 of 6 real numbers are out of the range [0, 1], the farthest by 4 (5 at [0, 0, 0]): "
    "they were clamped\n"
)


@pytest.fixture
def wide(files):
    np.save("wide.npy", np.array([[[5.0, -3.0, 0.5], [1.0, 0.0, 1.0]]]))
    return files


def test_a_run_says_in_one_line_what_was_clamped(cvm, wide):
    said = cvm(*RUN, "--json")
    assert (said.code, said.err) == (0, SAID)
    silent = cvm(*RUN, "--out-of-range", "clamp", "--json")
    assert (silent.code, silent.err) == (0, "")
    assert said.document == silent.document
    assert said.document["outputs"][0]["codes"] == [[[0, 255, 127], [0, 255, 0]]]
    refused = cvm(*RUN, "--out-of-range", "refuse", "-o", "out.npz")
    assert refused.code == 3
    assert "found 5 at [0, 0, 0]; 2 of 6 numbers are out of range" in refused.err
    assert "[input.range]" in refused.err
    assert not (wide / "out.npz").exists()
    assert cvm(*RUN, "--out-of-range", "wrap").code == 2


def test_check_has_the_same_policy(cvm, wide):
    check = ("check", "negated.cvm", "-i", "wide.npy", "--executors", "formal,numpy")
    assert cvm(*check).err == SAID
    assert cvm(*check, "--out-of-range", "clamp").err == ""
    assert cvm(*check, "--out-of-range", "refuse").code == 3


def test_a_receipt_of_clamped_numbers_is_verified_without_a_word(cvm, wide):
    assert cvm(*RUN, "--receipt", "r.receipt").code == 0
    verified = cvm("receipt", "verify", "r.receipt", "--program", "negated.cvm", "-i", "wide.npy")
    assert (verified.code, verified.err) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "negated.cvm"),
        ("check", "negated.cvm"),
        ("receipt", "verify", "r.receipt", "--program", "negated.cvm"),
        ("dispute", "step", "--program", "negated.cvm", "--tensor", "total", "-o", "a.step"),
        ("dispute", "play", "a.npz", "a.npz", "--program", "negated.cvm"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_integers_need_the_word_everywhere(cvm, files, arguments):
    made = ("-i", "codes.npy", "--codes", "--capture", "all")
    assert cvm("run", "negated.cvm", *made, "-o", "all.npz", "--receipt", "r.receipt").code == 0
    with np.load("all.npz") as both:
        np.savez("a.npz", **{name: both[name][:1] for name in both})
    refused = cvm(*arguments, "-i", "codes.npy")
    assert refused.code == 3
    assert "codes.npy: tensor 'image': it takes real numbers from 0 to 1, found an array of int64" in refused.err
    assert "--codes" in refused.err
    assert cvm(*arguments, "-i", "codes.npy", "--codes").code == 0


def test_a_folder_needs_the_word_too(cvm, files):
    folder = files / "folder"
    folder.mkdir()
    assert cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "folder/a.receipt").code == 0
    np.savez(folder / "a.npz", image=np.load("codes.npy"))
    verify = ("receipt", "verify", "folder", "--program", "negated.cvm", "--jobs", 1)
    refused = cvm(*verify)
    assert (refused.code, "--codes" in refused.out) == (5, True)
    assert cvm(*verify, "--codes").code == 0


def test_codes_in_and_real_numbers_out(cvm, files):
    run = ("run", "negated.cvm", "-i", "codes.npy", "-o", "out.npz")
    for flag, dtype in (("--codes", np.int32), ("--input-codes", np.float64)):
        assert cvm(*run, flag).code == 0
        with np.load("out.npz") as written:
            assert written["y"].dtype == dtype
