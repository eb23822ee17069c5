// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

// An index space in boxes of one size: docs/commitments.md, section 9, "Chunks".

uint256 constant TERMS = 256;
// The most leaves of one operand that a box touches, and of all operands together.
uint256 constant LEAVES_OF_ONE = 8;
uint256 constant LEAVES = 9;
// Elements of an int32 tensor in one leaf.
uint256 constant LEAF_ELEMENTS = 256;

struct Boxes {
    uint256[] space;
    uint256[] box;
    /// The number of boxes along each axis, and in all.
    uint256[] grid;
    uint256 count;
}

/// What is known of one operand while a box grows from the innermost axis outward.
struct Reach {
    /// The elements between the first and the last one that the box touches.
    uint256 span;
    /// The most leaves that the axes so far touch.
    uint256 leaves;
}

/// Boxes of an index space over which one operand is read, or two. `strides` are the distances in elements between
/// neighbours along each axis of the space.
function boxesOf(uint256[] memory space, uint256[][] memory strides, uint256 most) pure returns (Boxes memory b) {
    uint256 rank = space.length;
    b.space = space;
    b.box = new uint256[](rank);
    b.grid = new uint256[](rank);
    b.count = 1;
    Reach[] memory reach = new Reach[](strides.length);
    for (uint256 i; i < strides.length; ++i) {
        reach[i].leaves = 1;
    }
    bool growing = true;
    uint256 terms = 1;
    for (uint256 axis = rank; axis > 0;) {
        --axis;
        uint256 n = 1;
        if (growing) {
            n = _longest(space[axis], TERMS / terms, axis, strides, reach, most);
            terms *= n;
            growing = n == space[axis];
            for (uint256 i; i < strides.length; ++i) {
                reach[i].leaves = _leaves(reach[i], strides[i][axis], n);
                reach[i].span += strides[i][axis] * (n - 1);
            }
        }
        b.box[axis] = n;
        b.grid[axis] = (space[axis] + n - 1) / n;
        b.count *= b.grid[axis];
    }
}

/// The largest extent along an axis that is allowed. What fits grows with the extent, so it can be halved in.
function _longest(
    uint256 extent,
    uint256 terms,
    uint256 axis,
    uint256[][] memory strides,
    Reach[] memory reach,
    uint256 most
) pure returns (uint256) {
    uint256 high = extent < terms ? extent : terms;
    if (_fits(high, axis, strides, reach, most)) return high;
    uint256 low = 1;
    while (high - low > 1) {
        uint256 middle = (low + high) / 2;
        if (_fits(middle, axis, strides, reach, most)) low = middle;
        else high = middle;
    }
    return low;
}

function _fits(uint256 n, uint256 axis, uint256[][] memory strides, Reach[] memory reach, uint256 most)
    pure
    returns (bool)
{
    if (n <= 1) return true;
    uint256 touched;
    for (uint256 i; i < strides.length; ++i) {
        uint256 leaves = _leaves(reach[i], strides[i][axis], n);
        if (leaves > LEAVES_OF_ONE) return false;
        touched += leaves;
    }
    return touched <= most;
}

/// min(1 + ceil(span / 256), n * leaves of the axes inside)
function _leaves(Reach memory inside, uint256 stride, uint256 n) pure returns (uint256) {
    uint256 span = inside.span + stride * (n - 1);
    uint256 bySpan = 1 + (span + LEAF_ELEMENTS - 1) / LEAF_ELEMENTS;
    uint256 byParts = n * inside.leaves;
    return bySpan < byParts ? bySpan : byParts;
}

using {bounds} for Boxes global;

/// Along each axis, where box `j` begins and where it ends.
function bounds(Boxes memory b, uint256 j) pure returns (uint256[] memory from, uint256[] memory to) {
    uint256 rank = b.space.length;
    from = new uint256[](rank);
    to = new uint256[](rank);
    unchecked {
        for (uint256 axis = rank; axis > 0;) {
            --axis;
            uint256 k = j % b.grid[axis];
            j /= b.grid[axis];
            from[axis] = k * b.box[axis];
            uint256 end = from[axis] + b.box[axis];
            to[axis] = end < b.space[axis] ? end : b.space[axis];
        }
    }
}

/// Swaps the longest axis of a box with the last one. Whoever goes over a box axis by axis, and does not care for the order,
/// then enters the innermost loop least often: axes of one index outside it cost nothing for each element.
function longestLast(uint256[] memory strides, uint256[] memory from, uint256[] memory to) pure {
    uint256 rank = from.length;
    if (rank == 0) return;
    uint256 longest;
    for (uint256 k = 1; k < rank; ++k) {
        if (to[k] - from[k] > to[longest] - from[longest]) longest = k;
    }
    (strides[longest], strides[rank - 1]) = (strides[rank - 1], strides[longest]);
    (from[longest], from[rank - 1]) = (from[rank - 1], from[longest]);
    (to[longest], to[rank - 1]) = (to[rank - 1], to[longest]);
}
