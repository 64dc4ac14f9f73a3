"""Reading ncu's output in all of its formats."""

from __future__ import annotations

import gzip
import math
import sys
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

from ladder.counts import nsight
from ladder.counts.nsight import base_unit
from ladder.errors import LadderError, ProfilerError
from ladder.run.emulator import COUNTERS

LD = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
ST = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
CONFLICTS = [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum" for kind in ("ld", "st", "atom")]
RAW = f"""\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "tile_kernel" - 0: 0%....50%....100% - 12 passes
{named("v1")}, with a comma
==PROF== Disconnected from process 4711
"ID","Process ID","Kernel Name","Block Size","Grid Size","{LD}","gpu__time_duration.sum","bytes","rate"
"","","","","","","usecond","Kbyte","Gbyte/s"
"0","4711","void tile_kernel<(int)64>(float *, int)","(128, 1, 1)","(8, 2, 1)","1,048,576","12.5","1.5","2"
"1","4711","other","(32, 1, 1)","(1, 1, 1)","7","1,000.25","16.896","0.5"
==WARNING== something to be ignored
"""


def test_raw_page() -> None:
    frame = nsight.read_raw(RAW)
    assert list(frame["Kernel Name"]) == ["void tile_kernel<(int)64>(float *, int)", "other"]
    assert list(frame["Grid Size"]) == ["(8, 2, 1)", "(1, 1, 1)"]
    assert list(frame[LD]) == [1048576.0, 7.0]
    assert frame["gpu__time_duration.sum"].to_list() == pytest.approx([12.5e-6, 1000.25e-6])
    assert frame["bytes"].to_list() == pytest.approx([1500.0, 16896.0])
    assert frame["rate"].to_list() == pytest.approx([2e9, 0.5e9])
    assert frame.attrs["units"]["rate"] == "byte/second"
    assert frame.attrs["units"][LD] == ""


def test_raw_page_from_a_file_with_a_byte_order_mark(tmp_path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(RAW, encoding="utf-8-sig")
    pd.testing.assert_frame_equal(nsight.read_raw(path), nsight.read_raw(RAW))


def test_raw_page_in_utf_16(tmp_path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(RAW, encoding="utf-16")
    pd.testing.assert_frame_equal(nsight.read_raw(path), nsight.read_raw(RAW))


def test_a_file_that_holds_no_page(tmp_path) -> None:
    path = tmp_path / "raw.csv"
    for data, message in (
        (b"", "is empty"),
        (bytes(range(256)), "is no text"),
        (RAW.partition('"0"')[0].encode(), "has no launch"),
        (RAW.replace("1,048,576", "1,048x576").encode(), "'1,048x576' is no number; it stands under l1tex"),
    ):
        path.write_bytes(data)
        with pytest.raises(LadderError, match=message):
            nsight.load(path)
    report = tmp_path / "a.ncu-rep"
    for data, message in ((b"", "is empty"), (bytes(range(256)), "is no report of Nsight Compute")):
        report.write_bytes(data)
        with pytest.raises(LadderError, match=message):
            nsight.load(report)


@pytest.mark.parametrize("name", ["transpose_raw", "transpose_source", "stages_source"])
def test_a_page_that_was_cut_off_is_refused(tmp_path, name) -> None:
    """Within its last row, after a cell, and after the header."""
    path = tmp_path / "page.csv"
    whole = page(name).rstrip("\n")
    header = whole.index("\n", whole.index('"ID"' if name.endswith("raw") else '"Source"'))
    for end in (len(whole) - 1, whole.rindex(","), whole.rindex(",") - 1, header):
        path.write_text(whole[:end])
        with pytest.raises(LadderError, match=r"page\.csv.*was cut off"):
            nsight.load(path)


def test_a_size_that_is_none_and_a_cell_without_end(tmp_path) -> None:
    path = tmp_path / "raw.csv"
    for text, message in (
        (RAW.replace("(128, 1, 1)", "(128, 1"), r"raw\.csv: '\(128, 1' is no block size"),
        (RAW.replace("other", "o" * 200_000), r"raw\.csv is no page of Nsight Compute: field larger"),
    ):
        path.write_text(text)
        with pytest.raises(LadderError, match=message):
            nsight.load(path)


def test_raw_page_without_units_row() -> None:
    frame = nsight.read_raw('"ID","Kernel Name","smsp__inst_executed.sum"\n"0","k","1,234"\n')
    assert frame["smsp__inst_executed.sum"].to_list() == [1234.0]


def test_two_runs_in_one_text() -> None:
    frame = nsight.read_raw(RAW + RAW)
    assert len(frame) == 4
    assert frame["gpu__time_duration.sum"].to_list() == pytest.approx([12.5e-6, 1000.25e-6] * 2)


def test_tables_of_different_columns_are_refused() -> None:
    with pytest.raises(LadderError, match="different columns"):
        nsight.read_raw(RAW + '"ID","Kernel Name"\n"0","k"\n')


def test_long_form() -> None:
    text = """\
==PROF== noise
"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","a","Command line profiler metrics","gpu__time_duration.sum","usecond","2.5"
"0","a","Command line profiler metrics","smsp__inst_executed.sum","inst","1,024"
"1","b","Command line profiler metrics","gpu__time_duration.sum","msecond","1"
"""
    frame = nsight.read_raw(text)
    assert list(frame["Kernel Name"]) == ["a", "b"]
    assert frame["gpu__time_duration.sum"].to_list() == pytest.approx([2.5e-6, 1e-3])
    assert frame["smsp__inst_executed.sum"][0] == 1024.0
    assert math.isnan(frame["smsp__inst_executed.sum"][1])


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("", (1.0, "")),
        ("%", (1.0, "%")),
        ("nsecond", (1e-9, "second")),
        ("us", (1e-6, "second")),
        ("msecond", (1e-3, "second")),
        ("Kbyte", (1e3, "byte")),
        ("Mbyte/second", (1e6, "byte/second")),
        ("byte/block", (1.0, "byte/block")),
        ("Kbyte/usecond", (1e9, "byte/second")),
        ("cycle/nsecond", (1e9, "cycle/second")),
        ("Ghz", (1e9, "hz")),
        ("register/thread", (1.0, "register/thread")),
        ("inst", (1.0, "inst")),
        ("sector", (1.0, "sector")),
    ],
)
def test_units(unit: str, expected: tuple[float, str]) -> None:
    factor, name = base_unit(unit)
    assert (pytest.approx(factor), name) == expected


def test_text_attributes_stay_text_and_instances_are_summed_up() -> None:
    frame = nsight.read_raw(
        '"ID","launch__func_cache_config","m"\n"","",""\n"0","CachePreferNone","158 (0: 158)"\n'
    )
    assert frame["launch__func_cache_config"].to_list() == ["CachePreferNone"]
    assert frame["m"].to_list() == [158.0]


def test_table_columns() -> None:
    metrics = {LD: "100", ST: "50", CONFLICTS[0]: "60", CONFLICTS[1]: "10", CONFLICTS[2]: "0"}
    text = ",".join(["ID", *metrics]) + "\n" + ",".join(["0", *metrics.values()]) + "\n"
    row = nsight.counters(nsight.read_raw(text)).iloc[0]
    assert (row["wavefronts_ld"], row["wavefronts_st"]) == (100, 50)
    assert (row["conflicts_ld"], row["conflicts_st"], row["conflicts_atom"], row["conflicts"]) == (
        60,
        10,
        0,
        70,
    )
    # Values missing from the report are empty, not 0.
    assert pd.isna(row["mma_instructions"]) and pd.isna(row["global_sectors_ld"]) and pd.isna(row["time_ms"])


def test_a_column_takes_the_first_complete_alternative_of_each_launch() -> None:
    best, other = (names[0] for names in nsight.COUNTERS["shared_load_instructions"])
    frame = nsight.read_raw(f"ID,{best},{other}\n0,5,6\n1,,7\n2,,\n")
    column = nsight.counters(frame)["shared_load_instructions"]
    assert column[0] == 5 and column[1] == 7 and pd.isna(column[2])


def test_every_counter_column_has_a_name() -> None:
    assert tuple(nsight.COUNTERS) == COUNTERS


def test_ranges() -> None:
    text = (
        '"ID","thread Domain:Push/Pop_Range:PL_Type","m"\n"","",""\n'
        '"0","<default domain>:ladder-17:none","1"\n"1","","2"\n'
    )
    found = nsight.ranges(nsight.read_raw(text), r"ladder-(\d+)")
    assert found.to_list() == ["17", None]


SOURCE = """\
==PROF== noise
"Kernel Name","void a(float *)"
"#","Address","Source","Instructions Executed","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal","S","S"
"1","0x10","      @!P0 LDSM.16.M88.4 R4, [R8] ","1,024","8,192","1,024","3","3"
"2","0x20","      EXIT ","8","0","0","",""

"Kernel Name","b, with a comma"
"#","Address","Source","Instructions Executed","L1 Wavefronts Shared","L1 Wavefronts Shared Ideal"
"1","0x10","      HMMA.16816.F32 R4, R8, R10, R4 ","64","","0"
"""


def test_source_page() -> None:
    frame = nsight.read_source(SOURCE)
    assert frame["launch"].to_list() == [0, 0, 1]
    assert frame["kernel"].to_list() == ["void a(float *)"] * 2 + ["b, with a comma"]
    assert frame["instruction"].to_list() == [0, 1, 0]
    assert frame["opcode"].to_list() == ["LDSM", "EXIT", "HMMA"]
    assert frame["executed"].to_list() == [1024, 8, 64]
    assert frame["wavefronts"][0] == 8192 and pd.isna(frame["wavefronts"][2])
    assert frame["sectors"].isna().all()


@pytest.mark.parametrize("text", ["", "==PROF== No kernels were profiled.\n", "nothing\n"])
def test_text_without_a_table(text: str) -> None:
    for read in (nsight.read_raw, nsight.read_source):
        with pytest.raises(LadderError, match=r"no .* of Nsight Compute"):
            read(text)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "no permission"),
        ("==ERROR== Profiling is not supported, another profiling tool is running", "another process"),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
            "(like DCGM) is concurrently collecting profiling data.",
            "another process",
        ),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "do not go together"),
        ("==ERROR== Failed to find metric smsp__nothing.sum", "smsp__nothing.sum"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
    ],
)
def test_messages(message: str, expected: str) -> None:
    with pytest.raises(LadderError, match=expected) as caught:
        nsight.read_raw(message)
    assert caught.value.hint


def test_command() -> None:
    words = nsight.command(["./a.out", "1"], metrics=[LD, ST, LD], kernel="tile", ncu="/opt/ncu")
    assert words[0] == "/opt/ncu" and words[-2:] == ["./a.out", "1"]
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--metrics") + 1] == f"{LD},{ST}"
    assert words[words.index("-k") + 1] == "regex:tile"
    assert {"--csv", "--page", "raw"} <= set(words)


def test_metrics_that_a_gpu_lacks_are_left_out() -> None:
    listing = """\
Device NVIDIA H200 (GH100)
-------------------------------------------  ------------ ---- --------------------------
Metric Name                                  Metric Type  Unit Metric Description
l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld  Counter      # of wavefronts
gpu__time_duration                           Counter      ns   duration
"""
    available = nsight.available_metrics(listing)
    assert nsight.known([LD, ST, nsight.TIME, LD], available) == [LD, nsight.TIME]


def test_a_tool_that_is_missing(monkeypatch) -> None:
    with pytest.raises(LadderError, match="not there"):
        nsight.run(["/nowhere/ncu"])


PAGES = Path(__file__).parents[3] / "results" / "h200" / "pages.tar.gz"


def test_every_name_is_one_that_ncu_lists_for_the_h200() -> None:
    with tarfile.open(PAGES) as archive:
        member = archive.extractfile("pages/metric_names.txt")
        assert member is not None
        available = nsight.available_metrics(member.read().decode())
    first = [name for names in nsight.COUNTERS.values() for name in names[0]]
    bounds = [*nsight.BOUNDS.values(), *nsight.BOUND_DETAILS, *nsight.STALLS.values(), nsight.TIME]
    wanted = {name.removeprefix("-") for name in [*first, *nsight.ARBITRATION, *bounds]}
    assert wanted - set(nsight.known(wanted, available)) == set()


def test_bounds() -> None:
    shared, wait = nsight.BOUNDS["shared"], nsight.STALLS["wait"]
    row = nsight.bounds(nsight.read_raw(f"ID,{shared},{wait}\n,%,inst\n0,98.9,1.25\n")).iloc[0]
    assert (row["shared"], row["stall_wait"]) == (98.9, 1.25)
    assert pd.isna(row["tensor"]) and pd.isna(row["stall_barrier"])


DATA = Path(__file__).parents[2] / "data" / "nsight"


def page(name: str) -> str:
    """A page as ncu 2025.3.1 printed it on an H200."""
    return gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()).decode()


def test_raw_page_of_somebodys_kernels() -> None:
    frame = nsight.read_raw(page("transpose_raw"))
    counts = nsight.counters(frame).set_index(frame["Kernel Name"].str.partition("(")[0])
    assert list(counts.index[:3]) == ["copySharedMem", "transposeNaive", "transposeCoalesced"]
    # A 32 x 32 tile of floats read by columns: 31 extra wavefronts for each of 512 loads.
    assert counts["conflicts_ld"].to_list() == [0, 0, 512 * 31, 0, 0]
    assert counts["global_sectors_st"].to_list() == [2048, 16384, 2048, 2048, 2048]
    # Not collected, so unknown.
    assert counts["mma_instructions"].isna().all()


def test_a_page_with_each_launch_twice() -> None:
    text = page("transpose_source")
    assert text.count("Kernel Name") == 10
    frame = nsight.read_source(text)
    assert frame["kernel"].drop_duplicates().str.partition("(")[0].to_list()[2:4] == [
        "transposeCoalesced",
        "transposeNoBankConflicts",
    ]
    wavefronts = frame.groupby("launch")["wavefronts"].sum()
    assert wavefronts.to_list() == [1024, 0, 512 + 512 * 32, 1024, 1024]
    pd.testing.assert_frame_equal(frame, nsight.read_source(text, launches=5))
    # With ten launches, none is a copy.
    assert nsight.read_source(text, launches=10)["launch"].nunique() == 10


def test_a_page_by_cuda_line() -> None:
    frame = nsight.read_source(page("stages_source"))
    assert frame.groupby("launch")["instruction"].nunique().to_list() == [1248, 1400]
    assert (~frame.groupby("launch")["instruction"].diff().lt(0)).all()
    once = frame.drop_duplicates(["launch", "instruction"])
    # The instructions' counts add up to the kernel's counters, except for lost arbitration.
    raw = nsight.counters(nsight.read_raw(page("stages_raw")))
    patched = once.groupby("launch")["wavefronts"].sum().to_list()
    hardware = (raw["wavefronts_ld"] + raw["wavefronts_st"]).to_list()
    assert [0 <= h - p < 40 for h, p in zip(hardware, patched, strict=True)] == [True, True]
    lines = nsight.source_lines(frame)
    ldmatrix = lines[lines["file"].str.endswith("ptx.h") & lines["line"].isin([53, 61])]
    assert ldmatrix["wavefronts"].to_list() == [86016, 65536, 10752, 8192]
    assert ldmatrix["ideal"].to_list() == [10752, 8192, 10752, 8192]


def test_a_page_by_cuda_line_without_counts_is_refused() -> None:
    text = '"File Name","/a/kernel.cu"\n"Line No","Source"\n"1","#include "b.h""\n'
    with pytest.raises(LadderError, match="no source page") as caught:
        nsight.read_source(text)
    assert "--print-source cuda,sass" in caught.value.hint


def test_pages_are_told_apart(tmp_path: Path) -> None:
    for name in ("stages_raw", "stages_source", "transpose_source"):
        path = tmp_path / "page.csv"
        path.write_text(page(name))
        report = nsight.load(path)
        assert (report.raw is None, report.source is None) == (not name.endswith("raw"), name.endswith("raw"))
    with pytest.raises(LadderError, match="no file"):
        nsight.load(tmp_path / "nothing.csv")


def test_a_report_through_nvidias_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ncu_report", reason="pip install ncu-report")
    monkeypatch.setattr("ladder.counts.nsight.report.find_ncu", no_ncu)
    with tarfile.open(PAGES) as archive:
        member, pages = (
            archive.extractfile("pages/source.ncu-rep"),
            archive.extractfile("pages/source_sass.csv"),
        )
        assert member is not None and pages is not None
        path = tmp_path / "source.ncu-rep"
        path.write_bytes(member.read())
        printed = nsight.read_source(pages.read().decode())
    report = nsight.load(path)
    assert report.raw is not None and report.source is not None
    assert nsight.ranges(report.raw, r"ladder-run-(\d+)").to_list() == [
        str(number) for number in range(printed["launch"].nunique())
    ]
    # The module omits the branch to itself that follows a kernel's last instruction.
    known = printed["Address"].map(lambda text: int(text, 16)).isin(report.source["Address"])
    assert printed[~known]["sass"].str.startswith("BRA").all() and (~known).sum() == len(report.raw)
    for column in ("launch", "opcode", "executed", "wavefronts", "ideal"):
        assert report.source[column].to_list() == printed[known][column].to_list(), column
    assert report.source["file"].str.endswith("kernel.cu").any()


def no_ncu() -> Path:
    raise ProfilerError("Nsight Compute (ncu) is not there")


def test_a_report_without_anything_to_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladder.counts.nsight.report.find_ncu", no_ncu)
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\0 a report")
    with pytest.raises(LadderError, match="not there") as caught:
        nsight.load(path)
    assert "pip install ncu-report" in caught.value.hint and "--page raw" in caught.value.hint


def test_copies_to_shared_memory_are_no_wavefronts_of_a_line() -> None:
    header = '"Line No","Source","Address","Source","Instructions Executed","L1 Wavefronts Shared"\n'
    page = '"File Path","/a/b.cu"\n"Function Name","k"\n' + header
    page += '"3","copy(a, "b");","-","-","8","40"\n'
    page += '"","","0x10","  LDGSTS.E.BYPASS.128 [R13], desc[UR10][R8.64] ","4","32"\n'
    page += '"","","...","...","-","-"\n"","","0x30","@P0  LDS R1, [R2] ","4","8"\n'
    lines = nsight.source_lines(nsight.read_source(page))
    assert lines[["file", "line", "executed", "wavefronts"]].to_numpy().tolist() == [["/a/b.cu", 3, 8, 8]]
