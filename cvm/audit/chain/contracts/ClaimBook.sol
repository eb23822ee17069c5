// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Commitments} from "./Commitments.sol";
import {IDisputeGame} from "./IDisputeGame.sol";
import {RunOpening} from "./RunOpening.sol";

/// A book of claims about runs. Somebody claims a run of a receipt and leaves a bond. Until the window closes, anybody may
/// challenge the claim with a bond and another trace root, or show that the claim contradicts its own trace. A claim is final
/// when its window is over and it has won every game about it.
///
/// Anybody may challenge, any number of times, and each challenge is a game of its own. So a challenger who loses on purpose
/// takes nothing from the others. Of a bond that is lost, one half goes to the winner. The other half goes to nobody, so who
/// plays both sides of a game pays for it.
///
/// The book takes claims about the programs that it was made for. Somebody has to verify them off chain (`cvm chain deploy`
/// does), and whoever relies on a claim has to believe this or do it again. The book has no owner and cannot be changed.
contract ClaimBook {
    using Commitments for bytes;

    enum Status {
        None,
        Open,
        Final,
        Rejected
    }

    struct Claim {
        address claimant;
        /// The last second in which the claim can be challenged.
        uint64 until;
        Status status;
        /// How many challenges are not settled.
        uint24 open;
        // ---
        /// The id of the receipt, and the number of the run in it.
        bytes32 receipt;
        uint64 index;
        bytes32 program;
        /// keccak256 of the record of the run.
        bytes32 run;
    }

    struct Challenge {
        address challenger;
        bool settled;
        uint64 claim;
        uint256 game;
    }

    event Claimed(uint256 indexed id, address indexed claimant, bytes32 indexed receipt, uint64 index, bytes run);
    event Challenged(
        uint256 indexed claim,
        uint256 indexed id,
        address indexed challenger,
        uint256 game,
        bytes32 trace
    );
    event Settled(uint256 indexed claim, uint256 indexed id, uint8 winner);
    event Closed(uint256 indexed claim, Status status);

    error WrongBond(uint256 expected);
    error NoBond();
    error NotARun();
    error UnknownProgram();
    error WrongStatus(Status status);
    error WindowClosed();
    error WindowOpen();
    error OwnClaim();
    error SameRoot();
    error AlreadySettled();
    error GameRunning();
    error ChallengesOpen();
    error NotAnnounced();
    error NoContradiction();
    error NothingDue();
    error NotPaid();

    IDisputeGame public immutable game;
    /// The bond of a claim, and of a challenge.
    uint256 public immutable bond;
    /// The seconds in which a claim can be challenged.
    uint64 public immutable window;
    /// The seconds that the parties of a game have for each answer.
    uint32 public immutable moveTime;

    /// How many claims and challenges there are; both are numbered from 0.
    uint256 public claimCount;
    uint256 public challengeCount;
    /// What is due to each account.
    mapping(address => uint256) public due;
    /// The parts of bonds that go to nobody. They stay here for ever.
    uint256 public burnt;
    /// The programs of this book: keccak256 of the preimage of a receipt before its list of runs, so of program digest, op-set,
    /// limits profile and gas of a run.
    mapping(bytes32 => bool) public knows;

    mapping(uint256 => Claim) private _claims;
    mapping(uint256 => Challenge) private _challenges;
    /// The block in which a refutation was announced.
    mapping(bytes32 => uint256) private _announced;

    /// @param heads for each program the preimage of its receipts up to the list of runs (docs/commitments.md, section 8):
    /// "cvm1:receipt"0 | program digest | u32(op-set) | text(limits) | u64(gas)
    constructor(IDisputeGame game_, uint256 bond_, uint64 window_, uint32 moveTime_, bytes[] memory heads) {
        if (bond_ < 2) revert NoBond();
        (game, bond, window, moveTime) = (game_, bond_, window_, moveTime_);
        for (uint256 i = 0; i < heads.length; i++) knows[keccak256(heads[i])] = true;
    }

    function claim(uint256 id) external view returns (Claim memory) {
        return _claims[id];
    }

    function challenge(uint256 id) external view returns (Challenge memory) {
        return _challenges[id];
    }

    // Claims

    /// Claims run `index` of a receipt of `runs` runs, with a bond.
    /// @param head the preimage of the receipt up to its list of runs
    /// @param run the record of the run, with a trace, and @param path its path among the runs
    function claimRun(bytes calldata head, bytes calldata run, uint64 index, uint64 runs, bytes32[] calldata path)
        external
        payable
        returns (uint256 id)
    {
        if (msg.value != bond) revert WrongBond(bond);
        if (!knows[keccak256(head)]) revert UnknownProgram();
        RunOpening.read(run);
        bytes32 root = Commitments.listRoot(runs, Commitments.rootOf(Commitments.leaf(run), index, runs, path));
        bytes32 receipt = sha256(abi.encodePacked(head, root));
        id = claimCount++;
        Claim storage made = _claims[id];
        (made.claimant, made.status) = (msg.sender, Status.Open);
        made.until = uint64(block.timestamp + window);
        (made.receipt, made.index, made.run) = (receipt, index, keccak256(run));
        made.program = head.readHash(13);
        emit Claimed(id, msg.sender, receipt, index, run);
    }

    /// Makes a claim final, and its bond due to the claimant.
    function finalize(uint256 id) external {
        Claim storage made = _claims[id];
        if (made.status != Status.Open) revert WrongStatus(made.status);
        if (block.timestamp <= made.until) revert WindowOpen();
        if (made.open != 0) revert ChallengesOpen();
        due[made.claimant] += bond;
        _close(id, made, Status.Final);
    }

    // Challenges by another trace root

    /// Challenges a claim with another trace root, and a bond: a game begins.
    /// @param run the record of the run, as it was claimed
    function challengeRun(uint256 id, bytes calldata run, bytes32 trace) external payable returns (uint256 number) {
        if (msg.value != bond) revert WrongBond(bond);
        Claim storage made = _challengeable(id, run);
        if (made.claimant == msg.sender) revert OwnClaim();
        RunOpening.Run memory parts = RunOpening.read(run);
        if (parts.trace == trace) revert SameRoot();
        made.open++;
        bytes32 statement = keccak256(abi.encodePacked(made.program, run[parts.inputs:parts.outputs]));
        number = challengeCount++;
        uint256 started = game.start(made.claimant, msg.sender, parts.trace, trace, statement, moveTime);
        _challenges[number] = Challenge(msg.sender, false, uint64(id), started);
        emit Challenged(id, number, msg.sender, started, trace);
    }

    /// Settles a challenge whose game is over, or whose claim is rejected.
    function settle(uint256 number) external {
        Challenge storage made = _challenges[number];
        if (made.challenger == address(0) || made.settled) revert AlreadySettled();
        Claim storage about = _claims[made.claim];
        (bool over, uint8 winner) = game.outcome(made.game);
        if (about.status == Status.Rejected) {
            // Another challenge, or a refutation, was first. There is nothing left to win.
            winner = 2;
            due[made.challenger] += bond;
        } else if (!over) {
            revert GameRunning();
        } else if (winner == 1) {
            _pay(about.claimant, 0);
        } else {
            if (winner == 2) _pay(made.challenger, bond);
            else burnt += 2 * bond; // neither has answered: both have lost
            _close(made.claim, about, Status.Rejected);
        }
        made.settled = true;
        about.open--;
        emit Settled(made.claim, number, winner);
    }

    // Refutations: a claim that contradicts its own trace

    /// Announces a refutation: keccak256(abi.encode(sender, claim, state, keccak256(abi.encode(opening)), salt)). It is given one
    /// block or more later, so nobody can copy it and be first.
    function announce(bytes32 commitment) external {
        if (_announced[commitment] == 0) _announced[commitment] = block.number;
    }

    /// Rejects a claim whose record has another number of tensors than the program, or another root of an output, or of the
    /// state after the run, than its own trace.
    /// @param state whether the opening is about a state rather than an output
    function refute(
        uint256 id,
        bytes calldata run,
        bool state,
        RunOpening.Opening calldata opening,
        bytes32 salt
    ) external {
        bytes32 hash = keccak256(abi.encode(opening));
        uint256 announced = _announced[keccak256(abi.encode(msg.sender, id, state, hash, salt))];
        if (announced == 0 || announced >= block.number) revert NotAnnounced();
        Claim storage made = _challengeable(id, run);
        if (!RunOpening.contradicts(run, made.program, state, opening)) revert NoContradiction();
        _pay(msg.sender, 0);
        _close(id, made, Status.Rejected);
    }

    // Payment

    /// Pays what is due to the sender.
    function withdraw() external {
        uint256 amount = due[msg.sender];
        if (amount == 0) revert NothingDue();
        due[msg.sender] = 0;
        (bool paid, ) = msg.sender.call{value: amount}("");
        if (!paid) revert NotPaid();
    }

    /// Half of a lost bond, and what is the winner's own.
    function _pay(address winner, uint256 own) private {
        uint256 prize = bond / 2;
        due[winner] += prize + own;
        burnt += bond - prize;
    }

    function _close(uint256 id, Claim storage made, Status status) private {
        made.status = status;
        emit Closed(id, status);
    }

    function _challengeable(uint256 id, bytes calldata run) private view returns (Claim storage made) {
        made = _claims[id];
        if (made.status != Status.Open) revert WrongStatus(made.status);
        if (block.timestamp > made.until) revert WindowClosed();
        if (keccak256(run) != made.run) revert NotARun();
    }
}
