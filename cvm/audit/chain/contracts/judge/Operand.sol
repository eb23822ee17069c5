// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {demand, refuse} from "./Refusal.sol";
import {Slice, i64At} from "./Reader.sol";

/// An operand: what the proof says of it, and, once it is opened, its leaves.
struct Operand {
    uint256 position;
    uint256 dtype;
    /// u8(type) | shape, as they stand in the proof.
    Slice typeAndShape;
    uint256[] shape;
    bytes32 dataRoot;
    Source source;
    uint256 leafCount;
    /// The numbers of the leaves, where their bytes begin, and how many these are.
    uint256[] numbers;
    uint256[] places;
    uint256[] sizes;
    Slice path;
    // What follows is known once the operand is opened.
    bool opened;
    /// The number of elements, and the bytes of each as a power of two.
    uint256 length;
    uint256 width;
    /// A bit for each leaf that has been read.
    uint256 read;
    /// The leaf that was read last, and where it begins.
    uint256 current;
    uint256 begin;
}

struct Source {
    uint256 kind;
    /// The op that gave the operand.
    uint256 maker;
    /// The text of a constant's name, its length included; or the record of the op.
    Slice nameOrRecord;
    /// Of the constant, or of the op's record.
    Slice recordPath;
    Slice roots;
    Slice stepPath;
}

// Elements of opened operands. A leaf that is read is marked; a leaf that is closed cannot be read.

using {get, touch, element, aligned, extent} for Operand global;

/// The element with that number, row-major.
function get(Operand memory x, uint256 number) pure returns (int256 value) {
    unchecked {
        if (number >= x.length) refuse("op");
        uint256 place = number << x.width;
        if (place >> 10 != x.current) _turnTo(x, place >> 10);
        place = x.begin + (place & 1023);
        if (x.width == 3) return i64At(place);
        // An int32, whose four bytes are turned round one by one.
        assembly ("memory-safe") {
            let w := calldataload(place)
            let high := or(shl(24, byte(3, w)), shl(16, byte(2, w)))
            value := signextend(3, or(high, or(shl(8, byte(1, w)), byte(0, w))))
        }
    }
}

/// Requires that `count` elements from that number on exist, at least one, and reads their leaves.
function touch(Operand memory x, uint256 number, uint256 count) pure {
    unchecked {
        if (count == 0 || count > x.length || number > x.length - count) refuse("op");
        uint256 end = (number + count - 1) << x.width >> 10;
        for (uint256 leaf = number << x.width >> 10; leaf <= end; ++leaf) {
            if (leaf != x.current) _turnTo(x, leaf);
        }
    }
}

/// Makes that leaf the current one.
function _turnTo(Operand memory x, uint256 leaf) pure {
    unchecked {
        for (uint256 i; i < x.numbers.length; ++i) {
            if (x.numbers[i] == leaf) {
                x.read |= 1 << i;
                (x.current, x.begin) = (leaf, x.places[i]);
                return;
            }
        }
    }
    refuse("closed");
}

/// The element at an index, which must exist.
function element(Operand memory x, uint256[] memory d) pure returns (int256) {
    uint256 rank = x.shape.length;
    demand(d.length == rank, "op");
    uint256 n;
    unchecked {
        for (uint256 k; k < rank; ++k) {
            demand(d[k] < x.shape[k], "op");
            n = n * x.shape[k] + d[k];
        }
    }
    return x.get(n);
}

/// The element that broadcasts to index `d`: axes are aligned at the right, and an index beyond an extent becomes 0. Axes of
/// the operand that `d` does not have, which only an invalid program can have, are counted from its end, as in Python.
function aligned(Operand memory x, uint256[] memory d) pure returns (int256) {
    uint256[] memory shape = x.shape;
    uint256 rank = shape.length;
    uint256 have = d.length;
    if (rank > 2 * have) refuse("op");
    uint256 n;
    unchecked {
        for (uint256 k; k < rank; ++k) {
            uint256 i = d[have + k >= rank ? have + k - rank : 2 * have + k - rank];
            uint256 size = shape[k];
            n = n * size + (i < size ? i : 0);
        }
    }
    return x.get(n);
}

/// The extent along an axis, which must exist.
function extent(Operand memory x, uint256 axis) pure returns (uint256) {
    demand(axis < x.shape.length, "op");
    return x.shape[axis];
}
