"""The bank-conflict explorer: opcodes, swizzles, and what fixes a conflict."""

from __future__ import annotations

import pytest

from ladder.counts import banks
from ladder.counts.banks import AccessError, Swizzle


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("ld", None, ("ld", 4)),
        ("ld", 16, ("ld", 16)),
        ("ld.shared.f32", None, ("ld", 4)),
        ("ld.shared.v4.f32", None, ("ld", 16)),
        ("ld.volatile.shared.v2.b32", None, ("ld", 8)),
        ("st.shared.v4.u8", None, ("st", 4)),
        ("st.b16", None, ("st", 2)),
        ("st.v2", None, ("st", 8)),
        ("ldmatrix", None, ("ldmatrix", 4)),
        ("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", None, ("ldmatrix", 2)),
        ("stmatrix.x4", 4, ("stmatrix", 4)),
        ("atom.shared.add.u32", None, ("atom.add", 4)),
        ("atom.cas.b32", None, ("atom.cas", 4)),
    ],
)
def test_opcodes(text: str, width: int | None, expected: tuple[str, int]) -> None:
    assert banks.parse_op(text, width) == expected


@pytest.mark.parametrize(
    ("text", "width"), [("mov", None), ("ld.v3", None), ("ld.v4.f32", 8), ("ld.x4", None)]
)
def test_what_is_no_opcode(text: str, width: int | None) -> None:
    with pytest.raises(AccessError):
        banks.parse_op(text, width)


def test_swizzle_is_a_permutation_of_its_own_inverse() -> None:
    swizzle = Swizzle.parse("3,4,3")
    addresses = range(4096)
    assert sorted(map(swizzle, addresses)) == list(addresses)
    assert [swizzle(swizzle(address)) for address in addresses] == list(addresses)
    assert swizzle(128 * 5 + 16) == 128 * 5 + 16 * (1 ^ 5)


def test_swizzle_of_elements() -> None:
    swizzle = Swizzle(3, 4, 4)
    halves = swizzle.in_elements(2)
    assert halves == Swizzle(3, 3, 4)
    assert all(2 * halves(element) == swizzle(2 * element) for element in range(2048))
    assert swizzle.in_elements(32) is None


@pytest.mark.parametrize("text", ["3,4", "a,b,c", "3,4,2", "3,4,99", ""])
def test_what_is_no_swizzle(text: str) -> None:
    with pytest.raises(AccessError):
        Swizzle.parse(text)


@pytest.mark.parametrize(("row_bytes", "expected"), [(256, Swizzle(3, 4, 4)), (128, Swizzle(3, 4, 3))])
def test_ldmatrix_of_a_row_major_tile(row_bytes: int, expected: Swizzle) -> None:
    text = f"(lane % 16) * {row_bytes} + lane / 16 * 16"
    found = banks.explore("ldmatrix.x4", text)
    assert (found.service.wavefronts, found.service.conflicts) == (32, 28)
    assert found.remedies == (expected,) and found.best is None
    assert banks.explore("ldmatrix.x4", text, swizzle=expected).service.conflicts == 0
    # The parameters for the other row size leave two rows in the same banks.
    other = Swizzle(3, 4, 7 - expected.shift)
    assert banks.explore("ldmatrix.x4", text, swizzle=other).service.conflicts == 4


def test_from_python() -> None:
    by_function = banks.explore("st", lambda lane: lane * 128)
    by_values = banks.explore("st", [lane * 128 for lane in range(32)])
    assert by_function.service == by_values.service
    assert by_function.service.conflicts == 31
    assert banks.explore("st", lambda lane: lane * 128, active=1).service.conflicts == 0


def test_nothing_to_mend() -> None:
    found = banks.explore("ld", "lane * 4")
    assert found.service.conflicts == 0 and found.remedies == () and found.best is None


def test_what_no_swizzle_mends() -> None:
    found = banks.explore("atom.add", "0")
    assert found.service.conflicts == 31 and found.remedies == () and found.best is None


def test_the_best_where_none_mends_it_all() -> None:
    # Two words of one bank can be separated, but sixteen lanes still need each.
    found = banks.explore("atom.add", "lane % 2 * 128")
    assert found.service.conflicts == 31 and found.remedies == ()
    assert found.best is not None and found.best[1] == 15


def test_remedies_of_high_addresses() -> None:
    found = banks.explore("ld", "lane * 0x8000000u")
    assert found.service.conflicts == 31 and found.best == (Swizzle(4, 3, 24), 1)


def test_every_remedy_mends() -> None:
    for op, text in (
        ("ld", "lane * 256"),
        ("st.v2.f32", "lane / 4 * 256 + lane % 4 * 8"),
        ("ld.v4.f32", "lane*128"),
    ):
        found = banks.explore(op, text)
        assert found.service.conflicts and found.remedies
        for swizzle in found.remedies:
            assert banks.explore(op, text, swizzle=swizzle).service.conflicts == 0
