"""cp.async, its groups and mbarriers."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import fault_of, kernel_text, lane_address, run

from ladder.run.emulator import FaultError, Module, session

RNG = np.random.default_rng(3)


def bytes_of(count: int) -> np.ndarray:
    return RNG.integers(1, 256, count, np.uint8)


def copy_kernel(copy: str, size: int, wait: str = "cp.async.wait_all;") -> str:
    """A kernel that fills shared memory with 7s, copies to it, and copies it out."""
    words = size // 4
    regs = "{" + ", ".join(f"%r{20 + i}" for i in range(words)) + "}"
    kind = f"v{words}.u32" if words > 1 else "u32"
    regs = regs if words > 1 else "%r20"
    return (
        lane_address("%rd0", "%rd10", size)
        + lane_address("%rd1", "%rd11", size)
        + f"""
  mov.u32 %r10, smem;
  mad.lo.u32 %r10, %r0, {size}, %r10;
  cvt.u64.u32 %rd12, %r10;
"""
        + "".join(f"st.shared.u32 [%r10+{4 * i}], 0x07070707;\n" for i in range(words))
        + f"""
  {copy}
  {wait}
  ld.shared.{kind} {regs}, [%r10];
  st.global.{kind} [%rd11], {regs};
"""
    )


@pytest.mark.parametrize("register", ["%r10", "%rd12"])
@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("cp.async.ca.shared.global", 4),
        ("cp.async.ca.shared.global", 8),
        ("cp.async.ca.shared.global", 16),
        ("cp.async.cg.shared.global", 16),
        ("cp.async.cg.shared::cta.global.L2::128B", 16),
    ],
)
def test_copies(form: str, size: int, register: str) -> None:
    source, result = bytes_of(32 * size), np.zeros(32 * size, np.uint8)
    launch = run(
        copy_kernel(f"{form} [{register}], [%rd10], {size};", size), source, result, shared_bytes=512
    )
    assert np.array_equal(result, source)
    table = launch.instructions()
    copies = table[table.ptx.str.contains("cp.async.c")]
    assert len(copies) == 1
    assert copies.conflicts.notna().all()
    assert size != 16 or copies.conflicts.iloc[0] == 0
    assert copies.shared_store_instructions.iloc[0] == 0
    assert (
        size <= copies.global_sectors_ld.iloc[0] <= size + 4
    )  # a pass that begins within a sector needs one more


@pytest.mark.parametrize("size", [4, 8, 16])
def test_source_size(size: int) -> None:
    """Bytes beyond the source size are zero, and need not exist."""
    source, result = bytes_of(16 * size + size // 2), np.zeros(32 * size, np.uint8)
    copy = f"""
  setp.lt.u32 %p1, %r0, 16;
  setp.eq.u32 %p2, %r0, 16;
  selp.u32 %r11, {size}, 0, %p1;
  selp.u32 %r11, {size // 2}, %r11, %p2;
  cp.async.ca.shared.global [%r10], [%rd10], {size}, %r11;
"""
    run(copy_kernel(copy, size), source, result, shared_bytes=512)
    expected = np.zeros(32 * size, np.uint8)
    expected[: len(source)] = source
    assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("row_bytes", "pitch", "sectors"),
    [(128, 128, 16), (128, 144, 18), (128, 160, 16), (32, 32, 16), (32, 48, 24), (256, 272, 18)],
)
def test_sectors_of_padded_rows(row_bytes: int, pitch: int, sectors: int) -> None:
    """The counts of an H200 for adjacent rows of global memory that are copied to padded rows."""
    room = bytes_of(512 + 128)
    source = room[-room.ctypes.data % 128 :][:512]
    shift = row_bytes.bit_length() - 1
    body = f"""
  shl.b32 %r20, %r0, 4;
  cvt.u64.u32 %rd11, %r20;
  add.u64 %rd10, %rd0, %rd11;
  shr.u32 %r21, %r20, {shift};
  and.b32 %r22, %r20, {row_bytes - 1};
  mad.lo.u32 %r22, %r21, {pitch}, %r22;
  mov.u32 %r23, smem;
  add.u32 %r22, %r22, %r23;
  cp.async.cg.shared.global [%r22], [%rd10], 16;
  cp.async.wait_all;
"""
    table = run(body, source, shared_bytes=1024).instructions()
    assert int(table[table.ptx.str.contains("cp.async.cg")].global_sectors_ld.iloc[0]) == sectors


def test_source_size_as_a_constant() -> None:
    source, result = bytes_of(512), np.ones(512, np.uint8)
    run(
        copy_kernel("cp.async.cg.shared.global [%r10], [%rd10], 16, 0;", 16), source, result, shared_bytes=512
    )
    assert not result.any()


@pytest.mark.parametrize("negated", [False, True])
def test_ignored_sources(negated: bool) -> None:
    source, result = bytes_of(512), np.zeros(512, np.uint8)
    ignore = "!%p1" if negated else "%p1"
    copy = f"setp.lt.u32 %p1, %r0, 8; cp.async.cg.shared.global [%r10], [%rd10], 16, {ignore};"
    launch = run(copy_kernel(copy, 16), source, result, shared_bytes=512)
    ignored = (np.arange(32) >= 8) if negated else (np.arange(32) < 8)
    assert np.array_equal(result, np.where(np.repeat(ignored, 16), 0, source))
    table = launch.instructions()
    copies = table[table.ptx.str.contains("cp.async.cg")]
    assert int(copies.global_sectors_ld.iloc[0]) <= (32 - ignored.sum()) // 2 + 4


def test_predicated_copies() -> None:
    source, result = bytes_of(512), np.zeros(512, np.uint8)
    copy = "setp.lt.u32 %p1, %r0, 8; @%p1 cp.async.cg.shared.global [%r10], [%rd10], 16;"
    run(copy_kernel(copy, 16), source, result, shared_bytes=512)
    assert np.array_equal(result, np.where(np.arange(512) < 128, source, 7))


def test_data_is_not_there_before_the_wait() -> None:
    source, result = bytes_of(512), np.zeros(512, np.uint8)
    copy = "cp.async.cg.shared.global [%r10], [%rd10], 16;"
    run(copy_kernel(copy, 16, wait=""), source, result, shared_bytes=512)
    assert (result == 7).all()
    run(copy_kernel(copy, 16, wait="cp.async.wait_group 0;"), source, result, shared_bytes=512)
    assert (result == 7).all()  # never committed
    run(
        copy_kernel(copy, 16, wait="cp.async.commit_group; cp.async.wait_group 1;"),
        source,
        result,
        shared_bytes=512,
    )
    assert (result == 7).all()


def test_groups_complete_in_order() -> None:
    """Commits three groups and waits for all but the newest n."""
    source = bytes_of(3 * 512)
    for pending in range(4):
        result = np.zeros(3 * 512, np.uint8)
        body = lane_address("%rd0", "%rd10", 16) + lane_address("%rd1", "%rd11", 16)
        body += "mov.u32 %r10, smem; mad.lo.u32 %r10, %r0, 16, %r10;\n"
        for i in range(3):
            body += f"st.shared.v4.u32 [%r10+{512 * i}], {{0, 0, 0, 0}};\n"
        for i in range(3):
            body += (
                f"cp.async.cg.shared.global [%r10+{512 * i}], [%rd10+{512 * i}], 16; cp.async.commit_group;\n"
            )
        body += f"cp.async.wait_group {pending};\n"
        for i in range(3):
            body += (
                f"ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r10+{512 * i}];\n"
                f"st.global.v4.u32 [%rd11+{512 * i}], {{%r20, %r21, %r22, %r23}};\n"
            )
        run(body, source, result, shared_bytes=3 * 512)
        done = np.repeat(np.arange(3) < 3 - pending, 512)
        assert np.array_equal(result, np.where(done, source, 0))


@pytest.mark.parametrize(
    ("copy", "kind"),
    [
        ("cp.async.cg.shared.global [%r10+4], [%rd10], 16;", "misaligned"),
        ("cp.async.cg.shared.global [%r10], [%rd10+4], 16;", "misaligned"),
        ("cp.async.cg.shared.global [%r10], [%rd10+4096], 16;", "out of bounds"),
        ("cp.async.cg.shared.global [%r10+4096], [%rd10], 16;", "out of bounds"),
        ("mov.u32 %r11, 17; cp.async.cg.shared.global [%r10], [%rd10], 16, %r11;", "bad operand"),
        ("cp.async.cg.shared.global [%r10], [%rd10], 8;", "unsupported"),
    ],
)
def test_refusals(copy: str, kind: str) -> None:
    arrays = bytes_of(512), np.zeros(512, np.uint8)
    assert fault_of(run, copy_kernel(copy, 16), *arrays, shared_bytes=512, arch="sm_90").kind == kind


# --- mbarrier -----------------------------------------------------------------------------------------------


def test_a_producer_and_its_consumers() -> None:
    """Warp 0 fills shared memory and the others wait for its 32 arrivals, in ten phases by parity."""
    result = np.zeros((10, 96), np.uint32)
    run(
        """
  .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared.b64 [full], 32;
  @%p1 mbarrier.init.shared.b64 [empty], 96;
  bar.sync 0;
  mov.u32 %r20, 0;
  setp.ge.u32 %p2, %r0, 32;
  mov.u32 %r21, smem;
  and.b32 %r22, %r0, 31;
  mad.lo.u32 %r21, %r22, 4, %r21;
  @%p2 bra CONSUMER;
PRODUCER:
  and.b32 %r23, %r20, 1;
  xor.b32 %r24, %r23, 1;
WAIT_EMPTY:
  mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r24;
  @!%p3 bra WAIT_EMPTY;
  mad.lo.u32 %r25, %r20, 1000, %r22;
  st.shared.u32 [%r21], %r25;
  mbarrier.arrive.shared.b64 %rd20, [full];
  add.u32 %r20, %r20, 1;
  setp.lt.u32 %p4, %r20, 10;
  @%p4 bra PRODUCER;
  bra DONE;
CONSUMER:
  and.b32 %r23, %r20, 1;
WAIT_FULL:
  mbarrier.try_wait.parity.shared.b64 %p3, [full], %r23;
  @!%p3 bra WAIT_FULL;
  ld.shared.u32 %r25, [%r21];
  mbarrier.arrive.shared.b64 %rd20, [empty];
  mul.lo.u32 %r26, %r20, 96;
  add.u32 %r26, %r26, %r0;
  sub.u32 %r26, %r26, 32;
  mul.wide.u32 %rd10, %r26, 4;
  add.u64 %rd10, %rd0, %rd10;
  st.global.u32 [%rd10], %r25;
  add.u32 %r20, %r20, 1;
  setp.lt.u32 %p4, %r20, 10;
  @%p4 bra CONSUMER;
DONE:
""",
        result,
        block=128,
        shared_bytes=128,
        arch="sm_90",
    )
    assert np.array_equal(result, np.arange(10)[:, None] * 1000 + np.tile(np.arange(32), 3))


def test_states_counts_and_bytes() -> None:
    result = np.zeros(16, np.uint32)
    run(
        """
  .shared .align 8 .b64 bar;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra END;
  mbarrier.init.shared::cta.b64 [bar], 3;
  mbarrier.arrive.shared.b64 %rd20, [bar];
  mbarrier.pending_count.b64 %r10, %rd20;
  st.global.u32 [%rd0], %r10;
  mbarrier.arrive.shared.b64 %rd21, [bar], 1;
  mbarrier.pending_count.b64 %r10, %rd21;
  st.global.u32 [%rd0+4], %r10;
  mbarrier.test_wait.shared.b64 %p2, [bar], %rd21;
  selp.u32 %r10, 1, 0, %p2;
  st.global.u32 [%rd0+8], %r10;
  mbarrier.arrive.expect_tx.shared.b64 %rd22, [bar], 64;
  mbarrier.test_wait.shared.b64 %p2, [bar], %rd21;
  selp.u32 %r10, 1, 0, %p2;
  st.global.u32 [%rd0+12], %r10;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64;
  mbarrier.test_wait.shared.b64 %p2, [bar], %rd21;
  selp.u32 %r10, 1, 0, %p2;
  st.global.u32 [%rd0+16], %r10;
  mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;
  selp.u32 %r10, 1, 0, %p2;
  st.global.u32 [%rd0+20], %r10;
  mbarrier.test_wait.parity.shared.b64 %p2, [bar], 1;
  selp.u32 %r10, 1, 0, %p2;
  st.global.u32 [%rd0+24], %r10;
  mbarrier.arrive_drop.shared.b64 %rd23, [bar];
  mbarrier.arrive.shared.b64 %rd23, [bar], 2;
  mbarrier.arrive.shared.b64 %rd24, [bar];
  mbarrier.pending_count.b64 %r10, %rd24;
  st.global.u32 [%rd0+28], %r10;
  mbarrier.inval.shared.b64 [bar];
END:
""",
        result,
        arch="sm_90",
    )
    assert list(result[:8]) == [3, 2, 0, 0, 1, 1, 0, 2]


def test_copies_arrive_at_an_mbarrier() -> None:
    source, result = bytes_of(512), np.zeros(512, np.uint8)
    copy = """
  .shared .align 8 .b64 bar;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared.b64 [bar], 32;
  bar.warp.sync -1;
  cp.async.cg.shared.global [%r10], [%rd10], 16;
  cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
WAIT:
  mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;
  @!%p2 bra WAIT;
"""
    run(copy_kernel(copy, 16, wait=""), source, result, shared_bytes=512)
    assert np.array_equal(result, source)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("mbarrier.arrive.shared.b64 %rd20, [bar];", "bad operand"),
        ("mbarrier.init.shared.b64 [bar], 0;", "bad operand"),
        ("mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %rd20, [bar], 2;", "barrier"),
        ("mov.u64 %rd10, bar; mbarrier.init.shared.b64 [%rd10+4], 1;", "misaligned"),
    ],
)
def test_mbarrier_refusals(body: str, kind: str) -> None:
    assert fault_of(run, ".shared .align 8 .b64 bar[2];" + body, arch="sm_90").kind == kind


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_a_wait_looks_at_bit_0_of_the_parity(wait: str) -> None:
    """PTX allows 0 and 1. Triton negates the bit, so it waits for parity 0xffffffff."""
    result = np.zeros(32, np.uint32)
    run(
        f"""
  .shared .align 8 .b64 bar;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared.b64 [bar], 1;
  bar.warp.sync -1;
  neg.s32 %r10, %r0; // of lane 1: 0xffffffff
  mbarrier.{wait}.parity.shared.b64 %p2, [bar], %r10;
  selp.u32 %r11, 1, 0, %p2;
"""
        + lane_address("%rd0", "%rd10", 4)
        + "  st.global.u32 [%rd10], %r11;\n",
        result,
        arch="sm_90",
    )
    assert np.array_equal(result, np.arange(32) % 2)  # the phase before the first has parity 1


# --- bulk copies --------------------------------------------------------------------------------------------


def bulk_kernel(
    to: str = "[smem+1024]", size: str = "%r12", source: str = "[%rd0]", wait: bool = True
) -> str:
    """A kernel in which thread 0 copies 1024 bytes to smem in two parts, each of 256 threads doubles a word,
    and thread 0 copies the result out.
    """
    return f"""
  .shared .align 8 .b64 bar;
  setp.ne.u32 %p1, %r0, 0;
  mov.u32 %r10, bar;
  mov.u32 %r11, smem;
  mov.u32 %r12, 512;
  mad.lo.u32 %r13, %r0, 4, %r11;
  st.shared.u32 [%r13+1024], 7;
  @!%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {to}, {source}, {size}, [%r10];
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r11+1536], [%rd0+512], %r12, [%r10];
WAIT:
  {"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], 0; @!%p2 bra WAIT;" if wait else ""}
  ld.shared.u32 %r20, [%r13+1024];
  add.u32 %r20, %r20, %r20;
  st.shared.u32 [%r13], %r20;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r11], 1024;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
END:
"""


def run_bulk(body: str) -> tuple[np.ndarray, np.ndarray]:
    source, result = RNG.integers(0, 2**31, 256, np.uint32), np.zeros(256, np.uint32)
    launch = run(body, source, result, block=256, shared_bytes=2048, arch="sm_90")
    copies = launch.instructions()
    copies = copies[copies.ptx.str.contains("cp.async.bulk.(?:shared|global)")]
    assert copies.executed.tolist() == [1, 1, 1]
    # Not measured for this size.
    assert (copies.tma_sectors_ld.isna() | copies.tma_sectors_st.isna()).all()
    return source, result


def test_bulk_copies_to_and_from_shared_memory() -> None:
    source, result = run_bulk(bulk_kernel())
    assert np.array_equal(result, 2 * source)


LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd10], 16, [%r10];"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd{to}], [smem], 16;"
ADD = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [smem], 16;"


@pytest.mark.parametrize(
    ("copy", "loads", "stores", "sectors"),
    [
        (LOAD, 12, 0, 12),
        (STORE.format(to=10), 0, 12, None),
        (STORE.format(to=0), 0, 1, None),
        (ADD, 0, 12, None),
    ],
    ids=["loads", "stores", "equal stores", "equal reductions"],
)
def test_each_lane_issues_its_own_bulk_copy(copy: str, loads: int, stores: int, sectors: int | None) -> None:
    body = (
        ".shared .align 8 .b64 bar;\nmov.u32 %r10, bar;\nmov.u32 %r12, smem;\n"
        + lane_address("%rd0", "%rd10", 16)
        + f"""
  mad.lo.u32 %r11, %r0, 16, %r12;
  setp.eq.u32 %p0, %r0, 0;
  @%p0 mbarrier.init.shared::cta.b64 [%r10], 1;
  bar.sync 0;
  setp.lt.u32 %p1, %r0, 12;
  @%p1 {copy}
"""
    )
    totals = run(body, np.zeros(128, np.uint32), shared_bytes=512, arch="sm_90").totals()
    assert totals["tma_load_instructions"] == loads
    assert totals["tma_store_instructions"] == stores
    assert totals["tma_sectors_ld" if loads else "tma_sectors_st"] == sectors


def test_a_bulk_copy_that_nobody_waits_for_has_not_come() -> None:
    _, result = run_bulk(bulk_kernel(wait=False))
    assert (result == 14).all()


def findings_of_bulk(body: str) -> list[str]:
    source, result = bytes_of(1024), np.zeros(1024, np.uint8)
    module = Module(kernel_text(body, 2, shared_bytes=2048, target="sm_90"), arch="sm_90")
    memory = [
        (array.ctypes.data, array.nbytes, name, name == "result")
        for name, array in (("source", source), ("result", result))
    ]
    with session("sm_90", memory, 1, check=True) as checked:
        module.launch("k", 1, 256, [source, result])
    return [finding.kind for finding in checked.findings]


def test_the_sanitizer_knows_bulk_copies() -> None:
    assert findings_of_bulk(bulk_kernel()) == []
    assert "copy not waited for" in findings_of_bulk(bulk_kernel(wait=False))
    assert "out of bounds" in findings_of_bulk(bulk_kernel(source="[%rd0+1008]"))


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"to": "[smem+1032]"}, "misaligned"),
        ({"to": "[smem+2032]"}, "out of bounds"),
        ({"source": "[%rd0+8]"}, "misaligned"),
        ({"source": "[%rd0+1008]"}, "out of bounds"),
        ({"size": "500"}, "bad operand"),
    ],
)
def test_bulk_copies_that_are_wrong(changed: dict[str, str], kind: str) -> None:
    assert fault_of(run_bulk, bulk_kernel(**changed)).kind == kind


def test_bulk_copies_need_hopper() -> None:
    with pytest.raises(FaultError, match="needs sm_90 or newer"):
        run("cp.async.bulk.commit_group;", arch="sm_80")
