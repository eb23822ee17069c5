// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Boxes, TERMS, boxesOf} from "../Chunks.sol";
import {FamilyJudge} from "../FamilyJudge.sol";
import {least, most, replaced} from "../Numbers.sol";
import {Operand} from "../Operand.sol";

import {demand, refuse} from "../Refusal.sol";
import {Run} from "../Run.sol";

/// The ops that count and search: concatenate, get_valid_count, non_max_suppression with its certificate.
///
/// A search has partials of two kinds: an element that was found, or SEARCHING + n, where n items are still to skip.
contract SearchJudge is FamilyJudge {
    int256 private constant SEARCHING = 2 ** 32;
    /// The operands of a concatenate that one step looks at.
    uint256 private constant PARTS = 8;
    /// The most leaves of the scores that a step of `rank` compares with one more.
    uint256 private constant RANK_LEAVES = 7;
    /// The operands of non_max_suppression: X, valid_count, and the certificate.
    uint256 private constant RANK = 2;
    uint256 private constant ORDER = 3;
    uint256 private constant KEPT = 4;

    function step(Run memory run) internal view override returns (int256) {
        bytes32 name = run.op.name;
        uint256 target = run.proof.target;
        if (name == "concatenate") return _concatenate(run);
        if (name == "get_valid_count") return target == 0 ? _validCount(run) : _validRow(run);
        if (name != "non_max_suppression") refuse("op");
        if (target == 0) return _rank(run);
        if (target == 1) return _order(run);
        return target == 2 ? _kept(run) : _keptRow(run);
    }

    /// Walks the operands: skips those that end before the element.
    function _concatenate(Run memory run) private view returns (int256) {
        int256 rank = int256(run.d.length);
        int256 axis_ = run.op.integerOf("axis") % rank;
        uint256 axis = uint256(axis_ < 0 ? axis_ + rank : axis_);
        int256 before = run.enter((run.count + PARTS - 1) / PARTS, SEARCHING + int256(run.d[axis]));
        if (before < SEARCHING) return before;
        uint256 rest = uint256(before - SEARCHING);
        uint256 begin = PARTS * run.number();
        for (uint256 k = begin; k < begin + PARTS && k < run.count; ++k) {
            Operand memory x = run.operand(k);
            if (rest < x.extent(axis)) return x.element(replaced(run.d, axis, rest));
            rest -= x.shape[axis];
        }
        return SEARCHING + int256(rest);
    }

    /// An extent in parts of at most 256 elements: the number of parts.
    function _parts(uint256 extent_, uint256 size) private pure returns (uint256) {
        uint256 part = _part(size);
        return (extent_ + part - 1) / part;
    }

    function _part(uint256 size) private pure returns (uint256) {
        return size >= TERMS ? 1 : TERMS / size;
    }

    /// Where the part of this step ends.
    function _end(uint256 begin, uint256 part, uint256 extent_) private pure returns (uint256) {
        return begin + part < extent_ ? begin + part : extent_;
    }

    /// What a search gives when it has not found its element in this step.
    function _unfound(Run memory run, int256 before) private pure returns (int256) {
        return run.isLast ? int256(-1) : before;
    }

    function _at(Operand memory x, uint256 a, uint256 b) private pure returns (int256) {
        demand(x.shape.length == 2 && a < x.shape[0] && b < x.shape[1], "op");
        return x.get(a * x.shape[1] + b);
    }

    function _at(Operand memory x, uint256 a, uint256 b, uint256 c) private pure returns (int256) {
        demand(x.shape.length == 3 && a < x.shape[0] && b < x.shape[1] && c < x.shape[2], "op");
        return x.get((a * x.shape[1] + b) * x.shape[2] + c);
    }

    /// A row that an operand names, as an index.
    function _row(int256 row) private pure returns (uint256) {
        demand(row >= 0, "op");
        return uint256(row);
    }

    // get_valid_count: a row is valid if its score, X[b, n, 1], is above the threshold

    function _validCount(Run memory run) private view returns (int256 valid) {
        Operand memory x = run.operand(0);
        demand(x.shape.length == 3, "op");
        valid = run.enter(_parts(x.shape[1], x.shape[2]), 0);
        demand(run.d.length == 1, "op");
        int256 threshold = run.op.integerOf("score_threshold");
        uint256 part = _part(x.shape[2]);
        uint256 begin = part * run.number();
        for (uint256 n = begin; n < _end(begin, part, x.shape[1]); ++n) {
            if (_at(x, run.d[0], n, 1) > threshold) ++valid;
        }
    }

    function _validRow(Run memory run) private view returns (int256 before) {
        Operand memory x = run.operand(0);
        demand(x.shape.length == 3 && run.d.length == 3, "op");
        before = run.enter(_parts(x.shape[1], x.shape[2]), SEARCHING + int256(run.d[1]));
        if (before < SEARCHING) return before;
        int256 threshold = run.op.integerOf("score_threshold");
        uint256 part = _part(x.shape[2]);
        uint256 begin = part * run.number();
        for (uint256 n = begin; n < _end(begin, part, x.shape[1]); ++n) {
            if (_at(x, run.d[0], n, 1) <= threshold) continue;
            if (before == SEARCHING) return _at(x, run.d[0], n, run.d[2]);
            --before;
        }
        return _unfound(run, before);
    }

    // non_max_suppression: docs/commitments.md, section 9, has the folds of the certificate

    /// The rank of row i by falling score, ties by number: how many rows come before it. -1 from row T on.
    function _rank(Run memory run) private view returns (int256 before) {
        (Operand memory x, Operand memory valid) = (run.operand(0), run.operand(1));
        demand(x.shape.length == 3, "op");
        uint256[][] memory strides = new uint256[][](1);
        uint256[] memory space = new uint256[](1);
        strides[0] = new uint256[](1);
        (space[0], strides[0][0]) = (x.shape[1], x.shape[2]);
        Boxes memory boxes = boxesOf(space, strides, RANK_LEAVES);
        before = run.enter(boxes.count, 0);
        (uint256 b, uint256 i) = (run.d[0], run.d[1]);
        uint256[] memory batch = new uint256[](1);
        batch[0] = b;
        int256 T = most(least(int256(x.shape[1]), valid.element(batch)), 0);
        if (int256(i) >= T) return -1;
        int256 score = _at(x, b, i, 1);
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        for (uint256 k = from[0]; k < to[0] && int256(k) < T; ++k) {
            if (k == i) continue;
            int256 other = _at(x, b, k, 1);
            if (other > score || (other == score && k < i)) ++before;
        }
    }

    /// The row of rank p, or -1.
    function _order(Run memory run) private view returns (int256 before) {
        Operand memory ranks = run.operand(RANK);
        before = run.enter(_parts(ranks.extent(1), 1), SEARCHING);
        if (before < SEARCHING) return before;
        uint256 begin = TERMS * run.number();
        for (uint256 i = begin; i < _end(begin, TERMS, ranks.shape[1]); ++i) {
            if (_at(ranks, run.d[0], i) != int256(run.d[1])) continue;
            if (before == SEARCHING) return int256(i);
            --before;
        }
        return _unfound(run, before);
    }

    /// 1 if the row of rank p is in U, else 0. Step q < p tests the row of rank q; step p asks whether p counts at all.
    function _kept(Run memory run) private view returns (int256) {
        (Operand memory x, Operand memory rows, Operand memory kept) =
            (run.operand(0), run.operand(ORDER), run.operand(KEPT));
        (uint256 b, uint256 p, uint256 q) = (run.d[0], run.d[1], run.number());
        int256 before = run.enter(p + 1, 1);
        if (before == 0) return 0;
        int256 row = _at(rows, b, p);
        if (row < 0) return 0;
        if (q == p) {
            int256 topK = run.op.integerOf("top_k");
            bool counts = topK < 0 || int256(p) < topK;
            return counts && _at(x, b, uint256(row), 0) >= 0 ? int256(1) : int256(0);
        }
        if (_at(kept, b, q) != 1) return 1;
        int256[6] memory r = _box(x, b, _row(_at(rows, b, q)));
        int256[6] memory s = _box(x, b, uint256(row));
        bool rivals = run.op.isTrue("force_suppress") || r[0] == s[0];
        return rivals && _overlap(r, s, run.op.integerOf("iou_threshold")) ? int256(0) : int256(1);
    }

    /// A row: id, score, left, top, right, bottom.
    function _box(Operand memory x, uint256 b, uint256 row) private pure returns (int256[6] memory box) {
        for (uint256 k; k < 6; ++k) {
            box[k] = _at(x, b, row, k);
        }
    }

    /// Whether the boxes share at least `threshold` hundredths of what they cover together.
    function _overlap(int256[6] memory r, int256[6] memory s, int256 threshold) private pure returns (bool) {
        int256 areas = (r[4] - r[2]) * (r[5] - r[3]) + (s[4] - s[2]) * (s[5] - s[3]);
        int256 width = most(0, least(r[4], s[4]) - most(r[2], s[2]));
        int256 both = width * most(0, least(r[5], s[5]) - most(r[3], s[3]));
        return areas > 0 && areas > both && 100 * both >= threshold * (areas - both);
    }

    /// The output: row n of those kept, or -1.
    function _keptRow(Run memory run) private view returns (int256 before) {
        (Operand memory x, Operand memory rows, Operand memory kept) =
            (run.operand(0), run.operand(ORDER), run.operand(KEPT));
        demand(run.d.length == 3, "op");
        uint256 extent_ = run.op.shapes[0][1];
        before = run.enter(_parts(extent_, 1), SEARCHING + int256(run.d[1]));
        if (before < SEARCHING) return before;
        int256 limit = run.op.integerOf("max_output_size");
        if (limit >= 0 && limit <= int256(run.d[1])) return -1;
        uint256 begin = TERMS * run.number();
        for (uint256 p = begin; p < _end(begin, TERMS, extent_); ++p) {
            if (_at(kept, run.d[0], p) != 1) continue;
            if (before == SEARCHING) return _at(x, run.d[0], _row(_at(rows, run.d[0], p)), run.d[2]);
            --before;
        }
        return _unfound(run, before);
    }
}
