"""The folder of the test vectors that come with cvm."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from cvm.errors import Invalid

__all__ = ["shipped"]


def shipped() -> Path:
    """The folder of the vectors: in the checkout that runs, or in the installation (``spec_vectors``).

    Raises `Invalid` (``vectors.none``) if there is neither.
    """
    beside = Path(__file__).parents[2] / "spec_vectors"
    if (beside / "README.md").is_file():
        return beside
    try:
        installed = files("cvm") or []
    except PackageNotFoundError:
        installed = []
    for file in installed:
        if file.parts[-2:] == ("spec_vectors", "README.md"):
            return Path(str(file.locate())).resolve().parent
    raise Invalid("vectors.none", "this installation of cvm came without its vectors: name a folder of them")
