"""Calls of functions, by some lanes or all: results, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, lanes

from ladder.run.emulator import FaultError

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
