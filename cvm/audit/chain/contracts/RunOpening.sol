// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Commitments} from "./Commitments.sol";
import {OpRecord} from "./OpRecord.sol";

/// The record of a run, and what its trace says about the roots in it (docs/commitments.md, sections 5 and 8).
library RunOpening {
    using Commitments for bytes;

    error NotARun();
    error NotTheProgram();
    error NotTheTrace();
    error NotTheRecord();
    error NotTheMaker();

    /// Where the parts of a record of a run begin: four lists of roots, and the trace root.
    struct Run {
        uint256 inputs;
        uint256 before;
        uint256 outputs;
        uint256 end;
        uint256 inputCount;
        uint256 beforeCount;
        uint256 outputCount;
        uint256 afterCount;
        bytes32 trace;
    }

    /// A list of a program: the number of its records, and their Merkle root.
    struct List {
        uint64 count;
        bytes32 root;
    }

    /// What shows the root that a value has in a run.
    struct Opening {
        /// The preimage of the program digest.
        bytes program;
        /// Ops, constants, inputs, outputs, state.
        List[5] lists;
        /// The number of the output, or of the state.
        uint64 number;
        /// Its record, and the path of the record.
        bytes record;
        bytes32[] path;
        /// The op that makes the value, its record and the path of the record; or the record of the constant and its path.
        uint32 op;
        bytes made;
        bytes32[] madePath;
        /// The roots of the outputs of the op, and the path of its record in the log.
        bytes roots;
        bytes32[] logPath;
        /// The Merkle root of the log.
        bytes32 log;
    }

    /// Reads a record of a run that has a trace.
    function read(bytes calldata run) internal pure returns (Run memory found) {
        if (run.length < 9 || bytes9(run[:9]) != "cvm1:run\x00") revert NotARun();
        found.inputs = 9;
        (found.before, found.inputCount) = run.skipRoots(9);
        (found.outputs, found.beforeCount) = run.skipRoots(found.before);
        uint256 after_;
        (after_, found.outputCount) = run.skipRoots(found.outputs);
        (found.end, found.afterCount) = run.skipRoots(after_);
        if (run.length != found.end + 33 || run[found.end] != 0x01) revert NotARun();
        found.trace = run.readHash(found.end + 1);
    }

    /// Whether the record contradicts the program or its own trace: it has another number of tensors than the program, or it
    /// names a root for an output, or for the state after the run, that is not the root that its trace has for this value.
    /// Reverts if the opening shows neither.
    function contradicts(bytes calldata run, bytes32 program, bool state, Opening calldata opening)
        internal
        pure
        returns (bool)
    {
        Run memory parts = read(run);
        _checkProgram(program, opening);
        if (parts.inputCount != opening.lists[2].count || parts.outputCount != opening.lists[3].count) return true;
        if (parts.beforeCount != opening.lists[4].count || parts.afterCount != opening.lists[4].count) return true;
        // The two lists follow each other: the outputs, and the state after the run.
        uint256 list = state ? parts.outputs + 4 + 32 * parts.outputCount : parts.outputs;
        bytes32 stated = run.readHash(list + 4 + 32 * uint256(opening.number));
        uint32 value = state ? _updateOf(opening) : _valueOf(opening);
        return stated != _rootOf(run, parts, program, value, opening);
    }

    function _checkProgram(bytes32 program, Opening calldata opening) private pure {
        if (sha256(opening.program) != program) revert NotTheProgram();
        // "cvm1:program"0 | u32(op-set) | text(limits) | five list roots
        uint256 offset = 17;
        offset += 4 + opening.program.readU32(offset);
        for (uint256 i = 0; i < 5; i++) {
            bytes32 root = Commitments.listRoot(opening.lists[i].count, opening.lists[i].root);
            if (opening.program.readHash(offset + 32 * i) != root) revert NotTheProgram();
        }
    }

    /// The number of the value that an output is: "cvm1:output"0 | text(name) | u32(number of the value) | quantizer.
    function _valueOf(Opening calldata opening) private pure returns (uint32) {
        _checkRecord(opening, 3);
        return opening.record.readU32(12 + 4 + opening.record.readU32(12));
    }

    /// The number of the value that a state becomes: the last four bytes of its record.
    function _updateOf(Opening calldata opening) private pure returns (uint32) {
        _checkRecord(opening, 4);
        return opening.record.readU32(opening.record.length - 4);
    }

    function _checkRecord(Opening calldata opening, uint256 list) private pure {
        bytes32 leaf = Commitments.leaf(opening.record);
        List calldata records = opening.lists[list];
        if (Commitments.rootOf(leaf, opening.number, records.count, opening.path) != records.root) revert NotTheRecord();
    }

    /// The root that the run has for a value, by its number: inputs come first, then constants, states, and results of ops.
    function _rootOf(
        bytes calldata run,
        Run memory parts,
        bytes32 program,
        uint256 value,
        Opening calldata opening
    ) private pure returns (bytes32) {
        List[5] calldata lists = opening.lists;
        if (value < lists[2].count) return run.readHash(parts.inputs + 4 + 32 * value);
        value -= lists[2].count;
        if (value < lists[1].count) return _constant(value, opening);
        value -= lists[1].count;
        if (value < lists[4].count) return run.readHash(parts.before + 4 + 32 * value);
        value += uint256(lists[2].count) + lists[1].count;
        bytes32 list = Commitments.listRoot(lists[0].count, opening.log);
        if (Commitments.head(program, run[parts.inputs:parts.outputs], list) != parts.trace) revert NotTheTrace();
        return _result(value, opening);
    }

    /// The root of a constant is at the end of its record: "cvm1:constant"0 | text(name) | tensor root.
    function _constant(uint256 number, Opening calldata opening) private pure returns (bytes32) {
        bytes32 leaf = Commitments.leaf(opening.made);
        List calldata constants = opening.lists[1];
        if (Commitments.rootOf(leaf, number, constants.count, opening.madePath) != constants.root) revert NotTheRecord();
        return opening.made.readHash(opening.made.length - 32);
    }

    function _result(uint256 value, Opening calldata opening) private pure returns (bytes32) {
        List calldata ops = opening.lists[0];
        bytes32 leaf = Commitments.leaf(opening.made);
        if (Commitments.rootOf(leaf, opening.op, ops.count, opening.madePath) != ops.root) revert NotTheRecord();
        OpRecord.Outputs memory outputs = OpRecord.outputs(opening.made);
        if (value < outputs.first || value >= uint256(outputs.first) + outputs.count) revert NotTheMaker();
        bytes32 logged = Commitments.logLeaf(opening.op, opening.roots);
        if (Commitments.rootOf(logged, opening.op, ops.count, opening.logPath) != opening.log) revert NotTheTrace();
        return opening.roots.readHash(4 + 32 * (value - outputs.first));
    }
}
