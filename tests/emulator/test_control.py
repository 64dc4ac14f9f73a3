"""Branches that diverge and reconverge, calls, barriers: the lanes' results, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, kernel_text, lane_address, run

from ladder.emulator import FaultError, Module

OUT = lane_address("%rd0", "%rd10", 4)


def lanes(body: str, *arguments: np.ndarray, block: int = 32, **text: object) -> np.ndarray:
    """Runs the body and returns each thread's %r10."""
    result = np.zeros(block, np.int32)
    run(OUT + body + "\n  st.global.u32 [%rd10], %r10;", result, *arguments, block=block, **text)  # type: ignore[arg-type]
    return result


# --- divergence ---------------------------------------------------------------------------------------------


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


# --- calls --------------------------------------------------------------------------------------------------

FUNCTIONS = """
.func (.param .b32 result) twice(.param .b32 x)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [x];
  add.u32 %r2, %r1, %r1;
  st.param.u32 [result], %r2;
  ret;
}
.func (.param .b32 result) square(.param .b32 x)
{
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [x];
  mul.lo.u32 %r2, %r1, %r1;
  st.param.u32 [result], %r2;
  ret;
}
.func (.param .b32 result) fibonacci(.param .b32 n)
{
  .reg .b32 %r<8>;
  .reg .pred %p<2>;
  ld.param.u32 %r1, [n];
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra SMALL;
  sub.u32 %r2, %r1, 1;
  {
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r2;
    call (r), fibonacci, (a);
    ld.param.b32 %r3, [r];
  }
  sub.u32 %r2, %r1, 2;
  {
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r2;
    call.uni (r), fibonacci, (a);
    ld.param.b32 %r4, [r];
  }
  add.u32 %r1, %r3, %r4;
SMALL:
  st.param.u32 [result], %r1;
  ret;
}
.func (.param .align 16 .b8 result[16]) swap(.param .align 16 .b8 pair[16], .param .b32 scale)
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<4>;
  ld.param.v2.u64 {%rd1, %rd2}, [pair];
  ld.param.u32 %r1, [scale];
  cvt.u64.u32 %rd3, %r1;
  mul.lo.u64 %rd1, %rd1, %rd3;
  st.param.u64 [result], %rd2;
  st.param.u64 [result+8], %rd1;
  ret;
}
.func nothing() { ret; }
"""


def call(function: str, argument: str, result: str, prefix: str = "") -> str:
    return f"""
  {{
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], {argument};
    {prefix}call (r), {function}, (a);
    ld.param.b32 {result}, [r];
  }}
"""


def test_calls() -> None:
    body = call("twice", "%r0", "%r11") + "call nothing;" + call("square", "%r11", "%r10")
    assert np.array_equal(lanes(body, before=FUNCTIONS), (2 * LANES) ** 2)


def test_calls_by_some_lanes() -> None:
    body = (
        "mov.u32 %r10, 0; setp.gt.u32 %p1, %r0, 12; @!%p1 bra SKIP;" + call("twice", "%r0", "%r10") + "SKIP:"
    )
    assert np.array_equal(lanes(body, before=FUNCTIONS), np.where(LANES > 12, 2 * LANES, 0))


def test_guarded_calls() -> None:
    body = """
  setp.gt.u32 %p1, %r0, 12;
  {
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r0;
    st.param.b32 [r], 7;
    @%p1 call (r), twice, (a);
    ld.param.b32 %r10, [r];
  }
  activemask.b32 %r11;
  setp.ne.u32 %p2, %r11, -1;
  @%p2 mov.u32 %r10, -1;
"""
    assert np.array_equal(lanes(body, before=FUNCTIONS), np.where(LANES > 12, 2 * LANES, 7))


def test_recursion_with_a_depth_a_lane() -> None:
    body = "and.b32 %r11, %r0, 7;" + call("fibonacci", "%r11", "%r10")
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13]
    assert list(lanes(body, before=FUNCTIONS)) == [fibonacci[lane % 8] for lane in range(32)]


def test_structs_by_value() -> None:
    body = """
  cvt.u64.u32 %rd20, %r0;
  {
    .param .align 16 .b8 p[16]; .param .b32 s; .param .align 16 .b8 r[16];
    st.param.b64 [p], %rd20;
    st.param.b64 [p+8], 1000;
    st.param.b32 [s], 3;
    call (r), swap, (p, s);
    ld.param.v2.b64 {%rd21, %rd22}, [r];
  }
  add.u64 %rd21, %rd21, %rd22;
  cvt.u32.u64 %r10, %rd21;
"""
    assert np.array_equal(lanes(body, before=FUNCTIONS), 1000 + 3 * LANES)


@pytest.mark.parametrize("divergent", [False, True])
def test_function_pointers(divergent: bool) -> None:
    choice = "and.b32 %r11, %r0, 1;" if divergent else "mov.u32 %r11, 1;"
    body = f"""
  {choice}
  setp.eq.u32 %p1, %r11, 0;
  mov.u64 %rd20, twice;
  mov.u64 %rd21, square;
  selp.b64 %rd22, %rd20, %rd21, %p1;
  {{
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r0;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r), %rd22, (a), proto;
    ld.param.b32 %r10, [r];
  }}
  activemask.b32 %r12;
  setp.ne.u32 %p2, %r12, -1;
  @%p2 mov.u32 %r10, -1;
"""
    squares = (LANES % 2 == 1) if divergent else np.full(32, True)
    assert np.array_equal(lanes(body, before=FUNCTIONS), np.where(squares, LANES**2, 2 * LANES))


def test_a_call_to_nowhere() -> None:
    body = """
  mov.u64 %rd20, 12345;
  { .param .b32 a; .param .b32 r; st.param.b32 [a], 1;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r), %rd20, (a), proto; }
  mov.u32 %r10, 0;
"""
    fault = fault_of(lanes, body, before=FUNCTIONS)
    assert (fault.kind, fault.address) == ("bad operand", 12345)


def test_endless_recursion_is_an_error() -> None:
    endless = ".func forever() { call forever; ret; }"
    assert fault_of(lanes, "call forever; mov.u32 %r10, 0;", before=endless).kind == "stack overflow"


def test_unknown_functions_are_refused_by_name() -> None:
    declared = ".extern .func (.param .b32 r) cudaLaunchSomething(.param .b32 a);"
    with pytest.raises(FaultError, match="cudaLaunchSomething") as caught:
        lanes(call("cudaLaunchSomething", "%r0", "%r10"), before=declared)
    assert caught.value.fault.kind == "unsupported"


# --- barriers -----------------------------------------------------------------------------------------------

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


def test_system_shared_memory() -> None:
    """The reserved bytes before a block's own are zero, and usable once it reads their address."""
    use = """
  mad.lo.u32 %r21, %r0, 4, %r20;
  atom.shared.add.u32 %r11, [%r21], %r0;
  ld.shared.u32 %r10, [%r21];
"""
    asked = "mov.u32 %r20, %reserved_smem_offset_1;"
    assert np.array_equal(lanes(asked + use, shared_bytes=128), LANES)
    assert fault_of(lanes, "mov.u32 %r20, 0;" + use, shared_bytes=128).kind == "out of bounds"


@pytest.mark.parametrize("name", ["begin", "end", "cap", "0", "1"])
def test_where_system_shared_memory_is(name: str) -> None:
    """Expects an H200's answers."""
    expected = {"end": 288, "cap": 1024}.get(name, 0)
    assert set(lanes(f"mov.u32 %r10, %reserved_smem_offset_{name};", arch="sm_90")) == {expected}


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


# --- waiting in loops ---------------------------------------------------------------------------------------


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


def test_no_operations() -> None:
    body = """
  pmevent 1;
  griddepcontrol.wait;
  griddepcontrol.launch_dependents;
  mov.u32 %r10, 3;
"""
    assert (lanes(body, arch="sm_90") == 3).all()


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
