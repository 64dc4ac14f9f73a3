"""Branches that diverge and reconverge: the results of the lanes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, OUT, lanes, run

from ladder.run.emulator import FaultError


def test_if_else() -> None:
    result = lanes("""
  and.b32 %r11, %r0, 1;
  setp.eq.u32 %p1, %r11, 0;
  @%p1 bra EVEN;
  mul.lo.u32 %r10, %r0, 10;
  bra MEET;
EVEN:
  add.u32 %r10, %r0, 1000;
MEET:
  add.u32 %r10, %r10, 1;
""")
    assert np.array_equal(result, np.where(LANES % 2, LANES * 10, LANES + 1000) + 1)


def test_loops_with_a_trip_count_a_lane() -> None:
    result = lanes("""
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
LOOP:
  setp.ge.u32 %p1, %r11, %r0;
  @%p1 bra DONE;
  add.u32 %r10, %r10, %r11;
  add.u32 %r11, %r11, 1;
  bra.uni LOOP;
DONE:
""")
    assert np.array_equal(result, LANES * (LANES - 1) // 2)


def test_nested_loops_and_branches() -> None:
    """Collatz steps of each lane's number, counted separately for odd and even."""
    result = lanes("""
  add.u32 %r11, %r0, 1;
  mov.u32 %r12, 0;
  mov.u32 %r13, 0;
LOOP:
  setp.eq.u32 %p1, %r11, 1;
  @%p1 bra DONE;
  and.b32 %r14, %r11, 1;
  setp.ne.u32 %p2, %r14, 0;
  @%p2 bra ODD;
  shr.u32 %r11, %r11, 1;
  add.u32 %r12, %r12, 1;
  bra LOOP;
ODD:
  mad.lo.u32 %r11, %r11, 3, 1;
  add.u32 %r13, %r13, 1;
  bra LOOP;
DONE:
  mad.lo.u32 %r10, %r13, 1000, %r12;
""")
    expected = []
    for lane in range(32):
        n, even, odd = lane + 1, 0, 0
        while n != 1:
            n, even, odd = (3 * n + 1, even, odd + 1) if n % 2 else (n // 2, even + 1, odd)
        expected.append(odd * 1000 + even)
    assert list(result) == expected


def test_lanes_meet_where_the_paths_do() -> None:
    """After a divergent loop and a divergent branch, the whole warp has reconverged."""
    result = lanes("""
  mov.u32 %r11, 0;
LOOP:
  add.u32 %r11, %r11, 1;
  setp.lt.u32 %p1, %r11, %r0;
  @%p1 bra LOOP;
  setp.lt.u32 %p2, %r0, 7;
  @%p2 bra SMALL;
  add.u32 %r11, %r11, 1;
SMALL:
  activemask.b32 %r10;
""")
    assert (result == -1).all()


def test_the_number_of_instructions_is_that_of_a_warp_which_reconverges() -> None:
    result = np.zeros(32, np.uint32)
    launch = run(
        OUT
        + """
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
LOOP:
  add.u32 %r10, %r10, %r11;
  add.u32 %r11, %r11, 1;
  setp.lt.u32 %p1, %r11, %r0;
  @%p1 bra LOOP;
  st.global.u32 [%rd10], %r10;
""",
        result,
    )
    table = launch.instructions()
    adds = table[table.ptx.str.startswith("add.u32 %r10")]
    stores = table[table.ptx.str.startswith("st.global")]
    assert list(adds.executed) == [31]
    assert list(adds.threads) == [1 + sum(range(1, 32))]
    assert list(stores.executed) == [1]
    assert list(stores.threads) == [32]


def test_early_exits() -> None:
    result = np.full(64, -1, np.int32)
    run(
        OUT
        + """
  setp.gt.u32 %p1, %r0, 40;
  @%p1 exit;
  st.global.u32 [%rd10], %r0;
  setp.gt.u32 %p1, %r0, 20;
  @%p1 ret;
  bar.sync 0;
  setp.lt.u32 %p2, %r0, 3;
  @!%p2 bra REST;
  exit;
REST:
  activemask.b32 %r11;
  st.global.u32 [%rd10], %r11;
""",
        result,
        block=64,
    )
    numbers = np.arange(64)
    mask = sum(1 << lane for lane in range(3, 21))
    assert np.array_equal(
        result, np.select([numbers < 3, numbers <= 20, numbers <= 40], [numbers, mask, numbers], -1)
    )


def test_an_exit_inside_a_loop() -> None:
    result = np.full(32, -1, np.int32)
    run(
        OUT
        + """
  mov.u32 %r11, 0;
LOOP:
  setp.eq.u32 %p1, %r11, %r0;
  @%p1 exit;
  add.u32 %r11, %r11, 1;
  st.global.u32 [%rd10], %r11;
  bra LOOP;
""",
        result,
    )
    assert np.array_equal(result, np.where(LANES == 0, -1, LANES))


@pytest.mark.parametrize("uniform", [False, True])
def test_branch_tables(uniform: bool) -> None:
    index = "mov.u32 %r11, 2;" if uniform else "and.b32 %r11, %r0, 3;"
    result = lanes(f"""
  {index}
  mov.u32 %r10, 5;
  setp.lt.u32 %p1, %r0, 30;
  targets: .branchtargets A, B, C, B;
  @%p1 brx.idx{".uni" if uniform else ""} %r11, targets;
  mov.u32 %r10, 400;
  bra MEET;
A: mov.u32 %r10, 100; bra MEET;
B: mov.u32 %r10, 200; bra MEET;
C: mov.u32 %r10, 300; bra MEET;
MEET:
  activemask.b32 %r12;
  setp.ne.u32 %p2, %r12, -1;
  @%p2 mov.u32 %r10, -1;
""")
    choice = np.full(32, 2) if uniform else LANES % 4
    assert np.array_equal(result, np.where(LANES < 30, np.array([100, 200, 300, 200])[choice], 400))


def test_a_branch_table_has_an_end() -> None:
    with pytest.raises(FaultError, match="index 2 of 2") as caught:
        lanes("t: .branchtargets A, B; and.b32 %r11, %r0, 3; brx.idx %r11, t; A: B: mov.u32 %r10, 0;")
    assert (caught.value.fault.kind, caught.value.fault.lane) == ("bad operand", 2)
