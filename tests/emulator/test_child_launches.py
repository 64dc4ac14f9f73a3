"""Kernels that launch kernels (dynamic parallelism), launched from Python."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.run.emulator import FaultError, InOut, Module

DECLARED = """
.version 8.8
.target sm_80
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2
  (.param .b64 f, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.extern .func (.param .b32 r) __cudaCDP2GetDeviceCount(.param .b64 count);
"""
#: add(out, n) adds n to each element; launch(out, threads, n) launches it twice, and then sets out[0] to 5.
PTX = f"""{DECLARED}
.visible .entry add(.param .u64 out, .param .u32 n)
{{
  .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %rd2, %r2, 4, %rd1;
  ld.global.u32 %r3, [%rd2];
  add.u32 %r3, %r3, %r1;
  st.global.u32 [%rd2], %r3;
  ret;
}}
.visible .entry launch(.param .u64 out, .param .u32 threads, .param .u32 n)
{{
  .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [threads];
  ld.param.u32 %r2, [n];
  mov.u64 %rd2, add;
  mov.u32 %r3, 0;
again:
  {{
    .param .b64 f; .param .align 4 .b8 grid[12]; .param .align 4 .b8 block[12]; .param .b32 shared;
    .param .b64 buffer;
    st.param.b64 [f], %rd2;
    st.param.b32 [grid], 1; st.param.b32 [grid+4], 1; st.param.b32 [grid+8], 1;
    st.param.b32 [block], %r1; st.param.b32 [block+4], 1; st.param.b32 [block+8], 1;
    st.param.b32 [shared], 0;
    call.uni (buffer), __cudaCDP2GetParameterBufferV2, (f, grid, block, shared);
    ld.param.b64 %rd3, [buffer];
  }}
  setp.eq.u64 %p1, %rd3, 0;
  @%p1 bra failed;
  st.u64 [%rd3], %rd1;
  st.u32 [%rd3+8], %r2;
  {{
    .param .b64 buffer; .param .b64 stream; .param .b32 error;
    st.param.b64 [buffer], %rd3;
    st.param.b64 [stream], 0;
    call.uni (error), __cudaCDP2LaunchDeviceV2, (buffer, stream);
  }}
failed:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 2;
  @%p2 bra again;
  st.global.u32 [%rd1], 5;
  ret;
}}
"""
#: The first thread asks for the number of devices; all add it.
COUNT = f"""{DECLARED}
.visible .entry count(.param .u64 out)
{{
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
  .shared .align 4 .u32 devices;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p, %r1, 0;
  @%p bra read;
  mov.u64 %rd2, devices;
  cvta.shared.u64 %rd3, %rd2;
  {{
    .param .b64 place; .param .b32 error;
    st.param.b64 [place], %rd3;
    call.uni (error), __cudaCDP2GetDeviceCount, (place);
  }}
read:
  BARRIER
  ld.shared.u32 %r2, [devices];
  mad.wide.u32 %rd2, %r1, 4, %rd1;
  st.global.u32 [%rd2], %r2;
  ret;
}}
"""


def test_a_launch_returns_when_its_children_have_ended():
    out = np.arange(4, dtype=np.int32)
    launch = Module(PTX).launch("launch", 1, 1, [InOut(out), 4, 10], check=True)
    assert out.tolist() == [25, 21, 22, 23] and not launch.findings
    assert launch.kernel == "launch"
    assert [(child.kernel, child.block) for child in launch.children] == [("add", (4, 1, 1))] * 2
    assert not Module(PTX).launch("add", 1, 4, [InOut(out), 1]).children


def test_a_fault_of_a_child():
    with pytest.raises(FaultError) as raised:
        Module(PTX).launch("launch", 1, 1, [np.zeros(4, np.int32), 8, 1])
    assert raised.value.fault.kernel == "add" and raised.value.fault.kind == "out of bounds"


def test_a_launch_that_fails_is_told(capfd):
    out = np.zeros(4, np.int32)
    assert not Module(PTX).launch("launch", 1, 1, [out, 2000, 1]).children
    assert out.tolist() == [5, 0, 0, 0]
    assert (
        "a launch by a thread of launch failed with cudaErrorInvalidConfiguration" in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("barrier", "kinds"), [("bar.sync 0;", []), ("", ["race in a warp", "race between warps"])]
)
def test_the_sanitizer_sees_what_cuda_s_functions_write_to_shared_memory(barrier, kinds):
    out = np.zeros(64, np.int32)
    launch = Module(COUNT.replace("BARRIER", barrier)).launch("count", 1, 64, [out], check=True)
    assert [finding.kind for finding in launch.findings] == kinds
    assert barrier == "" or out.tolist() == [1] * 64
