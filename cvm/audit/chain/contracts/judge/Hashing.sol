// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {OutOfGas} from "./Refusal.sol";
import {Slice, reversed, wordAt} from "./Reader.sol";

// Preimages and Merkle trees: docs/commitments.md, sections 1 to 3.
//
// A preimage is written behind the allocated memory, part by part: each function writes at a position and returns the
// position behind what it wrote. It is hashed at once, before anything is allocated.

function blank() pure returns (uint256 begin) {
    assembly ("memory-safe") {
        begin := mload(0x40)
    }
}

/// The first `size` bytes of a word. What mstore writes behind them is overwritten by the next part, or not hashed.
function putWord(uint256 position, bytes32 value, uint256 size) pure returns (uint256) {
    assembly ("memory-safe") {
        mstore(position, value)
    }
    unchecked {
        return position + size;
    }
}

function putU64(uint256 position, uint256 value) pure returns (uint256) {
    return putWord(position, bytes32(reversed(value) << 192), 8);
}

/// Bytes of the proof, as they stand there.
function putCopy(uint256 position, uint256 place, uint256 size) pure returns (uint256) {
    assembly ("memory-safe") {
        calldatacopy(position, place, size)
    }
    unchecked {
        return position + size;
    }
}

/// SHA-256, by the precompiled contract 2. It fails only without gas.
function hashed(uint256 begin, uint256 end) view returns (bytes32 hash) {
    bool done;
    assembly ("memory-safe") {
        done := staticcall(gas(), 2, begin, sub(end, begin), 0, 32)
        hash := mload(0)
    }
    if (!done) revert OutOfGas();
}

/// The hash of a leaf of a tree: H(00 | bytes of the proof).
function leafHash(uint256 place, uint256 size) view returns (bytes32) {
    uint256 begin = blank();
    return hashed(begin, putCopy(putWord(begin, 0, 1), place, size));
}

/// The hash of an inner node: H(01 | left | right).
function nodeHash(bytes32 left, bytes32 right) view returns (bytes32 hash) {
    bool done;
    assembly ("memory-safe") {
        let begin := mload(0x40)
        mstore8(begin, 1)
        mstore(add(begin, 1), left)
        mstore(add(begin, 33), right)
        done := staticcall(gas(), 2, begin, 65, 0, 32)
        hash := mload(0)
    }
    if (!done) revert OutOfGas();
}

/// H("cvm1:list"0 | u64(count) | root)
function listRoot(uint256 count, bytes32 root) view returns (bytes32) {
    uint256 begin = blank();
    return hashed(begin, putWord(putU64(putWord(begin, "cvm1:list\x00", 10), count), root, 32));
}

/// Whether one leaf, given by its hash, is leaf `index` of the tree of `count` leaves with that root. `path` is its proof.
function proves(bytes32 node, uint256 index, uint256 count, Slice path, bytes32 root) view returns (bool) {
    unchecked {
        if (index >= count) return false;
        uint256 place = path.begin();
        (bool fits, bytes32 found) = _climbed(node, index, count - 1, place, place + 32 * path.count());
        return fits && found == root;
    }
}

/// The root above one node, number `index` of a level whose last node is number `last`. Its path is the words from `place`
/// to `end`; `fits` is whether it needs exactly these.
function _climbed(bytes32 node, uint256 index, uint256 last, uint256 place, uint256 end)
    view
    returns (bool fits, bytes32 root)
{
    unchecked {
        for (; last > 0; last >>= 1) {
            if (index & 1 == 1) {
                if (place == end) return (false, 0);
                node = nodeHash(wordAt(place), node);
                place += 32;
            } else if (index < last) {
                if (place == end) return (false, 0);
                node = nodeHash(node, wordAt(place));
                place += 32;
            }
            index >>= 1;
        }
        return (place == end, node);
    }
}

/// The root of the tree of `count` leaves with these leaves, given by ascending numbers and hashes, and their one proof.
/// `fits` is false if there is no such tree: then the root means nothing. Both arrays are overwritten.
function rootOf(uint256[] memory numbers, bytes32[] memory nodes, uint256 count, Slice path)
    view
    returns (bool fits, bytes32 root)
{
    unchecked {
        uint256 n = numbers.length;
        if (n == 0 || numbers[n - 1] >= count) return (false, 0);
        uint256 place = path.begin();
        uint256 end = place + 32 * path.count();
        uint256 last = count - 1;
        for (; n > 1 && last > 0; last >>= 1) {
            uint256 kept;
            for (uint256 i; i < n; ++i) {
                uint256 k = numbers[i];
                bytes32 node = nodes[i];
                if (k & 1 == 0 && i + 1 < n && numbers[i + 1] == k + 1) {
                    node = nodeHash(node, nodes[++i]);
                } else if (k ^ 1 <= last) {
                    if (place == end) return (false, 0);
                    bytes32 other = wordAt(place);
                    place += 32;
                    node = k & 1 == 1 ? nodeHash(other, node) : nodeHash(node, other);
                }
                (numbers[kept], nodes[kept]) = (k >> 1, node);
                ++kept;
            }
            n = kept;
        }
        return _climbed(nodes[0], numbers[0], last, place, end);
    }
}
