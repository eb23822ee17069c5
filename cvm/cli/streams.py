"""The standard streams of a command: what happens if they are closed or full, or if their reader has gone.

If stdout fails, the result is lost and the error is `Undelivered`. There is one exception: when the reader of a pipe
closes its end, as `head` does after some lines, the rest of the output is dropped without an error. The exit code then
does not depend on whether the reader or the command was faster. Output that stderr does not take is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from cvm.errors import CvmError

__all__ = ["UNDELIVERED", "Guarded", "Undelivered", "guarded"]

UNDELIVERED = 74


class Undelivered(CvmError):
    """Raised when stdout did not take all of a result."""

    exit_code = UNDELIVERED

    def __init__(self, reason: str) -> None:
        super().__init__("output.stdout", f"stdout cannot be written: {reason}; what was printed is not complete")


class _Closed(io.TextIOBase):
    """A replacement for a stream that was closed before Python started; Python sets such a stream to None."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, "it is closed")


class Guarded:
    """A text stream that drops everything after the first failure. ``vital``: that failure is `Undelivered`."""

    def __init__(self, stream: TextIO, vital: bool) -> None:
        self._stream, self._vital, self._dropping = stream, vital, False
        self._failure: Undelivered | None = None

    def write(self, text: str) -> int:
        """Write a text; returns the number of its characters. Raises `Undelivered`, and TypeError for bytes."""
        if not isinstance(text, str):  # libraries try whether a stream takes bytes
            raise TypeError(f"expected a text, found {type(text).__name__}")
        if text and not self._dropping:
            with self._failures():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on what is in the buffer. Raises `Undelivered`."""
        if not self._dropping:
            with self._failures():
                self._stream.flush()

    def settle(self) -> None:
        """Write the rest of the buffer. Raises `Undelivered`, also for an earlier failure that was not reported."""
        self.flush()
        if self._failure is not None:
            raise self._failure

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # nobody may write past the guard
            raise AttributeError(name)
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._drop()
        except OSError as error:
            self._drop()
            if self._vital:
                self._failure = Undelivered(error.strerror or str(error))
                raise self._failure from None

    def _drop(self) -> None:
        """Stop writing. Discards the buffer, which Python would otherwise write at its end."""
        self._dropping = True
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


@contextlib.contextmanager
def guarded() -> Iterator[Guarded]:
    """Replace ``sys.stdout``, which is yielded, and ``sys.stderr`` while the block runs."""
    stdout = Guarded(sys.stdout or cast(TextIO, _Closed()), vital=True)
    stderr = Guarded(sys.stderr or cast(TextIO, _Closed()), vital=False)
    with contextlib.redirect_stdout(cast(TextIO, stdout)), contextlib.redirect_stderr(cast(TextIO, stderr)):
        yield stdout
