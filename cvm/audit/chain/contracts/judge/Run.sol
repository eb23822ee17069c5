// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {demand, refuse} from "./Refusal.sol";
import {Slice, elements, sameShape, u32At, wordAt} from "./Reader.sol";
import {blank, hashed, leafHash, listRoot, proves, putCopy, putU64, putWord, rootOf} from "./Hashing.sol";
import {Op, readOp} from "./Records.sol";
import {isDeclared, isOfOpSet2} from "./Declarations.sol";
import {Operand, Source} from "./Operand.sol";
import {CONSTANT, GIVEN, LEAF_BYTES, MOST_LEAVES, MOST_OPERANDS, Proof, RESULT} from "./Proof.sol";

// The run that a proof is about: everything that the proof shows of it is compared with the head of the claim.

// The tensors of a certificate of non_max_suppression: rank, order, kept.
uint256 constant CERTIFICATE = 3;

struct Run {
    Proof proof;
    Op op;
    /// The program's digest.
    bytes32 program;
    /// The auxiliary tensors that the op has, and those in the claim.
    uint256 hidden;
    uint256 extra;
    /// The number of operands: the op's inputs, and the auxiliary tensors in the claim.
    uint256 count;
    /// The index of the element in the target.
    uint256[] d;
    /// The number of steps that the element takes, and whether the step of the claim is the last one.
    uint256 steps;
    bool isLast;
}

using {operand, enter, finishOperands, number} for Run global;

/// Opens the program, the op and the element that the proof of the run is about.
function openRun(Run memory run) view {
    Proof memory p = run.proof;
    run.program = _programDigest(p);
    demand(_head(p, run.program) == p.head, "head");
    demand(p.opSet == 1 || p.opSet == 2, "op_set");
    demand(p.inputs.count() == p.given.count && p.before.count() == p.state.count && p.op < p.ops.count, "counts");
    Op memory op = run.op;
    _openOp(op, p, p.op, p.record, p.recordPath);
    run.hidden = op.name == "non_max_suppression" ? CERTIFICATE : 0;
    run.extra = p.target + 1 < run.hidden ? p.target + 1 : run.hidden;
    demand(p.auxiliaries.count() == run.extra, "auxiliaries");
    run.count = op.inputs.count() + run.extra;
    demand(p.operandCount <= MOST_OPERANDS, "operands");
    for (uint256 i = 1; i < p.operandCount; ++i) {
        demand(p.operands[i - 1].position < p.operands[i].position, "operands");
    }
    demand(p.opSet == 2 || !isOfOpSet2(op.name), "op_set");
    _locate(run);
}

function _programDigest(Proof memory p) view returns (bytes32) {
    bytes32[5] memory roots = [
        listRoot(p.ops.count, p.ops.root),
        listRoot(p.constants.count, p.constants.root),
        listRoot(p.given.count, p.given.root),
        listRoot(p.outputs.count, p.outputs.root),
        listRoot(p.state.count, p.state.root)
    ];
    uint256 begin = blank();
    uint256 end = putCopy(putWord(begin, "cvm1:program\x00", 13), p.profile.begin(), p.profile.count());
    for (uint256 i; i < 5; ++i) {
        end = putWord(end, roots[i], 32);
    }
    return hashed(begin, end);
}

/// The lists of roots stand beside each other in the witness, as in the preimage.
function _head(Proof memory p, bytes32 program) view returns (bytes32) {
    bytes32 log = listRoot(p.op, p.log);
    uint256 begin = blank();
    uint256 end = putWord(putWord(begin, "cvm1:trace\x00", 11), program, 32);
    end = putCopy(end, p.inputs.begin() - 4, 4 + 32 * p.inputs.count() + 4 + 32 * p.before.count());
    return hashed(begin, putWord(end, log, 32));
}

/// Reads op `m` of the program from its record.
function _openOp(Op memory op, Proof memory p, uint256 m, Slice record, Slice path) view {
    demand(proves(leafHash(record.begin(), record.count()), m, p.ops.count, path, p.ops.root), "record");
    readOp(op, record.begin(), record.count());
    demand(isDeclared(op), "op");
}

/// Finds the index of the element in the target.
function _locate(Run memory run) pure {
    Proof memory p = run.proof;
    uint256[][] memory shapes = run.op.shapes;
    uint256[] memory extents;
    if (p.target < run.hidden) {
        // Of shape (B, N), as the output has shape (B, N, K).
        demand(shapes[0].length >= 2, "op");
        extents = new uint256[](2);
        (extents[0], extents[1]) = (shapes[0][0], shapes[0][1]);
    } else {
        demand(p.target - run.hidden < shapes.length, "target");
        extents = shapes[p.target - run.hidden];
    }
    uint256 rest = p.element;
    run.d = new uint256[](extents.length);
    for (uint256 k = extents.length; k > 0; --k) {
        run.d[k - 1] = rest % extents[k - 1];
        rest /= extents[k - 1];
    }
    demand(rest == 0, "element");
}

/// The operand at a position, opened when it is first asked for.
function operand(Run memory run, uint256 position) view returns (Operand memory) {
    demand(position < run.count, "op");
    Operand[] memory all = run.proof.operands;
    unchecked {
        for (uint256 i; i < all.length; ++i) {
            Operand memory x = all[i];
            if (x.position == position) {
                if (!x.opened) _open(run, x);
                return x;
            }
        }
    }
    refuse("closed");
}

function _open(Run memory run, Operand memory x) view {
    demand(x.dtype == 1 || x.dtype == 2, "dtype");
    x.length = elements(x.shape, 0, "integer");
    x.width = x.dtype + 1;
    uint256 size = x.length << x.width;
    demand(size < 1 << 64, "integer");
    uint256 begin = blank();
    uint256 end = putCopy(putWord(begin, "cvm1:tensor\x00", 12), x.typeAndShape.begin(), x.typeAndShape.count());
    bytes32 root = hashed(begin, putWord(putU64(end, size), x.dataRoot, 32));
    if (x.position < run.op.inputs.count()) {
        _requireKnown(run, u32At(run.op.inputs.begin() + 4 * x.position), x, root);
    } else {
        demand(x.source.kind == GIVEN, "source");
        uint256 index = x.position - run.op.inputs.count();
        demand(wordAt(run.proof.auxiliaries.begin() + 32 * index) == root, "root");
        uint256[] memory output = run.op.shapes[0];
        demand(x.shape.length == 2 && output.length >= 2, "shape");
        demand(x.shape[0] == output[0] && x.shape[1] == output[1], "shape");
    }
    _openLeaves(x, size);
    x.opened = true;
    x.current = type(uint256).max;
}

/// Requires that the run has this root for value `v`, and the program this shape. The number of a value says which list
/// holds it: docs/commitments.md, section 5.
function _requireKnown(Run memory run, uint256 v, Operand memory x, bytes32 root) view {
    Proof memory p = run.proof;
    Source memory s = x.source;
    uint256 begin = p.given.count + p.constants.count;
    if (v < p.given.count) {
        demand(s.kind == GIVEN, "source");
        demand(wordAt(p.inputs.begin() + 32 * v) == root, "root");
    } else if (v < begin) {
        demand(s.kind == CONSTANT, "source");
        uint256 place = blank();
        uint256 end = putCopy(putWord(place, "\x00cvm1:constant\x00", 15), s.nameOrRecord.begin(), s.nameOrRecord.count());
        bytes32 leaf = hashed(place, putWord(end, root, 32));
        demand(proves(leaf, v - p.given.count, p.constants.count, s.recordPath, p.constants.root), "root");
    } else if (v < begin + p.state.count) {
        demand(s.kind == GIVEN, "source");
        demand(wordAt(p.before.begin() + 32 * (v - begin)) == root, "root");
    } else {
        _requireResult(p, v, x, root);
    }
}

/// The same for an output of an earlier op: its record declares the number, the log of the run has the root.
function _requireResult(Proof memory p, uint256 v, Operand memory x, bytes32 root) view {
    Source memory s = x.source;
    demand(s.kind == RESULT, "source");
    Op memory maker;
    _openOp(maker, p, s.maker, s.nameOrRecord, s.recordPath);
    demand(v >= maker.first && v - maker.first < maker.shapes.length, "source");
    demand(maker.shapes.length == s.roots.count(), "source");
    // u32(m) stands before the record, and the number of roots before the roots.
    uint256 begin = blank();
    uint256 end = putCopy(putWord(begin, "\x00cvm1:step\x00", 11), s.nameOrRecord.begin() - 8, 4);
    bytes32 leaf = hashed(begin, putCopy(end, s.roots.begin() - 4, 4 + 32 * s.roots.count()));
    demand(proves(leaf, s.maker, p.op, s.stepPath, p.log), "log");
    demand(wordAt(s.roots.begin() + 32 * (v - maker.first)) == root, "root");
    demand(sameShape(maker.shapes[v - maker.first], x.shape), "shape");
}

function _openLeaves(Operand memory x, uint256 size) view {
    uint256 n = x.leafCount;
    if (n == 0) {
        demand(x.path.count() == 0, "leaves");
        return;
    }
    demand(n <= MOST_LEAVES, "leaves");
    uint256[] memory numbers = new uint256[](n);
    bytes32[] memory nodes = new bytes32[](n);
    for (uint256 i; i < n; ++i) {
        uint256 k = x.numbers[i];
        demand(i == 0 || x.numbers[i - 1] < k, "leaves");
        demand(LEAF_BYTES * k < size, "leaves");
        uint256 due = size - LEAF_BYTES * k;
        demand(x.sizes[i] == (due < LEAF_BYTES ? due : LEAF_BYTES), "leaves");
        (numbers[i], nodes[i]) = (k, leafHash(x.places[i], x.sizes[i]));
    }
    (bool fits, bytes32 root) = rootOf(numbers, nodes, (size + LEAF_BYTES - 1) / LEAF_BYTES, x.path);
    demand(fits && root == x.dataRoot, "leaves");
}

/// The element of the claim takes `steps` steps and begins with `start`: the partial before the step of the claim.
function enter(Run memory run, uint256 steps, int256 start) pure returns (int256) {
    Proof memory p = run.proof;
    demand(p.step < steps, "count");
    demand(p.hasPartialBefore == (p.step > 0), "before");
    run.steps = steps;
    run.isLast = p.step == steps - 1;
    return p.hasPartialBefore ? p.partialBefore : start;
}

/// The number of the step.
function number(Run memory run) pure returns (uint256) {
    return run.proof.step;
}

/// Requires that the step has read every operand and every leaf that is open.
function finishOperands(Run memory run) pure {
    Operand[] memory all = run.proof.operands;
    for (uint256 i; i < all.length; ++i) {
        demand(all[i].opened, "operands");
    }
    for (uint256 i; i < all.length; ++i) {
        demand(all[i].read == (1 << all[i].leafCount) - 1, "leaves");
    }
}
