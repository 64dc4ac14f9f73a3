"""tcgen05 across the blocks of a cluster: products of a pair, commits to several blocks, copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensor_model import dot
from test_tensor_memory import ALLOC, ARCH, DEALLOC, THREADS, row_transfers
from test_tensor_products import SHARED_BEGIN, dense, put, random_bits
from warp_kernel import kernel_text

from ladder.compile import EmulatorTarget, build_program
from ladder.run.emulator import FaultError, Module, run_program
from ladder.stages import include_directory

SHARED = 64 * 1024


def in_clusters(text: str, blocks: int = 2) -> str:
    """The kernel's blocks come in clusters."""
    begin = text.index(".visible .entry k(")
    end = text.index(")", begin) + 1
    return text[:end] + f"\n.explicitcluster .reqnctapercluster {blocks}, 1, 1" + text[end:]


RANK = "  mov.u32 %r80, %cluster_ctarank;\n"
CLUSTER_SYNC = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
FILL = f"""
  mul.wide.u32 %rd14, %r80, {SHARED};
  add.u64 %rd15, %rd0, %rd14;
  mov.u64 %rd30, smem;
  mov.u32 %r10, %r0;
copy:
  mul.wide.u32 %rd10, %r10, 16;
  add.u64 %rd12, %rd15, %rd10;
  add.u64 %rd13, %rd30, %rd10;
  ld.global.v4.b32 {{%r11, %r12, %r13, %r14}}, [%rd12];
  st.shared.v4.b32 [%rd13], {{%r11, %r12, %r13, %r14}};
  add.u32 %r10, %r10, {THREADS};
  setp.lt.u32 %p11, %r10, {SHARED // 16};
  @%p11 bra copy;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p13, %r0, 0;
  @%p13 bra ready;
  mbarrier.init.shared::cta.b64 [smem+8], 1;
ready:
"""
WAIT = """
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p12, [smem+8], 0;
  @!%p12 bra wait;
  tcgen05.fence::after_thread_sync;
"""


def pair_kernel(idesc: int, multicast: bool = True) -> str:
    """p0: the shared memory of both blocks; p1: tensor memory after; p2: the descriptors."""
    commit = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
    commit += ".multicast::cluster.b64 [smem+8], %rs10;" if multicast else ".b64 [smem+8];"
    body = f"""
  .reg .b32 %x<128>;
{RANK}
{FILL}
{ALLOC.format(columns=64).replace("group::1", "group::2")}
{CLUSTER_SYNC}
  mov.u16 %rs10, 3;
  setp.ne.u32 %p15, %r80, 0;
  or.pred %p15, %p15, %p13;
  @%p15 bra issued;
  ld.global.b64 %rd20, [%rd2];
  ld.global.b64 %rd21, [%rd2+8];
  mov.u32 %r20, {idesc};
  tcgen05.mma.cta_group::2.kind::f16 [%r91], %rd20, %rd21, %r20, 0;
  {commit}
issued:
{WAIT}
  mul.wide.u32 %rd14, %r80, {4 * 64 * THREADS};
  add.u64 %rd16, %rd1, %rd14;
{row_transfers("%rd16", 64, loads=True)}
{CLUSTER_SYNC}
{DEALLOC.replace("group::1", "group::2")}
"""
    text = kernel_text(body, 3, shared_bytes=SHARED, target=ARCH, version="8.8")
    return in_clusters(text.replace(".align 128 .b8 smem", ".align 1024 .b8 smem"))


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_shares_a_product(m: int) -> None:
    """Each block has half of A's rows and half of B's columns."""
    n, k = 32, 16
    a, b = random_bits((m, k), "bf16", False), random_bits((n, k), "bf16", False)
    a_place = dense("128", False, m // 2, 16, SHARED_BEGIN + 1024)
    b_place = dense("128", False, n // 2, 16, SHARED_BEGIN + 32 * 1024)
    image = np.zeros((2, SHARED), np.uint8)
    for rank in range(2):
        put(image[rank], a_place, a[rank * m // 2 :][: m // 2], 16)
        put(image[rank], b_place, b[rank * n // 2 :][: n // 2], 16)
    after = np.zeros((2, THREADS, 64), np.uint32)
    idesc = 1 << 4 | 1 << 7 | 1 << 10 | n >> 3 << 17 | m >> 4 << 24
    descriptors = np.array([a_place.descriptor, b_place.descriptor], np.uint64)
    Module(pair_kernel(idesc), ARCH).launch("k", 2, THREADS, [image, after, descriptors])
    for row in range(m):
        for column in range(n):
            rank, lane = row // (m // 2), row % (m // 2)
            if m == 128:  # the second half of the columns is in lanes 64 to 127
                lane, at = lane + 64 * (column // 16), column % 16
            else:
                at = column
            expected = dot(a[row].tolist(), b[column].tolist(), None, "bf16", "bf16", False)
            assert after[rank, lane, at] == expected, (row, column)


def test_a_commit_without_multicast_arrives_in_one_block() -> None:
    idesc = 1 << 4 | 1 << 7 | 1 << 10 | 32 >> 3 << 17 | 256 >> 4 << 24
    place = dense("128", False, 128, 16, SHARED_BEGIN + 1024)
    arrays = [np.zeros((2, SHARED), np.uint8), np.zeros((2, THREADS, 64), np.uint32)]
    with pytest.raises(FaultError, match="no warp of the block can proceed"):
        Module(pair_kernel(idesc, multicast=False), ARCH).launch(
            "k", 2, THREADS, [*arrays, np.array([place.descriptor] * 2, np.uint64)]
        )


# --- shared addresses --------------------------------------------------------------------------------------


def test_a_shared_address_has_the_rank_of_its_block() -> None:
    """In registers, as a symbol in an address, and in generic addresses."""
    body = f"""
{RANK}
  mov.u32 %r10, smem;
  and.b32 %r11, %r10, 0xFEFFFFFF;
  add.u32 %r12, %r80, 5;
  st.shared.b32 [smem+4], %r12;
{CLUSTER_SYNC}
  setp.eq.u32 %p10, %r80, 0;
  @%p10 bra stored;
  st.shared::cluster.b32 [%r11], 77;
stored:
{CLUSTER_SYNC}
  ld.shared.b32 %r13, [%r10];
  ld.shared.b32 %r14, [smem+4];
  mov.u64 %rd10, smem;
  cvta.shared.u64 %rd11, %rd10;
  ld.b32 %r15, [%rd11+4];
  mul.wide.u32 %rd12, %r80, 16;
  add.u64 %rd13, %rd0, %rd12;
  st.global.v4.b32 [%rd13], {{%r10, %r13, %r14, %r15}};
"""
    out = np.zeros((2, 4), np.uint32)
    text = kernel_text(body, 1, shared_bytes=1024, target="sm_90", version="8.8")
    zeroed = text.replace("  mov.u32 %r10, smem;", "  mov.u32 %r10, smem;\n  st.shared.b32 [%r10], 0;", 1)
    Module(in_clusters(zeroed), "sm_90").launch("k", 2, 1, [out])
    assert out.tolist() == [[SHARED_BEGIN, 77, 5, 5], [1 << 24 | SHARED_BEGIN, 0, 6, 6]]


# --- copies ------------------------------------------------------------------------------------------------

#: Rows, bytes per row, and the lanes to which a row is copied. PTX ISA, "tcgen05.cp".
COPIES = {
    "128x256b": (128, 32, lambda row: [row]),
    "128x128b": (128, 16, lambda row: [row]),
    "64x128b.warpx2::02_13": (64, 16, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 16, lambda row: [row + row // 32 * 32, row + row // 32 * 32 + 32]),
    "32x128b.warpx4": (32, 16, lambda row: [row + 32 * quarter for quarter in range(4)]),
    "4x256b": (4, 32, lambda row: [32 * row]),
}


@pytest.mark.parametrize("shape", COPIES)
def test_copies(shape: str) -> None:
    rows, row_bytes, lanes_of = COPIES[shape]
    place = dense("none", False, rows, 8, SHARED_BEGIN + 1024)
    data = np.random.default_rng(2).integers(0, 256, (rows, row_bytes), dtype=np.int64)
    image = np.zeros((1, SHARED), np.uint8)
    put(image[0], place, data, 8)
    body = f"""
  .reg .b32 %x<128>;
  mov.u32 %r80, 0;
{FILL}
{ALLOC.format(columns=32)}
{row_transfers("%rd1", 32, loads=False)}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  @%p13 bra issued;
  tcgen05.fence::after_thread_sync;
  ld.global.b64 %rd20, [%rd3];
  tcgen05.cp.cta_group::1.{shape} [%r91+4], %rd20;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem+8];
issued:
{WAIT}
{row_transfers("%rd2", 32, loads=True)}
{DEALLOC}
"""
    before = np.zeros((128, 32), np.uint32)
    after = np.zeros_like(before)
    text = kernel_text(body, 4, shared_bytes=SHARED, target=ARCH, version="8.8")
    text = text.replace(".align 128 .b8 smem", ".align 1024 .b8 smem")
    descriptor = np.array([place.descriptor], np.uint64)
    Module(text, ARCH).launch("k", 1, THREADS, [image, before, after, descriptor])
    words = data.astype(np.uint8).copy().view(np.uint32)
    expected = before.copy()
    for row in range(rows):
        for lane in lanes_of(row):
            expected[lane, 4 : 4 + row_bytes // 4] = words[row]
    assert np.array_equal(after, expected)


def test_a_pair_loads_into_both_blocks_and_one_mbarrier() -> None:
    """TMA with .cta_group::2; the program compares what has been loaded."""
    source = Path(__file__).with_name("programs") / "tensor_pair.cu"
    program = build_program([source], EmulatorTarget(ARCH), [f"-I{include_directory()}"])
    result = run_program(program, [], ARCH)
    assert result.exit_code == 0 and result.fault is None
