// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Commitments} from "./Commitments.sol";

/// Reads the record of an op (docs/commitments.md, section 4). A record that is opened from a valid program has the form that
/// is read here; of other bytes, nothing is promised but that the reading ends.
library OpRecord {
    error NotAnOp();

    /// What the game reads of a record.
    struct Outputs {
        /// Whether the op has auxiliary tensors: only `non_max_suppression` has.
        bool certified;
        /// The number of the first output among the values of the program.
        uint32 first;
        /// How many outputs there are.
        uint32 count;
        /// Where the list of outputs begins in the record.
        uint256 offset;
    }

    function outputs(bytes calldata record) internal pure returns (Outputs memory found) {
        if (record.length < 8 || bytes8(record[:8]) != "cvm1:op\x00") revert NotAnOp();
        uint256 offset = _skipText(record, 8);
        found.certified = keccak256(record[12:offset]) == keccak256("non_max_suppression");
        uint32 attributes = Commitments.readU32(record, offset);
        offset += 4;
        for (uint32 i = 0; i < attributes; i++) offset = _skipAttribute(record, offset);
        offset += 4 + 4 * uint256(Commitments.readU32(record, offset));
        found.first = Commitments.readU32(record, offset);
        found.count = Commitments.readU32(record, offset + 4);
        found.offset = offset + 8;
    }

    /// Where the shape of an output lies in the record: u8(rank) | u64(extent) ..
    function shapeOf(bytes calldata record, Outputs memory of_, uint32 number)
        internal
        pure
        returns (uint256 from, uint256 to)
    {
        uint256 offset = of_.offset;
        for (uint32 i = 0; ; i++) {
            from = _skipText(record, offset);
            if (from >= record.length) revert NotAnOp();
            to = from + 1 + 8 * uint256(uint8(record[from]));
            offset = to + 16; // the interval
            if (offset > record.length) revert NotAnOp();
            if (i == number) return (from, to);
        }
    }

    function _skipText(bytes calldata record, uint256 offset) private pure returns (uint256) {
        return offset + 4 + Commitments.readU32(record, offset);
    }

    function _skipAttribute(bytes calldata record, uint256 offset) private pure returns (uint256) {
        offset = _skipText(record, offset);
        if (offset >= record.length) revert NotAnOp();
        uint8 kind = uint8(record[offset]);
        offset += 1;
        if (kind == 0) return offset + 1; // a boolean
        if (kind == 1) return offset + 8; // an integer
        if (kind == 2) return _skipText(record, offset); // a string
        if (kind == 3) return offset + 4 + 8 * uint256(Commitments.readU32(record, offset)); // several integers
        revert NotAnOp();
    }
}
