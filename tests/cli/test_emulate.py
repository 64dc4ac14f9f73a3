"""``ladder emulate``: unchanged CUDA programs."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from ladder.cli import main
from ladder.compile import toolchain, wheels

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

__global__ void transpose(const float *in, float *out) {
  __shared__ float tile[32][32];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void forever(volatile int *flag) { while (!*flag) {} }

int recurse(int n) {
  volatile char room[4096];
  room[n % 4096] = 1;
  return recurse(n + 1) + room[n % 4096];
}

int main(int argc, char **argv) {
  float *in, *out;
  cudaMalloc(&in, 4096);
  cudaMalloc(&out, 4096);
  if (argc > 1 && argv[1][0] == 'f') {
    std::printf("started %d\n", getpid());
    std::fflush(stdout);
    forever<<<1, 1>>>((int *)in);
  }
  if (argc > 1 && argv[1][0] == 'b') in += 100000;
  if (argc > 1 && argv[1][0] == 'm') {
    in = nullptr;
    cudaMalloc(&in, size_t(1) << 45);
    if (argv[1][1] == 'a') std::printf("%s\n", cudaGetErrorName(cudaPeekAtLastError()));
  }
  for (int i = 0; i < 2; ++i) transpose<<<1, dim3(32, 32)>>>(in, out);
  if (argc > 1 && argv[1][0] == 'w') cudaMemcpy(in, (void *)8, 4, cudaMemcpyHostToDevice);
  if (argc > 1 && argv[1][0] == 'r') std::printf("%d\n", recurse(argc));
  if (argc > 1 && argv[1][0] == 'a') std::abort();
  if (argc > 1 && argv[1][0] == 'q') _exit(0);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  return argc > 1 ? std::atoi(argv[1]) : 0;
}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "prog.cu"
    path.write_text(PROGRAM)
    return str(path)


def test_counts_of_each_kernel(program, capfd):
    assert main(["emulate", program, "--json", "-"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("cudaSuccess\n")
    rows = json.loads(out.partition("\n")[2])
    assert len(rows) == 1 and "transpose" in rows[0]["kernel"]
    assert rows[0]["launches"] == 2 and rows[0]["block"] == [32, 32, 1] and rows[0]["smem_bytes"] == 4096
    # 32 warps read a column of 32 rows each: 32 wavefronts instead of 1.
    assert rows[0]["conflicts_ld"] == 2 * 32 * 31 and rows[0]["conflicts_st"] == 0


def test_arguments_and_exit_code_are_the_programs(program, capfd):
    assert main(["emulate", program, "--", "5"]) == 5
    out = capfd.readouterr().out
    assert "cudaSuccess" in out and "transpose" in out and "1,984" in out


def test_a_fault_is_shown_with_its_line(program, capfd):
    assert main(["emulate", program, "--", "b"]) == 1, "the program itself returns 0"
    captured = capfd.readouterr()
    assert "cudaErrorIllegalAddress" in captured.out
    assert "prog.cu:8" in captured.err


@pytest.mark.parametrize("check", [False, True])
def test_a_fault_names_the_failed_call_that_the_program_ignored(program, capfd, check):
    options = ["--check"] if check else []
    cause = "after cudaMalloc of 35184372088832 bytes returned cudaErrorMemoryAllocation"
    for way in ("m", "ma"):  # ma asks for the error
        assert main(["emulate", program, *options, "--", way]) == 1
        captured = capfd.readouterr()
        text = " ".join((captured.out if check else captured.err).split())
        assert "a null pointer" in text and (cause in text) == (way == "m")
        assert ("block (0, 0, 0), threads (0, 0, 0), (1, 0, 0), ..., warp 0, lanes 0-31" in text) == check


@pytest.mark.parametrize(
    ("way", "died_by", "code"), [("w", "SIGSEGV", 139), ("r", "SIGSEGV", 139), ("a", "SIGABRT", 134)]
)
@pytest.mark.parametrize("check", [False, True])
def test_a_crash_of_the_host_keeps_what_was_counted(program, capfd, way, died_by, code, check):
    options = ["--check"] if check else ["--json", "-"]
    assert main(["emulate", program, *options, "--", way]) == code
    captured = capfd.readouterr()
    assert f"died: by {died_by}, in the host's code" in captured.err
    if not check:
        (row,) = json.loads(captured.out)
        assert row["launches"] == 2 and row["conflicts_ld"] == 2 * 32 * 31


@pytest.mark.parametrize(
    "number, alone",
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGKILL, True)],
    ids=["Ctrl-C", "SIGINT", "SIGTERM", "SIGKILL"],
)
def test_a_signal_ends_an_endless_kernel(program, number, alone):
    environment = {**os.environ, "LADDER_WARP_INSTRUCTION_LIMIT": str(10**15)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder.cli", "emulate", program, "--", "f"],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        word, child = process.stdout.readline().split()
        assert word == b"started" and os.path.exists(f"/proc/{int(child)}")
        if alone:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
        code = process.wait(timeout=30)
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        assert process.stdout.read() == b"", "whoever has the other end of the pipe is gone"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_an_endless_kernel_meets_a_limit(program, capfd, monkeypatch):
    monkeypatch.setenv("LADDER_WARP_INSTRUCTION_LIMIT", "100000")
    main(["emulate", program, "--", "f"])
    assert "prog.cu:13" in capfd.readouterr().err


def test_a_flag_is_a_remark_and_no_finding(tmp_path, capfd):
    path = tmp_path / "flag.cu"
    path.write_text(
        "__global__ void raise(int *flag) { *flag = 1; }\n"
        "int main() { int *flag; cudaMalloc(&flag, 4); raise<<<4, 64>>>(flag); cudaFree(flag); }\n"
    )
    assert main(["emulate", str(path), "--check"]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "flag.cu: clean" in text and "remark: flag" in text and "flag.cu:1" in text
    assert main(["emulate", str(path), "--check", "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out) == []


def test_a_program_that_leaves_no_counts_is_not_clean(program, capfd):
    assert main(["emulate", program, "--check", "--", "q"]) == 2
    captured = capfd.readouterr()
    assert "has written no counts: it ended by _exit" in captured.err and "clean" not in captured.out


def test_flags_for_the_compiler(tmp_path, capfd):
    path = tmp_path / "flags.cu"
    path.write_text(
        """
        #include <cstdio>
        #include <omp.h>
        __global__ void answer(float *out) { *out = VALUE / 3.0f; }
        int main() {
          if (omp_get_max_threads() < 1) return 3;
          float *out, host;
          cudaMalloc(&out, 4);
          answer<<<1, 1>>>(out);
          cudaMemcpy(&host, out, 4, cudaMemcpyDeviceToHost);
          std::printf("%g\\n", host);
        }
        """
    )
    flags = "-DVALUE=6.0f --use_fast_math -Xcompiler=-fopenmp -lcuda -lcudart"
    assert main(["emulate", str(path), "--nvcc-flags", flags, "--json", "-"]) == 0
    assert capfd.readouterr().out.startswith("2\n")
    assert main(["emulate", str(path), "--nvcc-flags=--no-such-flag"]) == 2
    assert "no-such-flag" in capfd.readouterr().err
    assert main(["emulate", str(path), "--nvcc-flags='"]) == 2
    assert "--nvcc-flags" in capfd.readouterr().err


def test_paths_in_flags_begin_where_the_user_is(tmp_path, capfd, monkeypatch):
    (tmp_path / "inc").mkdir()
    for folder, value in (("inc", 4), ("other", 5)):
        (tmp_path / folder / "inc").mkdir(parents=True)
        (tmp_path / folder / "inc" / "v.h").write_text(f"#define V {value}\n")
    path = tmp_path / "paths.cu"
    path.write_text('#include <cstdio>\n#include "v.h"\nint main() { std::printf("%d", V); }\n')
    for flags in (["-I", "inc"], ["--nvcc-flags=-Iinc"], ["--nvcc-flags", "-I inc"]):
        for folder, value in (("inc", "4"), ("other", "5")):
            monkeypatch.chdir(tmp_path / folder)
            assert main(["emulate", str(path), *flags]) == 0
            assert capfd.readouterr().out == value


def test_names_outside_the_locales_encoding(tmp_path):
    folder = tmp_path / "dir with ü space"
    folder.mkdir()
    (folder / "größe.h").write_text("#define SIZE 4\n")
    (folder / "prög ram.cu").write_text(
        '#include "größe.h"\n#include <cstdio>\nint main() { std::printf("%d\\n", SIZE); }\n'
    )
    command = [sys.executable, "-m", "ladder.cli", "emulate", "prög ram.cu"]
    for variables in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}):
        environment = {**os.environ, **variables}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b"4\n"), done.stderr
    (folder / "größe.h").write_text("#define SIZE 5\n")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"5\n"), "the header is among the dependencies"


@pytest.mark.parametrize(
    "text, options, message",
    [
        (
            "int main() { cudaMipmappedArray_t array; return cudaFreeMipmappedArray(array); }",
            [],
            "error: lacking.cu calls what the emulated CUDA runtime does not have: cudaFreeMipmappedArray\n"
            "Such a program runs only on a GPU.",
        ),
        (
            "__global__ void child() {}\n__global__ void parent() { child<<<1, 1>>>(); }\nint main() {}",
            [],
            "Kernels that launch kernels need relocatable device code: --nvcc-flags=-rdc=true",
        ),
        (
            '__global__ void f() { asm("wgmma.fence.sync.aligned;"); }\nint main() { f<<<1, 1>>>(); }',
            ["--arch", "sm_90"],
            "wgmma is sm_90a's",
        ),
    ],
    ids=["graphs", "dynamic parallelism", "sm_90a"],
)
def test_what_the_emulator_lacks_is_named(tmp_path, capfd, text, options, message):
    path = tmp_path / "lacking.cu"
    path.write_text(text)
    assert main(["emulate", str(path), *options]) == 2
    assert message in capfd.readouterr().err


def test_a_library_that_is_not_emulated_is_named(tmp_path, capfd):
    path = tmp_path / "libraries.cu"
    path.write_text(
        'extern "C" { int cusolverDnCreate(void **); int cudnnCreate(void **); }\n'
        'extern "C" { int cuInit(unsigned); int cuGraphCreate(); }\n'
        "int main() {\n"
        "  void *p;\n"
        "  return cusolverDnCreate(&p) + cudnnCreate(&p) + cuInit(0) + cuGraphCreate();\n"
        "}\n"
    )
    assert main(["emulate", str(path)]) == 2
    err = capfd.readouterr().err
    assert "libraries.cu does not link" in err and "undefined reference to `cusolverDnCreate'" in err
    assert "undefined reference to `cuGraphCreate'" in err and "cuInit'" not in err
    assert "uses cuDNN and cuSOLVER and more of the CUDA driver API than is emulated. Emulated are the" in err
    # A full toolkit has it, as has a wheel.
    if not (toolchain.pinned_nvcc().include / "curand_kernel.h").exists() and not wheels.headers():
        path.write_text("#include <curand_kernel.h>\nint main() {}\n")
        assert main(["emulate", str(path)]) == 2
        assert "pip install flash-ladder[curand]" in capfd.readouterr().err


def test_an_unsupported_instruction_names_its_kernel_as_it_is_written(tmp_path, capfd):
    path = tmp_path / "unsupported.cu"
    path.write_text(
        "template <int N> __global__ void odd(unsigned *out) {\n"
        '  asm volatile("vset4.u32.u32.lt %0, %0, %0, %0;" : "+r"(*out));\n'
        "}\n"
        "int main() { unsigned *p; cudaMalloc(&p, 4); odd<3><<<1, 1>>>(p); cudaDeviceSynchronize(); }\n"
    )
    assert main(["emulate", str(path)]) == 1
    err = capfd.readouterr().err
    assert "not supported: vset4.u32.u32.lt" in err
    assert "in kernel void odd<3>(unsigned int*)" in err


CUBLAS = r"""
#include <cublas_v2.h>
#include <cstdio>
__global__ void fill(float *x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  cublasHandle_t handle;
  float *x, one = 1, zero = 0, y[4];
  cublasCreate(&handle);
  cudaMalloc(&x, 12 * sizeof *x);
  fill<<<1, FILLED>>>(x);
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, x, 2, x + 4, 2, &zero, x + 8, 2);
  cublasGetVector(4, sizeof *x, x + 8, 1, y, 1);
  std::printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
  CALL
  cudaFree(x);
  cublasDestroy(handle);
}
static_assert(sizeof(__nv_bfloat16) == 2 && sizeof(__half) == 2); // as NVIDIA's, it includes their headers
"""


@pytest.fixture
def cublas_program(tmp_path):
    path = tmp_path / "blas.cu"
    path.write_text(CUBLAS)
    return str(path)


def test_library_calls_run_and_are_named_as_not_counted(cublas_program, tmp_path, capfd):
    rows = tmp_path / "rows.json"
    words = ["emulate", cublas_program, "-D", "FILLED=8", "-D", "CALL=", "--nvcc-flags=-lcublas"]
    assert main([*words, "--json", str(rows)]) == 0
    captured = capfd.readouterr()
    assert "12 22 14 26" in captured.out
    assert "not counted: cublasSgemm (1)" in captured.err
    assert [row["launches"] for row in json.loads(rows.read_text())] == [1]
    assert main([*words, "--check"]) == 0, "what is right has no findings"


def test_a_library_call_that_reads_unwritten_memory_is_a_finding(cublas_program, capfd):
    assert main(["emulate", cublas_program, "-D", "FILLED=5", "-D", "CALL=", "--check"]) == 1
    said = " ".join(capfd.readouterr().out.split())
    assert "cublasSgemm of B reads 12 of 16 bytes that were never written, the first at byte 4" in said
    assert "blas.cu:11" in said


def test_a_library_function_that_is_missing_is_named(cublas_program, capfd):
    assert main(["emulate", cublas_program, "-D", "FILLED=8", "-D", "CALL=cublasSgetrfBatched(handle);"]) == 2
    err = " ".join(capfd.readouterr().err.split())
    assert "The emulator does not have cublasSgetrfBatched. docs/any_cuda.md lists the functions" in err


def test_a_library_of_another_name_is_no_part_of_it(tmp_path, capfd):
    path = tmp_path / "other.cu"
    path.write_text("#include <cublasLt.h>\nint main() {}\n")
    assert main(["emulate", str(path), "--nvcc-flags=-lcublasLt"]) == 2
    assert "The program uses cuBLASLt. Emulated are" in capfd.readouterr().err


NVRTC = r"""
#include <cuda.h>
#include <nvrtc.h>
#include <cstdio>
#include <string>
int main() {
  nvrtcProgram program;
  const char *const source = "extern \"C\" __global__ void fill(int *x) { x[threadIdx.x] = threadIdx.x; }";
  const char *const options[] = {"--gpu-architecture=sm_80"};
  nvrtcCreateProgram(&program, source, "fill.cu", 0, nullptr, nullptr);
  if (nvrtcCompileProgram(program, 1, options) != NVRTC_SUCCESS) return 2;
  size_t bytes;
  nvrtcGetCUBINSize(program, &bytes);
  std::string image(bytes, 0);
  nvrtcGetCUBIN(program, image.data());
  CUmodule module;
  CUfunction fill;
  CUdeviceptr x;
  int values[32] = {};
  cuInit(0);
  cuModuleLoadData(&module, image.data());
  cuModuleGetFunction(&fill, module, "fill");
  cuMemAlloc(&x, sizeof values);
  void *arguments[] = {&x};
  cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
  cuMemcpyDtoH(values, x, sizeof values);
  cuMemFree(x);
  std::printf("%d %s\n", values[31], cuCtxSynchronize() == CUDA_SUCCESS ? "done" : "failed");
}
"""


@pytest.mark.skipif(wheels.headers() is None, reason="needs the extra nvrtc")
def test_a_program_that_compiles_for_machine_code_runs(tmp_path, capfd):
    path = tmp_path / "compiles.cpp"
    path.write_text(NVRTC)
    rows = tmp_path / "rows.json"
    assert main(["emulate", str(path), "--nvcc-flags=-lnvrtc -lcuda", "--json", str(rows)]) == 0
    assert "31 done" in capfd.readouterr().out
    assert [(row["kernel"], row["launches"]) for row in json.loads(rows.read_text())] == [("fill", 1)]


def test_nvrtc_that_is_not_installed_is_named(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(wheels, "_folders", lambda name: [])
    path = tmp_path / "compiles.cpp"
    path.write_text(NVRTC)
    assert main(["emulate", str(path)]) == 2
    assert "pip install flash-ladder[nvrtc]" in capfd.readouterr().err
    path.write_text("int main() {}")
    assert main(["emulate", str(path), "--nvcc-flags=-lnvrtc"]) == 2
    assert "NVRTC, which compiles kernels while a program runs, is not installed" in capfd.readouterr().err
