// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Boxes, LEAVES, boxesOf, longestLast} from "../Chunks.sol";
import {FamilyJudge} from "../FamilyJudge.sol";
import {clamp, magnitude, realAxis, rounded} from "../Numbers.sol";
import {Operand} from "../Operand.sol";
import {sameShape} from "../Reader.sol";
import {Attribute, Op} from "../Records.sol";
import {demand, refuse} from "../Refusal.sol";
import {Run} from "../Run.sol";

/// The ops that add weighted terms and round once: requantize, quotient, normalize.
contract QuotientJudge is FamilyJudge {
    int256 private constant SHIFT_MOST = 62;

    function step(Run memory run) internal view override returns (int256) {
        bytes32 name = run.op.name;
        if (name == "requantize") return _requantize(run);
        if (name == "quotient") return _quotient(run);
        if (name == "normalize") return _normalize(run);
        refuse("op");
    }

    /// m_i x_i; the factors stand `terms` places behind the terms.
    function _term(Run memory run, uint256 i, uint256 terms) private view returns (int256) {
        Operand memory x = run.operand(i);
        Operand memory m = run.operand(terms + i);
        return m.aligned(run.d) * x.aligned(run.d);
    }

    function _clip(Op memory op, int256 v) private pure returns (int256) {
        return clamp(v, op.integerOf("lo"), op.integerOf("hi"));
    }

    /// clip(round((sum_i m_i x_i + c) / 2^s), lo, hi). Operands: x_1 .. x_n, m_1 .. m_n, c, s. A step is a term.
    function _requantize(Run memory run) private view returns (int256 v) {
        uint256 n = (run.count - 2) / 2;
        v = run.enter(n, 0) + _term(run, run.number(), n);
        if (!run.isLast) return v;
        Operand memory c = run.operand(2 * n);
        Operand memory s = run.operand(2 * n + 1);
        v += c.aligned(run.d);
        int256 shift = s.aligned(run.d);
        demand(shift >= 0 && shift <= SHIFT_MOST, "op");
        return _clip(run.op, rounded(v, int256(1) << uint256(shift), run.op.textOf("rounding")));
    }

    /// clip(round(N / D), lo, hi), N = sum m_i x_i + c, D = sum w_j y_j + e. Operands: x, y, m, w, c, e. A step is a term
    /// of N; the last one computes D and divides.
    function _quotient(Run memory run) private view returns (int256 v) {
        uint256 n = uint256(run.op.integerOf("terms"));
        uint256 all = (run.count - 2) / 2;
        demand(n < all, "op");
        v = run.enter(n + 1, 0);
        uint256 i = run.number();
        if (i < n) {
            v += _term(run, i, all);
            return i == n - 1 ? v + run.operand(2 * all).aligned(run.d) : v;
        }
        int256 divisor;
        for (uint256 j = n; j < all; ++j) {
            divisor += _term(run, j, all);
        }
        divisor += run.operand(2 * all + 1).aligned(run.d);
        demand(divisor > 0, "op");
        return _clip(run.op, rounded(v, divisor, run.op.textOf("rounding")));
    }

    // normalize

    /// clip(round((m t / sqrt(Q + e 2^shift / r^2) + c) / k), lo, hi), with t and Q from the sum S_1 of the row and the sum
    /// S_2 of its squares. The partials hold both: S_2 2^64 + S_1. Every step but the last one adds a box of the row.
    function _normalize(Run memory run) private view returns (int256) {
        Operand memory x = run.operand(0);
        demand(sameShape(x.shape, run.op.shapes[0]), "shape");
        uint256[][] memory strides = new uint256[][](1);
        uint256[] memory axes;
        uint256[] memory space;
        (axes, space, strides[0]) = _rowOf(run.op.attribute("axes"), x.shape);
        Boxes memory boxes = boxesOf(space, strides, LEAVES);
        int256 before = run.enter(boxes.count + 1, 0);
        if (run.isLast) return _code(run, x, before, _product(space));
        uint256 base;
        uint256 reduced;
        for (uint256 i; i < axes.length; ++i) {
            reduced |= 1 << axes[i];
        }
        for (uint256 i; i < x.shape.length; ++i) {
            base = base * x.shape[i] + ((reduced >> i) & 1 == 1 ? 0 : run.d[i]);
        }
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        longestLast(strides[0], from, to);
        return _overBox(x, before, base, strides[0], from, to, 0);
    }

    /// The axes of a row in the order of the attribute, their extents and their strides.
    function _rowOf(Attribute memory attribute, uint256[] memory shape)
        private
        pure
        returns (uint256[] memory axes, uint256[] memory space, uint256[] memory strides)
    {
        uint256 n = attribute.items.count();
        (axes, space, strides) = (new uint256[](n), new uint256[](n), new uint256[](n));
        for (uint256 i; i < n; ++i) {
            axes[i] = realAxis(attribute.item(i), shape.length);
            (space[i], strides[i]) = (shape[axes[i]], 1);
            for (uint256 k = axes[i] + 1; k < shape.length; ++k) {
                strides[i] *= shape[k];
            }
        }
    }

    function _product(uint256[] memory space) private pure returns (int256 n) {
        n = 1;
        for (uint256 i; i < space.length; ++i) {
            n *= int256(space[i]);
        }
    }

    function _overBox(
        Operand memory x,
        int256 total,
        uint256 base,
        uint256[] memory strides,
        uint256[] memory from,
        uint256[] memory to,
        uint256 axis
    ) private pure returns (int256) {
        if (axis == from.length) {
            int256 v = x.get(base);
            return total + ((v * v) << 64) + v;
        }
        uint256 place = base + from[axis] * strides[axis];
        for (uint256 k = from[axis]; k < to[axis]; ++k) {
            total = _overBox(x, total, place, strides, from, to, axis + 1);
            place += strides[axis];
        }
        return total;
    }

    /// What the code is compared with: Y >= q exactly if left |left| is at least T |T| V, with T = (2 q - 1) k - 2 c. In a
    /// valid program both have fewer than 256 bits (docs/ops.md, normalize, C5 to C8); else the arithmetic panics.
    struct Comparison {
        int256 squared;
        int256 V;
        int256 k;
        int256 c;
        bool halfUp;
    }

    function _code(Run memory run, Operand memory x, int256 before, int256 n) private view returns (int256 below) {
        int256 sum = int256(int64(uint64(uint256(before))));
        int256 squares = (before - sum) >> 64;
        int256 t = x.element(run.d);
        int256 Q = squares;
        bytes32 statistic = run.op.textOf("statistic");
        if (statistic == "variance") (t, Q) = (n * t - sum, n * squares - sum * sum);
        else if (statistic == "mean_square") (t, Q) = (n * t, n * squares);
        Comparison memory comparison = _comparison(run, t, Q);
        int256 above = run.op.integerOf("hi") + 1;
        below = run.op.integerOf("lo");
        // Halves [lo, hi + 1): the code is the largest q that Y reaches.
        while (above - below > 1) {
            int256 q = (below + above) >> 1;
            if (_reaches(comparison, q)) below = q;
            else above = q;
        }
    }

    function _comparison(Run memory run, int256 t, int256 Q) private view returns (Comparison memory) {
        int256 m = run.operand(1).aligned(run.d);
        int256 c = run.operand(2).aligned(run.d);
        int256 k = run.operand(3).aligned(run.d);
        int256 r = run.operand(4).aligned(run.d);
        int256 e = run.operand(5).aligned(run.d);
        int256 V = r * r * Q + e * int256(1 << uint256(run.op.integerOf("shift")));
        int256 left = 2 * m * t * r;
        return Comparison(left * magnitude(left), V, k, c, run.op.textOf("rounding") == "half_up");
    }

    function _reaches(Comparison memory s, int256 q) private pure returns (bool) {
        int256 T = (2 * q - 1) * s.k - 2 * s.c;
        int256 right = T * magnitude(T) * s.V;
        bool tie = s.halfUp || q & 1 == 0;
        return s.squared > right || (tie && s.squared == right);
    }
}
