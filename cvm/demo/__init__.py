"""Small models that come with cvm, and images to run one of them on.

`MODEL` is a LeNet for images of 8 x 8 pixels as an NNEF folder with 8-bit quantisation, trained for this project on the
digits of scikit-learn; `IMAGES` holds ``image``, the first 40 images of its test data as real numbers in [0, 1], and
``label``, the digits that they show.

`LANGUAGE_MODEL` is the program of a GPT that reads and predicts characters, one per run (docs/language-models.md);
`VOCABULARY` is the file that lists its characters.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["IMAGES", "LANGUAGE_MODEL", "MODEL", "VOCABULARY"]

MODEL = Path(__file__).parent / "lenet_digits"
IMAGES = Path(__file__).parent / "digits.npz"
LANGUAGE_MODEL = Path(__file__).parent / "tiny_gpt.cvm"
VOCABULARY = Path(__file__).parent / "tiny_gpt.vocabulary.json"
