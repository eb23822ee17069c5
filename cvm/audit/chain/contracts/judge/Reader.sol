// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {demand, refuse} from "./Refusal.sol";

/// Reads bytes of the call data front to back: docs/commitments.md, section 1. Positions are those of the call data.
/// Every length is compared with the bytes that are left before anything is read or allocated.
struct Reader {
    uint256 next;
    uint256 end;
}

/// A part of the call data in one word, begin * 2^128 + count: a proof has dozens of them, and a word takes no memory of its
/// own. A list of hashes is one: 32 bytes for each.
type Slice is uint256;

/// `count_` is the number of bytes of a text or a binary, of hashes of a list, or of items of another list. Neither number
/// reaches 2^128: the call data is not as long.
function sliceOf(uint256 begin_, uint256 count_) pure returns (Slice) {
    return Slice.wrap((begin_ << 128) | count_);
}

function begin(Slice s) pure returns (uint256) {
    return Slice.unwrap(s) >> 128;
}

function count(Slice s) pure returns (uint256) {
    return Slice.unwrap(s) & type(uint128).max;
}

using {begin, count} for Slice global;

uint256 constant MOST_EXTENTS = 8;

using {take, u8, u32, u64, i64, i128, flag, word, tag, binary, text, many, roots, shape, finish} for Reader global;

/// The position of the next `size` bytes.
function take(Reader memory r, uint256 size) pure returns (uint256 place) {
    place = r.next;
    unchecked {
        demand(size <= r.end - place, "truncated");
        r.next = place + size;
    }
}

function u8(Reader memory r) pure returns (uint256) {
    return byteAt(r.take(1));
}

function u32(Reader memory r) pure returns (uint256) {
    return u32At(r.take(4));
}

function u64(Reader memory r) pure returns (uint256) {
    return u64At(r.take(8));
}

function i64(Reader memory r) pure returns (int256) {
    return i64At(r.take(8));
}

function i128(Reader memory r) pure returns (int256) {
    uint256 place = r.take(16);
    return int256(int128(uint128(u64At(place) | (u64At(place + 8) << 64))));
}

function flag(Reader memory r) pure returns (bool) {
    uint256 value = r.u8();
    demand(value < 2, "flag");
    return value == 1;
}

function word(Reader memory r) pure returns (bytes32) {
    return wordAt(r.take(32));
}

/// Requires exactly these first `size` bytes of `expected`.
function tag(Reader memory r, bytes32 expected, uint256 size) pure {
    demand(size <= r.end - r.next && (wordAt(r.next) ^ expected) >> (256 - 8 * size) == 0, "tag");
    r.next += size;
}

function binary(Reader memory r) pure returns (Slice) {
    uint256 size = r.u32();
    return sliceOf(r.take(size), size);
}

function text(Reader memory r) pure returns (Slice found) {
    found = r.binary();
    demand(isUtf8(found), "text");
}

/// The number of items of a list, each of at least `least` bytes.
function many(Reader memory r, uint256 least) pure returns (uint256 number) {
    number = r.u32();
    unchecked {
        demand(number * least <= r.end - r.next, "truncated"); // below 2^32 times a few bytes
    }
}

function roots(Reader memory r) pure returns (Slice) {
    uint256 number = r.many(32);
    unchecked {
        return sliceOf(r.take(32 * number), number);
    }
}

function shape(Reader memory r) pure returns (uint256[] memory extents) {
    uint256 rank = r.u8();
    demand(rank > 0 && rank <= MOST_EXTENTS, "shape");
    uint256 place = r.take(8 * rank);
    extents = new uint256[](rank);
    unchecked {
        for (uint256 k; k < rank; ++k) {
            uint256 extent = u64At(place + 8 * k);
            demand(extent > 0, "shape");
            extents[k] = extent;
        }
    }
}

function finish(Reader memory r) pure {
    demand(r.next == r.end, "trailing");
}

function wordAt(uint256 place) pure returns (bytes32 value) {
    assembly ("memory-safe") {
        value := calldataload(place)
    }
}

function byteAt(uint256 place) pure returns (uint256 value) {
    assembly ("memory-safe") {
        value := byte(0, calldataload(place))
    }
}

function u32At(uint256 place) pure returns (uint256 value) {
    unchecked {
        value = uint256(wordAt(place)) >> 224;
        value = ((value & 0xff00ff00) >> 8) | ((value & 0x00ff00ff) << 8);
        return (value >> 16) | ((value & 0xffff) << 16);
    }
}

function u64At(uint256 place) pure returns (uint256 value) {
    assembly ("memory-safe") {
        value := shr(192, calldataload(place))
    }
    return reversed(value);
}

function i64At(uint256 place) pure returns (int256) {
    return int256(int64(uint64(u64At(place))));
}

/// The 8 bytes of a number in the opposite order.
function reversed(uint256 v) pure returns (uint256) {
    unchecked {
        v = ((v & 0xff00ff00ff00ff00) >> 8) | ((v & 0x00ff00ff00ff00ff) << 8);
        v = ((v & 0xffff0000ffff0000) >> 16) | ((v & 0x0000ffff0000ffff) << 16);
        return (v >> 32) | ((v & 0xffffffff) << 32);
    }
}

/// The text as a word, or zero if it is longer than that. No name or attribute of an op is.
function asWord(Slice s) pure returns (bytes32) {
    uint256 size = s.count();
    if (size == 0 || size > 32) return 0;
    return wordAt(s.begin()) & bytes32(type(uint256).max << (256 - 8 * size));
}

/// Whether these bytes are UTF-8. Words of ASCII, which are nearly all there are, are tested at once.
function isUtf8(Slice s) pure returns (bool) {
    unchecked {
        uint256 first = s.begin();
        uint256 end = first + s.count();
        for (uint256 place = first; place < end; place += 32) {
            uint256 high = uint256(wordAt(place)) & 0x8080808080808080808080808080808080808080808080808080808080808080;
            if (place + 32 > end) high >>= 8 * (place + 32 - end);
            if (high != 0) return _isUtf8(first, end);
        }
        return true;
    }
}

/// The Unicode standard, table 3-7: neither overlong forms nor surrogates, at most U+10FFFF.
function _isUtf8(uint256 place, uint256 end) pure returns (bool) {
    unchecked {
        while (place < end) {
            uint256 lead = byteAt(place++);
            if (lead < 0x80) continue;
            if (lead < 0xc2 || lead > 0xf4) return false;
            uint256 following = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
            if (place + following > end) return false;
            uint256 least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
            uint256 most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
            for (; following > 0; --following) {
                uint256 next = byteAt(place++);
                if (next < least || next > most) return false;
                (least, most) = (0x80, 0xbf);
            }
        }
        return true;
    }
}

/// The product of extents from axis `from` on. Refuses with `kind` what is not below 2^64: no valid tensor is as large.
function elements(uint256[] memory extents, uint256 from, bytes32 kind) pure returns (uint256 product) {
    product = 1;
    unchecked {
        for (uint256 k = from; k < extents.length; ++k) {
            product *= extents[k];
            if (product >= 1 << 64) refuse(kind);
        }
    }
}

function sameShape(uint256[] memory one, uint256[] memory other) pure returns (bool) {
    if (one.length != other.length) return false;
    for (uint256 k; k < one.length; ++k) {
        if (one[k] != other[k]) return false;
    }
    return true;
}

/// Memory that is allocated between a mark and its release is given back: what is read and not kept can be as long as a proof.
function mark() pure returns (uint256 free) {
    assembly ("memory-safe") {
        free := mload(0x40)
    }
}

function release(uint256 free) pure {
    assembly ("memory-safe") {
        mstore(0x40, free)
    }
}
