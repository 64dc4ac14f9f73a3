"""Calls of kernels to the driver: printf, assert, malloc and free."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, lane_address, run

from ladder.run.emulator import FaultError

DECLARED = """
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);
.extern .func __assertfail(.param .b64 e, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc(.param .b64 bytes);
.extern .func free(.param .b64 address);
"""


def string(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(str(byte) for byte in data)}}};\n"


def call_printf(fill: str = "", result: str = "") -> str:
    """PTX of a call of printf whose arguments are on the stack at %rd20."""
    return f"""
  mov.u64 %rd20, stack;
  {fill}
  cvta.local.u64 %rd21, %rd20;
  mov.u64 %rd22, format;
  {{
    .param .b64 f; .param .b64 a; .param .b32 r;
    st.param.b64 [f], %rd22;
    st.param.b64 [a], %rd21;
    call.uni (r), vprintf, (f, a);
    ld.param.b32 %r10, [r];
  }}
  {result}
"""


#: format, struct's layout and values of the arguments, C's output
FORMATS = [
    ("plain", "", (), "plain"),
    ("100%%", "", (), "100%"),
    ("%d %i %u", "iiI", (-5, 7, 4000000000), "-5 7 4000000000"),
    ("%x %X %#x %o", "IIII", (255, 255, 255, 8), "ff FF 0xff 10"),
    ("%5d|%-5d|%05d|%+d|% d", "iiiii", (42, 42, 42, 42, 42), "   42|42   |00042|+42| 42"),
    ("%hd %hhu", "ii", (65537, 257), "1 1"),
    (
        "%ld %lld %lu %llx",
        "qqQQ",
        (-(2**40), -(2**60), 2**63, 2**60),
        f"-{2**40} -{2**60} {2**63} 1{'0' * 15}",
    ),
    ("%zu %d %td", "Qiq", (2**40, 3, -1), f"{2**40} 3 -1"),
    ("%f %.2f %8.3f|%-8.1f|", "dddd", (1.5, 3.14159, 2.0, 9.25), "1.500000 3.14    2.000|9.2     |"),
    ("%e %.3E %g %G", "dddd", (12345.678, 0.00012, 0.0001, 1e20), "1.234568e+04 1.200E-04 0.0001 1E+20"),
    ("%a", "d", (1.0,), "0x1p+0"),
    ("%f %f %f", "ddd", (float("inf"), float("-inf"), float("nan")), "inf -inf nan"),
    ("%c%c", "ii", (72, 105), "Hi"),
    ("%*d|%-*d|%.*f", "iiiiid", (6, 42, 6, 42, 1, 2.25), "    42|42    |2.2"),
    ("%p", "Q", (0xABC,), "0xabc"),
    ("%d%%%d", "ii", (1, 2), "1%2"),
    ("%y %d", "i", (3,), "%y 3"),
    ("cut off %", "", (), "cut off %"),
    ("%d %f %d %lld", "idiq", (1, 2.0, 3, 4), "1 2.000000 3 4"),
]


@pytest.mark.parametrize(("text", "layout", "values", "expected"), FORMATS)
def test_formats(
    text: str, layout: str, values: tuple, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # Like in a C struct, each argument is at a multiple of its size.
    packed = struct.pack("@" + layout, *values)
    fill = "".join(f"st.local.u8 [%rd20+{i}], {byte};\n" for i, byte in enumerate(packed))
    run(call_printf(fill), block=1, before=DECLARED + string("format", text + "\n"), local_bytes=128)
    assert capfd.readouterr().out == expected + "\n"


def test_strings_and_the_number_of_arguments(capfd: pytest.CaptureFixture[str]) -> None:
    result = np.zeros(1, np.int32)
    fill = """
  mov.u64 %rd30, word;
  cvta.global.u64 %rd30, %rd30;
  st.local.u64 [%rd20], %rd30;
  st.local.u64 [%rd20+8], %rd30;
  st.local.u64 [%rd20+16], 0;
"""
    strings = string("format", "%s|%6.3s|%s\n") + string("word", "hello")
    run(
        call_printf(fill, "st.global.u32 [%rd0], %r10;"),
        result,
        block=1,
        before=DECLARED + strings,
        local_bytes=128,
    )
    assert capfd.readouterr().out == "hello|   hel|(null)\n"
    assert result[0] == 3


def test_each_lane_prints_its_own_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    body = "setp.gt.u32 %p1, %r0, 40; @!%p1 bra END;" + call_printf("st.local.u32 [%rd20], %r0;") + "END:"
    run(body, block=48, before=DECLARED + string("format", "thread %d\n"), local_bytes=16)
    assert capfd.readouterr().out == "".join(f"thread {i}\n" for i in range(41, 48))


def test_lines_of_blocks_do_not_mix(capfd: pytest.CaptureFixture[str]) -> None:
    fill = "mov.u32 %r20, %ctaid.x; st.local.u32 [%rd20], %r20; st.local.u32 [%rd20+4], %r0;"
    run(
        call_printf(fill),
        grid=40,
        threads=4,
        before=DECLARED + string("format", "block %d thread %d\n"),
        local_bytes=16,
    )
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"block {b} thread {t}" for b in range(40) for t in range(32))


def test_a_failed_assertion_is_an_error() -> None:
    body = """
  setp.ne.u32 %p1, %r0, 9;
  @%p1 bra END;
  {
    .param .b64 e; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
    mov.u64 %rd20, expression; mov.u64 %rd21, file; mov.u64 %rd22, function;
    st.param.b64 [e], %rd20; st.param.b64 [f], %rd21; st.param.b32 [l], 123; st.param.b64 [n], %rd22;
    st.param.b64 [s], 1;
    call.uni __assertfail, (e, f, l, n, s);
  }
END:
"""
    strings = string("expression", "i < n") + string("file", "prog.cu") + string("function", "void k(int)")
    with pytest.raises(FaultError) as caught:
        run(body, before=DECLARED + strings)
    fault = caught.value.fault
    assert (fault.kind, fault.lane) == ("assertion", 9)
    assert "prog.cu:123: void k(int): Assertion `i < n` failed." in fault.message


ALLOCATE = """
  {
    .param .b64 n; .param .b64 r;
    st.param.b64 [n], %rd20;
    call.uni (r), malloc, (n);
    ld.param.b64 %rd21, [r];
  }
"""
RELEASE = """
  {
    .param .b64 a;
    st.param.b64 [a], %rd21;
    call.uni free, (a);
  }
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_each_thread_has_memory_of_its_own(threads: int) -> None:
    result = np.zeros((30, 32), np.uint32)
    run(
        """
  cvt.u64.u32 %rd20, %r0;
  mul.lo.u64 %rd20, %rd20, 12;
  add.u64 %rd20, %rd20, 4;
"""
        + ALLOCATE
        + """
  mov.u32 %r20, %ctaid.x;
  mad.lo.u32 %r21, %r20, 32, %r0;
  st.global.u32 [%rd21], %r21;
  bar.sync 0;
  ld.u32 %r22, [%rd21];
"""
        + RELEASE
        + """
  mul.wide.u32 %rd22, %r21, 4;
  add.u64 %rd22, %rd0, %rd22;
  st.global.u32 [%rd22], %r22;
""",
        result,
        grid=30,
        before=DECLARED,
        threads=threads,
    )
    assert np.array_equal(result.ravel(), np.arange(30 * 32))


def test_memory_lives_from_launch_to_launch() -> None:
    """Freed memory is reused, too: otherwise the second loop would exhaust the heap."""
    kept = np.zeros(32, np.uint64)
    body = "mov.u64 %rd20, 16;" + ALLOCATE + "st.u32 [%rd21], %r0;" + lane_address("%rd0", "%rd22", 8)
    run(body + "st.global.u64 [%rd22], %rd21;", kept, before=DECLARED)
    read = np.zeros(32, np.uint32)
    body = lane_address("%rd0", "%rd22", 8) + "ld.global.u64 %rd21, [%rd22]; ld.u32 %r10, [%rd21];" + RELEASE
    run(body + lane_address("%rd1", "%rd22", 4) + "st.global.u32 [%rd22], %r10;", kept, read, before=DECLARED)
    assert np.array_equal(read, LANES)

    refused = np.zeros(1, np.uint32)
    loop = f"""
  mov.u32 %r20, 0;
LOOP:
  mov.u64 %rd20, 200000;
  {ALLOCATE}
  setp.eq.u64 %p1, %rd21, 0;
  @%p1 red.global.add.u32 [%rd0], 1;
  {RELEASE}
  add.u32 %r20, %r20, 1;
  setp.lt.u32 %p2, %r20, 20;
  @%p2 bra LOOP;
"""
    run(loop, refused, before=DECLARED)
    assert refused[0] == 0


def test_what_does_not_fit_is_null() -> None:
    result = np.ones(32, np.uint64)
    body = "mov.u64 %rd20, 1000000;" + ALLOCATE + lane_address("%rd0", "%rd22", 8)
    run(body + "st.global.u64 [%rd22], %rd21;" + RELEASE, result, before=DECLARED)
    assert 6 <= np.count_nonzero(result) <= 8
    assert len(set(result[result != 0])) == np.count_nonzero(result)


@pytest.mark.parametrize(
    "body", ["mov.u64 %rd21, 64;" + RELEASE, "mov.u64 %rd20, 8;" + ALLOCATE + RELEASE + RELEASE]
)
def test_a_wrong_free_is_an_error(body: str) -> None:
    assert fault_of(run, "setp.ne.u32 %p1, %r0, 0; @%p1 exit;" + body, before=DECLARED).kind == "bad operand"
