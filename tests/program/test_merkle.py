"""Merkle trees: the RFC's test vectors, proofs that verify, mutations that do not."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.program.merkle import LEAF_BYTES, Proof, Tree, chunks, root, root_of_proof, root_of_several, verify_proof

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
    for level, sibling in enumerate(proof.path):
        flipped = bytes([sibling[0] ^ 1]) + sibling[1:]
        before, after = proof.path[:level], proof.path[level + 1 :]
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


# Several leaves at once


def test_any_leaves_have_one_proof_that_is_never_longer_than_their_own():
    for count in range(1, 10):
        leaves = [bytes([number]) for number in range(count)]
        tree = Tree.of(leaves)
        for size in range(1, count + 1):
            for indices in combinations(range(count), size):
                path = tree.prove_several(indices)
                opened = {index: leaves[index] for index in indices}
                assert root_of_several(opened, count, path) == tree.root
                assert len(path) <= sum(len(tree.prove(index).path) for index in indices)
                assert (size < count) or path == ()
        for index in range(count):
            assert tree.prove_several([index]) == tree.prove(index).path


@given(leaf_lists, st.data())
def test_no_change_of_leaves_or_proof_gives_the_root(leaves, data):
    tree, count = Tree.of(leaves), len(leaves)
    indices = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    path = tree.prove_several(indices)
    opened = {index: leaves[index] for index in indices}
    changed = data.draw(st.sampled_from(indices))
    wrong = [
        (opened | {changed: opened[changed] + b"\0"}, count, path),
        (opened, count, (*path, bytes(32))),
        (opened, count, path[:-1] if path else (b"",)),
        (opened, count, tuple(node[:-1] for node in path) or (bytes(31),)),
        ({index + count: leaf for index, leaf in opened.items()}, count, path),
        ({-1: b"", **opened}, count, path),
        ({}, count, path),
        (opened, 0, path),
    ]
    wrong += [(opened, count, (*path[:i], bytes(32), *path[i + 1 :])) for i in range(len(path))]
    if changed + 1 not in opened and changed + 1 < count and leaves[changed] != leaves[changed + 1]:
        moved = {index + (index == changed): leaf for index, leaf in opened.items()}
        wrong.append((moved, count, path))
    for mutant in wrong:
        assert root_of_several(*mutant) != tree.root


def test_leaves_that_there_are_not_have_no_proof():
    tree = Tree.of([b"a", b"b", b"c"])
    for indices in ([3], [-1], [0, 5]):
        with pytest.raises(IndexError):
            tree.prove_several(indices)


def test_a_tree_of_2_to_the_64_leaves_is_proven_in_64_hashes():
    path = (bytes(32),) * 64
    assert root_of_several({2**64 - 1: b"x"}, 2**64, path) is not None
    assert root_of_several({2**64 - 1: b"x"}, 2**64, path[:-1]) is None


def test_nodes_are_those_of_the_rfc():
    for count in range(1, 20):
        leaves = [bytes([number]) for number in range(count)]
        tree = Tree.of(leaves)
        for start in range(count):
            for end in range(start + 1, count + 1):
                size = 1 << (end - start - 1).bit_length()
                if start % size == 0 and (end == start + size or end == count):
                    assert tree.node(start, end) == root(leaves[start:end])
                else:
                    with pytest.raises(IndexError):
                        tree.node(start, end)
        for start, end in ((0, count + 1), (-1, count), (1, 1), (2, 1)):
            with pytest.raises(IndexError):
                tree.node(start, end)
