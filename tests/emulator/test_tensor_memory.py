"""Tensor memory of sm_100a: its allocator, loads and stores, and when they land."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensor_model import transfer_cells
from warp_kernel import kernel_text

from ladder.run.emulator import Fault, FaultError, Module

ARCH, THREADS, LANES, COLUMNS = "sm_100a", 128, 128, 512


def vector(first: int, count: int, kind: str = "%x") -> str:
    return "{" + ", ".join(f"{kind}{first + i}" for i in range(count)) + "}"


ALLOC = """
  setp.ge.u32 %p10, %r0, 32;
  mov.u32 %r90, {columns};
  @%p10 bra allocated;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], %r90;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
allocated:
  bar.sync 0;
  ld.shared.b32 %r91, [smem];
  and.b32 %r92, %r0, 96;
  shl.b32 %r92, %r92, 16;
  add.u32 %r93, %r91, %r92;
"""  # %r91 the address, %r93 that of the warp's quarter
DEALLOC = """
  bar.sync 0;
  @%p10 bra freed;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r91, %r90;
freed:
"""


def tensor_kernel(body: str, pointers: int, columns: int = 512) -> str:
    return kernel_text(
        "  .reg .b32 %x<128>;\n" + ALLOC.format(columns=columns) + body + DEALLOC,
        pointers,
        shared_bytes=1024,
        target=ARCH,
        version="8.8",
    )


def launch(text: str, *arguments: Any, threads: int = THREADS) -> None:
    Module(text, ARCH).launch("k", 1, threads, arguments)


def row_transfers(address: str, columns: int, loads: bool) -> str:
    """Every thread loads or stores all columns of its row, which is row-major in global memory."""
    lines = [f"  mul.wide.u32 %rd90, %r0, {4 * columns};", f"  add.u64 %rd91, {address}, %rd90;"]
    for first in range(0, columns, 64):
        count = min(64, columns - first)
        place = f"[%r93+{first}]"
        if loads:
            lines.append(f"  tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {vector(0, count)}, {place};")
            lines.append("  tcgen05.wait::ld.sync.aligned;")
        lines += [
            f"  {'st' if loads else 'ld'}.global.b32 "
            + (f"[%rd91+{4 * (first + i)}], %x{i};" if loads else f"%x{i}, [%rd91+{4 * (first + i)}];")
            for i in range(count)
        ]
        if not loads:
            lines.append(f"  tcgen05.st.sync.aligned.32x32b.x{count}.b32 {place}, {vector(0, count)};")
    return "\n".join(lines) + ("" if loads else "\n  tcgen05.wait::st.sync.aligned;") + "\n"


SHAPES = {
    "32x32b": (1, 128),
    "16x64b": (1, 128),
    "16x128b": (2, 64),
    "16x256b": (4, 32),
    "16x32bx2": (1, 128),
}
FORMS = [
    (shape, count, packs)
    for shape, (_, most) in SHAPES.items()
    for count in (1, 2, 4, 8, 16, 32, 64, 128)
    for packs in (False, True)
    if count in (1, 2, 8, most)
]


@pytest.mark.parametrize(("shape", "count", "packs"), FORMS)
def test_loads_and_stores(shape: str, count: int, packs: bool) -> None:
    """A load of every shape finds each cell where the manual says, and a store puts it there."""
    registers = count * SHAPES[shape][0]
    half = (2 if packs else 1) * count if shape == "16x32bx2" else 0
    is_widest = packs and registers == 128 and shape != "32x32b"
    lane, column, to = 0 if shape == "32x32b" else 16, 0 if is_widest else 32, 0 if is_widest else 256
    place = f"[%r93+{lane << 16 | column}]"
    imm = f", {half}" if half else ""
    suffix = f"sync.aligned.{shape}.x{count}"
    body = row_transfers("%rd0", COLUMNS, loads=False)
    body += f"""
  tcgen05.ld.{suffix}{".pack::16b" if packs else ""}.b32 {vector(0, registers)}, {place}{imm};
  tcgen05.wait::ld.sync.aligned;
  mul.wide.u32 %rd92, %r0, {4 * registers};
  add.u64 %rd93, %rd1, %rd92;
"""
    body += "".join(f"  st.global.b32 [%rd93+{4 * r}], %x{r};\n" for r in range(registers))
    body += f"""
  add.u32 %r94, %r93, {lane << 16 | to};
  tcgen05.st.{suffix}{".unpack::16b" if packs else ""}.b32 [%r94]{imm}, {vector(0, registers)};
  tcgen05.wait::st.sync.aligned;
"""
    body += row_transfers("%rd2", COLUMNS, loads=True)
    before = np.random.default_rng(3).integers(0, 2**32, (LANES, COLUMNS), dtype=np.uint32)
    loaded = np.zeros((THREADS, registers), np.uint32)
    after = np.zeros_like(before)
    launch(tensor_kernel(body, 3), before, loaded, after)

    expected = before.copy()
    cells = transfer_cells(shape, count, packs, half)
    for thread in range(THREADS):
        for r in range(registers):
            quarter = thread // 32 * 32 + lane
            places = [(quarter + row, column + offset) for row, offset in cells[thread % 32, r]]
            values = [int(before[one]) for one in places]
            want = values[0] & 0xFFFF | (values[1] & 0xFFFF) << 16 if packs else values[0]
            assert loaded[thread, r] == want, (thread, r)
            for i, (row, at) in enumerate(places):
                expected[row, at - column + to] = want >> 16 * i & 0xFFFF if packs else want
    assert np.array_equal(after, expected)


# --- when they land ----------------------------------------------------------------------------------------


def one_row(body: str, *, columns: int = 32) -> np.ndarray:
    """Runs the body, which stores %x0 of each thread."""
    out = np.zeros(THREADS, np.uint32)
    body += "  mul.wide.u32 %rd90, %r0, 4;\n  add.u64 %rd91, %rd0, %rd90;\n  st.global.b32 [%rd91], %x0;\n"
    launch(tensor_kernel(body, 1, columns), out)
    return out


STORE_0 = """
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r93], {%r0};
"""
LOAD = "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r93];\n"
WAIT_LD, WAIT_ST = "  tcgen05.wait::ld.sync.aligned;\n", "  tcgen05.wait::st.sync.aligned;\n"


def test_a_store_lands_at_its_wait() -> None:
    assert np.array_equal(one_row(STORE_0 + WAIT_ST + LOAD + WAIT_LD), np.arange(THREADS))
    assert not np.array_equal(one_row(STORE_0 + LOAD + WAIT_LD), np.arange(THREADS))


def test_a_load_reads_at_its_wait() -> None:
    """A store that lands before the wait of an earlier load changes what the load finds."""
    again = "  add.u32 %x1, %r0, 500;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r93], {%x1};\n" + WAIT_ST
    first = STORE_0 + WAIT_ST + LOAD
    assert np.array_equal(one_row(first + WAIT_LD + again), np.arange(THREADS))
    assert np.array_equal(one_row(first + again + WAIT_LD), np.arange(THREADS) + 500)


def test_the_first_use_of_a_register_lands_its_load() -> None:
    again = "  add.u32 %x1, %r0, 500;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r93], {%x1};\n" + WAIT_ST
    used = one_row(
        STORE_0 + WAIT_ST + LOAD + "  mov.u32 %x2, %x0;\n" + again + WAIT_LD + "  mov.u32 %x0, %x2;\n"
    )
    assert np.array_equal(used, np.arange(THREADS))


# --- allocation --------------------------------------------------------------------------------------------


def fault(body: str, threads: int = 32) -> Fault:
    text = kernel_text("  .reg .b32 %x<128>;\n" + body, 0, shared_bytes=1024, target=ARCH, version="8.8")
    with pytest.raises(FaultError) as caught:
        launch(text, threads=threads)
    return caught.value.fault


def alloc(columns: int, to: int = 0) -> str:
    return f"""
  mov.u32 %r50, {columns};
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+{to}], %r50;
"""


def dealloc(address: int, columns: int) -> str:
    return f"""
  mov.u32 %r51, {address};
  mov.u32 %r50, {columns};
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r51, %r50;
"""


RELINQUISH = "  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (alloc(48), "48 columns of tensor memory: the number must be a power of two from 32 to 512"),
        (alloc(16), "a power of two from 32 to 512"),
        (alloc(1024), "a power of two from 32 to 512"),
        (alloc(32) + alloc(64), "a later allocation may not be larger than an earlier one"),
        (alloc(64) + RELINQUISH + alloc(32), "after tcgen05.relinquish_alloc_permit"),
        (alloc(64) + dealloc(32, 64), "where no allocation starts: columns 0-63 are allocated"),
        (alloc(64) + dealloc(0, 32), "where 64 are allocated"),
        (dealloc(0, 32), "none are allocated"),
        (alloc(512) + alloc(32), "free columns of tensor memory; columns 0-511 are allocated"),
        (
            alloc(32)
            + "  mov.u32 %r52, 28;\n  tcgen05.ld.sync.aligned.32x32b.x8.b32 "
            + vector(0, 8)
            + ", [%r52];\n",
            "columns 28-35 of tensor memory are not allocated: columns 0-31 are allocated",
        ),
        (
            alloc(32) + "  mov.u32 %r52, 0x80000;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r52];\n",
            "lane 8: this shape starts at a multiple of 32",
        ),
        (
            alloc(32) + "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r0];\n",
            "the address of tensor memory is not the same in all lanes",
        ),
        (
            alloc(32) + dealloc(0, 32).replace("group::1", "group::2"),
            "all tcgen05 instructions of a kernel must use",
        ),
    ],
)
def test_rules_of_allocation(body: str, message: str) -> None:
    assert message in fault(body).message


def test_the_lowest_free_columns_are_allocated() -> None:
    out = np.zeros(4, np.uint32)
    body = alloc(128) + alloc(64, 4) + alloc(64, 8) + dealloc(128, 64) + alloc(32, 12)
    body += "".join(
        f"  ld.shared.b32 %x{i}, [smem+{4 * i}];\n  st.global.b32 [%rd0+{4 * i}], %x{i};\n" for i in range(4)
    )
    body += dealloc(0, 128) + dealloc(192, 64) + dealloc(128, 32)
    launch(
        kernel_text("  .reg .b32 %x<8>;\n" + body, 1, shared_bytes=1024, target=ARCH, version="8.8"),
        out,
        threads=32,
    )
    assert out.tolist() == [0, 128, 192, 128]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%f10, %f11}, %f12, [%r0];", "sm_103"),
        ("tcgen05.shift.cta_group::1.down [%r0];", "not modelled"),
        ("wgmma.fence.sync.aligned;", "needs .target sm_90a"),
    ],
)
def test_what_is_not_modelled_is_named(line: str, message: str) -> None:
    assert message in fault("  " + line + "\n").message


def test_tcgen05_needs_sm_100a() -> None:
    text = kernel_text(RELINQUISH, 0, target="sm_90a", version="8.8")
    with pytest.raises(FaultError, match=r"needs .target sm_100a or sm_100f, and this PTX is for sm_90a"):
        Module(text, "sm_90a").launch("k", 1, 32, [])
