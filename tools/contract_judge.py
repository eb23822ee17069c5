"""The judge of the chain in an EVM of this process, and what its verdicts cost, as a table.

    python -m tools.contract_judge [MODEL..] [--vectors] [--wide] [--narrow] [--language] [--elements N]

For each op of a program, the first, the last and N other elements are proven, each at its first, second, middle and
last step; the contract judges every proof. The tables have, for each op, the median and the most gas of a whole
transaction, and what the most expensive one is made of. Needs `pyrevm`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from cvm.audit.chain.interface import interface
from cvm.audit.chain.judges import FAMILIES
from cvm.audit.dispute import Evidence, decode_proof, encode_proof
from cvm.audit.dispute.records import read_op_record
from tools.dispute_costs import drawn_steps, evidence_of, language_program, narrow_program, wide_program

__all__ = ["ContractJudge", "Verdict", "proofs_of"]

_CALLER = "0x" + "11" * 20
_JUDGE = bytes.fromhex("8d3d463f")
"""The selector of judge(bytes)."""
_OUT_OF_GAS = bytes.fromhex("77ebef4d")
"""The selector of OutOfGas()."""
_TRANSACTION = 21_000
_ZERO, _OTHER = 4, 16
"""Gas of a byte of call data (EIP-2028)."""
_FLOOR = 10
"""The least gas for each token of call data: a byte 0 is one, another byte four (EIP-7623)."""
_COLD = 2_500
"""What the first access to the family that judges costs in a transaction beyond a later one (EIP-2929)."""
_PLENTY = 2**32
_OP = slice(32, 68)
"""Where a proof has the head and the number of the op (docs/commitments.md, section 9)."""


@dataclass(frozen=True)
class Verdict:
    """What the contract answers, and the gas."""

    accepted: bool
    reason: str
    """The kind of fault; "" if the proof is accepted."""
    about: tuple[bytes, ...]
    """The words of the JudgedStep."""
    gas: int
    """Of the whole transaction: at least the floor of EIP-7623."""
    calldata_gas: int


class ContractJudge:
    """A StepJudge with its families, made from the artifacts."""

    def __init__(self) -> None:
        pyrevm: Any = import_module("pyrevm")
        self._evm: Any = pyrevm.EVM(gas_limit=2**40)
        self._evm.insert_account_info(_CALLER, pyrevm.AccountInfo(balance=10**30))
        families = [self._deploy(name) for name in FAMILIES]
        self._address = self._deploy("StepJudge", b"".join(bytes(12) + bytes.fromhex(each[2:]) for each in families))

    def _deploy(self, name: str, arguments: bytes = b"") -> str:
        address: str = self._evm.deploy(_CALLER, bytes(interface(name).bytecode) + arguments)
        return address

    def verdict(self, proof: bytes, gas: int = _PLENTY) -> Verdict:
        """The verdict about the bytes of a proof. Raises RuntimeError if the call reverts, as for want of ``gas``."""
        data = _JUDGE + (32).to_bytes(32, "big") + len(proof).to_bytes(32, "big") + proof + bytes(-len(proof) % 32)
        answer = bytes(self._evm.message_call(_CALLER, self._address, calldata=data, gas=gas, is_static=True))
        words = [answer[start : start + 32] for start in range(0, len(answer), 32)]
        zeros = data.count(0)
        others = len(data) - zeros
        used = int(self._evm.result.gas_used) + _COLD
        return Verdict(
            bool(int.from_bytes(words[0], "big")),
            words[1].rstrip(b"\0").decode("ascii"),
            tuple(words[2:]),
            max(used, _TRANSACTION + _FLOOR * (zeros + 4 * others)),
            _ZERO * zeros + _OTHER * others,
        )


def proofs_of(true: Evidence, elements: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Proofs of steps of every target of every op, with the op's name."""
    for op, target, element, step, partials in drawn_steps(true, elements, seed):
        proof = true.prove(op, target, element, step, partials)
        yield true.program.program.nodes[op].op, encode_proof(proof)


def table(name: str, proofs: Iterable[tuple[str, bytes]], judge: ContractJudge) -> Iterator[str]:
    """A table of Markdown, and before it the most and the median of all proofs."""
    found: dict[str, list[tuple[Verdict, int]]] = defaultdict(list)
    by_op: dict[bytes, list[int]] = defaultdict(list)
    for op, proof in proofs:
        verdict = judge.verdict(proof)
        if not verdict.accepted:
            raise AssertionError(f"{op}: {verdict.reason}")
        found[op].append((verdict, len(proof)))
        by_op[proof[_OP]].append(verdict.gas)
    steps = [verdict.gas for items in found.values() for verdict, _ in items]
    ops = statistics.median_low([statistics.median_low(costs) for costs in by_op.values()])
    yield f"{name}: {len(steps):,} steps of {len(by_op)} ops, at most {max(steps):,} gas; the median op {ops:,}."
    yield ""
    yield "| op | steps judged | median gas | most gas | of it call data | bytes of that proof |"
    yield "|---|---:|---:|---:|---:|---:|"
    for op, items in sorted(found.items(), key=lambda item: -max(verdict.gas for verdict, _ in item[1])):
        worst, size = max(items, key=lambda item: item[0].gas)
        median = statistics.median_low([verdict.gas for verdict, _ in items])
        yield f"| `{op}` | {len(items):,} | {median:,} | {worst.gas:,} | {worst.calldata_gas:,} | {size:,} |"
    yield ""


def _vectors(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.glob("*.step")):
        if not path.stem.startswith("refused_"):
            data = path.read_bytes()
            yield read_op_record(decode_proof(data).witness.record).op, data


def main() -> int:
    from cvm.cli.models import open_program
    from cvm.program import verify

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--vectors", action="store_true", help="the proofs of spec_vectors/steps")
    parser.add_argument("--wide", action="store_true", help="shapes that are hard to split into steps")
    parser.add_argument("--narrow", action="store_true", help="windows of one pixel or column, axes of one index")
    parser.add_argument("--language", action="store_true", help="the shapes of a language model")
    parser.add_argument("--elements", type=int, default=2, metavar="N", help="elements drawn of each tensor")
    options = parser.parse_args()
    judge = ContractJudge()
    sets: list[tuple[str, Iterable[tuple[str, bytes]]]] = []
    if options.vectors:
        folder = Path(__file__).parents[1] / "spec_vectors" / "steps"
        sets.append(("Test vectors", _vectors(folder)))
    sets.extend((path.stem, proofs_of(evidence_of(open_program(path)), options.elements)) for path in options.models)
    if options.wide:
        sets.append(("Awkward shapes", proofs_of(evidence_of(verify(wide_program())), options.elements)))
    if options.narrow:
        sets.append(("Narrow shapes", proofs_of(evidence_of(verify(narrow_program())), options.elements)))
    if options.language:
        sets.append(("Language model", proofs_of(evidence_of(verify(language_program())), options.elements)))
    for name, proofs in sets:
        print("\n".join(table(name, proofs, judge)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
