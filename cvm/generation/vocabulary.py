"""Vocabularies: the texts of tokens, and how a prompt is divided into tokens.

A vocabulary is a JSON list of different texts, whose places are the numbers of the tokens. It is stored in a file of
its own, by default beside the program: ``model.vocabulary.json`` for ``model.cvm``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from cvm.arguments import checked_path, expected
from cvm.errors import CvmError, Invalid, LimitExceeded, Location, Malformed
from cvm.limits import DEFAULT
from cvm.program.reading import read_bytes

__all__ = ["SUFFIX", "Vocabulary", "beside"]

SUFFIX = ".vocabulary.json"


def beside(program: str | PathLike[str]) -> Path:
    """The file of the vocabulary of a program: beside it, with the suffix `SUFFIX` instead of its own."""
    return Path(program).with_suffix(SUFFIX)


class Vocabulary:
    """The texts of the tokens 0, 1, .., all different and none empty.

    Raises `Invalid` (``vocabulary.texts``), and `LimitExceeded` (``limit.vocabulary``) for a text of more than 1,024
    bytes.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._numbers: dict[str, int] = {}
        for number, text in enumerate(self._texts):
            if not isinstance(text, str) or not text:
                raise Invalid("vocabulary.texts", f"token {number}: expected a text of one character at least")
            if len(text.encode("utf-8", "surrogatepass")) > DEFAULT.name_bytes:
                raise LimitExceeded("limit.vocabulary", f"token {number} has more than {DEFAULT.name_bytes} bytes")
            if text in self._numbers:
                message = f"tokens {self._numbers[text]} and {number} have the same text, {text!r}: expected others"
                raise Invalid("vocabulary.texts", message)
            self._numbers[text] = number
        self._longest = max(map(len, self._texts), default=0)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens)"

    @staticmethod
    def load(path: str | PathLike[str]) -> Vocabulary:
        """The vocabulary in a file.

        Raises `Malformed` (``vocabulary.json``) for a file that is no JSON list of texts, and `Invalid`
        (``vocabulary.unreadable``).
        """
        name = checked_path(path, "a vocabulary")
        try:
            data = read_bytes(name, DEFAULT.text_bytes, "vocabulary")
        except OSError as error:
            message = f"the vocabulary cannot be read: {error.strerror or error}"
            raise Invalid("vocabulary.unreadable", message, Location(name)) from None
        try:
            texts = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            texts = None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            message = 'expected a JSON list of the texts of all tokens, as in ["a", "b", "\\n"]'
            raise Malformed("vocabulary.json", message, Location(name))
        try:
            return Vocabulary(texts)
        except CvmError as error:
            raise error.at(file=name) from None

    @staticmethod
    def of(given: object) -> Vocabulary:
        """A vocabulary, the path of its file, or its texts. Raises `CvmError` (``argument.vocabulary``)."""
        if isinstance(given, Vocabulary):
            return given
        if isinstance(given, str | os.PathLike):
            return Vocabulary.load(given)
        if isinstance(given, Sequence):
            return Vocabulary(given)
        raise expected("vocabulary", "a vocabulary, its texts, or the path of its file", given)

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text: at each place the longest one that stands there.

        Raises `Invalid` (``generation.prompt``) at a place where none does.
        """
        found: list[int] = []
        place = 0
        while place < len(text):
            ends = range(min(len(text), place + self._longest), place, -1)
            end = next((end for end in ends if text[place:end] in self._numbers), None)
            if end is None:
                message = f"character {place + 1} of the prompt, {text[place]!r}, begins no token of the vocabulary"
                raise Invalid("generation.prompt", f"{message}: leave it out, or give the vocabulary of this program")
            found.append(self._numbers[text[place:end]])
            place = end
        return tuple(found)

    def text(self, token: int) -> str:
        """The text of a token."""
        return self._texts[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens."""
        return "".join(self._texts[token] for token in tokens)
