// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {FamilyJudge} from "../FamilyJudge.sol";
import {clamp, least, magnitude, most} from "../Numbers.sol";
import {Operand} from "../Operand.sol";
import {sameShape} from "../Reader.sol";
import {Op} from "../Records.sol";
import {demand, refuse} from "../Refusal.sol";
import {Run} from "../Run.sol";

/// The ops that compute each element from the elements of its operands at the same place: docs/ops.md, "elemwise" and
/// "broadcast", and `where`. They take one step, which opens all operands.
contract ElementwiseJudge is FamilyJudge {
    function step(Run memory run) internal view override returns (int256) {
        run.enter(1, 0);
        bytes32 name = run.op.name;
        Operand memory x = run.operand(0);
        if (run.op.inputs.count() == 1) {
            _require(sameShape(x.shape, run.op.shapes[0]));
            return _unary(run.op, name, x.element(run.d));
        }
        Operand memory y = run.operand(1);
        if (name == "where") return _where(run, x, y);
        if (name == "elemwise_add" || name == "elemwise_sub") {
            _require(sameShape(x.shape, run.op.shapes[0]));
            int256 p = x.element(run.d);
            int256 q = y.element(run.d);
            return name == "elemwise_add" ? p + q : p - q;
        }
        _require(sameShape(_joint(x.shape, y.shape), run.op.shapes[0]));
        return _binary(name, x.aligned(run.d), y.aligned(run.d));
    }

    function _require(bool fits) private pure {
        demand(fits, "shape");
    }

    function _unary(Op memory op, bytes32 name, int256 v) private pure returns (int256) {
        if (name == "clip") {
            int256 high = op.integerOf("a_max");
            return v >= high ? high : most(op.integerOf("a_min"), v);
        }
        if (name == "relu") return most(0, v);
        if (name == "abs") return magnitude(v);
        if (name == "negative") return -v;
        if (name == "cvm_precision") return _precision(v);
        if (name == "cvm_clip") return _clipped(op, v);
        if (name == "cvm_right_shift") {
            return _clipped(op, ((v >> uint256(op.integerOf("shift_bit") - 1)) + 1) >> 1);
        }
        if (name == "cvm_left_shift") return _clipped(op, v << uint256(op.integerOf("shift_bit")));
        refuse("op");
    }

    /// The number of bits of |v|, at least 1.
    function _precision(int256 v) private pure returns (int256 bits) {
        for (v = magnitude(v); v > 0; v >>= 1) {
            ++bits;
        }
        return most(1, bits);
    }

    function _clipped(Op memory op, int256 v) private pure returns (int256) {
        int256 alpha = (int256(1) << uint256(op.integerOf("precision") - 1)) - 1;
        return clamp(v, -alpha, alpha);
    }

    function _binary(bytes32 name, int256 p, int256 q) private pure returns (int256) {
        if (name == "broadcast_add") return p + q;
        if (name == "broadcast_sub") return p - q;
        if (name == "broadcast_mul") return p * q;
        if (name == "broadcast_div") return q == 0 ? int256(0) : p / q; // truncates toward zero; x / 0 = 0
        if (name == "broadcast_max") return most(p, q);
        if (name == "broadcast_greater") return p > q ? int256(1) : int256(0);
        refuse("op");
    }

    /// The shape to which two shapes broadcast.
    function _joint(uint256[] memory m, uint256[] memory n) private pure returns (uint256[] memory joint) {
        if (m.length < n.length) (m, n) = (n, m);
        joint = new uint256[](m.length);
        uint256 before = m.length - n.length;
        for (uint256 k; k < m.length; ++k) {
            joint[k] = k < before || m[k] > n[k - before] ? m[k] : n[k - before];
        }
    }

    /// The condition has the shape of the operands, or one element for each of their rows.
    function _where(Run memory run, Operand memory condition, Operand memory yes) private view returns (int256) {
        Operand memory no = run.operand(2);
        _require(sameShape(yes.shape, run.op.shapes[0]));
        uint256[] memory place = run.d;
        if (!sameShape(condition.shape, yes.shape)) {
            place = new uint256[](1);
            place[0] = run.d[0];
        }
        return condition.element(place) != 0 ? yes.element(run.d) : no.element(run.d);
    }
}
