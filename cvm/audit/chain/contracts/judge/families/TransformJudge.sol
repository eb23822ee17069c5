// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {FamilyJudge} from "../FamilyJudge.sol";
import {axisSet, clamp, copied, floorDiv, least, most, numberOf, realAxis, replaced} from "../Numbers.sol";
import {Operand} from "../Operand.sol";
import {sameShape} from "../Reader.sol";
import {Attribute} from "../Records.sol";
import {demand, refuse} from "../Refusal.sol";
import {Run} from "../Run.sol";

/// The ops that move elements: docs/ops.md, "transform", `upsampling` and `update_slice`. They take one step, which opens all
/// operands; each gives the shape of its result, which is compared with the record, and then the element.
contract TransformJudge is FamilyJudge {
    function step(Run memory run) internal view override returns (int256) {
        run.enter(1, 0);
        Operand memory x = run.operand(0);
        for (uint256 i = 1; i < run.op.inputs.count(); ++i) {
            run.operand(i);
        }
        bytes32 name = run.op.name;
        if (name == "reshape") return _reshape(run, x);
        if (name == "flatten") return _flatten(run, x);
        if (name == "transpose") return _transpose(run, x);
        if (name == "slice") return _slice(run, x);
        if (name == "slice_like") return _sliceLike(run, x);
        if (name == "take" || name == "cvm_lut") return _take(run, x);
        if (name == "expand_dims") return _expandDims(run, x);
        if (name == "squeeze") return _squeeze(run, x);
        if (name == "repeat") return _repeat(run, x);
        if (name == "tile") return _tile(run, x);
        if (name == "upsampling") return _upsampling(run, x);
        if (name == "update_slice") return _updateSlice(run, x);
        refuse("op");
    }

    function _requireShape(Run memory run, uint256[] memory derived) private pure {
        demand(sameShape(derived, run.op.shapes[0]), "shape");
    }

    function _reshape(Run memory run, Operand memory x) private pure returns (int256) {
        Attribute memory target = run.op.attribute("target_shape");
        uint256[] memory shape = new uint256[](target.items.count());
        for (uint256 k; k < shape.length; ++k) {
            shape[k] = uint256(target.item(k));
        }
        _requireShape(run, shape);
        return x.get(numberOf(run.d, shape));
    }

    function _flatten(Run memory run, Operand memory x) private pure returns (int256) {
        uint256[] memory shape = new uint256[](1);
        shape[0] = x.length;
        _requireShape(run, shape);
        return x.get(run.d[0]);
    }

    /// Axis k of the result is axis axes[k] of X; without axes, they are reversed.
    function _transpose(Run memory run, Operand memory x) private pure returns (int256) {
        Attribute memory axes = run.op.attribute("axes");
        uint256 rank = x.shape.length;
        uint256[] memory shape = new uint256[](rank);
        uint256[] memory order = new uint256[](rank);
        uint256 seen;
        for (uint256 k; k < rank; ++k) {
            order[k] = axes.items.count() == 0 ? rank - 1 - k : realAxis(axes.item(k), rank);
            shape[k] = x.shape[order[k]];
            seen |= 1 << order[k];
        }
        _requireShape(run, shape);
        demand(seen == (1 << rank) - 1, "op");
        uint256[] memory place = new uint256[](rank);
        for (uint256 k; k < rank; ++k) {
            place[order[k]] = run.d[k];
        }
        return x.element(place);
    }

    function _slice(Run memory run, Operand memory x) private pure returns (int256) {
        Attribute memory begin = run.op.attribute("begin");
        Attribute memory end = run.op.attribute("end");
        Attribute memory strides = run.op.attribute("strides");
        uint256 rank = x.shape.length;
        demand(run.op.shapes[0].length == rank, "shape");
        uint256[] memory place = new uint256[](rank);
        for (uint256 k; k < rank; ++k) {
            int256 n = int256(x.shape[k]);
            int256 s = k < strides.items.count() ? strides.item(k) : int256(1);
            int256 b = _sliceEnd(begin, k, 0, n, s);
            int256 e = _sliceEnd(end, k, n, n, s);
            demand(int256(run.op.shapes[0][k]) == -floorDiv(b - e, s), "shape");
            place[k] = uint256(b + s * int256(run.d[k]));
        }
        return x.element(place);
    }

    /// Where a slice begins or ends along an axis: clamped to [0, n], or to [-1, n - 1] if it runs backward.
    function _sliceEnd(Attribute memory a, uint256 k, int256 missing, int256 n, int256 stride)
        private
        pure
        returns (int256 i)
    {
        i = missing;
        if (k < a.items.count()) {
            i = a.item(k);
            if (i < 0) i += n;
        }
        return stride < 0 ? most(-1, least(i, n - 1)) : most(0, least(i, n));
    }

    function _sliceLike(Run memory run, Operand memory x) private view returns (int256) {
        Operand memory like = run.operand(1);
        uint256 rank = x.shape.length;
        Attribute memory axes = run.op.attribute("axes");
        uint256 sliced = axes.items.count() == 0 ? (1 << like.shape.length) - 1 : axisSet(axes, rank);
        uint256[] memory shape = new uint256[](rank);
        for (uint256 k; k < rank; ++k) {
            shape[k] = (sliced >> k) & 1 == 1 ? like.extent(k) : x.shape[k];
        }
        _requireShape(run, shape);
        return x.element(run.d);
    }

    /// Indices are clamped. Without an axis, X is a flat list.
    function _take(Run memory run, Operand memory x) private view returns (int256) {
        Operand memory indices = run.operand(1);
        if (run.op.attributeCount == 0) {
            _requireShape(run, indices.shape);
            return x.get(uint256(clamp(indices.element(run.d), 0, int256(x.length) - 1)));
        }
        uint256 rank = x.shape.length;
        uint256 among = indices.shape.length;
        uint256 axis = realAxis(run.op.integerOf("axis"), rank);
        uint256[] memory shape = new uint256[](rank - 1 + among);
        uint256[] memory inner = new uint256[](among);
        uint256[] memory place = new uint256[](rank);
        demand(run.d.length == shape.length, "shape");
        for (uint256 k; k < shape.length; ++k) {
            if (k < axis) (shape[k], place[k]) = (x.shape[k], run.d[k]);
            else if (k < axis + among) (shape[k], inner[k - axis]) = (indices.shape[k - axis], run.d[k]);
            else (shape[k], place[k - among + 1]) = (x.shape[k - among + 1], run.d[k]);
        }
        _requireShape(run, shape);
        place[axis] = uint256(clamp(indices.element(inner), 0, int256(x.shape[axis]) - 1));
        return x.element(place);
    }

    function _expandDims(Run memory run, Operand memory x) private pure returns (int256) {
        uint256 rank = x.shape.length;
        uint256 axis = realAxis(run.op.integerOf("axis"), rank + 1);
        uint256 added = uint256(run.op.integerOf("num_newaxis"));
        demand(run.d.length == rank + added, "shape");
        uint256[] memory shape = new uint256[](rank + added);
        uint256[] memory place = new uint256[](rank);
        for (uint256 k; k < shape.length; ++k) {
            if (k >= axis && k < axis + added) {
                shape[k] = 1;
            } else {
                uint256 i = k < axis ? k : k - added;
                (shape[k], place[i]) = (x.shape[i], run.d[k]);
            }
        }
        _requireShape(run, shape);
        return x.element(place);
    }

    /// Without axes, all axes of extent 1 go. If every axis goes, the result has the shape (1,).
    function _squeeze(Run memory run, Operand memory x) private pure returns (int256) {
        uint256 rank = x.shape.length;
        Attribute memory axes = run.op.attribute("axes");
        uint256 gone = axisSet(axes, rank);
        uint256 kept;
        for (uint256 i; i < rank; ++i) {
            if (axes.items.count() == 0 && x.shape[i] == 1) gone |= 1 << i;
            if ((gone >> i) & 1 == 0) ++kept;
        }
        uint256[] memory shape = new uint256[](kept == 0 ? 1 : kept);
        if (kept == 0) shape[0] = 1;
        uint256[] memory place = new uint256[](rank);
        demand(run.d.length == shape.length, "shape");
        uint256 k;
        for (uint256 i; i < rank; ++i) {
            if ((gone >> i) & 1 == 0) {
                (shape[k], place[i]) = (x.shape[i], run.d[k]);
                ++k;
            }
        }
        _requireShape(run, shape);
        return x.element(place);
    }

    function _repeat(Run memory run, Operand memory x) private pure returns (int256) {
        uint256 axis = realAxis(run.op.integerOf("axis"), x.shape.length);
        uint256 repeats = uint256(run.op.integerOf("repeats"));
        _requireShape(run, replaced(x.shape, axis, x.shape[axis] * repeats));
        return x.element(replaced(run.d, axis, run.d[axis] / repeats));
    }

    function _tile(Run memory run, Operand memory x) private pure returns (int256) {
        Attribute memory reps = run.op.attribute("reps");
        uint256 rank = x.shape.length;
        uint256 more = reps.items.count();
        uint256 all = rank > more ? rank : more;
        uint256[] memory shape = new uint256[](all);
        uint256[] memory place = new uint256[](rank);
        demand(run.d.length == all, "shape");
        for (uint256 k; k < all; ++k) {
            uint256 extent_ = k < all - rank ? 1 : x.shape[k - (all - rank)];
            shape[k] = extent_ * (k < all - more ? 1 : uint256(reps.item(k - (all - more))));
            if (k >= all - rank) place[k - (all - rank)] = run.d[k] % extent_;
        }
        _requireShape(run, shape);
        return x.element(place);
    }

    function _upsampling(Run memory run, Operand memory x) private pure returns (int256) {
        demand(x.shape.length == 4, "op");
        uint256 scale = uint256(run.op.integerOf("scale"));
        uint256[] memory shape = copied(x.shape);
        (shape[2], shape[3]) = (shape[2] * scale, shape[3] * scale);
        _requireShape(run, shape);
        uint256[] memory place = copied(run.d);
        (place[2], place[3]) = (place[2] / scale, place[3] / scale);
        return x.element(place);
    }

    /// X with a slice replaced by the update, from the clamped index on.
    function _updateSlice(Run memory run, Operand memory x) private view returns (int256) {
        _requireShape(run, x.shape);
        Operand memory update = run.operand(1);
        uint256 axis = realAxis(run.op.integerOf("axis"), run.d.length);
        int256 extent_ = int256(update.extent(axis));
        int256 begin = least(most(run.operand(2).element(new uint256[](1)), 0), int256(x.shape[axis]) - extent_);
        int256 i = int256(run.d[axis]);
        if (i < begin || i >= begin + extent_) return x.element(run.d);
        return update.element(replaced(run.d, axis, uint256(i - begin)));
    }
}
