"""The lessons' pictures show the measurements; legibility is for people to judge."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from rungs import named

pytest.importorskip("matplotlib")

from ladder import cli
from ladder.counts import banks
from ladder.course.lessons import fragments, gallery, instructions, memory, softmax, walk
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.show import plots
from ladder.show.plots import SOFTMAX_TILE, Part, fragments_picture, layout, walk_picture


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_fragments_are_those_of_the_ptx_manual() -> None:
    """The manual's formulas: row = lane / 4, columns lane % 4 * 2 and + 1, of each 8x8 tile."""
    measured = fragments.measure_fragments()
    row, column = np.indices((16, 16))
    holder = row % 8 * 4 + column % 8 // 2
    register = row // 8 + column // 8 * 2
    assert (measured["ldmatrix"].lane == holder).all()
    assert (measured["ldmatrix"].register == register).all()
    assert (measured["ldmatrix of K"].lane == holder).all()
    assert (measured["ldmatrix of K"].register == column // 8 + row // 8 * 2).all()
    assert (measured["ldmatrix.trans"].lane == column % 8 * 4 + row % 8 // 2).all()
    assert (measured["ldmatrix.trans"].register == register).all()
    assert (measured["mma"].lane == holder[:, :8]).all()
    assert (measured["mma"].register == (column % 2 + row // 8 * 2)[:, :8]).all()
    assert len(texts(fragments_picture(measured))) == 3 * 256 + 128


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_walks_visit_every_visible_tile_once(is_causal: bool) -> None:
    problem = Problem(1, 1, 200, 100, 64, is_causal=is_causal)
    walks = {stage: walk.measure_walk(stage, problem) for stage in walk.ARRIVALS}
    for visits in walks.values():
        seen = np.zeros((256, 128), dtype=int)
        for visit in visits:
            seen[visit.row : visit.row + visit.rows, visit.key : visit.key + visit.keys] += 1
        row, key = np.indices(seen.shape)
        visible = (row < 200) & (key < 100) & ((key <= row) if is_causal else True)
        assert (seen[visible] == 1).all() and seen.max() == 1
    # The first visits all queries for each tile of keys, the second all keys for its own queries.
    first, second = walks.values()
    assert {visit.block for visit in first} == {0}
    assert [visit.key for visit in first] == sorted(visit.key for visit in first)
    assert len({visit.block for visit in second}) == 4
    for visits in ([v for v in second if v.block == block] for block in range(4)):
        assert len({visit.row for visit in visits}) == 1
        assert [visit.key for visit in visits] == sorted(visit.key for visit in visits)
    figure = walk_picture(walks, problem)
    assert len(texts(figure)) == len(first) + len(second)


@pytest.mark.parametrize(("head_dim", "swizzle"), [(32, "2,3,3"), (64, "3,3,3"), (128, "3,3,4")])
def test_the_layouts_are_a_permutation_by_the_swizzle(head_dim: int, swizzle: str) -> None:
    figure = gallery.layout(head_dim)
    titles = [axes.get_title() for axes in figure.axes]
    assert f"{4 if head_dim == 32 else 8} wavefronts" in titles[0] and "1 wavefront for" in titles[1]
    plain, swizzled = gallery.explained_layout(head_dim)
    before, after = layout.measure_layouts(plain, swizzled, row_bytes=2 * head_dim)
    keys = {32: 64, 64: 48, 128: 32}[head_dim]
    assert len(before) == keys * head_dim // 8 and sorted(before.values()) == sorted(after.values())
    expected = banks.Swizzle.parse(swizzle)
    assert all(after[place] == 2 * expected(before[place] // 2) for place in before)


def test_softmax_of_a_row() -> None:
    q, k, v = softmax.example()
    progress = softmax.measure_softmax(q, k, v)
    assert progress.m == sorted(progress.m) and progress.m[-1] == max(progress.logits)
    assert any(0 < factor < 1 for factor in progress.rescale)
    # l' = l * rescale + the sum over the new tile, as in the kernel.
    total = 0.0
    for tile, (m, factor) in enumerate(zip(progress.m, progress.rescale, strict=True)):
        new = progress.logits[tile * SOFTMAX_TILE : (tile + 1) * SOFTMAX_TILE]
        total = total * factor + sum(math.exp(logit - m) for logit in new)
        assert progress.l[tile] == pytest.approx(total, rel=1e-5)


def test_costs_name_the_lines() -> None:
    figure = gallery.costs([named("v2")], Problem(1, 1, 64, 64, 64), count=3)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == 4 and any("ldmatrix_x4_trans(v_rmem" in label for label in labels)
    # The bars add up to the title's total.
    bars = [int(text.partition(":")[0].replace(",", "")) for text in texts(figure)]
    assert f"{sum(bars):,} wavefronts" in figure.axes[0].get_title(loc="left")


def test_instructions_are_all_counted_and_the_products_are_those_of_the_mathematics() -> None:
    table = instructions.instructions_a_score([named("v3")], Problem(1, 1, 64, 96, 64))
    # 4096 multiply-adds twice over d = 64: 2 * 64 / 2048 products of a warp, 32 lanes each.
    assert table.loc[named("v3"), "products (mma, wgmma)"] == 2 * 64 * 32 / 2048
    [launch] = evaluate("v3", Problem(1, 1, 64, 96, 64), backend="emulator").execution.launches
    counted = launch.instructions()["executed"].sum() * 32 / (64 * 96)
    assert table.loc[named("v3")].sum() == pytest.approx(counted)


def test_a_buffer_holds_one_tile_at_a_time() -> None:
    figure = gallery.buffers()
    shown = texts(figure)
    assert shown.count("tile 0") == 1 and shown.count("tile 3") == 2  # in flight, then used


def test_a_block_of_v5_has_two_buffers_and_the_queries() -> None:
    """At d = 128 two tiles of 32 keys, twice, and 16 rows of Q per warp, 16-bit each; at 64 no Q."""
    tile, rows = 32 * 128 * 2, 16 * 128 * 2
    assert memory.memory_map(named("v5"), 128) == [
        *(Part(name, n * tile, tile) for n, name in enumerate(("k[0]", "k[1]", "v[0]", "v[1]"))),
        Part("q of warp 0", 4 * tile, rows),
        Part("q of warps 1 to 15", 4 * tile + rows, 15 * rows),
    ]
    assert sum(part.bytes for part in memory.memory_map(named("v5"), 64)) == 4 * 48 * 64 * 2


def test_pictures_by_name(tmp_path: Path, capsys) -> None:
    assert cli.main(["plot", "fragments", "--out", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").stat().st_size > 10_000
    assert cli.main(["plot"]) == 0
    assert "online softmax" in capsys.readouterr().out
    assert cli.main(["plot", "fragment"]) == 2
    assert "did you mean fragments?" in capsys.readouterr().err
    assert cli.main(["plot", "fragments", "--out", str(tmp_path / "a.txt")]) == 2
    assert not (tmp_path / "a.txt").exists()


def test_a_notebook_can_show_them() -> None:
    figure = plots.new_figure(1, 1)
    figure.suptitle("0.12345 is shown as it is")
    shown = figure._repr_svg_()  # type: ignore[attr-defined]
    assert shown.startswith("<svg ") and shown == figure._repr_svg_()  # type: ignore[attr-defined]
    assert "<title>0.12345 is shown as it is</title>" in shown
    (text,) = re.findall(r"<text[^>]*>(.*?)</text>", shown)
    assert text == "0.12345 is shown as it is"
    untitled = plots.training_picture({"mine": [1.0], "yours": [2.0]})
    assert "<title>loss by step: mine; yours</title>" in plots.as_svg(untitled)
