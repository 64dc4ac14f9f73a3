"""CUDA code in a shared library loaded into Python, like the stages: sessions, faults, other runtimes."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import cpu_seconds, wait_for

from ladder.compile import EmulatorTarget, emulator_library, toolchain
from ladder.run import emulator

SOURCE = r"""
#include <cuda_runtime.h>

__device__ float weight(const float *w, int i) {
  return w[i % 4];
}

__global__ void scale(const float *in, const float *w, float *out, int n) {
  __shared__ float tile[256];
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) {
    tile[threadIdx.x * 2] = in[i] * weight(w, i);
    out[i] = tile[threadIdx.x * 2];
  }
}

extern "C" int run(const float *in, const float *w, float *out, int n) {
  scale<<<(n + 127) / 128, 128>>>(in, w, out, n);
  if (const cudaError_t error = cudaGetLastError())
    return error;
  return cudaDeviceSynchronize();
}

extern "C" int allocate() {
  int *data = nullptr, value = 5;
  if (cudaMalloc(&data, 4) || cudaMemcpy(data, &value, 4, cudaMemcpyHostToDevice))
    return -1;
  value = 0;
  if (cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost) || cudaFree(data))
    return -2;
  return value;
}
"""

DECOY = r"""
#include <cstdlib>
#define DECOY(name) extern "C" int name() { std::abort(); }
DECOY(cudaMalloc) DECOY(cudaFree) DECOY(cudaMemcpy) DECOY(cudaGetLastError) DECOY(cudaDeviceSynchronize)
DECOY(cudaLaunchKernel) DECOY(__cudaRegisterFatBinary) DECOY(__cudaRegisterFatBinaryEnd)
DECOY(__cudaUnregisterFatBinary) DECOY(__cudaRegisterFunction) DECOY(__cudaPushCallConfiguration)
DECOY(__cudaPopCallConfiguration) DECOY(__cudaGetKernel) DECOY(__cudaLaunchKernel)
"""


@pytest.fixture(scope="module")
def library_path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("extension")
    (directory / "code.cu").write_text(SOURCE)
    target = EmulatorTarget("sm_80")
    nvcc = str(target.nvcc().path)
    subprocess.run([nvcc, *target.flags(), "-c", "code.cu", "-o", "code.o"], cwd=directory, check=True)
    subprocess.run(
        [toolchain.gxx(), "-shared", "code.o", *target.link_inputs(), "-o", "libcode.so"],
        cwd=directory,
        check=True,
    )
    return directory / "libcode.so"


@pytest.fixture
def library(library_path):
    library = ctypes.CDLL(str(library_path))
    library.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    return library


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy that is aligned to a sector, like memory from cudaMalloc and torch."""
    room = np.empty(values.size + 8, np.float32)
    begin = -(room.ctypes.data // 4) % 8
    copy = room[begin : begin + values.size]
    copy[:] = values
    return copy


def arrays(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.arange(n, dtype=np.float32), np.array([1, 2, 3, 4], np.float32), aligned(np.full(n, np.nan))


def ranges(**named: np.ndarray) -> list[emulator.MemoryRange]:
    return [(a.ctypes.data, a.nbytes, name, name.startswith("out")) for name, a in named.items()]


def call(library, a, w, out, n) -> int:
    return library.run(a.ctypes.data, w.ctypes.data, out.ctypes.data, n)


def test_session_collects_launches_on_memory_handed_in(library):
    a, w, out = arrays(300)
    with emulator.session(memory=ranges(a=a, w=w, out=out)) as session:
        assert call(library, a, w, out, 300) == 0
        assert call(library, a, w, out, 10) == 0
    np.testing.assert_array_equal(out, a * np.resize(w, 300))
    first, second = session.launches
    assert first.kernel == "scale(float const*, float const*, float*, int)" and first.mangled.startswith("_Z")
    assert (first.grid, first.block, first.smem_bytes, first.arch) == ((3, 1, 1), (128, 1, 1), 1024, "sm_80")
    assert second.grid == (1, 1, 1)
    assert emulator.last_fault() is None

    totals = first.totals()
    # Full warps store 32 floats 8 bytes apart: two per bank. The last warp has 12 lanes.
    assert totals["shared_store_instructions"] == 10
    assert totals["conflicts_st"] == 9 and totals["wavefronts_st"] == 19
    assert totals["global_sectors_st"] == -(-300 // 8)


def test_tables_of_a_launch_add_up(library):
    a, w, out = arrays(200)
    with emulator.session(memory=ranges(a=a, w=w, out=out)) as session:
        call(library, a, w, out, 200)
    (launch,) = session.launches
    totals, instructions, lines = launch.totals(), launch.instructions(), launch.lines()
    for name, total in totals.items():
        assert instructions[name].sum() == total and lines[name].sum() == total
    text = SOURCE.splitlines()
    row = lines[lines["conflicts_st"] > 0].iloc[0]
    assert "tile[threadIdx.x * 2] =" in text[row["line"] - 1]
    helper = instructions[instructions["line"] != instructions["kernel_line"]]
    assert any("w[i % 4]" in text[n - 1] for n in helper["line"])
    assert any("weight(w, i);" in text[n - 1] for n in helper["kernel_line"])
    stores = instructions[instructions["ptx"].str.contains("st.shared")]
    assert len(stores) == 1 and stores["executed"].item() == 7  # the eighth warp has left
    (worst,) = [access for access in launch.worst_accesses() if access.op == "st"]
    assert worst.conflicts == 1 and worst.instruction == stores["index"].item()
    model = emulator.shared_access("st", worst.width, worst.addresses)
    assert (model.wavefronts, model.passes, model.conflicts) == (2, 1, 1)


def test_fault_names_the_array_and_the_line(library):
    a, w, out = arrays(100)
    with emulator.session(memory=ranges(a=a, w=w[:2], out=out)):
        assert call(library, a, w, out, 100) == 700  # cudaErrorIllegalAddress
        fault = emulator.last_fault()
    assert fault.kind == "out of bounds" and "'w'" in fault.message
    assert fault.lane == 2 and fault.warp == 0 and fault.block == (0, 0, 0)
    assert fault.address == w.ctypes.data + 8
    lines = SOURCE.splitlines()
    assert "w[i % 4]" in lines[fault.line - 1] and "weight(w, i);" in lines[fault.kernel_line - 1]
    # The next session starts afresh.
    with emulator.session(memory=ranges(a=a, w=w, out=out)):
        assert emulator.last_fault() is None
        assert call(library, a, w, out, 100) == 0


def test_read_only_memory_is_not_written(library):
    a, w, out = arrays(100)
    with emulator.session(memory=ranges(a=a, w=w, result=out)):
        assert call(library, a, w, out, 100) == 700
    assert emulator.last_fault().kind == "read only" and np.isnan(out).all()


def test_memory_is_known_during_the_session_alone(library):
    a, w, out = arrays(100)
    with emulator.session():
        assert call(library, a, w, out, 100) == 700
        assert library.allocate() != 5  # the fault sticks
    with emulator.session():
        assert library.allocate() == 5


def test_overlap_in_part_is_refused():
    a = np.zeros(100, np.float32)
    with (
        pytest.raises(ValueError, match="overlaps"),
        emulator.session(memory=ranges(first=a[:60], second=a[50:])),
    ):
        pass
    with emulator.session(memory=ranges(first=a, second=a)):
        pass


def test_unknown_gpu_is_refused():
    with pytest.raises(ValueError, match="sm_12"), emulator.session(arch="sm_12"):
        pass


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )


def test_another_cuda_runtime_loaded_globally_is_not_called(library_path, tmp_path):
    (tmp_path / "decoy.cpp").write_text(DECOY)
    decoy = tmp_path / "libcudart.so"
    subprocess.run(
        [toolchain.gxx(), "-shared", "-fPIC", str(tmp_path / "decoy.cpp"), "-o", str(decoy)], check=True
    )
    result = run_python(
        "import ctypes, sys\n"
        "ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "assert ctypes.CDLL(None).cudaMalloc\n"
        "print(ctypes.CDLL(sys.argv[2]).allocate())\n",
        str(decoy),
        str(library_path),
    )
    assert result.stdout == "5\n", result.stderr


def test_a_process_holds_one_emulator(library_path):
    result = run_python(
        "import ctypes, sys\n"
        "ctypes.CDLL(sys.argv[1])\n"
        "import ladder._emulator\n"
        "maps = open('/proc/self/maps').read().split()\n"
        "print(*sorted({word for word in maps if word.endswith('libladder_emulator.so')}))\n",
        str(library_path),
    )
    (path,) = result.stdout.split()
    assert Path(path).is_relative_to(emulator_library().directory.resolve())


def test_library_exports_no_cuda_names(library_path):
    for path in (library_path, emulator_library().shared):
        names = subprocess.run(
            ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert not [name for name in names if name.startswith(("cuda", "__cuda", "cu"))]


ENDLESS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry endless()
{
LOOP:
  bra LOOP;
}
"""


def test_interrupt_ends_a_launch():
    code = (
        "import sys\nfrom ladder.emulator import Module\n"
        f"module = Module({ENDLESS!r})\nprint('ready', flush=True)\n"
        "try:\n    module.launch('endless', 1, 32)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    begun = cpu_seconds(process.pid)
    assert wait_for(lambda: cpu_seconds(process.pid) > begun + 0.2), "the kernel runs"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out == "interrupted\n" and process.returncode == 0
