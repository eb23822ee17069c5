// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Boxes, LEAVES, boxesOf, longestLast} from "../Chunks.sol";
import {FamilyJudge} from "../FamilyJudge.sol";
import {NO_ELEMENT, axisSet, least, most} from "../Numbers.sol";
import {Operand} from "../Operand.sol";
import {Attribute} from "../Records.sol";
import {demand, refuse} from "../Refusal.sol";
import {Run} from "../Run.sol";

/// The ops that go over an index space in boxes: conv2d, dense, matmul, sum, max, max_pool2d. One step is one box.
contract SumJudge is FamilyJudge {
    function step(Run memory run) internal view override returns (int256) {
        bytes32 name = run.op.name;
        if (name == "conv2d") return _conv2d(run);
        if (name == "dense") return _dense(run);
        if (name == "matmul") return _matmul(run);
        if (name == "sum") return _reduce(run, false);
        if (name == "max") return _reduce(run, true);
        if (name == "max_pool2d") return _maxPool2d(run);
        refuse("op");
    }

    function _row(uint256 a) private pure returns (uint256[] memory row) {
        row = new uint256[](1);
        row[0] = a;
    }

    // conv2d: over (ic, k_i, k_j)

    /// A window along an axis of the photo: it begins at `begin`, perhaps in the padding before 0.
    struct Axis {
        int256 begin;
        uint256 dilation;
        int256 extent;
    }

    /// Indices of a box along one axis: their number, and how far apart neighbours stand in X and in W.
    struct Stretch {
        uint256 count;
        uint256 strideX;
        uint256 strideW;
    }

    function _conv2d(Run memory run) private view returns (int256 total) {
        (Operand memory x, Operand memory w) = (run.operand(0), run.operand(1));
        demand(run.d.length == 4 && x.shape.length == 4 && w.shape.length == 4, "op");
        Axis memory rows = _axis(run, 0, x.shape[2]);
        Axis memory columns = _axis(run, 1, x.shape[3]);
        Boxes memory boxes = _convolutionBoxes(x.shape, w.shape, rows.dilation, columns.dilation);
        total = run.enter(boxes.count, 0);
        uint256 perGroup = w.shape[0] / uint256(run.op.integerOf("groups"));
        uint256 first = run.d[1] / perGroup * w.shape[1];
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        demand(run.d[1] < w.shape[0], "op");
        // Where a box is not as long as an axis, it has one index of all axes outside. So its weights stand in a row.
        uint256 weights = ((run.d[1] * w.shape[1] + from[0]) * w.shape[2] + from[1]) * w.shape[3] + from[2];
        w.touch(weights, (to[0] - from[0]) * (to[1] - from[1]) * (to[2] - from[2]));
        total += _convolvedBox(x, w, [rows, columns], run.d[0], first, weights, from, to);
        if (run.isLast && run.count == 3) total += run.operand(2).element(_row(run.d[1]));
    }

    function _axis(Run memory run, uint256 axis, uint256 extent_) private pure returns (Axis memory) {
        int256 stride = run.op.attribute("stride").item(axis);
        int256 padding = run.op.attribute("padding").item(axis);
        uint256 dilation = uint256(run.op.attribute("dilation").item(axis));
        return Axis(int256(run.d[2 + axis]) * stride - padding, dilation, int256(extent_));
    }

    function _convolutionBoxes(uint256[] memory x, uint256[] memory w, uint256 down, uint256 across)
        private
        pure
        returns (Boxes memory)
    {
        uint256[] memory space = new uint256[](3);
        uint256[][] memory strides = new uint256[][](2);
        (strides[0], strides[1]) = (new uint256[](3), new uint256[](3));
        (space[0], space[1], space[2]) = (w[1], w[2], w[3]);
        (strides[0][0], strides[0][1], strides[0][2]) = (x[2] * x[3], down * x[3], across);
        (strides[1][0], strides[1][1], strides[1][2]) = (w[2] * w[3], w[3], 1);
        return boxesOf(space, strides, LEAVES);
    }

    /// The products of a box of the window of photo `n`, whose channels begin at `first`. Padding counts as 0.
    function _convolvedBox(
        Operand memory x,
        Operand memory w,
        Axis[2] memory axes,
        uint256 n,
        uint256 first,
        uint256 weights,
        uint256[] memory from,
        uint256[] memory to
    ) private pure returns (int256) {
        (uint256 i, uint256 y, uint256 height) = _inside(axes[0], from[1], to[1]);
        (uint256 j, uint256 z, uint256 width) = _inside(axes[1], from[2], to[2]);
        if (height == 0 || width == 0) return 0;
        demand(n < x.shape[0] && first + to[0] <= x.shape[1], "op");
        uint256 pixels = ((n * x.shape[1] + first + from[0]) * x.shape[2] + y) * x.shape[3] + z;
        weights += (i - from[1]) * w.shape[3] + j - from[2];
        Stretch[3] memory s = [
            Stretch(to[0] - from[0], x.shape[2] * x.shape[3], w.shape[2] * w.shape[3]),
            Stretch(height, axes[0].dilation * x.shape[3], w.shape[3]),
            Stretch(width, axes[1].dilation, 1)
        ];
        return _convolved(x, w, s, pixels, weights);
    }

    /// The indices of a window from `from` to `to` - 1 that are not in the padding: the first of them, its position in the
    /// photo, and their number.
    function _inside(Axis memory a, uint256 from, uint256 to)
        private
        pure
        returns (uint256 begin, uint256 position, uint256 count)
    {
        int256 dilation = int256(a.dilation);
        if (a.begin >= a.extent) return (0, 0, 0);
        int256 low = a.begin < 0 ? (dilation - 1 - a.begin) / dilation : int256(0);
        low = most(low, int256(from));
        int256 high = least((a.extent - 1 - a.begin) / dilation + 1, int256(to));
        if (low >= high) return (0, 0, 0);
        return (uint256(low), uint256(a.begin + low * dilation), uint256(high - low));
    }

    /// The products of a box, which begins at these elements of X and W. The innermost loop is the longest one.
    function _convolved(Operand memory x, Operand memory w, Stretch[3] memory s, uint256 pixel, uint256 weight)
        private
        pure
        returns (int256 total)
    {
        (Stretch memory outer, Stretch memory middle, Stretch memory inner) = (s[0], s[1], s[2]);
        if (middle.count > inner.count) (middle, inner) = (inner, middle);
        if (outer.count > inner.count) (outer, inner) = (inner, outer);
        unchecked {
            // At most 256 products of elements below 2^64.
            for (uint256 a; a < outer.count; ++a) {
                (uint256 p, uint256 q) = (pixel, weight);
                for (uint256 b; b < middle.count; ++b) {
                    total += _products(x, w, p, inner.strideX, q, inner.strideW, inner.count);
                    p += middle.strideX;
                    q += middle.strideW;
                }
                pixel += outer.strideX;
                weight += outer.strideW;
            }
        }
    }

    // dense and matmul: over k

    /// The elements of an operand along which a product goes: where they begin, how far apart they stand, how many they are.
    struct Line {
        uint256 first;
        uint256 stride;
        uint256 terms;
    }

    function _dense(Run memory run) private view returns (int256 total) {
        (Operand memory x, Operand memory w) = (run.operand(0), run.operand(1));
        demand(run.d.length == 2 && x.shape.length == 2 && w.shape.length == 2, "op");
        total = _contracted(run, x, w, _line(x, 0, run.d[0], false), _line(w, 0, run.d[1], false));
        if (run.isLast && run.count == 3) total += run.operand(2).element(_row(run.d[1]));
    }

    function _matmul(Run memory run) private view returns (int256) {
        (Operand memory x, Operand memory w) = (run.operand(0), run.operand(1));
        uint256 rank = run.d.length;
        demand(rank >= 2 && x.shape.length == rank && w.shape.length == rank, "op");
        (uint256 batchX, uint256 batchW) = _batches(run, x.shape, w.shape);
        Line memory row = _line(x, batchX, run.d[rank - 2], run.op.isTrue("transpose_a"));
        Line memory column = _line(w, batchW, run.d[rank - 1], !run.op.isTrue("transpose_b"));
        return _contracted(run, x, w, row, column);
    }

    /// The row of matrix `batch` with that index, or its column.
    function _line(Operand memory x, uint256 batch, uint256 index, bool isColumn) private pure returns (Line memory) {
        uint256 rows = x.shape[x.shape.length - 2];
        uint256 columns = x.shape[x.shape.length - 1];
        demand(index < (isColumn ? columns : rows), "op");
        if (isColumn) return Line(batch * rows * columns + index, columns, rows);
        return Line((batch * rows + index) * columns, 1, columns);
    }

    /// The numbers of the matrices: several in a row of X share one of W.
    function _batches(Run memory run, uint256[] memory x, uint256[] memory w)
        private
        pure
        returns (uint256 batchX, uint256 batchW)
    {
        for (uint256 k; k < x.length - 2; ++k) {
            uint256 i = run.d[k];
            uint256 j = i / (x[k] / w[k]);
            demand(i < x[k] && j < w[k], "op");
            (batchX, batchW) = (batchX * x[k] + i, batchW * w[k] + j);
        }
    }

    /// Adds the products of the box of this step to the partial before it.
    function _contracted(Run memory run, Operand memory x, Operand memory w, Line memory p, Line memory q)
        private
        pure
        returns (int256)
    {
        uint256[][] memory strides = new uint256[][](2);
        (strides[0], strides[1]) = (_row(p.stride), _row(q.stride));
        Boxes memory boxes = boxesOf(_row(p.terms), strides, LEAVES);
        int256 before = run.enter(boxes.count, 0);
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        demand(to[0] <= q.terms, "op");
        (uint256 i, uint256 j) = (p.first + from[0] * p.stride, q.first + from[0] * q.stride);
        return before + _products(x, w, i, p.stride, j, q.stride, to[0] - from[0]);
    }

    /// The sum of `terms` products of elements of X from `i` on and of W from `j` on.
    function _products(
        Operand memory x,
        Operand memory w,
        uint256 i,
        uint256 strideX,
        uint256 j,
        uint256 strideW,
        uint256 terms
    ) private pure returns (int256 total) {
        unchecked {
            // At most 256 products of elements below 2^64.
            for (; terms > 0; --terms) {
                total += x.get(i) * w.get(j);
                i += strideX;
                j += strideW;
            }
        }
    }

    // sum and max: over the reduced axes

    function _reduce(Run memory run, bool isMax) private view returns (int256 total) {
        Operand memory x = run.operand(0);
        (uint256[] memory space, uint256[] memory strides, uint256 base) = _reducedAxes(run, x.shape);
        uint256[][] memory one = new uint256[][](1);
        one[0] = strides;
        Boxes memory boxes = boxesOf(space, one, LEAVES);
        total = run.enter(boxes.count, isMax ? NO_ELEMENT : int256(0));
        demand(base != type(uint256).max, "op");
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        return _overBox(x, isMax, total, base, strides, from, to);
    }

    /// The extents and the strides of the reduced axes, and the number of the element at 0 of these: what the kept axes
    /// give. Out of range, it is 2^256 - 1.
    function _reducedAxes(Run memory run, uint256[] memory n)
        private
        pure
        returns (uint256[] memory space, uint256[] memory strides, uint256 base)
    {
        Attribute memory axes = run.op.attribute("axes");
        uint256 reduced = type(uint256).max;
        if (axes.items.count() > 0) {
            reduced = axisSet(axes, n.length);
            if (run.op.isTrue("exclude")) reduced = ~reduced;
        }
        uint256 count;
        for (uint256 i; i < n.length; ++i) {
            count += (reduced >> i) & 1;
        }
        (space, strides) = (new uint256[](count), new uint256[](count));
        bool outside;
        uint256 stride = 1;
        uint256 kept = n.length - count;
        for (uint256 i = n.length; i > 0;) {
            --i;
            if ((reduced >> i) & 1 == 1) {
                --count;
                (space[count], strides[count]) = (n[i], stride);
            } else {
                --kept;
                // With as many axes as X, the result keeps the reduced ones, of extent 1.
                uint256 place = run.d.length == n.length ? i : kept;
                if (place >= run.d.length || run.d[place] >= n[i]) outside = true;
                else base += run.d[place] * stride;
            }
            stride *= n[i];
        }
        if (outside) base = type(uint256).max;
    }

    /// The sum or the largest of a number and the elements of a box.
    function _overBox(
        Operand memory x,
        bool isMax,
        int256 total,
        uint256 base,
        uint256[] memory strides,
        uint256[] memory from,
        uint256[] memory to
    ) private pure returns (int256) {
        longestLast(strides, from, to);
        return _overAxes(x, isMax, total, base, strides, from, to, 0);
    }

    function _overAxes(
        Operand memory x,
        bool isMax,
        int256 total,
        uint256 base,
        uint256[] memory strides,
        uint256[] memory from,
        uint256[] memory to,
        uint256 axis
    ) private pure returns (int256) {
        unchecked {
            if (axis == from.length) return isMax ? most(total, x.get(base)) : total + x.get(base);
            uint256 place = base + from[axis] * strides[axis];
            bool innermost = axis + 1 == from.length;
            for (uint256 k = from[axis]; k < to[axis]; ++k) {
                if (!innermost) total = _overAxes(x, isMax, total, place, strides, from, to, axis + 1);
                else if (isMax) total = most(total, x.get(place));
                else total += x.get(place);
                place += strides[axis];
            }
            return total;
        }
    }

    // max_pool2d: over the window

    function _maxPool2d(Run memory run) private view returns (int256 found) {
        Operand memory x = run.operand(0);
        demand(run.d.length == 4 && x.shape.length == 4, "op");
        Attribute memory size = run.op.attribute("pool_size");
        uint256[] memory space = new uint256[](2);
        uint256[][] memory strides = new uint256[][](1);
        strides[0] = new uint256[](2);
        (space[0], space[1]) = (uint256(size.item(0)), uint256(size.item(1)));
        (strides[0][0], strides[0][1]) = (x.shape[3], 1);
        Boxes memory boxes = boxesOf(space, strides, LEAVES);
        found = run.enter(boxes.count, NO_ELEMENT);
        (uint256[] memory from, uint256[] memory to) = boxes.bounds(run.number());
        uint256 elements = (to[0] - from[0]) * (to[1] - from[1]);
        (from[0], to[0]) = _pooled(run, 0, x.shape[2], from[0], to[0]);
        (from[1], to[1]) = _pooled(run, 1, x.shape[3], from[1], to[1]);
        uint256 inside = (to[0] - from[0]) * (to[1] - from[1]);
        if (inside < elements) found = most(found, NO_ELEMENT);
        if (inside == 0) return found;
        demand(run.d[0] < x.shape[0] && run.d[1] < x.shape[1], "op");
        uint256 plane = (run.d[0] * x.shape[1] + run.d[1]) * x.shape[2] * x.shape[3];
        return _overBox(x, true, found, plane, strides[0], from, to);
    }

    /// The positions in the photo, along an axis, of indices of the window: where they begin and end.
    function _pooled(Run memory run, uint256 axis, uint256 extent_, uint256 from, uint256 to)
        private
        pure
        returns (uint256, uint256)
    {
        int256 stride = run.op.attribute("strides").item(axis);
        int256 padding = run.op.attribute("padding").item(axis);
        Axis memory window = Axis(int256(run.d[2 + axis]) * stride - padding, 1, int256(extent_));
        (, uint256 position, uint256 count) = _inside(window, from, to);
        return (position, position + count);
    }
}
