// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Commitments} from "./Commitments.sol";
import {IDisputeGame} from "./IDisputeGame.sol";
import {IStepJudge, JudgedStep} from "./IStepJudge.sol";
import {OpRecord} from "./OpRecord.sol";

/// The game of docs/disputes.md: two parties who name different trace roots are led by their own answers to one step, and
/// one of them proves it.
///
/// Each round puts one question to both parties. An answer must open what the same party committed to before, or it is
/// refused: the transaction reverts, and the party may send another one until the deadline. Who has not answered by then has
/// lost. Answers are hashed, and only hashes are kept. The contract holds no money, has no owner and cannot be changed. It
/// believes the judge, and that the digest in the statement is that of a valid program.
contract DisputeGame is IDisputeGame {
    using Commitments for bytes;

    enum Stage {
        None,
        OpenTrace,
        LogNode,
        OpenOp,
        OpenAuxiliaries,
        OpenTensor,
        TensorNode,
        OpenLeaf,
        Commit,
        PartialNode,
        ProveStep,
        Over
    }

    /// One game. Side 0 is the party `a`, side 1 the party `b`.
    struct Game {
        address a;
        uint64 deadline;
        Stage stage;
        /// Who has answered the question: bit 0 for `a`, bit 1 for `b`.
        uint8 answered;
        uint16 rounds;
        // ---
        address b;
        uint32 moveTime;
        /// The number of ops of the program.
        uint32 ops;
        uint8 winner;
        /// Whether the op has auxiliary tensors.
        bool certified;
        // ---
        uint32 op;
        uint32 target;
        /// The leaves under the node in question: start .. end - 1. The tree has one form for both sides.
        uint32 start;
        uint32 end;
        uint64 element;
        /// The element as each side states it.
        int32[2] values;
        // ---
        /// The numbers of steps that the sides commit to.
        uint32[2] steps;
        uint32 step;
        /// The bytes of the disputed tensor.
        uint64 size;
        // ---
        /// keccak256(program digest | roots(inputs) | roots(state before)).
        bytes32 statement;
        /// What each side has committed to, and has to open next.
        bytes32[2] nodes;
        /// The answer of the side that answered first.
        bytes32 left;
        bytes32 right;
        /// The nodes of the log to the left of the disputed op, on which both agree: keccak256(keccak256(0 | node) | node) ..
        bytes32 prefix;
        /// The Merkle root of the ops of the program.
        bytes32 opsRoot;
        /// Of the record of the op, and then of the shape of the target: keccak256.
        bytes32 declared;
        /// keccak256 of the roots of the auxiliary tensors, as a claim about the target has them.
        bytes32[2] auxiliaries;
        /// The Merkle roots of the partials.
        bytes32[2] partials;
    }

    /// What an answer shows that the other party may have to open again.
    event Opened(uint256 indexed id, uint8 side, bytes answer);

    error SameRoot();
    error SameParty();
    error NoTime();
    error NotAParty();
    error NotAsked(Stage asked);
    error AlreadyAnswered();
    error TooLate();
    error WrongStatement();
    error WrongProgram();
    error WrongTrace();
    error NotTheChildren();
    error NotTheOp();
    error NotTheRoots();
    error NotTheOther();
    error NotTheTensor();
    error NotTheLeaf();
    error NotTheElement();
    error NotThePrefix();
    error NotTheStep();
    /// The judge refuses the proof, for this reason.
    error Refused(bytes32 reason);

    uint256 private constant LEAF_BYTES = 1024;
    uint32 private constant AUXILIARIES = 3;

    IStepJudge public immutable judge;
    /// How many games were started; they are numbered from 0.
    uint256 public count;
    mapping(uint256 => Game) private _games;

    constructor(IStepJudge judge_) {
        judge = judge_;
    }

    /// A game as it stands.
    function game(uint256 id) external view returns (Game memory) {
        return _games[id];
    }

    /// @inheritdoc IDisputeGame
    function start(address a, address b, bytes32 rootA, bytes32 rootB, bytes32 statement, uint32 moveTime)
        external
        returns (uint256 id)
    {
        if (rootA == rootB) revert SameRoot();
        if (a == b) revert SameParty();
        if (moveTime == 0) revert NoTime();
        id = count++;
        Game storage g = _games[id];
        (g.a, g.b, g.moveTime, g.statement) = (a, b, moveTime, statement);
        (g.nodes[0], g.nodes[1]) = (rootA, rootB);
        _ask(g, Stage.OpenTrace);
    }

    /// @inheritdoc IDisputeGame
    function outcome(uint256 id) external view returns (bool over, uint8 winner) {
        Game storage g = _games[id];
        if (g.stage == Stage.Over) return (true, g.winner);
        if (g.stage == Stage.None || block.timestamp <= g.deadline) return (false, 0);
        // Only one side has answered, or none.
        return (true, g.answered);
    }

    // From the trace roots to an op

    /// What does your trace root commit to?
    /// @param program the preimage of the program digest
    /// @param ops the number of ops, and @param opsRoot the Merkle root of their records
    /// @param beginning roots(inputs) | roots(state before)
    /// @param log the Merkle root of the records of the run, one for each op
    function openTrace(
        uint256 id,
        bytes calldata program,
        uint32 ops,
        bytes32 opsRoot,
        bytes calldata beginning,
        bytes32 log
    ) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.OpenTrace);
        bytes32 digest = sha256(program);
        if (keccak256(abi.encodePacked(digest, beginning)) != g.statement) revert WrongStatement();
        // "cvm1:program"0 | u32(op-set) | text(limits) | list root of ops | ..
        uint256 offset = 17;
        offset += 4 + program.readU32(offset);
        if (program.readHash(offset) != Commitments.listRoot(ops, opsRoot)) revert WrongProgram();
        bytes32 root = Commitments.head(digest, beginning, Commitments.listRoot(ops, log));
        if (root != g.nodes[side]) revert WrongTrace();
        // A list of no records has one root. Without this, two roots could differ that have no record to differ in.
        if (ops == 0 && log != sha256("")) revert WrongTrace();
        g.nodes[side] = log;
        if (!second) return;
        (g.ops, g.opsRoot) = (ops, opsRoot);
        _descend(g, ops, Stage.LogNode);
    }

    /// The children of the node in question: of the log, of the disputed tensor, or of the partials.
    function children(uint256 id, bytes32 left, bytes32 right) external {
        Stage stage = _games[id].stage;
        if (stage != Stage.LogNode && stage != Stage.TensorNode && stage != Stage.PartialNode) revert NotAsked(stage);
        (Game storage g, uint256 side, bool second) = _answer(id, stage);
        if (Commitments.node(left, right) != g.nodes[side]) revert NotTheChildren();
        if (!second) {
            (g.left, g.right) = (left, right);
            return;
        }
        uint32 middle = Commitments.split(g.start, g.end);
        if (left == g.left) {
            if (stage == Stage.LogNode) g.prefix = keccak256(abi.encode(g.prefix, left));
            (g.nodes[side], g.nodes[1 - side], g.start) = (right, g.right, middle);
        } else {
            (g.nodes[side], g.nodes[1 - side], g.end) = (left, g.left, middle);
        }
        _narrowed(g, stage);
    }

    /// What is this op, and what are the roots of its outputs?
    /// @param record the record of the op, and @param path its path among the ops of the program
    /// @param roots u32(number) | 32 bytes each
    /// @param other the roots of the other party, if it has answered already
    function openOp(
        uint256 id,
        bytes calldata record,
        bytes32[] calldata path,
        bytes calldata roots,
        bytes calldata other
    ) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.OpenOp);
        if (Commitments.rootOf(Commitments.leaf(record), g.op, g.ops, path) != g.opsRoot) revert NotTheOp();
        OpRecord.Outputs memory outputs = OpRecord.outputs(record);
        bool whole = roots.length == 4 + 32 * uint256(outputs.count) && roots.readU32(0) == outputs.count;
        if (!whole || Commitments.logLeaf(g.op, roots) != g.nodes[side]) revert NotTheRoots();
        if (!second) {
            emit Opened(id, uint8(side), roots);
            return;
        }
        // The other party's answer was checked when it was given; it is needed again, to compare it.
        if (Commitments.logLeaf(g.op, other) != g.nodes[1 - side]) revert NotTheOther();
        uint32 output = _firstDifference(roots, other);
        (g.nodes[side], g.nodes[1 - side]) = (roots.readHash(4 + 32 * output), other.readHash(4 + 32 * output));
        g.target = output;
        g.certified = outputs.certified;
        if (outputs.certified) {
            g.declared = keccak256(record);
            return _ask(g, Stage.OpenAuxiliaries);
        }
        (uint256 from, uint256 to) = OpRecord.shapeOf(record, outputs, output);
        _choose(g, record[from:to]);
    }

    /// What are the roots of the auxiliary tensors of this op?
    /// @param roots u32(number) | 32 bytes each
    /// @param other those of the other party, if it has answered already
    /// @param record the record of the op once more
    function openAuxiliaries(uint256 id, bytes calldata roots, bytes calldata other, bytes calldata record) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.OpenAuxiliaries);
        if (roots.length != 4 + 32 * AUXILIARIES || roots.readU32(0) != AUXILIARIES) revert NotTheRoots();
        if (!second) {
            g.auxiliaries[side] = keccak256(roots);
            emit Opened(id, uint8(side), roots);
            return;
        }
        if (keccak256(other) != g.auxiliaries[1 - side]) revert NotTheOther();
        if (keccak256(record) != g.declared) revert NotTheOp();
        OpRecord.Outputs memory outputs = OpRecord.outputs(record);
        if (keccak256(roots) == keccak256(other)) {
            (uint256 from, uint256 to) = OpRecord.shapeOf(record, outputs, g.target);
            g.target += AUXILIARIES; // the targets of an op: its auxiliary tensors, followed by its outputs
            g.auxiliaries[side] = keccak256(roots);
            return _choose(g, record[from:to]);
        }
        uint32 target = _firstDifference(roots, other);
        g.target = target;
        (g.nodes[side], g.nodes[1 - side]) = (roots.readHash(4 + 32 * target), other.readHash(4 + 32 * target));
        bytes4 named = Commitments.u32(target + 1); // a claim has the roots of auxiliary tensors 0 .. target
        g.auxiliaries[side] = keccak256(bytes.concat(named, roots[4:36 + 32 * target]));
        g.auxiliaries[1 - side] = keccak256(bytes.concat(named, other[4:36 + 32 * target]));
        (uint256 begin, ) = OpRecord.shapeOf(record, outputs, 0);
        _choose(g, bytes.concat(hex"02", record[begin + 1:begin + 17])); // an auxiliary tensor is of shape (B, N)
    }

    // From a tensor to an element

    /// What does the root of the target commit to?
    /// @param shape u8(rank) | u64(extent) ..
    function openTensor(uint256 id, bytes calldata shape, bytes32 dataRoot) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.OpenTensor);
        bytes32 root = sha256(abi.encodePacked("cvm1:tensor\x00\x01", shape, Commitments.u64(g.size), dataRoot));
        if (keccak256(shape) != g.declared || root != g.nodes[side]) revert NotTheTensor();
        g.nodes[side] = dataRoot;
        if (second) _descend(g, uint32((g.size + LEAF_BYTES - 1) / LEAF_BYTES), Stage.TensorNode);
    }

    /// What is this leaf of the target?
    /// @param other the leaf of the other party, if it has answered already
    function openLeaf(uint256 id, bytes calldata leaf, bytes calldata other) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.OpenLeaf);
        uint256 number = g.start;
        uint256 left = g.size - LEAF_BYTES * number;
        if (leaf.length != (left < LEAF_BYTES ? left : LEAF_BYTES)) revert NotTheLeaf();
        if (Commitments.leaf(leaf) != g.nodes[side]) revert NotTheLeaf();
        if (!second) {
            emit Opened(id, uint8(side), leaf);
            return;
        }
        if (Commitments.leaf(other) != g.nodes[1 - side]) revert NotTheOther();
        uint256 offset = _firstWord(leaf, other);
        g.element = uint64(LEAF_BYTES / 4 * number + offset / 4);
        (g.values[side], g.values[1 - side]) = (int32(leaf.readU32(offset)), int32(other.readU32(offset)));
        _ask(g, Stage.Commit);
    }

    // From an element to a step

    /// How does this element come about?
    /// @param steps the number of partials, and @param root the Merkle root of their records
    /// @param path the path of the last partial, which is the element
    function commit(uint256 id, uint32 steps, bytes32 root, bytes32[] calldata path) external {
        (Game storage g, uint256 side, bool second) = _answer(id, Stage.Commit);
        bytes32 last = sha256(abi.encodePacked("\x00cvm1:partial\x00", Commitments.i128(g.values[side])));
        if (steps == 0 || Commitments.rootOf(last, steps - 1, steps, path) != root) revert NotTheElement();
        (g.steps[side], g.partials[side], g.nodes[side]) = (steps, root, root);
        if (!second) return;
        if (g.steps[1 - side] == steps) return _descend(g, steps, Stage.PartialNode);
        // The number of steps is part of what is judged, so the proof of any step decides.
        _ask(g, Stage.ProveStep);
    }

    /// Why does this step follow? The first proof that the judge accepts wins. A copy of the other party's proof helps
    /// nobody: a proof is about the partials of the party that sends it.
    /// @param program the digest of the program, and @param beginning roots(inputs) | roots(state before)
    /// @param prefix the nodes of the log to the left of the op, from the left
    /// @param auxiliaries the roots of the auxiliary tensors that a claim about the target names: u32(number) | 32 bytes each
    function proveStep(
        uint256 id,
        bytes32 program,
        bytes calldata beginning,
        bytes32[] calldata prefix,
        bytes calldata auxiliaries,
        bytes calldata proof
    ) external {
        (Game storage g, uint256 side, ) = _answer(id, Stage.ProveStep);
        if (keccak256(abi.encodePacked(program, beginning)) != g.statement) revert WrongStatement();
        bytes32 named = g.certified ? g.auxiliaries[side] : keccak256(hex"00000000");
        if (keccak256(auxiliaries) != named) revert NotTheRoots();
        bytes32 head = Commitments.head(program, beginning, Commitments.listRoot(g.op, _log(g.prefix, prefix)));
        bytes32 expected = sha256(
            abi.encodePacked(
                abi.encodePacked("cvm1:partials\x00", head, Commitments.u32(g.op), Commitments.u32(g.target)),
                auxiliaries,
                abi.encodePacked(Commitments.u64(g.element), Commitments.u64(g.steps[side]), g.partials[side])
            )
        );
        (bool accepted, bytes32 reason, JudgedStep memory about) = judge.judge(proof);
        if (!accepted) revert Refused(reason);
        if (about.partials != expected || about.step != g.step) revert NotTheStep();
        (g.stage, g.winner) = (Stage.Over, uint8(side + 1));
    }

    // What all answers share

    /// The game, the side of the sender, and whether the other side has answered. Notes that this side answers.
    function _answer(uint256 id, Stage stage) private returns (Game storage g, uint256 side, bool second) {
        g = _games[id];
        if (msg.sender == g.a) side = 0;
        else if (msg.sender == g.b) side = 1;
        else revert NotAParty();
        if (g.stage != stage) revert NotAsked(g.stage);
        if (block.timestamp > g.deadline) revert TooLate();
        uint8 bit = uint8(1 << side);
        if (g.answered & bit != 0) revert AlreadyAnswered();
        second = g.answered != 0;
        g.answered |= bit;
    }

    /// Puts the next question to both.
    function _ask(Game storage g, Stage stage) private {
        (g.stage, g.answered, g.deadline) = (stage, 0, uint64(block.timestamp + g.moveTime));
        g.rounds++;
    }

    /// Begins at the root of a tree of `leaves` leaves.
    function _descend(Game storage g, uint32 leaves, Stage stage) private {
        (g.start, g.end) = (0, leaves);
        _narrowed(g, stage);
    }

    /// Asks for the children of the node in question, or, at a leaf, what comes after the tree.
    function _narrowed(Game storage g, Stage stage) private {
        uint32 first = g.start;
        if (g.end - first > 1) return _ask(g, stage);
        if (stage == Stage.LogNode) {
            g.op = first;
            return _ask(g, Stage.OpenOp);
        }
        if (stage == Stage.TensorNode) return _ask(g, Stage.OpenLeaf);
        g.step = first;
        _ask(g, Stage.ProveStep);
    }

    /// The target is found: its shape is the one that the program declares.
    function _choose(Game storage g, bytes memory shape) private {
        uint64 size = 4;
        for (uint256 offset = 1; offset < shape.length; offset += 8) {
            uint64 extent = 0;
            for (uint256 i = 0; i < 8; i++) extent |= uint64(uint8(shape[offset + i])) << uint64(8 * i);
            size *= extent;
        }
        (g.declared, g.size) = (keccak256(shape), size);
        _ask(g, Stage.OpenTensor);
    }

    /// The Merkle root of the log before the op, from the nodes to the left of the op's record.
    function _log(bytes32 agreed, bytes32[] calldata prefix) private pure returns (bytes32 log) {
        bytes32 chain;
        for (uint256 i = 0; i < prefix.length; i++) chain = keccak256(abi.encode(chain, prefix[i]));
        if (chain != agreed) revert NotThePrefix();
        if (prefix.length == 0) return sha256("");
        log = prefix[prefix.length - 1];
        for (uint256 i = prefix.length - 1; i > 0; i--) log = Commitments.node(prefix[i - 1], log);
    }

    /// The first root in which two lists of one length differ.
    function _firstDifference(bytes calldata roots, bytes calldata other) private pure returns (uint32 number) {
        while (roots.readHash(4 + 32 * number) == other.readHash(4 + 32 * number)) number++;
    }

    /// Where the first element lies in which two different leaves of one length differ.
    function _firstWord(bytes calldata leaf, bytes calldata other) private pure returns (uint256 offset) {
        while (offset + 32 <= leaf.length && bytes32(leaf[offset:offset + 32]) == bytes32(other[offset:offset + 32])) offset += 32;
        while (bytes4(leaf[offset:offset + 4]) == bytes4(other[offset:offset + 4])) offset += 4;
    }
}
