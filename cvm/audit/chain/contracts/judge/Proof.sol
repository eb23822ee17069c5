// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Operand, Source} from "./Operand.sol";
import {demand} from "./Refusal.sol";
import {Reader, Slice, mark, release, sliceOf} from "./Reader.sol";

// The content of a proof; nothing of it is known to be true: docs/commitments.md, section 9, byte by byte.

// The operands and the leaves of one operand that are kept. No step reads as many: a proof with more is refused when
// everything has been read, without opening them.
uint256 constant MOST_OPERANDS = 32;
uint256 constant MOST_LEAVES = 64;
uint256 constant LEAF_BYTES = 1024;

// The kinds of sources of an operand.
uint256 constant GIVEN = 0;
uint256 constant CONSTANT = 1;
uint256 constant RESULT = 2;

/// The length and the Merkle root of one of the five lists of a program.
struct Listed {
    uint256 count;
    bytes32 root;
}

struct Proof {
    bytes32 head;
    uint256 op;
    uint256 target;
    Slice auxiliaries;
    uint256 element;
    /// head | op | target | auxiliaries | element, as they stand in the claim.
    Slice place;
    uint256 step;
    bytes32 partials;
    uint256 opSet;
    /// u32(op-set) | text(limits profile), as they stand in the witness.
    Slice profile;
    Listed ops;
    Listed constants;
    Listed given;
    Listed outputs;
    Listed state;
    Slice inputs;
    Slice before;
    /// The Merkle root of the records of the earlier ops.
    bytes32 log;
    Slice record;
    Slice recordPath;
    bool hasPartialBefore;
    int256 partialBefore;
    /// Where the partial before the step stands, and the partial after it.
    uint256 partialBeforeAt;
    int256 partialAfter;
    uint256 partialAfterAt;
    Slice path;
    Operand[] operands;
    uint256 operandCount;
}

/// Reads a proof into `p`, strictly: every proof has one encoding. (A function that returned a struct would first make an
/// empty one.)
function readProof(Proof memory p, uint256 place, uint256 size) pure {
    Reader memory r = Reader(place, place + size);
    r.tag("cvm1:step-proof\x00", 16);
    r.tag("cvm1:step-claim\x00", 16);
    uint256 begin = r.next;
    p.head = r.word();
    p.op = r.u32();
    p.target = r.u32();
    p.auxiliaries = r.roots();
    p.element = r.u64();
    p.place = sliceOf(begin, r.next - begin);
    p.step = r.u32();
    p.partials = r.word();
    _readRun(r, p);
    p.record = r.binary();
    p.recordPath = r.roots();
    p.hasPartialBefore = r.flag();
    p.partialBeforeAt = r.next;
    if (p.hasPartialBefore) p.partialBefore = r.i128();
    p.partialAfterAt = r.next;
    p.partialAfter = r.i128();
    p.path = r.roots();
    p.operandCount = r.many(55);
    p.operands = new Operand[](p.operandCount < MOST_OPERANDS ? p.operandCount : MOST_OPERANDS);
    for (uint256 i; i < p.operandCount; ++i) {
        if (i < MOST_OPERANDS) _readOperand(r, p.operands[i]);
        else _skipOperand(r);
    }
    r.finish();
}

function _readRun(Reader memory r, Proof memory p) pure {
    uint256 begin = r.next;
    p.opSet = r.u32();
    r.text();
    p.profile = sliceOf(begin, r.next - begin);
    _readList(r, p.ops);
    _readList(r, p.constants);
    _readList(r, p.given);
    _readList(r, p.outputs);
    _readList(r, p.state);
    p.inputs = r.roots();
    p.before = r.roots();
    p.log = r.word();
}

function _readList(Reader memory r, Listed memory list) pure {
    list.count = r.u64();
    list.root = r.word();
}

function _readOperand(Reader memory r, Operand memory x) pure {
    x.position = r.u32();
    uint256 begin = r.next;
    x.dtype = r.u8();
    x.shape = r.shape();
    x.typeAndShape = sliceOf(begin, r.next - begin);
    x.dataRoot = r.word();
    _readSource(r, x.source);
    x.leafCount = r.many(12);
    uint256 kept = x.leafCount < MOST_LEAVES ? x.leafCount : MOST_LEAVES;
    x.numbers = new uint256[](kept);
    x.places = new uint256[](kept);
    x.sizes = new uint256[](kept);
    for (uint256 i; i < x.leafCount; ++i) {
        uint256 number = r.u64();
        uint256 bytes_ = r.u32();
        uint256 place = r.take(bytes_);
        demand(bytes_ > 0 && bytes_ <= LEAF_BYTES, "leaf");
        if (i < kept) (x.numbers[i], x.places[i], x.sizes[i]) = (number, place, bytes_);
    }
    x.path = r.roots();
}

function _skipOperand(Reader memory r) pure {
    uint256 free = mark();
    Operand memory surplus;
    _readOperand(r, surplus);
    release(free);
}

function _readSource(Reader memory r, Source memory s) pure {
    s.kind = r.u8();
    demand(s.kind <= RESULT, "source");
    if (s.kind == CONSTANT) {
        uint256 begin = r.next;
        r.text();
        s.nameOrRecord = sliceOf(begin, r.next - begin);
        s.recordPath = r.roots();
    } else if (s.kind == RESULT) {
        s.maker = r.u32();
        s.nameOrRecord = r.binary();
        s.recordPath = r.roots();
        s.roots = r.roots();
        s.stepPath = r.roots();
    }
}
