// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Boxes, LEAVES, boxesOf} from "../Chunks.sol";
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

    /// The position of a window along an axis of the photo: it begins at `begin`, perhaps in the padding before 0.
    struct Axis {
        int256 begin;
        uint256 dilation;
        int256 extent;
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
        for (uint256 ic = from[0]; ic < to[0]; ++ic) {
            for (uint256 i = from[1]; i < to[1]; ++i) {
                int256 y = rows.begin + int256(i * rows.dilation);
                uint256 weights = ((run.d[1] * w.shape[1] + ic) * w.shape[2] + i) * w.shape[3];
                if (y < 0 || y >= rows.extent) {
                    _readOnly(w, weights + from[2], weights + to[2]);
                    continue;
                }
                demand(run.d[0] < x.shape[0] && first + ic < x.shape[1], "op");
                uint256 pixels = ((run.d[0] * x.shape[1] + first + ic) * x.shape[2] + uint256(y)) * x.shape[3];
                total += _convolvedRow(x, w, columns, pixels, weights, from[2], to[2]);
            }
        }
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

    /// The products of a row of the window: padding counts as 0, and the weight is read nevertheless.
    function _convolvedRow(
        Operand memory x,
        Operand memory w,
        Axis memory columns,
        uint256 pixels,
        uint256 weights,
        uint256 from,
        uint256 to
    ) private pure returns (int256 total) {
        unchecked {
            // At most 256 products of elements below 2^64.
            int256 z = columns.begin + int256(from * columns.dilation);
            for (uint256 k = from; k < to; ++k) {
                int256 weight = w.get(weights + k);
                if (z >= 0 && z < columns.extent) total += weight * x.get(pixels + uint256(z));
                z += int256(columns.dilation);
            }
        }
    }

    function _readOnly(Operand memory w, uint256 from, uint256 to) private pure {
        for (uint256 k = from; k < to; ++k) {
            w.get(k);
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
        return before + _products(x, w, p, q, from[0], to[0]);
    }

    function _products(Operand memory x, Operand memory w, Line memory p, Line memory q, uint256 from, uint256 to)
        private
        pure
        returns (int256 total)
    {
        unchecked {
            // At most 256 products of elements below 2^64.
            uint256 i = p.first + from * p.stride;
            uint256 j = q.first + from * q.stride;
            for (; from < to; ++from) {
                total += x.get(i) * w.get(j);
                i += p.stride;
                j += q.stride;
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
        total = _overBox(x, isMax, total, base, strides, from, to, 0);
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

    /// Goes over a box, axis by axis.
    function _overBox(
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
                if (!innermost) total = _overBox(x, isMax, total, place, strides, from, to, axis + 1);
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
        Attribute memory stride = run.op.attribute("strides");
        Attribute memory padding = run.op.attribute("padding");
        int256 top = int256(run.d[2]) * stride.item(0) - padding.item(0);
        int256 left = int256(run.d[3]) * stride.item(1) - padding.item(1);
        uint256 plane = (run.d[0] * x.shape[1] + run.d[1]) * x.shape[2];
        for (uint256 i = from[0]; i < to[0]; ++i) {
            int256 y = top + int256(i);
            if (y < 0 || y >= int256(x.shape[2])) {
                found = most(found, NO_ELEMENT);
                continue;
            }
            if (left + int256(to[1]) > 0 && left + int256(from[1]) < int256(x.shape[3])) {
                demand(run.d[0] < x.shape[0] && run.d[1] < x.shape[1], "op");
            }
            uint256 row = (plane + uint256(y)) * x.shape[3];
            found = _largestOfRow(x, found, row, left + int256(from[1]), left + int256(to[1]));
        }
    }

    /// The largest of a number and the elements z .. end - 1 of a row, as far as it has them: padding counts as NO_ELEMENT.
    function _largestOfRow(Operand memory x, int256 found, uint256 row, int256 z, int256 end)
        private
        pure
        returns (int256)
    {
        unchecked {
            if (z < 0 || end > int256(x.shape[3])) found = most(found, NO_ELEMENT);
            end = least(end, int256(x.shape[3]));
            for (z = most(z, 0); z < end; ++z) {
                found = most(found, x.get(row + uint256(z)));
            }
            return found;
        }
    }
}
