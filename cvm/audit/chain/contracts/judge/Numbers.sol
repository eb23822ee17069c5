// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {demand} from "./Refusal.sol";
import {Attribute} from "./Records.sol";

// Integers as the definitions of the ops use them.

int256 constant NO_ELEMENT = -(2 ** 31);

function least(int256 a, int256 b) pure returns (int256) {
    return a < b ? a : b;
}

function most(int256 a, int256 b) pure returns (int256) {
    return a > b ? a : b;
}

function clamp(int256 v, int256 lo, int256 hi) pure returns (int256) {
    return most(lo, least(v, hi));
}

function magnitude(int256 v) pure returns (int256) {
    return v < 0 ? -v : v;
}

/// The largest integer that is not above a / b.
function floorDiv(int256 a, int256 b) pure returns (int256 q) {
    q = a / b;
    if (a % b != 0 && (a < 0) != (b < 0)) --q;
}

/// v / by, rounded once; by > 0.
function rounded(int256 v, int256 by, bytes32 rounding) pure returns (int256 floor) {
    floor = floorDiv(v, by);
    int256 twice = 2 * (v - floor * by);
    bool up;
    if (rounding == "half_up") up = twice >= by;
    else if (rounding == "toward_zero") up = v < 0 && twice > 0;
    else up = twice > by || (twice == by && floor & 1 == 1); // half_even
    if (up) ++floor;
}

/// An axis of a tensor of that rank; negative ones count from the end.
function realAxis(int256 axis, uint256 rank) pure returns (uint256) {
    if (axis < 0) axis += int256(rank);
    demand(axis >= 0 && axis < int256(rank), "op");
    return uint256(axis);
}

/// A bit for each axis of a list that the tensor has.
function axisSet(Attribute memory axes, uint256 rank) pure returns (uint256 set) {
    for (uint256 i; i < axes.items.count(); ++i) {
        int256 axis = axes.item(i);
        if (axis < 0) axis += int256(rank);
        if (axis >= 0 && axis < int256(rank)) set |= 1 << uint256(axis);
    }
}

/// The number of an index, row-major.
function numberOf(uint256[] memory d, uint256[] memory extents) pure returns (uint256 n) {
    for (uint256 k; k < d.length; ++k) {
        n = n * extents[k] + d[k];
    }
}

/// An index with another entry along one axis.
function replaced(uint256[] memory d, uint256 axis, uint256 i) pure returns (uint256[] memory e) {
    e = copied(d);
    e[axis] = i;
}

function copied(uint256[] memory d) pure returns (uint256[] memory e) {
    e = new uint256[](d.length);
    for (uint256 k; k < d.length; ++k) {
        e[k] = d[k];
    }
}
