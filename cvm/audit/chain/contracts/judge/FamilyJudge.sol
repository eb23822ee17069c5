// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {JudgedStep} from "../IStepJudge.sol";
import {demand} from "./Refusal.sol";
import {Slice} from "./Reader.sol";
import {blank, hashed, putCopy, putU64, putWord, rootOf} from "./Hashing.sol";
import {Proof, readProof} from "./Proof.sol";
import {Run, openRun} from "./Run.sol";

/// Judges proofs about the ops of one family. A contract holds no more than some 24 KB of code, so there are several:
/// they differ in the steps that they compute, and StepJudge chooses among them. None has any storage.
///
/// The order of the checks is that of `judge` in cvm/standalone/verify_step.py, so that both name the same fault.
abstract contract FamilyJudge {
    /// What the proof is about. Reverts with Refused(kind) if it is refused, and with Panic if no valid program has such
    /// an op: then a division, an index or a width fails where the Python judges meet an error of Python.
    function check(bytes calldata proof) external view returns (JudgedStep memory) {
        uint256 place;
        assembly ("memory-safe") {
            place := proof.offset
        }
        Run memory run;
        readProof(run.proof, place, proof.length);
        openRun(run);
        int256 given = step(run);
        demand(given == run.proof.partialAfter, "after");
        _requirePartials(run);
        run.finishOperands();
        return _about(run);
    }

    /// Computes the step of the claim from the partial before it. Calls `enter` of the run, once, when the number of steps
    /// is known.
    function step(Run memory run) internal view virtual returns (int256 partialAfter);

    /// Requires that the partials before and after the step are neighbouring leaves of the commitment.
    function _requirePartials(Run memory run) private view {
        Proof memory p = run.proof;
        uint256 shown = p.hasPartialBefore ? 2 : 1;
        uint256[] memory numbers = new uint256[](shown);
        bytes32[] memory nodes = new bytes32[](shown);
        (numbers[shown - 1], nodes[shown - 1]) = (p.step, _partialHash(p.partialAfterAt));
        if (shown == 2) (numbers[0], nodes[0]) = (p.step - 1, _partialHash(p.partialBeforeAt));
        (bool fits, bytes32 root) = rootOf(numbers, nodes, run.steps, p.path);
        demand(fits, "partials");
        uint256 begin = blank();
        uint256 end = putCopy(putWord(begin, "cvm1:partials\x00", 14), p.place.begin(), p.place.count());
        demand(hashed(begin, putWord(putU64(end, run.steps), root, 32)) == p.partials, "partials");
    }

    function _partialHash(uint256 place) private view returns (bytes32) {
        uint256 begin = blank();
        return hashed(begin, putCopy(putWord(begin, "\x00cvm1:partial\x00", 14), place, 16));
    }

    function _about(Run memory run) private view returns (JudgedStep memory about) {
        Proof memory p = run.proof;
        uint256 begin = blank();
        Slice roots = p.auxiliaries;
        about.auxiliaries = hashed(begin, putCopy(begin, roots.begin() - 4, 4 + 32 * roots.count()));
        about.program = run.program;
        about.head = p.head;
        about.partials = p.partials;
        about.op = uint32(p.op);
        about.target = uint32(p.target);
        about.element = uint64(p.element);
        about.step = uint32(p.step);
        about.steps = uint64(run.steps);
        about.partialAfter = int128(p.partialAfter);
    }
}
