"""How one access is served: which lanes together, and which word when."""

from __future__ import annotations

import random

import pytest

from ladder.counts.banks import Access, AccessError, lanes_text, parse_mask, serve


def access(op: str, width: int, address, active: int = 2**32 - 1) -> Access:
    return Access(op, width, tuple(address(lane) if active >> lane & 1 else None for lane in range(32)))


def test_a_column_of_a_tile() -> None:
    service = serve(access("ldmatrix", 4, lambda lane: lane % 16 * 128 + lane // 16 * 16))
    assert (service.wavefronts, service.conflicts, service.ideal) == (32, 28, 4)
    assert [one.lanes for one in service.passes] == [tuple(range(n, n + 8)) for n in (0, 8, 16, 24)]
    first = service.passes[0]
    assert [cell.lanes for cell in first.cells] == [(lane,) for lane in range(8)]
    assert [cell.wavefront for cell in first.cells] == list(range(8))
    assert first.demand() == [8] * 4 + [0] * 28


def test_lanes_of_one_word_go_together() -> None:
    service = serve(access("ld", 4, lambda lane: lane // 8 * 4))
    (one,) = service.passes
    assert (service.wavefronts, service.conflicts) == (1, 0)
    assert [cell.lanes for cell in one.cells] == [tuple(range(n, n + 8)) for n in (0, 8, 16, 24)]


def test_bytes_of_one_word_go_together() -> None:
    (one,) = serve(access("st", 1, lambda lane: lane)).passes
    assert [cell.address for cell in one.cells] == list(range(0, 32, 4))


def test_atomics_of_one_word_follow_each_other() -> None:
    service = serve(access("atom.add", 4, lambda lane: lane % 2 * 4))
    (one,) = service.passes
    assert (service.wavefronts, service.conflicts, one.wavefronts) == (16, 15, 16)
    assert sorted(cell.wavefront for cell in one.cells) == sorted([*range(16)] * 2)
    twice = serve(access("atom.cas", 4, lambda lane: lane % 2 * 4))
    assert (twice.wavefronts, twice.conflicts, twice.passes[0].wavefronts) == (32, 15, 16)


def test_loads_whose_partners_agree_take_fewer_passes_than_stores() -> None:
    loads = serve(access("ld", 8, lambda lane: lane // 2 * 8))
    stores = serve(access("st", 8, lambda lane: lane // 2 * 8))
    assert [len(one.lanes) for one in loads.passes] == [32]
    assert [len(one.lanes) for one in stores.passes] == [16, 16]


def test_a_pass_without_lanes_is_left_out() -> None:
    service = serve(access("st", 16, lambda lane: lane * 16, active=0x00FF0000))
    assert [one.lanes for one in service.passes] == [tuple(range(16, 24))]


def test_no_lane_at_all() -> None:
    service = serve(access("ld", 4, lambda lane: 0, active=0))
    assert (service.wavefronts, service.conflicts, service.passes) == (0, 0, ())


def test_the_layout_fits_the_model_for_any_pattern() -> None:
    # serve() itself compares its schedule with the model's wavefronts of each pass.
    generator = random.Random(0)
    for _ in range(300):
        op, width = generator.choice(
            [("ld", 1), ("ld", 4), ("ld", 8), ("ld", 16), ("st", 8), ("atom.add", 4)]
        )
        span = generator.choice([4, 40, 400])
        addresses = [generator.randrange(span) * width for _ in range(32)]
        service = serve(access(op, width, addresses.__getitem__, generator.getrandbits(32)))
        assert sum(one.wavefronts for one in service.passes) == service.wavefronts
        assert service.conflicts == service.wavefronts - len(service.passes)
        served = sorted(lane for one in service.passes for cell in one.cells for lane in cell.lanes)
        assert served == list(service.access.lanes)


@pytest.mark.parametrize(
    ("op", "width", "address", "message"),
    [
        ("ld", 3, lambda lane: 0, "not 3"),
        ("tma", 4, lambda lane: 0, "none of"),
        ("ld", 8, lambda lane: lane * 4, "lane 1's address 4 is not a multiple of 8"),
        ("st", 4, lambda lane: -4 * lane, "lane 1's address is -4"),
        ("ldmatrix", 4, lambda lane: lane * 8, "multiple of 16"),
        ("ldmatrix", 2, lambda lane: None if lane == 3 else lane * 16, "none of them can be left out"),
        ("atom.add", 8, lambda lane: lane * 8, "not 8"),
    ],
)
def test_what_is_no_access(op: str, width: int, address, message: str) -> None:
    with pytest.raises(AccessError, match=message):
        access(op, width, address)


def test_lanes_beyond_the_rows_of_a_matrix_access_do_not_count() -> None:
    assert serve(access("ldmatrix", 1, lambda lane: lane * 16 if lane < 8 else None)).wavefronts == 1


def test_masks_and_lanes() -> None:
    assert parse_mask("0xff") == 255
    assert parse_mask("0-3,8") == 0b100001111
    assert lanes_text([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    for text in ("", "0x0", "32", "3-1", "a", "0x1ffffffff", "-1"):
        with pytest.raises(AccessError):
            parse_mask(text)
