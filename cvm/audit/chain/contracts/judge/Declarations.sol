// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Slice, asWord, i64At} from "./Reader.sol";
import {Attribute, BOOLEAN, INTEGER, INTEGERS, Op, STRING} from "./Records.sol";

// What an op may be: its inputs, outputs and attributes, and the limits of each. docs/ops.md has them all.
// Attributes stand in the order of their names, so each has its place.

int256 constant MOST = 2 ** 31 - 1;
int256 constant LEAST_AXIS = -(2 ** 31);
int256 constant MOST_PIXELS = 4096;

/// Whether there is an op of that name with these numbers of inputs and outputs and these attributes.
function isDeclared(Op memory op) pure returns (bool) {
    bytes32 n = op.name;
    uint256 outputs = n == "get_valid_count" ? 2 : 1;
    return op.outputCount == outputs && (_hasAttributes(op, n) || _isPlain(op, n));
}

/// The ops that op-set 1 does not have.
function isOfOpSet2(bytes32 n) pure returns (bool) {
    return n == "matmul" || n == "quotient" || n == "normalize" || n == "update_slice";
}

/// The ops without attributes.
function _isPlain(Op memory op, bytes32 n) pure returns (bool) {
    if (op.attributeCount != 0) return false;
    if (n == "dense") return _inputs(op, 2, 3);
    if (n == "where") return _inputs(op, 3, 3);
    if (n == "relu" || n == "abs" || n == "negative" || n == "cvm_precision" || n == "flatten") return _inputs(op, 1, 1);
    bool two = n == "elemwise_add" || n == "elemwise_sub" || n == "broadcast_add" || n == "broadcast_sub"
        || n == "broadcast_mul" || n == "broadcast_div" || n == "broadcast_max" || n == "broadcast_greater"
        || n == "cvm_lut" || n == "take";
    return two && _inputs(op, 2, 2);
}

function _hasAttributes(Op memory op, bytes32 n) pure returns (bool) {
    if (n == "requantize") {
        return _shaped(op, 3, 4, 18) && _clips(op) && _rounds(op, true);
    }
    if (n == "conv2d") {
        return _shaped(op, 4, 2, 3) && _pair(op, 0, "dilation", 1, MOST_PIXELS) && _extent(op, 1, "groups")
            && _pair(op, 2, "padding", 0, MOST_PIXELS) && _pair(op, 3, "stride", 1, MOST_PIXELS);
    }
    if (n == "concatenate") return _shaped(op, 1, 1, 1 << 32) && _axis(op, 0, "axis");
    if (n == "clip") return _shaped(op, 2, 1, 1) && _element(op, 0, "a_max") && _element(op, 1, "a_min");
    if (n == "sum" || n == "max") {
        return _shaped(op, 3, 1, 1) && _axes(op, 0, "axes") && _boolean(op, 1, "exclude") && _boolean(op, 2, "keepdims");
    }
    if (n == "reshape") return _shaped(op, 1, 1, 1) && _several(op, 0, "target_shape", 1, MOST, 1, 8);
    if (n == "max_pool2d") {
        return _shaped(op, 4, 1, 1) && _boolean(op, 0, "ceil_mode") && _pair(op, 1, "padding", 0, MOST_PIXELS)
            && _pair(op, 2, "pool_size", 1, MOST) && _pair(op, 3, "strides", 1, MOST_PIXELS);
    }
    if (n == "matmul") return _shaped(op, 2, 2, 2) && _boolean(op, 0, "transpose_a") && _boolean(op, 1, "transpose_b");
    if (n == "quotient") {
        return _shaped(op, 4, 6, 20) && _clips(op) && _rounds(op, true) && _integer(op, 3, "terms", 1, 6);
    }
    if (n == "normalize") {
        return _shaped(op, 6, 6, 6) && _axes(op, 0, "axes") && _element(op, 1, "hi") && _element(op, 2, "lo")
            && _roundsAt(op, 3, false) && _integer(op, 4, "shift", 0, 62) && _isStatistic(op, 5);
    }
    if (n == "update_slice") return _shaped(op, 1, 3, 3) && _axis(op, 0, "axis");
    if (n == "cvm_clip") return _shaped(op, 1, 1, 1) && _bits(op, 0, "precision");
    if (n == "cvm_right_shift" || n == "cvm_left_shift") {
        return _shaped(op, 2, 1, 1) && _bits(op, 0, "precision") && _bits(op, 1, "shift_bit");
    }
    if (n == "upsampling") return _shaped(op, 1, 1, 1) && _integer(op, 0, "scale", 1, MOST_PIXELS);
    if (n == "repeat") return _shaped(op, 2, 1, 1) && _axis(op, 0, "axis") && _extent(op, 1, "repeats");
    if (n == "tile") return _shaped(op, 1, 1, 1) && _several(op, 0, "reps", 1, MOST_PIXELS, 1, 8);
    if (n == "transpose" || n == "squeeze") return _shaped(op, 1, 1, 1) && _axes(op, 0, "axes");
    if (n == "slice_like") return _shaped(op, 1, 2, 2) && _axes(op, 0, "axes");
    if (n == "slice") return _shaped(op, 3, 1, 1) && _axes(op, 0, "begin") && _axes(op, 1, "end") && _axes(op, 2, "strides");
    if (n == "take") return _shaped(op, 1, 2, 2) && _axis(op, 0, "axis"); // without an axis, it is a plain op
    if (n == "expand_dims") {
        return _shaped(op, 2, 1, 1) && _axis(op, 0, "axis") && _integer(op, 1, "num_newaxis", 0, MOST_PIXELS);
    }
    if (n == "get_valid_count") return _shaped(op, 1, 1, 1) && _element(op, 0, "score_threshold");
    if (n == "non_max_suppression") {
        return _shaped(op, 4, 2, 2) && _boolean(op, 0, "force_suppress") && _extent(op, 1, "iou_threshold")
            && _axis(op, 2, "max_output_size") && _axis(op, 3, "top_k");
    }
    return false;
}

function _inputs(Op memory op, uint256 least, uint256 most) pure returns (bool) {
    return least <= op.inputs.count() && op.inputs.count() <= most;
}

function _shaped(Op memory op, uint256 attributes, uint256 least, uint256 most) pure returns (bool) {
    return op.attributeCount == attributes && _inputs(op, least, most);
}

// The kinds of attributes

function _boolean(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    Attribute memory a = op.attributes[i];
    return a.key == key && a.kind == BOOLEAN;
}

function _integer(Op memory op, uint256 i, bytes32 key, int256 least, int256 most) pure returns (bool) {
    Attribute memory a = op.attributes[i];
    return a.key == key && a.kind == INTEGER && least <= a.value && a.value <= most;
}

function _axis(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    return _integer(op, i, key, LEAST_AXIS, MOST);
}

function _element(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    return _integer(op, i, key, -MOST, MOST);
}

function _extent(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    return _integer(op, i, key, 1, MOST);
}

function _bits(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    return _integer(op, i, key, 1, 32);
}

function _several(Op memory op, uint256 i, bytes32 key, int256 least, int256 most, uint256 fewest, uint256 longest)
    pure
    returns (bool)
{
    Attribute memory a = op.attributes[i];
    Slice items = a.items;
    if (a.key != key || a.kind != INTEGERS || items.count() < fewest || items.count() > longest) return false;
    for (uint256 k; k < items.count(); ++k) {
        int256 value = i64At(items.begin() + 8 * k);
        if (value < least || value > most) return false;
    }
    return true;
}

function _axes(Op memory op, uint256 i, bytes32 key) pure returns (bool) {
    return _several(op, i, key, LEAST_AXIS, MOST, 0, 8);
}

function _pair(Op memory op, uint256 i, bytes32 key, int256 least, int256 most) pure returns (bool) {
    return _several(op, i, key, least, most, 2, 2);
}

function _clips(Op memory op) pure returns (bool) {
    return _element(op, 0, "hi") && _element(op, 1, "lo");
}

function _rounds(Op memory op, bool towardZero) pure returns (bool) {
    return _roundsAt(op, 2, towardZero);
}

function _roundsAt(Op memory op, uint256 i, bool towardZero) pure returns (bool) {
    Attribute memory a = op.attributes[i];
    if (a.key != "rounding" || a.kind != STRING) return false;
    bytes32 value = asWord(a.items);
    return value == "half_up" || value == "half_even" || (towardZero && value == "toward_zero");
}

function _isStatistic(Op memory op, uint256 i) pure returns (bool) {
    Attribute memory a = op.attributes[i];
    if (a.key != "statistic" || a.kind != STRING) return false;
    bytes32 value = asWord(a.items);
    return value == "variance" || value == "mean_square" || value == "square_sum";
}
