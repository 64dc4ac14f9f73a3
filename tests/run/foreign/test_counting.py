"""``ladder.counting``: kernels of Triton and Numba, with counts by their Python lines."""

import importlib.util
import inspect
import math
import os

import numpy as np
import pytest
import torch

import ladder
from ladder.errors import UnsupportedProblem
from ladder.run.emulator import FaultError

needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")
needs_numba = pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="Numba is not installed")

if importlib.util.find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, o, factor, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o + i, tl.load(x + i, i < n) + factor * tl.load(y + i, i < n), i < n)

    @triton.jit
    def transposed(x, o, stride_x, stride_o, N: tl.constexpr):
        i = tl.arange(0, N)
        tile = tl.load(x + i[:, None] * stride_x + i[None, :])
        tl.store(o + i[:, None] * stride_o + i[None, :], tl.trans(tile))

    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def tuned(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 1.0, i < n)


if importlib.util.find_spec("numba"):
    from numba import cuda, float32

    @cuda.jit
    def scaled(x, factor, o):
        i = cuda.grid(1)
        if i < o.size:
            o[i] = factor * x[i]

    @cuda.jit
    def transposed_in_shared(x, o):
        tile = cuda.shared.array((32, 32), float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        tile[j, i] = x[j, i]
        cuda.syncthreads()
        o[j, i] = tile[i, j]

    @cuda.jit
    def racing(o):
        tile = cuda.shared.array(64, float32)
        i = cuda.threadIdx.x
        tile[i] = i
        o[i] = tile[(i + 32) % 64]

    @cuda.jit(device=True)
    def squared(value):
        return value * value

    @cuda.jit
    def next_squared(x):
        x[cuda.threadIdx.x] = squared(cuda.shfl_down_sync(0xFFFFFFFF, x[cuda.threadIdx.x], 1))

    @cuda.jit
    def ignoring(x):
        pass

    @cuda.jit
    def beyond(o):
        o[cuda.grid(1)] = 1


def line_of(function, text):
    """The file and the number of the first line of a kernel's source that has ``text``."""
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if text in line)


@needs_triton
def test_a_triton_kernel_reads_and_writes_cpu_tensors():
    x, y = torch.randn(1024), torch.randn(1024)
    o = torch.full((1024,), math.nan)
    with ladder.counting() as counted:
        add[(4,)](x, y, o, 2.5, 1024, BLOCK=256)
        add[lambda meta: (triton.cdiv(1024, meta["BLOCK"]),)](x, y, o, 2.5, 1024, BLOCK=256)
        add[(0,)](x, y, o, 2.5, 0, BLOCK=256)
    torch.testing.assert_close(o, x + 2.5 * y)
    first, second = counted.launches
    assert first.kernel == "add" and first.grid == (4, 1, 1) and first.block == (128, 1, 1)
    # Floats in sectors of 32 bytes, of two arrays and of one.
    assert first.totals()["global_sectors_ld"] == 256 and first.totals()["global_sectors_st"] == 128
    assert second.totals() == first.totals()


@needs_triton
def test_triton_lines_strides_and_scalars():
    matrix = torch.randn(32, 48)
    x, o = matrix[:, :32], torch.zeros(32, 64)[:, 16:48]
    with ladder.counting("sm_90a") as counted:
        transposed[(1,)](x, o, x.stride(0), o.stride(0), N=32)
    assert torch.equal(o, x.t()) and counted.arch == "sm_90a"
    lines = counted.launches[0].lines()
    stores = lines[lines["global_sectors_st"] > 0]
    assert set(stores["kernel_line"]) == {line_of(transposed.fn, "tl.store")}


@needs_triton
def test_the_autotuner_takes_the_first_configuration():
    x = torch.zeros(100)
    with ladder.counting() as counted:
        tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert x.sum() == 100 and [launch.grid for launch in counted.launches] == [(2, 1, 1)]


@needs_numba
def test_a_numba_kernel_takes_arrays_and_tensors():
    x, o, tensor = np.arange(100, dtype=np.float32), np.zeros(100, np.float32), torch.zeros(100)
    with ladder.counting() as counted:
        scaled[2, 64](x, 3.0, o)
        scaled[2, 64](o[::-1].copy(), 2, tensor)
        strided = np.zeros((100, 2), np.float32)
        scaled[2, 64](x, 1, strided[:, 1])
    assert (o == 3 * x).all() and (tensor.numpy() == 6 * x[::-1]).all() and (strided[:, 1] == x).all()
    assert [launch.grid for launch in counted.launches] == [(2, 1, 1)] * 3
    assert list(counted.table()["block"]) == [(64, 1, 1)] * 3


@needs_numba
def test_conflicts_by_line_of_a_numba_kernel():
    x, o = np.random.rand(32, 32).astype(np.float32), np.zeros((32, 32), np.float32)
    with ladder.counting() as counted:
        transposed_in_shared[1, (32, 32)](cuda.to_device(x), o)
    assert (o == x.T).all()
    (launch,) = counted.launches
    assert launch.totals()["conflicts_ld"] == 32 * 31 and launch.totals()["conflicts_st"] == 0
    lines = launch.lines()
    (line,) = lines[lines["conflicts"] > 0]["line"]
    assert line == line_of(transposed_in_shared.py_func, "tile[i, j]")


@needs_numba
def test_check_and_faults():
    with ladder.counting(check=True) as counted:
        racing[1, 64](np.zeros(64, np.float32))
    assert "race between warps" in {finding.kind for finding in counted.findings}
    with ladder.counting(), pytest.raises(FaultError, match="argument"):
        beyond[2, 64](np.zeros(100, np.float32))


@needs_numba
def test_an_argument_that_is_not_emulated_is_named():
    with ladder.counting(), pytest.raises(UnsupportedProblem, match="type"):
        ignoring[1, 32](np.datetime64("2026-01-01"))


@needs_numba
def test_device_functions_shuffles_and_forall(monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    x, y = np.arange(32, dtype=np.float32), np.zeros(300, np.float32)
    with ladder.counting() as counted:
        next_squared[1, 32](x)
        scaled.forall(300)(np.ones(300, np.float32), 2, y)
        assert cuda.get_current_device().compute_capability == (8, 0)
    assert x[0] == 1 and x[30] == 31**2 and (y == 2).all()
    assert [launch.kernel for launch in counted.launches] == ["next_squared", "scaled"]
    assert "CUDA_HOME" not in os.environ  # it would choose the compiler of builds for a GPU


@needs_numba
def test_streams_and_events_of_numba():
    x = np.ones(8, np.float32)
    with ladder.counting():
        stream, start, end = cuda.stream(), cuda.event(), cuda.event()
        start.record(stream)
        scaled[1, 8, stream](x, 2, x)
        end.record(stream)
        stream.synchronize()
        assert cuda.event_elapsed_time(start, end) > 0
    assert (x == 2).all()


@needs_numba
def test_what_numba_cannot_do_here_is_named():
    x = np.zeros(8, np.float32)
    with ladder.counting():
        with pytest.raises(UnsupportedProblem, match=r"x has a negative stride"):
            scaled[1, 8](x[::-1], 2, x)
        with pytest.raises(UnsupportedProblem, match="BFloat16"):
            scaled[1, 8](torch.zeros(8, dtype=torch.bfloat16), 2, x)
    with pytest.raises(UnsupportedProblem, match="driver"), ladder.counting():
        cuda.current_context()
