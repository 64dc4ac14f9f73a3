"""ptxas's remarks come with the lines of the source that they are about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ladder.compile import remarks, toolchain

HOPPER = Path(__file__).parents[1] / "sanitizer" / "corpus"
SOURCE = """#define CORPUS_HAS_OWN_MAIN
#include "hopper.h"
__device__ void start(Accumulator &d, const Element *a) {
  product(d, descriptor(a), descriptor(a)); // in the helper
  commit_products();
}
#define FILLED __shared__ alignas(1024) Element a[kTile]; fill(a, 1); fence_proxy(); __syncthreads(); \\
  Accumulator d = {}
__global__ void touched(float *out) {
  FILLED;
  begin_products();
  start(d, a);
  d[0] += 1; // touched
  wait_products<0>();
  write_out(out, d);
}
__global__ void without_fence(float *out) {
  FILLED;
  start(d, a); // without fence
  wait_products<0>();
  write_out(out, d);
}
__global__ void right(float *out) {
  FILLED;
  begin_products();
  start(d, a);
  wait_products<0>();
  write_out(out, d);
}
__global__ void unbounded(float *out) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); // ignored
  out[threadIdx.x] = 1;
}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[remarks.Remark, ...]:
    folder = tmp_path_factory.mktemp("remarks")
    (folder / "kernel.cu").write_text(SOURCE)
    nvcc = str(toolchain.pinned_nvcc().path)
    flags = ["-std=c++20", "-lineinfo", "-ccbin", toolchain.gxx(), f"-I{HOPPER}"]
    compile_ptx = [nvcc, *flags, "-arch=compute_90a", "-ptx", "kernel.cu", "-o", "kernel.ptx"]
    subprocess.run(compile_ptx, cwd=folder, check=True)
    assemble = [nvcc, "-arch=sm_90a", "-cubin", "kernel.ptx", "-o", "kernel.cubin"]
    messages = subprocess.run(assemble, cwd=folder, check=True, capture_output=True, text=True).stderr
    return remarks.parse(messages, (folder / "kernel.ptx").read_text())


def line_of(mark: str) -> int:
    return next(number for number, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// {mark}"))


def test_each_remark_names_the_kernels_line(found: tuple[remarks.Remark, ...]) -> None:
    places = {(one.number, Path(one.kernel_file).name, one.kernel_line) for one in found}
    assert places == {
        ("C7508", "kernel.cu", line_of("ignored")),
        ("C7517", "kernel.cu", line_of("touched")),
        ("C7519", "kernel.cu", line_of("without fence")),
    }


def test_a_remark_about_a_helper_names_the_helpers_line(found: tuple[remarks.Remark, ...]) -> None:
    missing = next(one for one in found if one.number == "C7519")
    assert Path(missing.file).name == "hopper.h"
    statement = Path(missing.file).read_text().splitlines()[missing.line - 6 : missing.line]
    assert any("wgmma.mma_async" in line for line in statement)


def test_instances_of_a_template_share_a_remark() -> None:
    text = "ptxas info : (C7517) warpgroup.wait is injected in around line {} by compiler in function '{}'\n"
    ptx = '.loc 1 7 3\nadd.f32 x;\n.loc 1 7 3\nadd.f32 y;\n.file 1 "a.cu"'
    found = remarks.parse(text.format(2, "k<64>") + text.format(4, "k<128>"), ptx)
    assert found == (remarks.Remark("C7517", "warpgroup.wait is injected by compiler", "a.cu", 7, "a.cu", 7),)


def test_advice_fits_the_remark(found: tuple[remarks.Remark, ...]) -> None:
    advice = {one.number: one.advice for one in found}
    assert "__launch_bounds__" in advice["C7508"] and "wait_group" in advice["C7517"]
    assert "wgmma.fence" in advice["C7519"]
    serialised = remarks.parse(
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due "
        "to non wgmma instructions defining accumulator registers in function 'k'\n",
        '.visible .entry k(\n.loc 1 7 3\nwgmma.mma_async.sync x;\n.file 1 "a.cu"',
    )
    assert [(one.file, one.line) for one in serialised] == [("a.cu", 7)]
    assert "one after another" in serialised[0].advice


def test_remarks_are_kept_beside_the_build(found: tuple[remarks.Remark, ...], tmp_path: Path) -> None:
    assert remarks.read(tmp_path) == ()
    remarks.write(found, tmp_path)
    assert remarks.read(tmp_path) == found
