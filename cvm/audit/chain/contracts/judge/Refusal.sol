// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A proof is refused. The kind is a word of cvm/standalone/verify_step.py, as ASCII text, left-aligned.
error Refused(bytes32 kind);

/// The call had too little gas to decide.
error OutOfGas();

function refuse(bytes32 kind) pure {
    revert Refused(kind);
}

function demand(bool holds, bytes32 kind) pure {
    if (!holds) revert Refused(kind);
}
