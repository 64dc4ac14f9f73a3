"""Single accesses to shared memory, asked of the interpreter's own model: their costs and their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ladder.run.emulator.library import library


@dataclass(frozen=True)
class SharedAccess:
    """The cost of one access of a warp to shared memory.

    ``wavefronts`` is the hardware's count for the access, ``passes`` the number of groups that its lanes are
    served in, ``conflicts`` the wavefronts added by bank conflicts, ``ideal`` the wavefronts that its
    distinct bytes would fill at 128 each.
    """

    op: str
    width: int
    addresses: tuple[int | None, ...]
    wavefronts: int
    passes: int
    conflicts: int
    ideal: int


def shared_access(op: str, width: int, addresses: Sequence[int | None]) -> SharedAccess:
    """The cost of one access of a warp to shared memory, by the interpreter's own model.

    ``op`` is ld, st, ldmatrix, stmatrix, atom.add, atom.cas or cp.async; ``width`` is the number of bytes per
    lane or, for ldmatrix and stmatrix, of 8x8 tiles (1, 2 or 4; lanes 8i to 8i+7 address the rows of tile i);
    ``addresses`` holds the byte addresses of the 32 lanes, None for inactive ones.

    Raises ValueError for an invalid access, or one that the model does not cover (cp.async of 4 and 8 bytes).
    """
    lanes = _lane_addresses(addresses)
    wavefronts, passes, conflicts, ideal = library.shared_access(op, width, list(lanes))
    return SharedAccess(op, width, lanes, wavefronts, passes, conflicts, ideal)


def shared_passes(op: str, width: int, addresses: Sequence[int | None]) -> list[tuple[int, int]]:
    """The passes that serve such an access, in order: (mask of lanes, wavefronts).

    Raises ValueError like :func:`shared_access`.
    """
    return list(library.shared_passes(op, width, list(_lane_addresses(addresses))))


def operand_chunks(descriptor: int, mn_major: bool, groups: int) -> list[tuple[int, int]]:
    """Where a product finds an operand in shared memory: (address without the swizzle, address) of each 16
    bytes, a chunk.

    ``descriptor`` is the matrix descriptor of ``wgmma``; ``groups`` the operand's rows over 8. The chunks
    come by group, then by the two along k, then by the 8 rows; MN-major by group of 8 elements, then by 8
    lines along k, then by line.
    """
    return list(library.operand_chunks(descriptor, mn_major, groups))


def box_chunks(
    address: int, elements: Sequence[int], element_bytes: int, swizzle: int
) -> list[tuple[int, int]]:
    """Where TMA keeps a box in shared memory: (address without the swizzle, address) of each 16 bytes of it.

    ``elements`` are by dimension, the innermost first; ``swizzle`` is 0, 32, 64 or 128 bytes.

    Raises ValueError with the rule that the box breaks.
    """
    numbers = (address, element_bytes, swizzle, *elements)
    if any(not 0 <= number < 2**32 for number in numbers):
        raise ValueError(f"{max(numbers, key=abs)} is no number of 32 bits")
    return list(library.box_chunks(address, list(elements), element_bytes, swizzle))


def _lane_addresses(addresses: Sequence[int | None]) -> tuple[int | None, ...]:
    lanes = tuple(None if address is None else int(address) for address in addresses)
    if any(address is not None and not 0 <= address < 2**32 for address in lanes):
        raise ValueError("an address in shared memory is a number of 32 bits")
    return lanes
