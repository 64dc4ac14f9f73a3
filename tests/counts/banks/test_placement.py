"""Where the chunks of wgmma operands and TMA boxes lie: against formulas by rows, and against each other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rich.console import Console
from rungs import named

from ladder.cli import main
from ladder.counts import banks
from ladder.counts.banks import AccessError, Descriptor, PlacedLine, Placement, placed_line
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.run import emulator
from ladder.run.evaluation import evaluate
from ladder.show.plots import placement_picture
from ladder.show.render import placed_line_lines, placement_lines

SPANS = (32, 64, 128)
SMALL = Problem(1, 1, 128, 128, 64)


def swizzled_chunk(row: int, chunk: int, span: int) -> int:
    """Which chunk of a row's a swizzle makes of it, in a tile whose first row begins the pattern.

    128 bytes: a row fills a line, and eight lines differ. 64 bytes: two rows fill a line, and four lines
    differ. 32 bytes: four rows, and two lines.
    """
    return chunk ^ {32: row // 4 % 2, 64: row // 2 % 4, 128: row % 8}[span]


def places(found: Placement) -> dict[tuple[int, int], tuple[int, int]]:
    return {(chunk.row, chunk.column): (chunk.plain, chunk.address) for chunk in found.chunks}


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
def test_a_box(span: int, element_bytes: int) -> None:
    columns, per_chunk = span // element_bytes, 16 // element_bytes
    found = banks.box((2, 20, columns), swizzle=span, element_bytes=element_bytes, address=4096)
    assert places(found) == {
        (row, c * per_chunk): (
            4096 + row * span + 16 * c,
            4096 + row * span + 16 * swizzled_chunk(row, c, span),
        )
        for row in range(40)
        for c in range(span // 16)
    }


def test_lines_of_a_narrow_box_lie_as_far_apart_as_the_swizzle_is_wide() -> None:
    found = banks.box((8, 16), swizzle=128, element_bytes=2, address=1024)
    assert places(found) == {
        (row, 8 * c): (1024 + 128 * row + 16 * c, 1024 + 128 * row + 16 * (c ^ row))
        for row in range(8)
        for c in range(2)
    }
    plain = banks.box((8, 16), element_bytes=2, address=1024)
    assert places(plain) == {
        (row, 8 * c): (1024 + 32 * row + 16 * c,) * 2 for row in range(8) for c in range(2)
    }


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_a_k_major_operand(span: int, element_bytes: int) -> None:
    """A tile of two blocks of columns; the products take k from each."""
    rows, columns, per_chunk = 72, 2 * span // element_bytes, 16 // element_bytes
    found = {}
    for k in range(0, columns, 2 * per_chunk):
        descriptor = banks.tile_descriptor(
            rows, columns, swizzle=span, major="k", element_bytes=element_bytes, k=k, start=2048
        )
        found |= places(banks.operand(descriptor, rows, element_bytes=element_bytes, k=k))
    chunks = span // 16
    assert found == {
        (row, c * per_chunk): (
            2048 + c // chunks * rows * span + row * span + 16 * (c % chunks),
            2048 + c // chunks * rows * span + row * span + 16 * swizzled_chunk(row, c % chunks, span),
        )
        for row in range(rows)
        for c in range(2 * chunks)
    }


@pytest.mark.parametrize("span", SPANS)
def test_an_mn_major_operand(span: int) -> None:
    """The rows of the tile run along the operand's rows, in two blocks of columns; k goes from row to row."""
    lines, columns, chunks = 48, span, span // 16
    found = {}
    for k in range(0, lines, 16):
        descriptor = banks.tile_descriptor(lines, columns, swizzle=span, major="mn", k=k, start=1024)
        found |= places(banks.operand(descriptor, columns, major="mn", k=k))
    assert found == {
        (line, 8 * c): (
            1024 + c // chunks * lines * span + line * span + 16 * (c % chunks),
            1024 + c // chunks * lines * span + line * span + 16 * swizzled_chunk(line, c % chunks, span),
        )
        for line in range(lines)
        for c in range(2 * chunks)
    }


@pytest.mark.parametrize("major", ["k", "mn"])
def test_operands_without_a_swizzle_are_core_matrices_of_128_bytes(major: str) -> None:
    rows, columns = 64, 32
    k, outer = (columns, rows) if major == "k" else (rows, columns)
    for first in range(0, k, 16):
        descriptor = banks.tile_descriptor(rows, columns, swizzle=0, major=major, k=first)
        found = banks.operand(descriptor, outer, major=major, k=first)
        assert places(found) == {
            (row, column): (column // 8 * rows * 16 + row * 16,) * 2
            for row in range(first if major == "mn" else 0, first + 16 if major == "mn" else rows)
            for column in range(0 if major == "mn" else first, columns if major == "mn" else first + 16, 8)
        }


def test_the_fields_of_a_descriptor() -> None:
    """PTX manual: address >> 4 in bits 0-13, leading in 16-29, stride in 32-45, base 49-51, swizzle 62-63."""
    one = Descriptor(start=0x1230, leading=0x40, stride=0x400, swizzle=128, base_offset=5)
    assert one.bits == 0x123 | 4 << 16 | 0x40 << 32 | 5 << 49 | 1 << 62
    assert [Descriptor(0, 0, 0, span).bits >> 62 for span in (0, 128, 64, 32)] == [0, 1, 2, 3]
    generator = random.Random(1)
    for _ in range(100):
        bits = generator.getrandbits(64) & (0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62)
        assert Descriptor.of(bits).bits == bits
    assert banks.parse_descriptor(hex(one.bits)) == one
    for text in ("", "0x", "x", "-1", "1" * 30, "0x1ffffffffffffffff"):
        with pytest.raises(AccessError, match="no matrix descriptor"):
            banks.parse_descriptor(text)


def test_a_wavefront_touches_each_bank_once_in_any_layout() -> None:
    """Why an H200 counts no conflict of wgmma, whatever the descriptor."""
    generator = random.Random(2)
    for _ in range(300):
        start, leading, stride = (16 * generator.randrange(1 << 10) for _ in range(3))
        swizzle, base = generator.choice((0, *SPANS)), generator.randrange(8)
        major = generator.choice(("k", "mn"))
        found = banks.operand(Descriptor(start, leading, stride, swizzle, base), 64, major=major)
        assert sorted(found.banks()) == list(range(32))
        assert found.wavefronts() == 1
        assert len(found.chunks) == 128


@pytest.mark.parametrize(("span", "expected"), [(32, 2), (64, 4), (128, 8)])
def test_what_it_would_take_without_the_swizzle(span: int, expected: int) -> None:
    descriptor = banks.tile_descriptor(64, span // 2, swizzle=span, major="k")
    found = banks.operand(descriptor, 64)
    assert (found.wavefronts(plain=True), found.wavefronts()) == (expected, 1)
    box = banks.box((64, span // 2), swizzle=span)
    assert (box.wavefronts(plain=True), box.wavefronts()) == (expected, 1)
    assert banks.box((64, 64)).wavefronts() == 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: banks.box((8, 128), swizzle=128), "more than the swizzle span of 128 bytes"),
        (lambda: banks.box((8, 12)), "a multiple of 16"),
        (lambda: banks.box((257, 8)), r"boxDim\[1\] is 257"),
        (lambda: banks.box((8, 8), element_bytes=3), "elements of 1, 2, 4 or 8 bytes, not of 3"),
        (lambda: banks.box((8, 8), address=64), "a multiple of 128 bytes of shared memory, not at 64"),
        (lambda: banks.box((8, 8), swizzle=48), "no swizzle of 48"),
        (lambda: banks.box((1,) * 6), "6 dimensions; 1 to 5"),
        (lambda: banks.box((8, 8), address=-128), "no number of 32 bits"),
        (lambda: banks.operand(Descriptor(0, 0, 0, 0), 12), "multiples of 8 up to 256"),
        (lambda: banks.operand(Descriptor(0, 0, 0, 0), 64, major="m"), "none of k, mn"),
        (lambda: banks.tile_descriptor(64, 24, swizzle=128, major="k"), "do not fill blocks of 128"),
        (lambda: banks.tile_descriptor(12, 64, swizzle=128, major="k"), "a tile of 12 rows"),
        (lambda: banks.tile_descriptor(64, 64, swizzle=128, major="k", k=8), "from a multiple of 16 on"),
        (lambda: banks.tile_descriptor(64, 64, swizzle=128, major="k", k=64), "64 of 64 is none"),
        (lambda: banks.tile_descriptor(64, 64, swizzle=0, major="mn", element_bytes=1), "not of 1"),
        (lambda: banks.tile_descriptor(512, 64, swizzle=0, major="k"), "an operand of 512 rows"),
        (lambda: banks.tile_descriptor(64, 64, swizzle=0, major="k", start=8), "at byte 8 of shared"),
        (lambda: banks.parse_shape("64*64"), "no shape of a tile"),
        (lambda: banks.parse_swizzle("3,4,3"), "no swizzle of wgmma and TMA"),
    ],
)
def test_what_is_no_tile(make, message: str) -> None:
    with pytest.raises(AccessError, match=message):
        make()


# --- a rung's lines ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launches() -> tuple[emulator.Launch, ...]:
    return tuple(evaluate("v8", SMALL, backend="emulator").execution.launches)


def line_of(text: str) -> int:
    lines = (Path(__file__).parents[3] / "stages" / named("v8") / "kernel.cu").read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def at(launches: tuple[emulator.Launch, ...], text: str, instruction: int | None = None) -> PlacedLine:
    found = placed_line(launches, named("v8"), "kernel.cu", line_of(text), instruction)
    assert found is not None
    return found


def test_products_read_the_tile_where_tma_put_it(launches: tuple[emulator.Launch, ...]) -> None:
    """Q, K and V: the chunk that a product takes for a row and a k is the one that holds them."""
    boxes = {}  # by their first byte of shared memory
    for one in banks.placed_instructions(launches):
        if one.ptx.startswith("cp.async.bulk.tensor"):
            (box,) = one.placements
            boxes[min(chunk.address for chunk in box.chunks)] = places(box)
    assert len(boxes) == 5  # Q for three warpgroups, K and V
    products = at(launches, "warpgroup::mma_ABt").instructions
    assert [len(one.placements) for one in products] == [2] * len(products)
    checked = 0
    for one in (*products, *at(launches, "warpgroup::mma_AB(").instructions):
        for operand in one.placements:
            base = max(begin for begin in boxes if begin <= operand.chunks[0].plain)
            tile = {address: place for place, (_, address) in boxes[base].items()}
            first_row, first_column = tile[operand.chunks[0].address]
            for chunk in operand.chunks:
                row, column = chunk.row - operand.chunks[0].row, chunk.column - operand.chunks[0].column
                assert tile[chunk.address] == (first_row + row, first_column + column)
                checked += 1
    # Four steps of k with Q (64 rows) and K (128), eight with V (64), two chunks each.
    assert checked >= 4 * (128 + 256) + 8 * 128


def test_descriptors_are_those_of_the_tiles(launches: tuple[emulator.Launch, ...]) -> None:
    of_q, of_k = at(launches, "warpgroup::mma_ABt").chosen.placements
    for found, rows in ((of_q, 64), (of_k, 128)):
        start = min(chunk.plain for chunk in found.chunks)
        expected = banks.operand(
            banks.tile_descriptor(rows, 64, swizzle=128, major="k", start=start), rows, name="x"
        )
        assert found.chunks == expected.chunks and found.facts == expected.facts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("warpgroup::mma_ABt(s, q_smem", "m64n128k16 reads A, 16 wavefronts, and B, 32 wavefronts"),
        ("warpgroup::mma_AB(o, p_16,", "m64n64k16 reads B, 16 wavefronts"),
        ("smem.q.load_async", "TMA moves boxes, 512 sectors and those of boxes that leave the tensor"),
        ("prefetch(0);", "TMA moves boxes, 1,024 sectors in all"),
    ],
)
def test_products_and_boxes_are_told_in_words(
    launches: tuple[emulator.Launch, ...], text: str, what: str
) -> None:
    """128 rows of 128 bytes of Q are 512 sectors, K and V twice that; the third box of Q has no row."""
    found = at(launches, text)
    assert what in found.cost
    other = found.instructions[-1].number
    assert at(launches, text, other).chosen.number == other
    assert placed_line(launches, named("v8"), "kernel.cu", line_of(text), 0) is None
    said = printed(placed_line_lines(found, 80))
    assert what in said and text in said
    ours = [line for line in said.splitlines() if found.text not in line and found.cost not in line]
    assert [line for line in ours if len(line) > 80] == []


def test_explain_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place, picture = f"v8:{line_of('smem.q.load_async')}", tmp_path / "a.svg"
    assert main(["explain", place, "--problem", "1,1,64,64,64", "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "box of 1 x 1 x 64 x 64 elements of 2 bytes, swizzle of 128 bytes" in out
    assert picture.read_text().startswith("<?xml")
    with pytest.raises(LadderError, match="no lanes with addresses") as caught:
        banks.explain(place, Problem(1, 1, 64, 64, 64))
    assert "draws where its tiles lie" in caught.value.hint
    assert main(["explain", "v8:1", "--problem", "1,1,64,64,64"]) == 2
    assert str(line_of("smem.q.load_async")) in capsys.readouterr().err


# --- what is drawn -----------------------------------------------------------------------------------------


def printed(lines) -> str:
    console = Console(width=1000, color_system=None)
    with console.capture() as capture:
        for line in lines:
            console.print(line, highlight=False)
    return capture.get()


def test_a_drawing() -> None:
    """Eight rows of 128 bytes, swizzled: the framed chunks go down the diagonal."""
    drawn = printed(placement_lines(banks.box((8, 64), swizzle=128), 80)).splitlines()
    before, after = (
        next(i for i, line in enumerate(drawn) if line.startswith(f"{word} the swizzle"))
        for word in ("before", "after")
    )
    assert drawn[before] == "before the swizzle: rows 0-7 of one column would take 8 wavefronts, 4 banks"
    assert drawn[after] == "after the swizzle: rows 0-7 of one column take 1 wavefront, all banks"
    assert drawn[before + 3].split() == ["128", *(f"1,{8 * c}" for c in range(8))]
    for row in range(8):
        assert drawn[after + 2 + row].split() == [
            f"{128 * row}",
            *(f"{row},{8 * (place ^ row)}" for place in range(8)),
        ]
    assert max(map(len, drawn)) <= 80


def test_a_list_where_a_drawing_has_no_room() -> None:
    drawn = printed(placement_lines(banks.box((8, 64), swizzle=128), 60))
    assert "row 3: byte 384, banks 0-3" in drawn and "row 3: byte 432, banks 12-15" in drawn


def test_overlapping_chunks_and_long_tiles() -> None:
    same = printed(placement_lines(banks.operand(Descriptor(0, 0, 128, 0), 8), 80))
    assert "0,0+" in same
    long = printed(placement_lines(banks.box((64, 64), swizzle=128), 80))
    assert "48 more lines of 128 bytes" in long


def test_the_picture() -> None:
    descriptor = banks.tile_descriptor(64, 64, swizzle=128, major="k")
    tiles = [banks.operand(descriptor, 64, name="A"), banks.box((8, 64))]
    figure = placement_picture(tiles, "a title")
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title().splitlines()[-1] for axes in panels] == [
        "before the swizzle the framed would take 8 wavefronts",
        "after it they take 1 wavefront",
        "the framed take 8 wavefronts",
    ]
    framed = [patch for patch in panels[1].patches if not patch.get_fill()]
    corners = sorted((round(patch.get_x()), round(patch.get_y())) for patch in framed)
    assert corners == [(row, row) for row in range(8)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tma", "64x64", "--swizzle", "128"], "box of 64 x 64 elements of 2 bytes, swizzle of 128 bytes"),
        (["tma", "32x16", "--element", "4", "--start", "256"], "2,048 bytes, from byte 256 of shared"),
        (["wgmma", "128x64", "--swizzle", "128", "--k", "16"], "descriptor 0x4000004004000002"),
        (["wgmma", "128x64", "--swizzle", "128", "--major", "mn"], "MN-major, swizzle of 128 bytes"),
        (["wgmma", "64x16", "--descriptor", "0x4000004000010040"], "start 1,024, leading offset 16"),
    ],
)
def test_bank_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], expected: str
) -> None:
    picture = tmp_path / "a.png"
    assert main(["bank", *words, "--picture", str(picture)]) == 0
    assert expected in capsys.readouterr().out and picture.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tma", "64x128", "--swizzle", "128"], "more than the swizzle span of 128 bytes"),
        (["tma", "64x64", "--k", "16"], "--k means nothing for tma"),
        (["ld", "lane", "--major", "k"], "--major means nothing for ld"),
        (["wgmma", "64x64", "--width", "4"], "--width means nothing for wgmma"),
        (["wgmma", "64"], "no shape of an operand's tile"),
        (["wgmma", "64x16", "--descriptor", "0x1", "--swizzle", "128"], "part of the descriptor"),
        (["wgmma", "lane * 4"], "no shape of a tile"),
        (["tma", "64x64", "--swizzle", "3,4,3"], "no swizzle of wgmma and TMA"),
    ],
)
def test_bank_refuses(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["bank", *words]) == 2
    assert message in capsys.readouterr().err
