"""Device code of several files, compiled with -rdc=true."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ladder.compile import EmulatorTarget, build_program, emulated_toolkit
from ladder.compile.device_linking import linked
from ladder.errors import BuildError
from ladder.run.emulator import Module, run_program

HEADER = ".version 9.0\n.target sm_80\n.address_size 64\n"


def function(name: str, body: str = "", linkage: str = ".visible ") -> str:
    return f"{linkage}.func {name}()\n{{\n{body}ret;\n}}\n"


def test_a_declaration_gives_way_to_the_definition_of_another_file() -> None:
    user = ".extern .func f()\n;\n.extern .global .u32 x;\n.visible .entry k()\n{\ncall f, ();\nret;\n}\n"
    text = linked([HEADER + user, HEADER + ".visible .global .u32 x = 40;\n" + function("f")])
    assert text.startswith(HEADER) and text.count(".version") == 1
    assert ".extern" not in text and text.count(".global .u32 x") == 1
    assert text.index(".func f()") < text.index(".entry k") < text.index(".func f()\n{"), "declared first"
    assert Module(text, "sm_80").kernels == ["k"]


def test_the_declaration_of_another_files_kernel_has_its_parameters_alone() -> None:
    user = HEADER + ".extern .entry fill\n(\n.param .u64 out\n)\n;\n.visible .entry k()\n{\nret;\n}\n"
    kernel = HEADER + ".visible .entry fill(\n.param .u64 out\n)\n.maxntid 128, 1, 1\n{\nret;\n}\n"
    text = linked([user, kernel])
    declared, defined = text.split(".visible .entry fill(")[1:]
    assert declared.split(";")[0].split() == [".param", ".u64", "out", ")"]
    assert ".extern" not in text and ".entry k" in declared and ".maxntid" in defined
    assert Module(text, "sm_80").kernels == ["k", "fill"]


def test_what_is_a_files_own_stays_its_own() -> None:
    files = [
        HEADER
        + f".global .u32 own = {n};\n.global .align 1 .b8 $str[2] = {{{n}, 0}};\n"
        + function(f"f{n}", ".loc 1 7 1, function_name $L__info_string0, inlined_at 2 3 4\nld [own];\n")
        + f'.file 1 "a//{n}.cu"\n.file 2 "b.h"\n.section .debug_str\n{{\n$L__info_string0:\n.b8 {n}\n}}\n'
        for n in (5, 6)
    ]
    text = linked(files)
    for words in (
        *(
            ".global .u32 own_f0 = 5;",
            ".global .u32 own_f1 = 6;",
            "$str_f0[2] = {5, 0}",
            "$str_f1[2] = {6, 0}",
        ),
        *("ld [own_f0];", "ld [own_f1];", '.file 1 "a//5.cu"', '.file 3 "a//6.cu"', '.file 4 "b.h"'),
        ".loc 3 7 1, function_name $L__info_string0_f1, inlined_at 4 3 4",
    ):
        assert words in text


def test_weak_definitions_are_one_and_others_must_be() -> None:
    weak = [HEADER + function("f", f"mov {n};\n", ".weak ") for n in (1, 2)]
    text = linked([*weak, HEADER + function("g")])
    assert "mov 1;" in text and "mov 2;" not in text
    strong = HEADER + function("f", "mov 3;\n")
    assert "mov 3;" in linked([weak[0], strong]) and "mov 1;" not in linked([weak[0], strong])
    with pytest.raises(BuildError, match="f is defined in several files"):
        linked([strong, strong], "prog.cu")


def test_a_variable_that_no_file_defines() -> None:
    with pytest.raises(BuildError, match="no file defines the variable x"):
        linked([HEADER + ".extern .global .u32 x;\n", HEADER + ".global .u32 x = 1;\n"])


def test_dynamic_shared_memory_of_several_files_is_aligned_for_all() -> None:
    files = [HEADER + f".extern .shared .align {n} .b8 room[];\n" for n in (4, 16, 8)]
    assert linked(files) == HEADER + ".extern .shared .align 16 .b8 room[];\n"


def test_a_build_system_links_objects_with_device_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice.cu").write_text("__device__ int twice(int x) { return 2 * x; }\n")
    (tmp_path / "main.cu").write_text("""
        __device__ int twice(int x);
        __global__ void fill(int *out) { *out = twice(21); }
        int main() {
          int *out;
          cudaMallocManaged(&out, 4);
          fill<<<1, 1>>>(out);
          return cudaDeviceSynchronize() ? 1 : *out;
        }
    """)

    def nvcc(words: str) -> int:
        return subprocess.run([emulated_toolkit() / "bin" / "nvcc", *words.split()], cwd=tmp_path).returncode

    assert nvcc("-dc twice.cu -o twice.o") == 0 and nvcc("-rdc=true -c main.cu -o main.o") == 0
    assert nvcc("main.o twice.o -o main") == 0
    assert run_program(tmp_path / "main", [], "sm_80").exit_code == 42
    assert nvcc("-dlink main.o twice.o -o linked.o -dlto -lcudadevrt") == 0
    assert (tmp_path / "linked.o").read_bytes().count(b"__cudaRegisterLinkedBinary_") == 2
    assert nvcc("-dlink main.o -o lacking.o") == 1
    assert "ladder: nvcc main.o does not link:" in capfd.readouterr().err


MAIN = """
#include <cstdio>
extern __device__ int counter;
extern __constant__ int scale[2];
__device__ int twice(int x);
__device__ int (*chosen)(int) = twice;
static __device__ int hidden = 3;
namespace { __device__ __noinline__ int own(int x) { return x + 1; } }
__global__ void fill(int *out);
__global__ void sum(int *out) {
  extern __shared__ int room[];
  room[threadIdx.x] = twice(threadIdx.x) + counter + hidden + scale[1];
  out[threadIdx.x] = room[threadIdx.x] + own(0) + chosen(1);
}
int main() {
  int *out, value = 41;
  cudaMallocManaged(&out, 16);
  cudaMemcpyToSymbol(hidden, &value, sizeof value);
  sum<<<1, 4, 16>>>(out);
  cudaDeviceSynchronize();
  std::printf("%d %d\\n", out[0], out[3]);
  fill<<<1, 4, 32>>>(out);
  cudaDeviceSynchronize();
  std::printf("%d %d\\n", out[0], out[3]);
}
"""
PARTS = """
__device__ int counter = 40;
__constant__ int scale[2] = {5, 6};
static __device__ int hidden = 5;
namespace { __device__ __noinline__ int own(int x) { return x + 2; } }
__device__ int twice(int x) { return 2 * x + hidden; }
__global__ void fill(int *out) {
  extern __shared__ double wide[];
  wide[threadIdx.x] = own(threadIdx.x);
  out[threadIdx.x] = int(wide[threadIdx.x]);
}
"""


def test_a_program_of_two_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sources = [tmp_path / "main.cu", tmp_path / "parts.cu"]
    for source, text in zip(sources, (MAIN, PARTS), strict=True):
        source.write_text(text)
    program = build_program(sources, EmulatorTarget("sm_80"), ["-rdc=true"])
    result = run_program(program, [], "sm_80")
    assert result.exit_code == 0 and capfd.readouterr().out == "100 106\n2 5\n"
    lines = [(Path(line["file"]).name, line["line"]) for line in result.launches[0].lines]
    assert ("main.cu", 12) in lines and ("parts.cu", 6) in lines
