"""Proof that state which stays in its arrays is read before it is overwritten, and never after.

The checker goes through the claims in the order of their calls. A claim that writes to the array of a state takes away
what the array held: from then on no claim can be proven that reads the old state there, whether by name or as another
view. Two kinds of claims may write there: a copy of a whole tensor, and an updated slice in place. For the latter, it
is proven that the kernel writes the slice at the node's index and leaves everything else as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from cvm.executors.native.checker.addresses import extent, loops_of, require, stride, visited
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.plan.claims import Claim, Computes, Copies, Fills, Joins, Prepares
from cvm.executors.native.plan.homes import Buffer, Home

if TYPE_CHECKING:
    from cvm.executors.native.plan.steps import Plan
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Residence"]


class _Proof(Protocol):
    """The state of the whole proof (see `checker`)."""

    verified: VerifiedProgram
    plan: Plan
    homes: dict[str, list[Home]]
    copies: dict[Home, Home]
    prepared: dict[Buffer, Prepares]

    @property
    def calls(self) -> Mapping[str, Any]:
        """The verified calls of the nodes, by their first results."""

    def held(self, name: str, home: Home) -> bool:
        """Whether a home holds a tensor."""


class Residence:
    """The part of a proof that is about the arrays of inputs and state."""

    def __init__(self, proof: _Proof) -> None:
        self._proof = proof
        self._next = 0
        self._arrays: dict[str, Home] = {}
        self._mentioned: dict[int, set[Buffer]] = {}

    def _is_read(self, buffer: Buffer) -> bool:
        """Whether a buffer is an array that the network reads: that of an input or a state."""
        return buffer.kind == "array" and buffer.index < self._proof.plan.written

    def holds(self, name: str, home: Home) -> None:
        """Note the array of an input or a state."""
        require(name not in self._arrays, "an array is claimed twice")
        self._arrays[name] = home

    def before(self, claim: Claim) -> None:
        """Prove that the calls of a claim come after those of all claims before, and note the buffers that it names."""
        if not self._proof.plan.kept:
            return
        for home in _homes(claim):
            for number in _calls(claim):
                self._mentioned.setdefault(number, set()).add(home.buffer)
        for number in _calls(claim):
            require(number >= self._next, "a claim is about a call before those of earlier claims")
            self._next = number + 1
        if isinstance(claim, Fills | Joins | Prepares):
            require(not self._is_read(claim.target.buffer), "an array that the network reads is overwritten")

    def copies(self, claim: Copies) -> None:
        """Prove that a copy into an array that the network reads is one of a whole tensor into that of a state."""
        target = claim.target
        if self._is_read(target.buffer):
            self._require_state(target)
            require(claim.source.buffer is not target.buffer, "a state is copied within its array")
            self._overwrite(target.buffer)

    def computes(self, claim: Computes) -> None:
        """Prove a kernel that writes to the array of a state; only an updated slice may."""
        if not any(self._is_read(target.buffer) for target in claim.targets):
            return
        (target,) = claim.targets
        self._require_state(target)
        node, kernel = claim.root, claim.kernel
        require(node.op == "update_slice" and len(claim.reads) == 3, "a kernel overwrites a state")
        tensor, part, index = (_present(home) for home in claim.reads)
        require(tensor == target and not getattr(kernel, "kept", (None,)), "the rest of the state is not kept")
        require(target.buffer not in (part.buffer, index.buffer), "the slice is read where it is written")
        arguments = tuple(home.at() for home in (tensor, part, index, target))
        require(self._proof.plan.calls[claim.call].arguments == arguments, "other arguments")
        self._require_slice(claim, kernel, part, target)
        self._overwrite(target.buffer)

    def _require_slice(self, claim: Computes, kernel: Any, part: Home, target: Home) -> None:
        """Prove that the kernel writes every element of the slice at its place, from the index that the node means."""
        node = claim.root
        rank = len(target.view.axes)
        axis = self._proof.calls[node.outputs[0].name].attributes.axis % rank
        shape = tuple(map(extent, part.view.axes))
        require(shape == self._proof.verified.shapes[node.inputs[1]], "the slice has another shape")
        whole = tuple(map(extent, target.view.axes))
        require(kernel.last == whole[axis] - shape[axis], "another greatest index")
        places = [((n, stride(factors)),) for n, factors in zip(shape, target.view.axes, strict=True)]
        require(kernel.stride == (stride(target.view.axes[axis]) if whole[axis] > 1 else 0), "another stride")
        loops = [(one.extent, one.strides) for one in kernel.replaced]
        require(loops_of(loops, 1) == visited([part.view.axes, places], 1), "the kernel visits other elements")
        formats = tuple(_present(home).format for home in (*claim.reads, target))
        require(kernel.formats == formats, "other formats")

    def _require_state(self, home: Home) -> None:
        kept = [name for name in self._proof.plan.kept if self._arrays.get(name) == home]
        require(len(kept) == 1, "an array that the network reads is overwritten")

    def _overwrite(self, buffer: Buffer) -> None:
        """Take away what an array held. Copies of it that were made before hold the tensor by themselves."""
        proof = self._proof
        for name, homes in proof.homes.items():
            if any(home.buffer is buffer for home in homes):
                apart = [copy for copy in proof.copies if copy.buffer is not buffer and proof.held(name, copy)]
                left = [home for home in homes if home.buffer is not buffer]
                proof.homes[name] = [*left, *(copy for copy in apart if copy not in left)]
        for target in [one for one, added in proof.prepared.items() if added.source.buffer is buffer]:
            del proof.prepared[target]
        for copy, source in list(proof.copies.items()):
            if copy.buffer is buffer:
                del proof.copies[copy]
            elif source.buffer is buffer:  # it is no copy of what the array will hold
                proof.copies[copy] = replace(source, buffer=Buffer("arena"))

    def whole(self) -> None:
        """Prove that the array of every state holds the next state in the end, and that no call uses such an array
        without a claim that names it.
        """
        proof = self._proof
        if not proof.plan.kept:
            return
        for item in proof.verified.program.state:
            home = self._arrays.get(item.value.name)
            require(home is not None, f"the state {item.value.name} has no array")
            assert home is not None
            require(proof.held(item.update, home), f"the array of {item.value.name} does not hold the next state")
        for number, call in enumerate(proof.plan.calls):
            for buffer, _ in call.arguments:
                known = not self._is_read(buffer) or buffer in self._mentioned.get(number, ())
                require(known, "a call uses the array of a state that no claim names")


def _present(home: Home | None) -> Home:
    require(home is not None, "an operand has no home")
    assert home is not None
    return home


def _homes(claim: Claim) -> list[Home]:
    """The homes that the calls of a claim read and write."""
    match claim:
        case Computes():
            found = [*claim.reads, claim.source, *claim.targets]
        case Copies():
            found = [claim.source, claim.target, claim.table]
        case Prepares():
            found = [claim.source, claim.target]
        case Fills():
            found = [claim.target]
        case _:
            found = []
    return [home for home in found if home is not None]


def _calls(claim: Claim) -> range:
    """The numbers of the calls of a claim."""
    match claim:
        case Computes():
            kernel = claim.kernel
            groups = claim.targets[0].view.shape[1] // kernel.channels if isinstance(kernel, Contraction) else 1
            return range(claim.call, claim.call + groups)
        case Copies() | Fills() | Prepares():
            return range(claim.call, claim.call + 1)
        case _:
            return range(0)
