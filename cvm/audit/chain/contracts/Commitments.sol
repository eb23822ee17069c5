// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// The preimages and trees of docs/commitments.md that the game and the book recompute. Integers are little-endian there.
library Commitments {
    /// The bytes end before the value that is read from them.
    error Truncated();
    /// A path is longer or shorter than the tree is high, or the tree has no such leaf.
    error BadPath();

    // Integers (section 1)

    function u32(uint32 value) internal pure returns (bytes4) {
        value = ((value & 0xff00ff00) >> 8) | ((value & 0x00ff00ff) << 8);
        return bytes4((value >> 16) | (value << 16));
    }

    function u64(uint64 value) internal pure returns (bytes8) {
        return bytes8((uint64(uint32(u32(uint32(value)))) << 32) | uint32(u32(uint32(value >> 32))));
    }

    /// A signed integer of 16 bytes, from one of 4 bytes.
    function i128(int32 value) internal pure returns (bytes16) {
        bytes12 sign = value < 0 ? bytes12(type(uint96).max) : bytes12(0);
        return bytes16(bytes.concat(u32(uint32(value)), sign));
    }

    function readU32(bytes calldata data, uint256 offset) internal pure returns (uint32) {
        if (offset + 4 > data.length) revert Truncated();
        return uint32(u32(uint32(bytes4(data[offset:offset + 4]))));
    }

    function readU64(bytes calldata data, uint256 offset) internal pure returns (uint64) {
        if (offset + 8 > data.length) revert Truncated();
        return uint64(u64(uint64(bytes8(data[offset:offset + 8]))));
    }

    function readHash(bytes calldata data, uint256 offset) internal pure returns (bytes32) {
        if (offset + 32 > data.length) revert Truncated();
        return bytes32(data[offset:offset + 32]);
    }

    // Trees (section 2)

    function node(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(hex"01", left, right));
    }

    function leaf(bytes memory content) internal pure returns (bytes32) {
        return sha256(bytes.concat(hex"00", content));
    }

    /// The root of a tree of `count` leaves in which leaf `index` has this hash and this path.
    function rootOf(bytes32 hash, uint256 index, uint256 count, bytes32[] calldata path)
        internal
        pure
        returns (bytes32)
    {
        if (index >= count) revert BadPath();
        uint256 used;
        for (uint256 last = count - 1; last > 0; last >>= 1) {
            if (index & 1 == 1 || index < last) {
                if (used == path.length) revert BadPath();
                bytes32 neighbour = path[used++];
                hash = index & 1 == 1 ? node(neighbour, hash) : node(hash, neighbour);
            } // else: this node moved up unchanged
            index >>= 1;
        }
        if (used != path.length) revert BadPath();
        return hash;
    }

    /// The number of the first leaf of the right child of the node over the leaves start .. end - 1 (end - start > 1).
    function split(uint32 start, uint32 end) internal pure returns (uint32) {
        uint32 half = 1;
        while (uint256(half) * 2 < end - start) half *= 2;
        return start + half;
    }

    // Roots of lists, programs and runs (sections 5 and 8)

    function listRoot(uint64 count, bytes32 root) internal pure returns (bytes32) {
        return sha256(abi.encodePacked("cvm1:list\x00", u64(count), root));
    }

    /// The head of a trace. `beginning` is roots(inputs) | roots(state before).
    function head(bytes32 program, bytes calldata beginning, bytes32 log) internal pure returns (bytes32) {
        return sha256(abi.encodePacked("cvm1:trace\x00", program, beginning, log));
    }

    /// The leaf of the log for an op, whose outputs have `roots`: u32(number) | 32 bytes each.
    function logLeaf(uint32 op, bytes calldata roots) internal pure returns (bytes32) {
        return sha256(abi.encodePacked("\x00cvm1:step\x00", u32(op), roots));
    }

    /// The place after the list of roots that begins at `at`, and the number of its roots.
    function skipRoots(bytes calldata data, uint256 offset) internal pure returns (uint256 end, uint256 count) {
        count = readU32(data, offset);
        end = offset + 4 + 32 * count;
        if (end > data.length) revert Truncated();
    }
}
