"""Run the networks of a folder and compare them with their exact codes, with TFLite's codes, and with the labels.

    python tools/compare_models.py [FOLDER]             print the tables (default: ../shared/models)
    python tools/compare_models.py [FOLDER] --write     write them to docs/models.md
    python tools/compare_models.py [FOLDER] --check     fail where the page says otherwise

FOLDER/real/NAME holds an int8 network as the Khronos converter writes it, with ``expected.npz``: inputs, the exact
output codes, and those of TFLite's optimised and reference kernels. FOLDER/digits/NAME holds a quantised network with
``test_inputs.npy``, ``test_labels.npy`` and the probabilities of its float model, ``float_probs.npy``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cvm

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
MODELS = ROOT.parent / "shared" / "models"

REAL = ("hello_world", "micro_speech", "person_detect", "mobilenet_v2")
DIGITS = ("lenet_digits", "lenet_digits_qdat", "lenet_digits_logw", "mobilenet_digits", "mlp_cancer", "rnn_digits")

Codes = npt.NDArray[Any]

INTRODUCTION = """\
# Networks

Written by `tools/compare_models.py --write`, whose help says where the networks lie; do not edit. Where the networks
exist, the tests compare the tables with their results.

## Real networks, compared with TFLite

Four int8 networks as the Khronos converter writes them from TFLite files: scales per channel, automatic padding,
transposes between layouts. Each result is compared with the exact codes, which an evaluator computes in rational
arithmetic from the document. `cvm` is compared likewise. TFLite 2.14 ran the original files, with its optimised and
with its reference kernels. A step is one code; the class of an input is the first of its largest output codes.
"""

ACCURACY = """
## Trained networks and their labels

Small networks for the digits (8 x 8 pixels) and breast-cancer data of scikit-learn. The table counts the inputs whose
label is the class by the codes of `cvm`, and by the float model that the network was quantised from. The recurrent
network reads a digit row by row, in 8 cycles, and its class is read after the last. Every code of every tensor of these
networks equals the exact evaluator's, softmax within its bound of one code.
"""


@dataclass(frozen=True)
class Difference:
    """The distance of codes from the exact ones."""

    codes: int
    differing: int
    steps: int
    inputs: int
    classes: int
    """How many inputs have another class; 0 for a network with one output."""

    @staticmethod
    def between(found: Codes, exact: Codes) -> Difference:
        """The difference between two arrays of codes, both of shape (inputs, outputs)."""
        apart = np.abs(found.astype(np.int64) - exact.astype(np.int64))
        classes = int(np.count_nonzero(found.argmax(axis=1) != exact.argmax(axis=1)))
        return Difference(apart.size, int(np.count_nonzero(apart)), int(apart.max()), len(apart), classes)

    def cells(self) -> tuple[str, str, str]:
        """The share of codes that differ, by how many steps at most, and the inputs with another class."""
        return f"{100 * self.differing / self.codes:.1f} %", str(self.steps), f"{self.classes} of {self.inputs}"


@lru_cache
def real(folder: Path, name: str) -> dict[str, Difference]:
    """The difference from the exact codes of "cvm", "TFLite optimised" and "TFLite reference", for one real network."""
    with np.load(folder / "real" / name / "expected.npz") as file:
        arrays = {key: file[key] for key in file.files}
    program = cvm.compile(folder / "real" / name)
    session = cvm.Session(program)
    (source,), (output,) = program.inputs, program.outputs
    found = np.array(
        [session.run({source.value.name: item}, codes=True)[output.name].ravel() for item in arrays["input"]]
    )
    return {
        "cvm": Difference.between(found, arrays["nnef_exact"]),
        "TFLite optimised": Difference.between(arrays["tflite_optimized"], arrays["nnef_exact"]),
        "TFLite reference": Difference.between(arrays["tflite_reference"], arrays["nnef_exact"]),
    }


@dataclass(frozen=True)
class Accuracy:
    """The numbers of labelled inputs of a network: all, those that it gets right, those that the float model does."""

    inputs: int
    right: int
    right_float: int
    same: int
    """How many inputs have the class that the float model gives."""


@lru_cache
def accuracy(folder: Path, name: str) -> Accuracy:
    """The accuracy of one trained network on all of its inputs."""
    model = folder / "digits" / name
    inputs, labels, floats = (np.load(model / f"{file}.npy") for file in ("test_inputs", "test_labels", "float_probs"))
    program = cvm.compile(model)
    (source,), (output,) = program.inputs, program.outputs
    cycles = bool(program.state)
    shape = (len(inputs), *(inputs.shape[1:2] if cycles else ()), *source.value.shape)
    codes = cvm.Session(program).run({source.value.name: inputs.reshape(shape)}, cycles=cycles)[output.name]
    last = codes[:, -1] if cycles else codes
    found = last.reshape(len(inputs), -1).argmax(axis=1)
    floating = floats.argmax(axis=1)
    return Accuracy(
        len(inputs), int((found == labels).sum()), int((floating == labels).sum()), int((found == floating).sum())
    )


def page(folder: Path) -> str:
    """The text of docs/models.md."""
    return "\n".join([INTRODUCTION, *_real_table(folder), ACCURACY, *_accuracy_table(folder), ""])


def _real_table(folder: Path) -> Iterator[str]:
    yield "| network | codes compared | | codes that differ | by at most, in steps | inputs of another class |"
    yield "|---|---|---|---|---|---|"
    for name in REAL:
        for index, (who, found) in enumerate(real(folder, name).items()):
            first = (f"`{name}`", str(found.codes)) if index == 0 else ("", "")
            yield f"| {' | '.join((*first, who, *found.cells()))} |"


def _accuracy_table(folder: Path) -> Iterator[str]:
    yield "| network | inputs | right | right by the float model | same class as the float model |"
    yield "|---|---|---|---|---|"
    for name in DIGITS:
        found = accuracy(folder, name)
        right, floating = (f"{n} ({100 * n / found.inputs:.1f} %)" for n in (found.right, found.right_float))
        yield f"| `{name}` | {found.inputs} | {right} | {floating} | {found.same} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=MODELS, help="where real/ and digits/ lie")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="compare the page")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        print(f"{arguments.folder} is not there: nothing to compare", file=sys.stderr)
        return 2
    text = page(arguments.folder)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not arguments.check:
        print(text)
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE} is stale: run {Path(__file__).name} --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
