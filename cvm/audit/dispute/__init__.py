"""Disputes: from two trace roots to one small step, and a judge of that step.

Read `cvm.audit.dispute.folds` first (it computes every element in small steps), then `judge`, which accepts or refuses
one step from a self-contained proof, and `game`, which leads two parties to the step on which they differ.
``docs/disputes.md`` says it in words, ``docs/commitments.md``, section 9, byte by byte.
"""

from cvm.audit.dispute.bounds import largest_proof, most_rounds
from cvm.audit.dispute.evidence import Evidence, OpenProgram
from cvm.audit.dispute.game import Outcome, Statement, settle
from cvm.audit.dispute.judge import StepVerdict, verify_step
from cvm.audit.dispute.locate import Difference, locate
from cvm.audit.dispute.party import Witnessed
from cvm.audit.dispute.proof import StepClaim, StepProof, Witness, decode_proof, encode_proof
from cvm.audit.dispute.sides import Recounting, computed, evidence_from, side_of, statement_of

__all__ = [
    "Difference",
    "Evidence",
    "OpenProgram",
    "Outcome",
    "Recounting",
    "Statement",
    "StepClaim",
    "StepProof",
    "StepVerdict",
    "Witness",
    "Witnessed",
    "computed",
    "decode_proof",
    "encode_proof",
    "evidence_from",
    "largest_proof",
    "locate",
    "most_rounds",
    "settle",
    "side_of",
    "statement_of",
    "verify_step",
]
