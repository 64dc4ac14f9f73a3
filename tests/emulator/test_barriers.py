"""Barriers of blocks and warps: who waits for whom, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, OUT, fault_of, lanes, run

BARRIERS = [
    "bar.sync 0;",
    "bar.cta.sync 0;",
    "barrier.sync.aligned 0;",
    "barrier.sync 0;",
    "barrier.cta.sync 3;",
    "bar.sync 0, 128;",
]


@pytest.mark.parametrize("barrier", BARRIERS)
def test_all_threads_wait(barrier: str) -> None:
    """Each thread reads what its mirror image in the block wrote."""
    body = f"""
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  mul.lo.u32 %r22, %r0, 3;
  st.shared.u32 [%r21], %r22;
  {barrier}
  sub.u32 %r23, 127, %r0;
  mad.lo.u32 %r21, %r23, 4, %r20;
  ld.shared.u32 %r10, [%r21];
"""
    assert np.array_equal(lanes(body, block=128, shared_bytes=512), 3 * (127 - np.arange(128)))


def test_barriers_in_a_loop() -> None:
    """A prefix sum in log2(128) steps."""
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  add.u32 %r10, %r0, 1;
  mov.u32 %r22, 1;
LOOP:
  st.shared.u32 [%r21], %r10;
  bar.sync 0;
  setp.lt.u32 %p1, %r0, %r22;
  @%p1 bra SKIP;
  shl.b32 %r23, %r22, 2;
  sub.u32 %r24, %r21, %r23;
  ld.shared.u32 %r25, [%r24];
  add.u32 %r10, %r10, %r25;
SKIP:
  bar.sync 0;
  shl.b32 %r22, %r22, 1;
  setp.lt.u32 %p2, %r22, 128;
  @%p2 bra LOOP;
"""
    assert np.array_equal(lanes(body, block=128, shared_bytes=512), np.cumsum(np.arange(1, 129)))


def test_named_barriers_of_some_warps() -> None:
    """Two pairs of warps, each with its own barrier."""
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  st.shared.u32 [%r21], %r0;
  shr.u32 %r22, %r0, 6;
  add.u32 %r22, %r22, 1;
  bar.sync %r22, 64;
  xor.b32 %r23, %r0, 32;
  mad.lo.u32 %r21, %r23, 4, %r20;
  ld.shared.u32 %r10, [%r21];
"""
    assert np.array_equal(lanes(body, block=128, shared_bytes=512), np.arange(128) ^ 32)


def test_producers_arrive_and_consumers_wait() -> None:
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  mov.u32 %r10, 0;
  setp.lt.u32 %p1, %r0, 32;
  @!%p1 bra CONSUMER;
  st.shared.u32 [%r21], %r0;
  bar.arrive 1, 64;
  bra END;
CONSUMER:
  bar.sync 1, 64;
  ld.shared.u32 %r10, [%r21+-128];
END:
"""
    numbers = np.arange(64)
    assert np.array_equal(lanes(body, block=64, shared_bytes=256), np.where(numbers < 32, 0, numbers - 32))


@pytest.mark.parametrize(
    ("threshold", "every", "some", "count"), [(0, 0, 0, 0), (5, 0, 1, 5), (96, 1, 1, 96)]
)
def test_reductions_at_a_barrier(threshold: int, every: int, some: int, count: int) -> None:
    body = f"""
  setp.lt.u32 %p1, %r0, {threshold};
  barrier.cta.red.popc.aligned.u32 %r11, 0, %p1;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, %p1;
  bar.red.popc.u32 %r12, 1, 96, !%p1;
  selp.u32 %r13, 1000, 0, %p2;
  selp.u32 %r14, 10000, 0, %p3;
  mad.lo.u32 %r10, %r12, 100000, %r11;
  add.u32 %r10, %r10, %r13;
  add.u32 %r10, %r10, %r14;
"""
    expected = (96 - count) * 100000 + some * 10000 + every * 1000 + count
    assert (lanes(body, block=96) == expected).all()


def test_a_partial_warp_waits_too() -> None:
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  st.shared.u32 [%r21], %r0;
  bar.sync 0;
  ld.shared.u32 %r10, [%r20+160];
"""
    assert (lanes(body, block=41, shared_bytes=256) == 40).all()


def test_both_sides_of_a_branch_may_hold_a_barrier() -> None:
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  setp.lt.u32 %p1, %r0, 10;
  @%p1 bra SMALL;
  st.shared.u32 [%r21], 1;
  barrier.sync 0;
  bra MEET;
SMALL:
  st.shared.u32 [%r21], 2;
  barrier.sync 0;
MEET:
  sub.u32 %r22, 63, %r0;
  mad.lo.u32 %r21, %r22, 4, %r20;
  ld.shared.u32 %r10, [%r21];
"""
    assert np.array_equal(lanes(body, block=64, shared_bytes=256), np.where(np.arange(64) > 53, 2, 1))


def test_warp_barriers() -> None:
    """Lanes of a divergent warp meet at bar.warp.sync and see each other's stores."""
    body = """
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  setp.lt.u32 %p1, %r0, 16;
  @%p1 bra LOW;
  add.u32 %r22, %r0, 100;
  st.shared.u32 [%r21], %r22;
  bar.warp.sync 0xffffffff;
  bra MEET;
LOW:
  st.shared.u32 [%r21], %r0;
  bar.warp.sync 0xffffffff;
MEET:
  xor.b32 %r23, %r0, 16;
  mad.lo.u32 %r21, %r23, 4, %r20;
  ld.shared.u32 %r10, [%r21];
"""
    assert np.array_equal(lanes(body, shared_bytes=128), np.where(LANES < 16, LANES + 116, LANES - 16))


@pytest.mark.parametrize("group", [4, 16])
def test_warp_barriers_of_groups(group: int) -> None:
    """Groups of lanes reach one bar.warp.sync together, each with its own mask."""
    body = f"""
  and.b32 %r11, %r0, {32 - group};
  mov.u32 %r12, {(1 << group) - 1};
  shl.b32 %r12, %r12, %r11;
  mov.u32 %r20, smem;
  mad.lo.u32 %r21, %r0, 4, %r20;
  st.shared.u32 [%r21], %r0;
  bar.warp.sync %r12;
  xor.b32 %r23, %r0, 1;
  mad.lo.u32 %r21, %r23, 4, %r20;
  ld.shared.u32 %r10, [%r21];
"""
    assert np.array_equal(lanes(body, shared_bytes=128), LANES ^ 1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0; @!%p1 bar.sync 1;", "barrier"),
        ("setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0, 64; @!%p1 bar.sync 0, 128;", "barrier"),
        ("bar.sync 16;", "bad operand"),
        ("bar.sync 0, 33;", "barrier"),
        ("bar.sync %r0;", "bad operand"),
        ("bar.arrive 0;", "unsupported"),
        ("setp.eq.u32 %p1, %r0, 1; @%p1 bar.warp.sync 1;", "bad operand"),
        ("trap;", "trap"),
        ("barrier.cluster.arrive;", "unsupported"),
    ],
)
def test_refusals(body: str, kind: str) -> None:
    assert fault_of(lanes, body + "mov.u32 %r10, 0;", block=64).kind == kind


def test_threads_that_have_left_are_not_waited_for() -> None:
    result = np.zeros(96, np.uint32)
    run(
        OUT + "setp.lt.u32 %p1, %r0, 40; @%p1 exit; bar.sync 0; st.global.u32 [%rd10], 1;",
        result,
        block=96,
    )
    assert np.array_equal(result, np.arange(96) >= 40)


def test_no_operations() -> None:
    body = """
  pmevent 1;
  griddepcontrol.wait;
  griddepcontrol.launch_dependents;
  mov.u32 %r10, 3;
"""
    assert (lanes(body, arch="sm_90") == 3).all()
