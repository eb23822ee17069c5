"""The log of a batch, from which an interrupted verification goes on.

It is text. Its first line names the format and the options, as JSON; every other line holds one result and the
SHA-256 of the files that it is about. Each line begins with the SHA-256 of the line before it and of its own words. So
a log that was edited, or that has other options, is refused. A last line without an end, which a kill leaves, is
dropped. A result is reused only while the files still have the bytes that the line names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast, get_args

from cvm.audit.batch.work import Finished, Order
from cvm.audit.spot_check import Judged
from cvm.audit.verify import LEVELS, Answer, Level
from cvm.errors import CvmError, Invalid, Location, Malformed
from cvm.limits import DEFAULT
from cvm.program.reading import read_bytes
from cvm.records import dataclass

__all__ = ["Log"]

_NOTHING = "-"
_FORMAT = "cvm-audit-log 3"
_MOST_SAID = 140
"""Characters of a value in a message: enough for two digests."""


@dataclass(frozen=True, slots=True)
class Log:
    """The content of a log."""

    path: Path
    order: Order
    results: Mapping[str, Finished]
    """The results by the path of the receipt."""
    chain: str
    """The hash that the next line continues."""
    length: int
    """The bytes that are whole lines."""

    @staticmethod
    def read(path: Path, order: Order) -> Log:
        """The log in a file, empty if there is none. Raises `Malformed` and `Invalid` (``audit.log``)."""
        try:
            data = read_bytes(path, DEFAULT.receipt_bytes, "log")
        except FileNotFoundError:
            return Log(path, order, {}, "", 0)
        except OSError as error:
            raise Invalid("audit.log", f"cannot be read: {error.strerror or error}", Location(str(path))) from None
        except CvmError as error:
            raise error.at(file=str(path)) from None
        length = data.rfind(b"\n") + 1
        chain, results = "", dict[str, Finished]()
        for number, line in enumerate(data[:length].decode("utf-8", "surrogateescape").split("\n")[:-1], 1):
            link, _, words = line.partition(" ")
            if link != _linked(chain, words):
                message = "this line does not continue the log: it was changed, or is none; name another file"
                raise Malformed("audit.log", message, Location(str(path), line=number))
            chain = link
            if number > 1:
                finished = _finished(words, Location(str(path), line=number))
                results[finished.path] = finished
            elif words != _first_words(order):
                message = f"{_other_question(words, order)}: give the options of the log, or name another file"
                raise Invalid("audit.log", message, Location(str(path)))
        return Log(path, order, results, chain, length)

    @contextmanager
    def appending(self) -> Iterator[Callable[[Finished], None]]:
        """Yield a function that appends a result behind the last whole line, and writes it at once."""
        chain = self.chain
        with self._opened() as file:

            def put(words: str) -> None:
                nonlocal chain
                chain = _linked(chain, words)
                file.write(f"{chain} {words}\n".encode("utf-8", "surrogateescape"))
                file.flush()

            def append(finished: Finished) -> None:
                if finished.path.isprintable():  # a path that would break a line is verified again each time
                    put(_words(finished))

            if self.length == 0:
                put(_first_words(self.order))
            yield append

    def _opened(self) -> IO[bytes]:
        """The file, open behind its last whole line."""
        try:
            file = open(self.path, "r+b" if self.length else "wb")  # noqa: SIM115 - the caller closes it
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}"
            raise Invalid("audit.log", message, Location(str(self.path))) from None
        file.truncate(self.length)
        file.seek(self.length)
        return file


def _first_words(order: Order) -> str:
    return f"{_FORMAT} {json.dumps(order.options(), sort_keys=True)}"


def _other_question(words: str, order: Order) -> str:
    """A sentence that names the first option in which a log differs from an order."""
    try:
        noted = json.loads(words.removeprefix(_FORMAT)) if words.startswith(_FORMAT) else None
    except (ValueError, RecursionError):
        noted = None
    if not isinstance(noted, dict):
        return "the log is of another version of cvm"
    asked = order.options()
    key = next((key for key in asked if key not in noted or noted[key] != asked[key]), None)
    if key is None:
        return "the log has options that this version of cvm does not know"
    return f"the log is of another question: {key} was {_said(noted.get(key))}, and is {_said(asked[key])} now"


def _said(value: Any) -> str:
    """The value of an option for people, shortened."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "not given" if value in (None, False, []) else text[:_MOST_SAID] + "..." * (len(text) > _MOST_SAID)


def _words(item: Finished) -> str:
    judged = item.judged
    numbers = (0,) * 4 if judged is None else (judged.elements, judged.tensors, judged.of, judged.runs)
    said = " ".join(map(str, (*numbers, _NOTHING if judged is None else judged.salt)))
    return "\t".join([item.answer, item.level, *item.files, item.executor or _NOTHING, said, item.path, item.reason])


def _linked(chain: str, words: str) -> str:
    return sha256(f"{chain}\n{words}".encode("utf-8", "surrogateescape")).hexdigest()


def _finished(words: str, where: Location) -> Finished:
    parts = words.split("\t")
    if len(parts) != 8 or parts[0] not in get_args(Answer) or parts[1] not in LEVELS:
        raise Malformed("audit.log", "this line holds no result", where)
    answer, level, receipt, inputs, executor, said, path, reason = parts
    return Finished(
        path,
        cast(Answer, answer),
        cast(Level, level),
        reason,
        (receipt, inputs),
        resumed=True,
        executor=None if executor == _NOTHING else executor,
        judged=_judged(said, where),
    )


def _judged(said: str, where: Location) -> Judged | None:
    """The judgement of FORMAL, parsed from a line of the log: counts and salt; None if it judged nothing."""
    match = re.fullmatch("([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) (-|[0-9a-fA-F]+)", said)
    if match is None:
        raise Malformed("audit.log", "this line holds no result", where)
    elements, tensors, of, runs = map(int, match.groups()[:4])
    return None if match[5] == _NOTHING else Judged(elements, tensors, of, runs, match[5])
