// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A game between two parties about one run (docs/disputes.md), as whoever starts one and waits for its end sees it.
interface IDisputeGame {
    /// Starts a game between `a` and `b`, who name the trace roots `rootA` and `rootB`.
    /// @param statement what both agree on: keccak256(program digest | roots(inputs) | roots(state before))
    /// @param moveTime the seconds that the parties have for each answer
    function start(address a, address b, bytes32 rootA, bytes32 rootB, bytes32 statement, uint32 moveTime)
        external
        returns (uint256 id);

    /// Whether a game is over, and who won: 1 is `a`, 2 is `b`, 0 nobody (both have lost).
    function outcome(uint256 id) external view returns (bool over, uint8 winner);
}
