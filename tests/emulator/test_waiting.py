"""Loops that wait for another lane, warp or block; and deadlocks."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import kernel_text, lanes, run

from ladder.run.emulator import FaultError, Module


@pytest.mark.parametrize("wait", ["", "nanosleep.u32 20;"])
def test_a_warp_waits_for_another(wait: str) -> None:
    body = f"""
  mov.u32 %r20, smem;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.shared.u32 [%r20], 0;
  bar.sync 0;
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra SIGNAL;
WAIT:
  ld.volatile.shared.u32 %r10, [%r20];
  setp.ne.u32 %p3, %r10, 0;
  {wait}
  @!%p3 bra WAIT;
  bra END;
SIGNAL:
  mov.u32 %r10, 9;
  st.volatile.shared.u32 [%r20], 9;
END:
"""
    assert (lanes(body, block=64, shared_bytes=128) == 9).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_block_waits_for_a_later_one(threads: int) -> None:
    flag, result = np.zeros(1, np.uint32), np.zeros(8, np.uint32)
    run(
        """
  mov.u32 %r20, %ctaid.x;
  setp.eq.u32 %p1, %r20, 7;
  @%p1 bra SIGNAL;
WAIT:
  ld.acquire.gpu.global.u32 %r10, [%rd0];
  setp.eq.u32 %p2, %r10, 0;
  @%p2 bra WAIT;
  bra END;
SIGNAL:
  mov.u32 %r10, 5;
  st.release.gpu.global.u32 [%rd0], 5;
END:
  mul.wide.u32 %rd10, %r20, 4;
  add.u64 %rd10, %rd1, %rd10;
  st.global.u32 [%rd10], %r10;
""",
        flag,
        result,
        grid=8,
        threads=threads,
    )
    assert (result == 5).all()


def test_lanes_of_a_warp_take_turns_at_a_lock() -> None:
    """Independent thread scheduling guarantees progress."""
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run(
        """
  mov.u32 %r20, 0;
TRY:
  atom.acquire.gpu.global.cas.b32 %r21, [%rd0], 0, 1;
  setp.ne.u32 %p1, %r21, 0;
  @%p1 bra TRY;
  ld.volatile.global.u32 %r22, [%rd1];
  add.u32 %r22, %r22, 1;
  st.volatile.global.u32 [%rd1], %r22;
  fence.acq_rel.gpu;
  atom.release.gpu.global.exch.b32 %r23, [%rd0], 0;
""",
        lock,
        count,
        grid=2,
        block=64,
        threads=2,
    )
    assert count[0] == 128


@pytest.mark.parametrize(
    ("body", "said"),
    [
        # Lane 0 waits where both sides of the branch meet.
        (
            "setp.eq.u32 %p10, %r0, 0; @%p10 bra done; bar.sync 0; done: xor.b32 %r10, %r10, 1;",
            ["lanes 1-31 at barrier 0", "lane 0 behind the branch"],
        ),
        # Lanes that poll two mbarriers.
        (
            "mov.u32 %r11, smem; mad.lo.u32 %r12, %r0, 8, %r11; setp.lt.u32 %p10, %r0, 2;"
            "@%p10 mbarrier.init.shared.b64 [%r12], 3; @!%p10 exit; setp.eq.u32 %p11, %r0, 0; @%p11 bra zero;"
            "one: mbarrier.try_wait.parity.shared.b64 %p12, [%r12], 0; @!%p12 bra one; bra done;"
            "zero: mbarrier.try_wait.parity.shared.b64 %p12, [%r12], 0; @!%p12 bra zero;"
            "done: xor.b32 %r10, %r10, 1;",
            ["lane 0 at the mbarrier at byte 0 ", "lane 1 at the mbarrier at byte 8 "],
        ),
    ],
)
def test_a_deadlock_names_every_lane(body: str, said: list[str]) -> None:
    text = kernel_text(body, shared_bytes=16, target="sm_90")
    with pytest.raises(FaultError) as caught:
        Module(text, "sm_90").launch("k", 1, 32, [np.zeros(32, np.uint32)])
    for words in said:
        assert words in caught.value.fault.message, caught.value.fault.message
