"""Sessions: a verified program, an executor, and the state that the program keeps from run to run.

`session` has the public class, and the others serve it: `opening` finds and verifies the program, `encoded` gives one
in memory the bytes of a file, `aside` lets another process make its machine code, `plain` recognises inputs that need
no conversion, `samples` runs many samples at once, `naming` and `result` give the tensors back by the names that the
caller knows, `witness` says what may observe runs.
"""

from __future__ import annotations

from cvm.session.opening import verified_of
from cvm.session.result import Result
from cvm.session.session import Session
from cvm.session.witness import Observer, Witness

__all__ = ["Observer", "Result", "Session", "Witness", "verified_of"]
