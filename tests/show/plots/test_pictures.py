"""The pictures contain their data; legibility is for people to judge."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

pytest.importorskip("matplotlib")

import ladder
from ladder.counts import banks
from ladder.errors import LadderError
from ladder.show import plots
from ladder.show.plots import (
    Part,
    access_picture,
    busy_picture,
    comparison_picture,
    mask_picture,
    memory_picture,
    ranks_picture,
    roofline_picture,
    speed_picture,
    timeline_picture,
    training_picture,
)


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def colours(figure) -> set[str]:
    from matplotlib.colors import to_hex

    return {to_hex(patch.get_facecolor()).upper() for axes in figure.axes for patch in axes.patches}


def test_a_panel_a_pass() -> None:
    found = banks.explore("ldmatrix.x4", "lane % 16 * 128 + lane / 16 * 16")
    figure = access_picture(found.service, "a title")
    assert "28 bank conflicts" in figure.get_suptitle() and "a title" in figure.get_suptitle()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[2] == "pass 3, lanes 16-23: 8 wavefronts, 7 conflicts"
    assert {str(lane) for lane in range(32)} <= set(texts(figure))
    assert plots.ORANGE in colours(figure)


def test_nothing_waits_without_conflicts() -> None:
    figure = access_picture(banks.explore("ld", "lane * 4").service, "")
    assert "no bank conflict" in figure.get_suptitle()
    assert plots.ORANGE not in colours(figure) and plots.BLUE in colours(figure)


def test_one_word_for_many_lanes() -> None:
    assert "0-15" in texts(access_picture(banks.explore("ld.v4.f32", "0").service, ""))
    assert "0+" in texts(access_picture(banks.explore("ld", "0").service, ""))
    assert "×32" in texts(access_picture(banks.explore("atom.add", "0").service, ""))


def test_no_lane_at_all() -> None:
    figure = access_picture(banks.explore("ld", lambda lane: None).service, "")
    assert "no lane takes part" in figure.get_suptitle()


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_files(tmp_path: Path, name: str, start: bytes) -> None:
    plots.save(access_picture(banks.explore("ld", "lane * 4").service, ""), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    figure = access_picture(banks.explore("ld", "lane * 4").service, "")
    for path in (tmp_path / "a.jpeg", tmp_path / "none", tmp_path / "nowhere" / "a.png"):
        with pytest.raises(LadderError):
            plots.save(figure, path)


def test_comparison() -> None:
    table = pd.DataFrame({"stage": ["a", "b", "empty"]})
    for column, values in (
        ("wavefronts_ld", [90, 40, 1]),
        ("wavefronts_st", [10, 5, 1]),
        ("conflicts", [60, 0, None]),
        ("wavefronts_gmma", [7, None, 0]),
        ("conflicts_gmma", [2, None, 0]),
    ):
        table[column] = pd.array(values, dtype="Int64")
    figure = comparison_picture(table, "a title")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert texts(figure) == ["45", "45", "62", "0"]
    # Bars begin at 1, like the axis; 0 has none.
    assert sorted(round(bar.get_width()) for bar in axes.patches) == [0, 44, 44, 61]
    assert figure.axes[0].get_title(loc="left") == "a title"


def test_speeds_beside_the_ceiling() -> None:
    columns = ("gpu", "contender", "N", "d", "dtype", "causal", "tflops", "of_flash")
    rows = [
        ("NVIDIA H200", "torch matmul", None, None, "bf16", None, 760.0, None),
        ("NVIDIA H200", named("v1"), 1024, 64, "f32", False, 0.25, None),
        ("NVIDIA H200", named("v1"), 1024, 128, "f32", False, 0.2, None),
        ("NVIDIA H200", named("v1"), 1024, 64, "f32", True, 0.1, None),
        ("NVIDIA H200", named("v3"), 4096, 64, "bf16", False, 125.0, 0.5),
        ("NVIDIA H200", named("v3"), 4096, 64, "bf16", True, 99.0, 0.4),
        ("NVIDIA H200", "torch flash", 4096, 64, "bf16", False, 250.0, 1.0),
        ("NVIDIA H200", "torch efficient", 4096, 64, "bf16", False, 126.0, 0.5),
    ]
    table = pd.DataFrame(rows, columns=columns)
    figure = speed_picture(table, [{"N": 4096, "d": 64, "dtype": "bf16", "causal": False}], 630.0)
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [named("v1"), named("v3"), "torch flash"]
    shown = texts(figure)
    assert shown[:3] == ["0.25, f32, N = 1024", "125  (0.50)", "250  (1.00)"]
    assert "mma.sync alone: 630; wgmma goes further" in shown
    assert [patch.get_width() for patch in axes.patches] == [0.25, 125.0, 250.0]
    other = speed_picture(table, [{"N": 4096, "d": 64, "dtype": "bf16", "causal": True}])
    assert not any("mma.sync" in text for text in texts(other))


def test_masks_and_the_tiles_that_they_need() -> None:
    """4 x 4 elements in tiles of 2 x 2: a causal mask skips one and cuts two; a window of 0 needs two."""
    masks = {"causal": ladder.hstu_mask(4, 4), "itself": ladder.hstu_mask(4, 4, window=(0, 0))}
    figure = mask_picture(masks, (2, 2))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["causal\n3 of 4 tiles, 2 masked", "itself\n2 of 4 tiles, 2 masked"]
    shown = [axes.images[0].get_array().tolist() for axes in figure.axes]
    assert shown[0] == [[2, 1, 0, 0], [2, 2, 0, 0], [3, 3, 2, 1], [3, 3, 2, 2]]
    assert shown[1] == [[2, 1, 0, 0], [1, 2, 0, 0], [0, 0, 2, 1], [0, 0, 1, 2]]


def test_panels_without_a_mask_are_hidden() -> None:
    figure = mask_picture({str(n): ladder.hstu_mask(n, n) for n in range(1, 6)}, (2, 2))
    assert [axes.get_visible() for axes in figure.axes] == [True] * 5 + [False] * 3


def test_two_trainings() -> None:
    figure = training_picture({"torch": [2.0, 1.0], "ladder": [2.0, 1.1]})
    [axes] = figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[2.0, 1.0], [2.0, 1.1]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["torch", "ladder"]


def test_how_busy_the_units_are() -> None:
    shares = pd.DataFrame({"tensor cores": [41.2, 93.6], "L2": [8.0, 100.0]}, index=["a", "b"])
    figure = busy_picture({"d = 64": shares, "d = 128": shares}, "busy")
    assert texts(figure) == 2 * ["41", "8", "94", "100"]
    for axes, title in zip(figure.axes, ("d = 64", "d = 128"), strict=True):
        assert axes.get_title() == title
        assert [label.get_text() for label in axes.get_xticklabels()] == ["tensor\ncores", "L2"]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_what_each_role_does_when() -> None:
    steps = pd.DataFrame(
        [
            (0, "products", 100, 130),
            (0, "softmax", 120, 140),
            (1, "products", 130, 160),
            (2, "load", 110, 110),
        ],
        columns=["role", "step", "begin", "end"],
    )
    (axes,) = timeline_picture({"a": steps}, {"a": (100, 150)}, "one block", "clocks").axes
    assert axes.get_xlim() == (0, 50)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["consumer 0", "consumer 1", "producer"]
    spans = [path.get_extents().intervalx.tolist() for bars in axes.collections for path in bars.get_paths()]
    assert spans == [[0, 30], [20, 40], [30, 60]]
    assert [line.get_xydata().tolist() for line in axes.lines if len(line.get_xdata())] == [[[10, 2.5]]]


def test_the_roofline_of_shared_memory() -> None:
    table = pd.DataFrame(
        {
            "stage": ["conflicts", "none"],
            "flops": [1e12, 1e12],
            "wavefronts": [8e9, 1e9],
            "conflicts": [7e9, 0.0],
            "tflops": [12.5, 50.0],
        }
    )
    # 125 and 1000 operations for each of 0.2e12 wavefronts per second: 25 and 200 TFLOP/s.
    shown = texts(roofline_picture(table, wavefronts_per_second=0.2e12, roof=630))
    assert "conflicts: 12.5, 50% of the line" in shown and "none: 50, 25% of the line" in shown
    assert "without conflicts, ×8" in shown and sum("without" in text for text in shown) == 1
    assert "mma.sync alone, 630 TFLOP/s" in shown
    # Points in the same place have their names stacked.
    same = pd.concat([table, table.assign(stage=["other", "none, too"])], ignore_index=True)
    [axes] = roofline_picture(same, wavefronts_per_second=0.2e12, roof=630).axes
    names = [text.xy[1] for text in axes.texts if "of the line" in text.get_text()]
    assert len(names) == 4 and min(max(a, b) / min(a, b) for a, b in combinations(names, 2)) > 1.2
    low = texts(roofline_picture(table, wavefronts_per_second=0.2e12, roof=100))
    assert "none: 50, 50% of the line" in low


def test_a_lane_for_each_rank() -> None:
    spans = pd.DataFrame(
        {
            "rank": [0, 0, 1, 1],
            "kind": ["compute", "communicate", "compute", "merge"],
            "begin": [0.0, 0.5, 1.0, 3.0],
            "end": [1.0, 2.0, 3.0, 3.5],
        }
    )
    figure = ranks_picture({"ring": spans, "zigzag": spans}, "a title")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["ring", "zigzag"]
    for axes in figure.axes:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
        bars = [path.get_extents() for bars in axes.collections for path in bars.get_paths()]
        found = sorted((bar.x0, bar.x1, int(bar.y0)) for bar in bars)
        assert found == [(0.0, 1.0, 0), (0.5, 2.0, 0), (1.0, 3.0, 1), (3.0, 3.5, 1)]
        assert axes.get_xlim() == (0, 3.5)


def test_a_memory_map_names_every_part_with_its_bytes() -> None:
    parts = [Part("k[0]", 0, 40_000), Part("k.full", 40_000, 16), Part("v", 41_024, 59_000)]
    figure = memory_picture({"a kernel": parts})
    shown = "\n".join(texts(figure))
    assert "a kernel: 100,024 bytes" in shown and "k[0]\n40,000" in shown and "v\n59,000" in shown
    assert "k.full 16" in shown and "k.full\n" not in shown  # too narrow: below the bar
    [axes] = figure.axes
    assert [label.get_text().split()[0] for label in axes.get_xticklabels()] == ["48", "99"]
