// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What an accepted proof is about. The words are those of docs/commitments.md, section 9.
struct JudgedStep {
    /// The digest of the program. The judge takes the program to be valid: whoever relies on the verdict must know this.
    bytes32 program;
    /// The state of the run before the op: the head of its trace over the earlier ops. Whoever relies on the verdict must know it.
    bytes32 head;
    /// The commitment to all partials of the element. It covers the head, the op, the target, the roots of the auxiliary
    /// tensors, the element and the number of steps.
    bytes32 partials;
    /// SHA-256 of roots(auxiliary tensors) as the claim has them: u32(number) | 32 bytes each.
    bytes32 auxiliaries;
    uint32 op;
    uint32 target;
    uint64 element;
    uint32 step;
    /// The number of steps that the element takes.
    uint64 steps;
    /// The partial after the step. After the last step, it is the element.
    int128 partialAfter;
}

/// The judge of a dispute about one step.
interface IStepJudge {
    /// The call had too little gas to decide. Every other call ends with a verdict.
    error OutOfGas();

    /// Judges the bytes of one proof. All bytes get a verdict; nothing is stored.
    /// @param proof the bytes `proof` of docs/commitments.md, section 9: those of a file that `cvm dispute step` writes
    /// @return accepted whether the step follows, in every run of this program with this head
    /// @return reason zero if accepted; else the class of the fault as ASCII text, left-aligned: bytes32("head")
    /// @return about what the proof is about; all zero if it is refused
    function judge(bytes calldata proof)
        external
        view
        returns (bool accepted, bytes32 reason, JudgedStep memory about);
}
