"""ladder.emulator: PTX modules, arguments, errors, and the bank model on its own."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from ladder.compile import emulator_library
from ladder.run import emulator
from ladder.run.emulator import FaultError, InOut, Launch, Module, PtxError, shared_access
from ladder.stages import ARCHITECTURES

AXPY = """
.version 8.0
.target sm_80
.address_size 64

.visible .entry axpy(
  .param .u64 x, .param .u64 y, .param .f32 a, .param .s32 shift, .param .u16 n)
{
  .reg .pred %p;
  .reg .b16 %h<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u16 %h1, [n];
  cvt.u32.u16 %r5, %h1;
  setp.ge.u32 %p, %r4, %r5;
  @%p ret;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.f32 %f1, [a];
  ld.param.s32 %r6, [shift];
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.f32 %f2, [%rd1];
  cvt.rn.f32.s32 %f3, %r6;
  fma.rn.f32 %f2, %f1, %f2, %f3;
  st.global.f32 [%rd2], %f2;
  ret;
}

.visible .entry other() { ret; }
"""


def test_launch_on_arrays():
    module = Module(AXPY)
    assert module.kernels == ["axpy", "other"]
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    launch = module.launch("axpy", grid=4, block=(32, 1), args=[x, y, 2.5, -3, 90])
    np.testing.assert_array_equal(y, np.where(np.arange(100) < 90, 2.5 * x - 3, 0))
    assert launch.grid == (4, 1, 1) and launch.block == (32, 1, 1) and launch.kernel == "axpy"
    sectors = {(i // 32, (y.ctypes.data + 4 * i) // 32) for i in range(90)}  # for any alignment of the array
    assert launch.totals()["global_sectors_st"] == len(sectors)


def test_launch_on_tensors():
    torch = pytest.importorskip("torch")
    x, y = torch.ones(64), torch.zeros(64)
    Module(AXPY).launch("axpy", 2, 32, [x, y, np.float32(4), 1, 64])
    assert torch.equal(y, torch.full((64,), 5.0))
    with pytest.raises(ValueError, match="contiguous"):
        Module(AXPY).launch("axpy", 1, 32, [torch.ones(64, 2)[:, 0], y, 1.0, 1, 64])


def test_views_of_one_array_may_overlap():
    data = np.arange(100, dtype=np.float32)
    Module(AXPY).launch("axpy", 1, 32, [data[10:60], data[50:], 1.0, 0, 10])
    np.testing.assert_array_equal(data[50:60], np.arange(10, 20))


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ([1, 2], TypeError, "takes 5 arguments, not 2"),
        ([0, 0, "a", 0, 0], ValueError, "argument 2"),
        ([0, 0, 1.0, 2.5, 0], TypeError, "argument 3"),
        ([0, 0, 1.0, 0, 70000], ValueError, "argument 4"),
        ([0, 0, 1.0, 0, np.zeros(3)], TypeError, "not a pointer"),
        ([np.zeros((8, 8), np.float32)[:, 1], 0, 1.0, 0, 0], ValueError, "contiguous"),
    ],
)
def test_arguments_that_do_not_fit(args, error, words):
    with pytest.raises(error, match=words):
        Module(AXPY).launch("axpy", 1, 32, args)


def test_faults_raise():
    x, y = np.zeros(16, np.float32), np.zeros(64, np.float32)
    with pytest.raises(FaultError) as caught:
        Module(AXPY).launch("axpy", 2, 32, [x, y, 1.0, 0, 64])
    fault = caught.value.fault
    assert fault.kind == "out of bounds" and fault.lane == 16 and fault.opcode == "ld.global.f32"
    assert fault.address == x.ctypes.data + 64 and fault == emulator.last_fault()
    assert "argument 0 of axpy" in fault.text
    y.flags.writeable = False
    with pytest.raises(FaultError) as caught:
        Module(AXPY).launch("axpy", 1, 32, [np.zeros(64, np.float32), y, 1.0, 0, 64])
    assert caught.value.fault.kind == "read only"


def test_a_fault_does_not_outlive_its_launch():
    """Entry points that a program calls later, here without a session, find a sound device."""
    library = ctypes.CDLL(str(emulator_library().shared))
    with pytest.raises(FaultError):
        Module(AXPY).launch("axpy", 2, 32, [np.zeros(16, np.float32), np.zeros(64, np.float32), 1.0, 0, 64])
    assert library.ladder_cudaDeviceSynchronize() == library.ladder_cudaGetLastError() == 0


@pytest.mark.parametrize(
    ("grid", "block", "smem_bytes", "words"),
    [(1, 2000, 0, "2000"), (0, 32, 0, "empty"), ((1, 70000), 32, 0, "65535"), (1, 32, 200_000, "200000")],
)
def test_launches_that_the_gpu_does_not_allow(grid, block, smem_bytes, words):
    with pytest.raises(FaultError, match=words) as caught:
        Module(AXPY).launch("other", grid, block, smem_bytes=smem_bytes)
    assert caught.value.fault.kind == "launch"


def test_unknown_kernel():
    with pytest.raises(KeyError, match="nothing"):
        Module(AXPY).launch("nothing", 1, 1)


def test_unsupported_instruction_is_named_when_the_kernel_is_launched():
    text = AXPY.replace("cvt.rn.f32.s32 %f3, %r6;", "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f3}, [x, {%r6}];")
    module = Module(text)
    module.launch("other", 1, 1)
    with pytest.raises(FaultError, match="tex") as caught:
        module.launch("axpy", 1, 32, [0, 0, 1.0, 0, 0])
    assert caught.value.fault.kind == "unsupported" and caught.value.fault.ptx_line > 0


def test_ptx_cut_off_anywhere_is_an_error_or_whole():
    end = len(AXPY.rstrip())
    for size in range(0, end, 7):
        try:
            Module(AXPY[:size])
        except PtxError as error:
            assert error.text and error.line >= 0


def test_malformed_ptx_has_a_line():
    broken = AXPY.replace("mad.lo.s32 %r4", "mad.lo.s32 %unknown")
    with pytest.raises(PtxError, match="unknown") as caught:
        Module(broken)
    assert "mad.lo.s32" in broken.splitlines()[caught.value.line - 1]


STRIDE_8 = [8 * i for i in range(32)]


@pytest.mark.parametrize(
    ("op", "width", "addresses", "cost"),
    [
        ("ld", 4, [4 * i for i in range(32)], (1, 1, 0)),
        ("ld", 4, [128 * i for i in range(32)], (32, 1, 31)),
        ("ld", 4, [0] * 32, (1, 1, 0)),
        ("ld", 4, [0] + [None] * 31, (1, 1, 0)),
        ("ld", 8, STRIDE_8, (2, 2, 0)),
        ("st", 8, [0, *[None] * 15, 8, *[None] * 15], (2, 2, 0)),
        ("st", 16, [16 * i for i in range(32)], (4, 4, 0)),
        ("ldmatrix", 4, [16 * i for i in range(32)], (4, 4, 0)),
        ("ldmatrix", 1, [128 * i for i in range(8)] + [None] * 24, (8, 1, 7)),
        ("stmatrix", 2, [64 * (i % 16) for i in range(32)], (8, 2, 6)),
        ("atom.add", 4, [0] * 32, (32, 1, 31)),
        ("atom.cas", 4, [0] * 32, (64, 33, 31)),
        ("cp.async", 16, [128 * i for i in range(32)], (None, None, 0)),
    ],
)
def test_shared_access(op, width, addresses, cost):
    access = shared_access(op, width, addresses)
    for value, wanted in zip((access.wavefronts, access.passes, access.conflicts), cost, strict=True):
        if wanted is not None and (op, wanted) != ("atom.cas", 33):
            assert value == wanted


@pytest.mark.parametrize(
    ("op", "width", "addresses", "words"),
    [
        ("cp.async", 8, STRIDE_8, "not modelled"),
        ("cp.async", 4, STRIDE_8, "not modelled"),
        ("ld", 3, STRIDE_8, "1, 2, 4, 8, 16"),
        ("ld", 8, [4] * 32, "multiple of 8"),
        ("ldmatrix", 3, STRIDE_8, "1, 2, 4 tiles"),
        ("ldmatrix", 2, [None] * 32, "rows"),
        ("ld", 4, [0] * 31, "32 lanes"),
        ("ld", 4, [-4] * 32, "32 bits"),
        ("mul", 4, STRIDE_8, "none of"),
    ],
)
def test_shared_access_refuses(op, width, addresses, words):
    with pytest.raises(ValueError, match=words):
        shared_access(op, width, addresses)


def test_virtual_gpus():
    gpus = {gpu.arch: gpu for gpu in emulator.virtual_gpus()}
    assert tuple(gpus) == ARCHITECTURES
    assert gpus["sm_86"].shared_bytes_per_block_opt_in == 99 * 1024


def test_the_example_of_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "other_kernels.md").read_text()
    section = page.partition("## PTX of other compilers")[2]
    exec(section.partition("```python\n")[2].partition("```")[0], {})
    assert capsys.readouterr().out == "[0. 2. 4.] 64 []\n"


@pytest.mark.parametrize("check", [False, True])
def test_a_kernel_that_triton_compiled(check: bool) -> None:
    """softmax over rows of at most 256, by Triton 3.9 for sm_80: the last two arguments are its own."""
    module = Module((Path(__file__).parent / "data" / "triton_softmax.ptx").read_text())
    x = np.random.default_rng(0).standard_normal((5, 200), dtype=np.float32)
    x.flags.writeable = False
    y = np.empty_like(x)
    launch = module.launch("softmax", 5, 128, [x, y, 200, 0, 0], smem_bytes=16, check=check)
    weights = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, weights / weights.sum(axis=1, keepdims=True), rtol=1e-6)
    assert launch.findings == []
    too_few = module.launch("softmax", 4, 128, [x, y, 200, 0, 0], smem_bytes=16, check=check)
    assert [finding.kind for finding in too_few.findings] == ["unwritten output"] * check


def test_a_launch_is_the_same_after_a_journey_as_text() -> None:
    module = Module((Path(__file__).parent / "data" / "triton_softmax.ptx").read_text())
    x = np.ones((5, 200), np.float32)
    launch = module.launch("softmax", 5, 128, [x, np.empty_like(x), 200, 0, 0], smem_bytes=16)
    data = json.loads(json.dumps(launch.as_data(details=True)))
    read = Launch.from_data(data)
    assert repr(read) == repr(launch) and read.totals() == launch.totals()
    assert read.instructions().equals(launch.instructions()) and read.lines().equals(launch.lines())
    assert read.worst_accesses() == launch.worst_accesses() != []
    assert Launch.from_data(launch.as_data(details=False)).totals() == launch.totals()
    for part, other in (("grid", [1]), ("kernel", 3), ("answers", {"totals": {"executed": "many"}})):
        with pytest.raises((TypeError, ValueError)):
            Launch.from_data({**data, part: other})


DOUBLE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 x)
{
  .reg .b64 %rd<2>; .reg .f32 %f; .reg .b32 %r;
  ld.param.u64 %rd0, [x];
  mov.u32 %r, %tid.x;
  mad.wide.u32 %rd1, %r, 4, %rd0;
  ld.global.f32 %f, [%rd1];
  add.f32 %f, %f, %f;
  st.global.f32 [%rd1], %f;
  ret;
}
"""


def test_an_array_that_is_read_and_written_is_marked_for_the_check() -> None:
    module = Module(DOUBLE)
    x = np.arange(32, dtype=np.float32)
    launch = module.launch("double", 1, 32, [InOut(x)], check=True)
    assert launch.findings == [] and x.tolist() == [2.0 * i for i in range(32)]
    found = module.launch("double", 1, 32, [x], check=True).findings
    assert {one.kind for one in found} == {"uninitialised read"}
    module.launch("double", 1, 32, [InOut(x)])
    assert x[3] == 24


def test_what_is_marked_is_an_array() -> None:
    with pytest.raises(TypeError, match="argument 0 of double is InOut of int, which is no array"):
        Module(DOUBLE).launch("double", 1, 32, [InOut(3)])
