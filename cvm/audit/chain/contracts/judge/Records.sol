// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {demand, refuse} from "./Refusal.sol";
import {Reader, Slice, asWord, i64At, mark, release, sliceOf} from "./Reader.sol";

// The record of an op: docs/commitments.md, section 4. Declarations.sol says which records there can be.

// The kinds of attributes, by their numbers in a record.
uint256 constant BOOLEAN = 0;
uint256 constant INTEGER = 1;
uint256 constant STRING = 2;
uint256 constant INTEGERS = 3;

uint256 constant MOST_ATTRIBUTES = 6;
uint256 constant MOST_OUTPUTS = 2;

struct Attribute {
    bytes32 key;
    uint256 kind;
    /// A boolean or an integer, else 0.
    int256 value;
    /// Where a string or a list of integers stands.
    Slice items;
}

struct Op {
    bytes32 name;
    /// At most MOST_ATTRIBUTES of them: no op has more.
    Attribute[] attributes;
    uint256 attributeCount;
    /// The numbers of the inputs, 4 bytes each.
    Slice inputs;
    /// The number of the first output.
    uint256 first;
    /// The shapes of the outputs, at most MOST_OUTPUTS of them: no op has more.
    uint256[][] shapes;
    uint256 outputCount;
}

/// Reads into `op` the record that is `size` bytes long and begins at `place`. Attributes and outputs beyond those that an op can have
/// are read and counted, not kept, so that no record takes much memory.
function readOp(Op memory op, uint256 place, uint256 size) pure {
    Reader memory r = Reader(place, place + size);
    r.tag("cvm1:op\x00", 8);
    op.name = asWord(r.text());
    op.attributeCount = r.many(6);
    op.attributes = new Attribute[](op.attributeCount < MOST_ATTRIBUTES ? op.attributeCount : MOST_ATTRIBUTES);
    for (uint256 i; i < op.attributeCount; ++i) {
        if (i < MOST_ATTRIBUTES) _readAttribute(r, op.attributes[i]);
        else _skipAttribute(r);
    }
    uint256 inputs = r.many(4);
    op.inputs = sliceOf(r.take(4 * inputs), inputs);
    op.first = r.u32();
    op.outputCount = r.many(29);
    op.shapes = new uint256[][](op.outputCount < MOST_OUTPUTS ? op.outputCount : MOST_OUTPUTS);
    for (uint256 i; i < op.outputCount; ++i) {
        if (i < MOST_OUTPUTS) {
            r.text();
            op.shapes[i] = r.shape();
        } else {
            _skipNameAndShape(r);
        }
        r.take(16); // the interval, which no step needs
    }
    r.finish();
}

function _readAttribute(Reader memory r, Attribute memory a) pure {
    a.key = asWord(r.text());
    a.kind = r.u8();
    if (a.kind == BOOLEAN) {
        a.value = r.flag() ? int256(1) : int256(0);
    } else if (a.kind == INTEGER) {
        a.value = r.i64();
    } else if (a.kind == STRING) {
        a.items = r.text();
    } else {
        demand(a.kind == INTEGERS, "op");
        uint256 items = r.many(8);
        a.items = sliceOf(r.take(8 * items), items);
    }
}

/// Memory of what is read is given back: what is skipped can be as long as the proof.
function _skipAttribute(Reader memory r) pure {
    uint256 free = mark();
    Attribute memory a;
    _readAttribute(r, a);
    release(free);
}

function _skipNameAndShape(Reader memory r) pure {
    uint256 free = mark();
    r.text();
    r.shape();
    release(free);
}

using {attribute, integerOf, isTrue, textOf} for Op global;
using {item} for Attribute global;

/// The attribute with that name, which the declaration of the op guarantees.
function attribute(Op memory op, bytes32 key) pure returns (Attribute memory found) {
    unchecked {
        for (uint256 i; i < op.attributes.length; ++i) {
            if (op.attributes[i].key == key) return op.attributes[i];
        }
    }
    refuse("op");
}

function integerOf(Op memory op, bytes32 key) pure returns (int256) {
    return op.attribute(key).value;
}

function isTrue(Op memory op, bytes32 key) pure returns (bool) {
    return op.attribute(key).value == 1;
}

/// A string. All that a declaration allows are shorter than a word.
function textOf(Op memory op, bytes32 key) pure returns (bytes32) {
    return asWord(op.attribute(key).items);
}

/// Integer `i` of a list, which must have it.
function item(Attribute memory a, uint256 i) pure returns (int256) {
    demand(i < a.items.count(), "op");
    return i64At(a.items.begin() + 8 * i);
}
