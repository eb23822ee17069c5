// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IStepJudge, JudgedStep} from "./IStepJudge.sol";
import {FamilyJudge} from "./judge/FamilyJudge.sol";
import {Refused} from "./judge/Refusal.sol";
import {u32At, wordAt} from "./judge/Reader.sol";

/// Judges one-step proofs: chooses the contract that computes the ops of that name, and says in words what it answers.
///
/// The addresses below are part of the code, so a StepJudge never changes. Whoever trusts one compares the code of all
/// six contracts with the artifacts of the project.
contract StepJudge is IStepJudge {
    /// The most bytes of a proof that are read.
    uint256 private constant LONGEST = 2 ** 20;

    FamilyJudge public immutable elementwise;
    FamilyJudge public immutable transform;
    FamilyJudge public immutable sums;
    FamilyJudge public immutable quotients;
    FamilyJudge public immutable searches;

    /// There is no code at an address.
    error NoContract(FamilyJudge family);

    constructor(
        FamilyJudge elementwise_,
        FamilyJudge transform_,
        FamilyJudge sums_,
        FamilyJudge quotients_,
        FamilyJudge searches_
    ) {
        FamilyJudge[5] memory all = [elementwise_, transform_, sums_, quotients_, searches_];
        for (uint256 i; i < 5; ++i) {
            if (address(all[i]).code.length == 0) revert NoContract(all[i]);
        }
        (elementwise, transform, sums, quotients, searches) = (all[0], all[1], all[2], all[3], all[4]);
    }

    /// @inheritdoc IStepJudge
    function judge(bytes calldata proof)
        external
        view
        returns (bool accepted, bytes32 reason, JudgedStep memory about)
    {
        if (proof.length > LONGEST) return (false, "proof_bytes", about);
        address family = address(_familyOf(_nameOf(proof)));
        (bool done, bytes memory answer) = family.staticcall(abi.encodeCall(FamilyJudge.check, (proof)));
        if (done) return (true, 0, abi.decode(answer, (JudgedStep)));
        return (false, _reasonOf(answer), about);
    }

    /// Why a family refuses. A Panic is a fault of the op: docs/chain.md, "Reasons". Anything else is a want of gas.
    function _reasonOf(bytes memory answer) private pure returns (bytes32 kind) {
        bytes4 selector = bytes4(answer);
        if (answer.length != 36) revert OutOfGas();
        if (selector == bytes4(keccak256("Panic(uint256)"))) return "op";
        if (selector != Refused.selector) revert OutOfGas();
        assembly ("memory-safe") {
            kind := mload(add(answer, 36))
        }
    }

    /// The name of the op in a proof, or zero. Nothing here is checked: a family reads the proof again, strictly, and refuses
    /// ops that are not its own.
    function _nameOf(bytes calldata proof) private pure returns (bytes32) {
        unchecked {
            uint256 place;
            assembly ("memory-safe") {
                place := proof.offset
            }
            uint256 end = place + proof.length;
            place += 72; // two tags, head, op, target
            if (place < end) place += 4 + 32 * u32At(place) + 8 + 4 + 32 + 4; // auxiliaries, element, step, partials, op-set
            if (place < end) place += 4 + u32At(place) + 5 * 40; // limits, lists
            if (place < end) place += 4 + 32 * u32At(place); // inputs
            if (place < end) place += 4 + 32 * u32At(place) + 32; // state, log
            place += 4 + 8; // the length of the record, its tag
            if (place + 36 > end) return 0;
            uint256 size = u32At(place);
            if (size == 0 || size > 32) return 0;
            return wordAt(place + 4) & bytes32(type(uint256).max << (256 - 8 * size));
        }
    }

    function _familyOf(bytes32 name) private view returns (FamilyJudge) {
        if (name == "requantize" || name == "quotient" || name == "normalize") return quotients;
        if (
            name == "conv2d" || name == "dense" || name == "matmul" || name == "sum" || name == "max"
                || name == "max_pool2d"
        ) return sums;
        if (name == "concatenate" || name == "get_valid_count" || name == "non_max_suppression") return searches;
        if (
            name == "reshape" || name == "flatten" || name == "transpose" || name == "slice" || name == "slice_like"
                || name == "take" || name == "cvm_lut" || name == "expand_dims" || name == "squeeze" || name == "repeat"
                || name == "tile" || name == "upsampling" || name == "update_slice"
        ) return transform;
        return elementwise;
    }
}
