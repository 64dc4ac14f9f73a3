"""The host's part of a rung is used again only while the host's compilers would see the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ladder.compile import EmulatorTarget, build, extensions
from ladder.compile.host_parts import OBJECT, HostPart
from ladder.compile.host_text import host_text
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.stages import discover

TARGET = EmulatorTarget("sm_80")
PROBLEM = Problem(1, 2, 20, 9, 32, kv_heads=1, is_causal=True)
_MODULE = re.compile(rb"_GLOBAL__N__[0-9a-f]{8}_\d+_kernel_cu_[0-9a-f]{8}")

KERNEL = """
template <typename T, int d = 4> __global__ void __launch_bounds__(d * 32) kernel(T *p, int (&x)[d]) {
  if (x[0] == '}') { p[0] = 1; } // }
#pragma unroll
  for (int i = 0; i < 2; i++) p[i] = "}"[i];
}
struct Item { int a; __device__ explicit Item(int i) { a = i; } int after; };
int launch(int x, int y) { return x++ + y; }
void launch() { kernel<<<1, 1>>>(nullptr); }
"""


@pytest.mark.parametrize("was, now", [("p[0] = 1;", "p[1] = 2; { }"), ("a = i", "a = 2 * i"), (" // }", "")])
def test_bodies_of_device_functions_are_not_the_hosts(was: str, now: str) -> None:
    assert was in KERNEL
    assert host_text(KERNEL) == host_text(KERNEL.replace(was, now))


@pytest.mark.parametrize(
    "was, now",
    [
        ("<<<1, 1>>>", "<<<2, 1>>>"),
        ("d = 4", "d = 8"),
        ("(d * 32)", "(d * 64)"),
        ("int after", "int behind"),
        ("int a;", "int a, b;"),
        ("x++ + y", "x + ++y"),
    ],
)
def test_the_rest_is_the_hosts(was: str, now: str) -> None:
    assert was in KERNEL
    assert host_text(KERNEL) != host_text(KERNEL.replace(was, now))


@pytest.mark.parametrize(
    "function",
    [
        "__host__ __device__ int f() { return BODY; }",
        "__device__ __host__ int f() { return BODY; }",
        "__device__ constexpr int f() { return BODY; }",
        "constexpr __device__ int f() { return BODY; }",
        "__device__ auto f() { return BODY; }",
        "auto g = [] __device__(int i) { return BODY; };",
        "void g() { each([] __device__(int i) { return BODY; }); }",
        "__device__ int table[2] = {BODY, 1};",
        "__device__ struct S { int a = BODY; } s;",
        "BOTH __device__ int f() { return BODY; }",
        "#define BOTH __host__ __device__\n__device__ int f() { return BODY; }",
        "#define OPEN {\n__device__ int f() { return BODY; }",
        "__device__ int f() {\n#define X 1\n return BODY; }",
        "__device__ int f() { return BODY + __LINE__; }",
        "__host__\n#pragma once\n__device__ int f() { return BODY; }",
        "#define CONSTANT constexpr\n__device__ CONSTANT int f() { return BODY; }",
        "#define PASTE(a, b) a##b\n__device__ PASTE(con, stexpr) int f() { return BODY; }",
        "#define X __ho\\\nst__\n__device__ X int f() { return BODY; }",
        "/* */ #define X constexpr\nint i;\n__device__ X int f() { return BODY; }",
        '#pragma push_macro("__device__")\n__device__ int f() { return BODY; }',
        '__device__ int f() {\n#pragma pop_macro("X")\n return BODY; }',
        "__device__ int f() {\n#pragma pack(BODY)\n}",
        '__device__ int f() { _Pragma("pack(BODY)") }',
        "__device__ __attribute__((host)) int f() { return BODY; }",
        "__device__ _CCCL_HOST int f() { return BODY; }",
        "__device__ CUTE_HOST_DEVICE int f() { return BODY; }",
        "#if X\n__device__\n#endif\nint f() { return BODY; }",
        "__device__ int f() { return __CUDA_ARCH__ + BODY; }",
        "template <bool b = (1 < 2)> __host__ __device__ int f() { return BODY > 0; }",
        "const char *text = STRING(; __device__ int f() { return BODY; });",
        "#define N 1 /* of\n__device__ int */\nint f() { return BODY; }",
        "__device__ con\\\nstexpr int f() { return BODY; }",
        "// of \\ \n__device__ void g() {\nint f() { return BODY; }\n// \\ \n}",
        '#if __has_include("table")\n#include "table"\n#endif\n__device__ int f() { return BODY; }',
    ],
)
def test_what_may_concern_the_host_is_the_hosts(function: str) -> None:
    one, other = (host_text(function.replace("BODY", number)) for number in "12")
    assert one is None or one != other


def test_a_part_serves_the_same_kernels_and_is_made_again_if_damaged(tmp_path: Path) -> None:
    part, ptx = HostPart(tmp_path / "host"), tmp_path / "kernel.ptx"
    one, other = "_GLOBAL__N__01234567_9_kernel_cu_89abcdef", "_GLOBAL__N__76543210_9_kernel_cu_89abcdef"
    (tmp_path / OBJECT).write_bytes(b"object")
    ptx.write_text(f".entry {one}1k(\n.param .u32 p\n)\n")
    part.keep(tmp_path, ptx, [Path("shared.h")])
    ptx.write_text(f".entry {other}1k(\n.param .u32 p\n)\n")
    assert part.put(tmp_path, ptx) == [Path("shared.h")] and one in ptx.read_text()
    for text in (f".entry {one}1k(\n.param .u64 p\n)\n", f".global .u32 v;\n{ptx.read_text()}"):
        ptx.write_text(text)
        assert part.put(tmp_path, ptx) is None and part.is_there()
    (part.path / OBJECT).write_bytes(b"damaged")
    assert part.put(tmp_path, ptx) is None and not part.is_there()


def test_names_of_device_functions_stay_whole(tmp_path: Path) -> None:
    """If the host's part was made where nothing was named after the module."""
    part, ptx = HostPart(tmp_path / "host"), tmp_path / "kernel.ptx"
    (tmp_path / OBJECT).write_bytes(b"object")
    ptx.write_text(kernel := ".entry k(\n.param .u32 p\n)\n")
    part.keep(tmp_path, ptx, [])
    ptx.write_text(text := f".func _ZN43_GLOBAL__N__01234567_9_kernel_cu_89abcdef1fEv(\n)\n{kernel}")
    assert part.put(tmp_path, ptx) == [] and ptx.read_text() == text


def test_a_changed_body_is_compiled_for_the_gpu_alone(
    drop_stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gives the same PTX and counts as when all is compiled, whatever the folder."""
    whole: list[str] = []
    compile_whole = extensions._compile_whole

    def noted(plan: extensions._Plan, directory: Path, kept: Path) -> list[Path]:
        whole.append(plan.stage.name)
        return compile_whole(plan, directory, kept)

    monkeypatch.setattr(extensions, "_compile_whole", noted)
    one, other = drop_stage("one"), drop_stage("other")
    unlike_other_runs = f'const char *place = "{one}";\nconstexpr int kHeadDim'
    text = drop_stage.kernel.replace("constexpr int kHeadDim", unlike_other_runs)
    changed = text.replace("m = new_m;", "m = new_m + 0.f * l;\n")
    assert drop_stage.kernel != text != changed
    (one / "kernel.cu").write_text(text)
    build(discover()["one"], TARGET)
    (other / "kernel.cu").write_text(changed)
    alone = build(discover()["other"], TARGET).read_bytes()
    assert whole == ["one"]
    again = evaluate("other", PROBLEM, backend="emulator")
    assert again.passed, again.text
    monkeypatch.setattr("ladder.compile.host_parts.HostPart.is_there", lambda self: False)
    (other / "unused.h").write_text("// so that it is built again")
    assert _ptx(build(discover()["other"], TARGET).read_bytes()) == _ptx(alone)
    assert whole == ["one", "other"]
    assert evaluate("other", PROBLEM, backend="emulator").row == again.row


def _ptx(extension: bytes) -> bytes:
    begin = extension.index(b".version")
    return _MODULE.sub(b"", extension[begin : extension.index(b"\0", begin)])
