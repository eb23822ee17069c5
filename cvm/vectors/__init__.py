"""Test vectors: reading them, and running them against executors of cvm or any external program.

``spec_vectors/README.md`` specifies vectors and the protocol of external programs, byte for byte.
"""

from cvm.vectors.answer import Answer, Runner
from cvm.vectors.check import Difference, Report, Tally, check
from cvm.vectors.command import CommandRunner
from cvm.vectors.format import OpCase, ProgramCase, Run, VectorFile, VectorTensor, VerdictCase, decode, encode
from cvm.vectors.own import ExecutorRunner

__all__ = [
    "Answer",
    "CommandRunner",
    "Difference",
    "ExecutorRunner",
    "OpCase",
    "ProgramCase",
    "Report",
    "Run",
    "Runner",
    "Tally",
    "VectorFile",
    "VectorTensor",
    "VerdictCase",
    "check",
    "decode",
    "encode",
]
