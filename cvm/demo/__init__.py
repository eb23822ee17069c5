"""A small model that comes with cvm, and images to run it on.

`MODEL` is a LeNet for images of 8 x 8 pixels as an NNEF folder with 8-bit quantisation, trained for this project on the
digits of scikit-learn; `IMAGES` holds ``image``, the first 40 images of its test data as real numbers in [0, 1], and
``label``, the digits that they show.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["IMAGES", "MODEL"]

MODEL = Path(__file__).parent / "lenet_digits"
IMAGES = Path(__file__).parent / "digits.npz"
