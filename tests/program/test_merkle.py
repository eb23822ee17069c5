"""Merkle trees: the RFC's test vectors, proofs that verify, mutations that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.program.merkle import LEAF_BYTES, Proof, Tree, chunks, root, root_of_proof, verify_proof

RFC_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
RFC_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""Of the Certificate Transparency implementations: the roots of the first n leaves."""

leaf_lists = st.lists(st.binary(max_size=40), min_size=1, max_size=40)


@pytest.mark.parametrize("count", range(9))
def test_roots_are_those_of_certificate_transparency(count):
    assert root(bytes.fromhex(leaf) for leaf in RFC_LEAVES[:count]).hex() == RFC_ROOTS[count]


@given(leaf_lists)
def test_every_leaf_has_a_proof_that_verifies(leaves):
    tree = Tree.of(leaves)
    for index, leaf in enumerate(leaves):
        proof = tree.prove(index)
        assert (proof.index, proof.count) == (index, len(leaves))
        assert len(proof.path) <= (len(leaves) - 1).bit_length()
        assert verify_proof(tree.root, leaf, proof)


@given(leaf_lists, st.data())
def test_any_mutation_of_a_proof_fails(leaves, data):
    tree = Tree.of(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    leaf, proof = leaves[index], tree.prove(index)
    mutations = [
        (leaf + b"\0", proof),
        (leaf, replace(proof, path=(*proof.path, bytes(32)))),
        (leaf, replace(proof, index=-1)),
        (leaf, replace(proof, index=proof.count)),
        (leaf, replace(proof, count=0)),
    ]
    for place, sibling in enumerate(proof.path):
        flipped = bytes([sibling[0] ^ 1]) + sibling[1:]
        before, after = proof.path[:place], proof.path[place + 1 :]
        mutations += [
            (leaf, replace(proof, path=(*before, flipped, *after))),
            (leaf, replace(proof, path=(*before, *after))),
            (leaf, replace(proof, path=(*before, sibling[:31], *after))),
        ]
    mutations += [
        (leaf, replace(proof, index=other)) for other in range(len(leaves)) if leaves[other] != leaf and other != index
    ]
    for mutated, mutated_proof in mutations:
        assert not verify_proof(tree.root, mutated, mutated_proof)


@given(leaf_lists.filter(lambda leaves: len(leaves) > 1))
def test_an_inner_node_is_not_a_leaf(leaves):
    tree = Tree.of(leaves)
    inner = tree.levels[0][:64]
    assert root_of_proof(inner, Proof(0, 1, ())) != tree.root


def test_a_leaf_that_does_not_exist_has_no_proof():
    for index in (-1, 2):
        with pytest.raises(IndexError):
            Tree.of([b"a", b"b"]).prove(index)


@given(st.integers(0, 5 * LEAF_BYTES))
def test_chunks_cut_and_lose_nothing(size):
    data = bytes(index % 251 for index in range(size))
    found = list(chunks(data))
    assert b"".join(found) == data
    assert all(len(leaf) == LEAF_BYTES for leaf in found[:-1])
    assert all(found)
