"""A toolkit for build systems that were written for a GPU."""

import subprocess

import pytest

from ladder.compile import emulated_toolkit, emulator_library
from ladder.compile.emulating_nvcc import emulated, linked, objects_of


def test_flags_for_a_gpu_are_replaced():
    given = ["-gencode", "arch=compute_90,code=sm_90", "-arch=sm_90", "--cudart", "static", "-lineinfo"]
    kept = ["-c", "kernel.cu", "-o", "kernel.o", "-O3", "--use_fast_math", "-std=c++20"]
    words = emulated([*kept, *given], "sm_90a")
    assert words[: len(kept)] == kept and not set(given) & set(words) - {"-lineinfo"}
    assert words.count("-lineinfo") == 1 and "static" not in words
    assert "-gencode=arch=compute_90a,code=[compute_90a,sm_90a]" in words
    assert words[words.index("-cudart") + 1] == "none"


@pytest.mark.parametrize("flag", ["-rdc=true", "-rdc true"])
def test_relocatable_device_code_is_compiled_and_linked_apart(flag):
    words = [*flag.split(), "kernel.cu"]
    with pytest.raises(
        ValueError, match="-rdc=true is emulated if files are compiled and linked by separate"
    ):
        emulated(words, "sm_80")
    assert emulated([*words, "-c", "-dlto"], "sm_80")[: len(words) + 1] == [*words, "-c"]


def test_objects_whose_device_code_a_command_links():
    assert objects_of(["a.o", "b.o", "-o", "prog.o"]) == ["a.o", "b.o"]
    assert objects_of(["-dlink", "a.o", "-lcudadevrt", "-o", "linked.o"]) == ["a.o"]
    assert objects_of(["-dc", "a.cu", "-o", "a.o"]) == objects_of(["-c", "a.cu", "-o", "a.o"]) == []
    for library in ("-lnvshmem", "libnvshmem.a"):
        with pytest.raises(ValueError, match=f"{library}: libraries of device code are not emulated"):
            objects_of(["-dlink", "a.o", library])


def test_questions_reach_nvcc_unchanged():
    assert emulated(["--version"], "sm_80") == ["--version"]
    assert linked(["--version"], "lib64", "_lib") == []


def test_a_link_takes_the_emulators_runtime():
    """nvcc links CUDA's runtime unasked, into programs and into libraries for ctypes."""
    words = ["-L/toolkit/lib64", "-lcudart", "-Xlinker", "-rpath=/emulator"]
    for arguments in (["-shared", "k.cu", "-o", "libk.so"], ["k.cu"], ["a.o", "b.o", "-o", "prog"]):
        assert linked(arguments, "/toolkit/lib64", "/emulator") == words
    for flag in ("-c", "-ptx", "--cubin", "-E", "-lib"):
        assert linked([flag, "k.cu"], "/toolkit/lib64", "/emulator") == []


def test_the_toolkit_has_a_compiler_and_the_emulators_libraries():
    home = emulated_toolkit(["torch_cuda"])
    version = subprocess.run([home / "bin" / "nvcc", "--version"], capture_output=True, text=True)
    assert version.returncode == 0 and "release" in version.stdout
    assert (home / "include" / "cuda_runtime.h").exists()
    assert (home / "include" / "cublas_v2.h").exists()
    for name in ("cublas.so", "cudart.so", "cudart_static.a", "cuda.so", "torch_cuda.so"):
        assert str(emulator_library().entry_points) in (home / "lib64" / f"lib{name}").read_text()
    refused = subprocess.run([home / "bin" / "nvcc", "-rdc=true", "x.cu"], capture_output=True, text=True)
    assert refused.returncode == 1 and "ladder: nvcc -rdc=true is emulated if" in refused.stderr


def test_its_nvcc_finds_headers_of_libraries(tmp_path):
    (tmp_path / "k.cuh").write_text("#include <cublas_v2.h>\ncublasHandle_t handle;\n")
    (tmp_path / "k.cu").write_text('#include "k.cuh"\n')
    command = [emulated_toolkit() / "bin" / "nvcc", "-E", "k.cu", "-o", "k.ii"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr == ""
    assert "cublasHandle_t handle;" in (tmp_path / "k.ii").read_text()
