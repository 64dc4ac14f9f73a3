"""Wrong rungs with accurate outputs, and rungs whose host code ends the process: none passes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ladder.cli import main
from ladder.operations import Problem
from ladder.run.evaluation import check_stage, evaluate_all
from ladder.stages import discover

PROBLEM = Problem(1, 2, 70, 9, 32, kv_heads=1, is_causal=True)
LAUNCH = "  naive<<<dim3"


def ruling(name: str) -> str:
    """Why the stage does not pass; "" if it does."""
    [found] = evaluate_all(discover()[name], [PROBLEM], backend="emulator", thoroughly=True)
    assert found.passed == (found.text == "")
    return found.text


def before_launch(drop_stage, statement: str) -> None:
    drop_stage("mine", drop_stage.kernel.replace(LAUNCH, f"  {statement}\n{LAUNCH}"))


def after_launch(drop_stage, statement: str) -> None:
    kernel = drop_stage.kernel.rstrip()
    assert kernel.endswith("}")
    drop_stage("mine", f"#include <cstdlib>\n{kernel[:-1]}  {statement}\n}}\n")


def test_a_right_stage_passes(naive) -> None:
    assert ruling("naive") == ""


def test_a_ruling_is_on_the_stage_that_was_asked_about(drop_stage) -> None:
    """Not on one before, whose rulings nobody read to their end."""
    drop_stage("wrong", changed(drop_stage.kernel, ("= m + logf(l)", "= m + log2f(l)")))
    problems = [PROBLEM, replace(PROBLEM, q_len=3), replace(PROBLEM, q_len=65)]
    stages = discover()
    kept = evaluate_all(stages["wrong"], problems, backend="emulator")
    assert "wrong" in next(kept).text
    assert [found.text for found in evaluate_all(stages["naive"], problems, backend="emulator")] == [""] * 3


@pytest.mark.parametrize(
    "statement",
    [
        "cudaMemset(const_cast<void *>(p.v), 0, 9 * 32 * 4);",
        "static_cast<float *>(const_cast<void *>(p.k))[5] = 0;",
    ],
    ids=["by the runtime", "by the host"],
)
def test_inputs_are_only_read(drop_stage, statement) -> None:
    before_launch(drop_stage, statement)
    assert "which it is only given to read" in ruling("mine")


def test_a_missing_launch_is_named(drop_stage) -> None:
    drop_stage("mine", "// nothing yet\n")
    assert "its kernel.cu defines no ladder::launch" in ruling("mine")


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "change",
    [
        ("64, 0, stream>>>", "64>>>"),
        (LAUNCH, f"  cudaMemsetAsync(p.lse, 0, 4);\n{LAUNCH}"),
        (LAUNCH, f"  void *x;\n  cudaMallocAsync(&x, 4, nullptr);\n  cudaFreeAsync(x, stream);\n{LAUNCH}"),
        (LAUNCH, f"  cudaMemcpy(p.lse, p.q, 4, cudaMemcpyDefault);\n{LAUNCH}"),
    ],
    ids=["a launch", "a fill", "an allocation", "a copy that takes no stream"],
)
def test_work_goes_to_the_stream_that_is_given(drop_stage, change) -> None:
    drop_stage("mine", changed(drop_stage.kernel, change))
    assert "on another stream than the one" in ruling("mine")


def on_host(kernel: str, *changes: tuple[str, str]) -> str:
    """naive, computed by its host code before an idle kernel is launched."""
    return changed(
        "#include <cmath>\n#include <vector>\n" + kernel,
        ("__global__ void naive(", f"{IDLE}void naive(unsigned block, int row, "),
        ("  const int row = blockIdx.x * blockDim.x + threadIdx.x;\n", ""),
        ("blockIdx.y", "block"),
        ("min(row + 1, p.kv_len)", "(row + 1 < p.kv_len ? row + 1 : p.kv_len)"),
        ("naive<<<dim3((p.q_len + 63) / 64, p.batch * p.heads), 64, 0, stream>>>(p);", LOOP),
        *changes,
    )


IDLE = """__global__ void idle(int *ran) {
  if (ran)
    *ran = 1;
}
"""
LOOP = """for (int block = 0; block < p.batch * p.heads; block++)
    for (int row = 0; row < p.q_len; row++)
      naive(block, row, p);
  idle<<<1, 1, 0, stream>>>(nullptr);"""
#: Nothing where kernels do not run, as in the run that leaves them out.
PROBE = """int *ran;
  cudaMallocManaged(&ran, 4);
  *ran = 0;
  idle<<<1, 1, 0, stream>>>(ran);
  cudaStreamSynchronize(stream);
  if (*ran)
    """
#: The same on copies, as it would work on a GPU, too.
ON_COPIES = """struct {
    const AttentionProblem &there;
    AttentionProblem here = there;
    std::vector<std::vector<char>> all;
    void *copy(const void *from, size_t bytes) {
      all.emplace_back(bytes);
      cudaMemcpy(all.back().data(), from, bytes, cudaMemcpyDeviceToHost);
      return all.back().data();
    }
  } work{p};
  const size_t rows = p.batch * p.heads * p.q_len, keys = p.batch * p.kv_heads * p.kv_len;
  const size_t row_bytes = 4 * p.head_dim;
  work.here.q = work.copy(p.q, rows * row_bytes);
  work.here.k = work.copy(p.k, keys * row_bytes);
  work.here.v = work.copy(p.v, keys * row_bytes);
  work.here.o = work.copy(p.o, rows * row_bytes);
  work.here.lse = static_cast<float *>(work.copy(p.lse, rows * 4));
  if (*ran)
    for (int block = 0; block < p.batch * p.heads; block++)
      for (int row = 0; row < p.q_len; row++)
        naive(block, row, work.here);
  cudaMemcpy(p.o, work.here.o, rows * row_bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(p.lse, work.here.lse, rows * 4, cudaMemcpyHostToDevice);"""


def test_the_host_computes_nothing(drop_stage) -> None:
    folder = drop_stage("mine", on_host(drop_stage.kernel))
    assert "its host code reads or writes k, lse, o, q and v" in ruling("mine")
    (folder / "kernel.cu").write_text(on_host(drop_stage.kernel, (LOOP, PROBE + LOOP)))
    assert "its host code reads or writes k, lse, o, q and v" in ruling("mine")
    (folder / "kernel.cu").write_text(on_host(drop_stage.kernel, (LOOP, PROBE + ";\n" + ON_COPIES)))
    found = ruling("mine")
    assert (
        "it copies k, lse, o, q and v to the host" in found and "it copies lse and o from the host" in found
    )
    (folder / "kernel.cu").write_text(on_host(drop_stage.kernel, (LOOP, "")))
    assert "it launches no kernel" in ruling("mine")


def test_memory_that_the_stage_allocates_is_the_device_s(drop_stage) -> None:
    copy = """  float *mine;
  cudaMalloc(&mine, 4);
  cudaMemcpyAsync(mine, p.q, 4, cudaMemcpyDeviceToDevice, stream);
  if (*mine == 0)
    fail("q", "it begins with 0");
  cudaFree(mine);
"""
    drop_stage("mine", changed(drop_stage.kernel, (LAUNCH, copy + LAUNCH)))
    assert "its host code reads or writes memory of cudaMalloc" in ruling("mine")
    assert "its host code" in check_stage("mine", [PROBLEM])[0].message


def test_copies_and_fills_between_kernels_are_allowed(drop_stage) -> None:
    """Of device memory to device memory; so are callbacks, except that they may not touch it."""
    call = """  void *mine;
  cudaMallocAsync(&mine, 4, stream);
  cudaMemsetAsync(mine, 0, 4, stream);
  cudaMemcpyAsync(mine, p.q, 4, cudaMemcpyDeviceToDevice, stream);
  cudaLaunchHostFunc(stream, [](void *data) { TOUCH; }, mine);
  cudaFreeAsync(mine, stream);
"""
    folder = drop_stage("mine", changed(drop_stage.kernel, (LAUNCH, call.replace("TOUCH", "") + LAUNCH)))
    assert ruling("mine") == ""
    touching = call.replace("TOUCH", "*static_cast<volatile int *>(data)")
    (folder / "kernel.cu").write_text(changed(drop_stage.kernel, (LAUNCH, touching + LAUNCH)))
    assert "memory of cudaMalloc" in ruling("mine")


def test_memory_that_nobody_wrote(drop_stage) -> None:
    """A kernel that works if its workspace happens to hold zeros or NaNs, but no large values."""
    kernel = changed(
        drop_stage.kernel,
        ("AttentionProblem p) {\n  const int row", "AttentionProblem p, float *fresh) {\n  const int row"),
        ("= m + logf(l)", "= m + logf(l) + (fresh[0] > 1e30f ? 1 : 0)"),
        (LAUNCH, "  float *fresh;\n  cudaMalloc(&fresh, 4);\n" + LAUNCH),
        ("stream>>>(p);", "stream>>>(p, fresh);\n  cudaFree(fresh);"),
    )
    drop_stage("mine", kernel)
    assert "lse: other values in another order" in ruling("mine")


def test_an_order_that_matters(drop_stage) -> None:
    """The first block to run adds something, which fails unless stage.toml allows it."""
    kernel = changed(
        drop_stage.kernel,
        ("__global__", "const int kZero = 0;\n__device__ int turn;\n__global__"),
        ("= m + logf(l);", "= m + logf(l) + (threadIdx.x == 0 && atomicExch(&turn, 1) == 0 ? 1e-6f : 0);"),
        (LAUNCH, "  cudaMemcpyToSymbolAsync(turn, &kZero, 4, 0, cudaMemcpyHostToDevice, stream);\n" + LAUNCH),
    )
    folder = drop_stage("mine", kernel)
    assert "lse: other values in another order" in ruling("mine")
    with open(folder / "stage.toml", "a") as table:
        table.write("deterministic = false\n")
    assert ruling("mine") == ""


def test_an_order_of_turns_that_nobody_keeps(drop_stage, monkeypatch) -> None:
    """Blocks take numbers when they start and assume that they finish in that order, without waiting. Blocks
    that run one after another do, from whichever end they start; interleaved ones do not.
    """
    monkeypatch.setenv("LADDER_THREADS", "1")
    kernel = changed(
        drop_stage.kernel,
        ("__global__", "__device__ int started, finished;\n__global__"),
        ("  const int row", f"{TAKE_NUMBER}  const int row"),
        (
            "= m + logf(l);",
            "= m + logf(l) + (threadIdx.x == 0 && atomicAdd(&finished, 1) != number ? 1e-6f : 0);",
        ),
        (LAUNCH, f"{ZERO_COUNTERS}{LAUNCH}"),
    )
    drop_stage("mine", kernel)
    assert "lse: other values in another order of blocks" in ruling("mine")
    waiting = "  while (*(volatile int *)&finished < number)\n    ;\n  const int row"
    drop_stage("patient", changed(kernel, ("  const int row", waiting)))
    assert ruling("patient") == ""


TAKE_NUMBER = """  __shared__ int number;
  if (threadIdx.x == 0)
    number = atomicAdd(&started, 1);
  __syncthreads();
"""
ZERO_COUNTERS = """  static const int zero = 0;
  cudaMemcpyToSymbolAsync(started, &zero, 4, 0, cudaMemcpyHostToDevice, stream);
  cudaMemcpyToSymbolAsync(finished, &zero, 4, 0, cudaMemcpyHostToDevice, stream);
"""


@pytest.mark.parametrize(
    "statement, said",
    [
        ("std::exit(0);", "exit code 0"),
        ("*reinterpret_cast<volatile int *>(8) = 1;", "SIGSEGV"),
        ("std::abort();", "SIGABRT"),
        ("throw std::bad_alloc();", "out of memory"),
        ('fail("out of range", "by one");', "by one"),
        ("throw 7;", "no std::exception"),
    ],
    ids=["exit", "segv", "abort", "bad_alloc", "exception", "int"],
)
def test_host_code_that_ends_early_is_no_pass(drop_stage, capsys, tmp_path: Path, statement, said) -> None:
    after_launch(drop_stage, statement)
    assert said in ruling("mine")
    target = tmp_path / "rows.json"
    options = ["--problem", "1,2,70,9,32", "--backend", "emulator", "--json"]
    assert main(["compare", "mine", "naive", *options, str(target)]) == 1
    assert [row["passed"] for row in json.loads(target.read_text())] in ([False, True], [True, False])
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert main(["check", "mine", "--problem", "1,2,70,9,32"]) == 1
    [finding] = check_stage("mine", [PROBLEM])
    assert finding.kind == "failure" and said in finding.message


def test_what_a_stage_prints_does_not_soil_the_json(drop_stage, capfd) -> None:
    kernel = changed(
        "#include <cstdio>\n" + drop_stage.kernel,
        ("  const int head =", '  if (row == 0) printf("from the kernel\\n");\n  const int head ='),
        (LAUNCH, '  std::printf("from the host\\n");\n' + LAUNCH),
    )
    drop_stage("mine", kernel)
    assert main(["run", "mine", "--problem", "1,1,8,8,32", "--backend", "emulator", "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["passed"]


def test_a_failure_is_not_hidden_by_findings(drop_stage) -> None:
    """An exception is reported as such, not as outputs that were never written."""
    throw = '  if (p.q_len > 0) fail("mine", "no launch today");\n'
    drop_stage("mine", changed(drop_stage.kernel, (LAUNCH, throw + LAUNCH)))
    [finding] = check_stage("mine", [PROBLEM])
    assert finding.message.partition("\n")[0] == "mine: no launch today"


def workspace(first: str, last: str) -> tuple[tuple[str, str], ...]:
    """Changes to naive that give it a workspace of one number per row, with code around the launch."""
    return (
        ("AttentionProblem p) {\n  const int row", "AttentionProblem p, float *more) {\n  const int row"),
        ("= m + logf(l)", "= m + logf(l) + 0 * fminf(more[row], 1)"),
        (LAUNCH, f"  float *more;\n  cudaMalloc(&more, p.q_len * 4);\n  {first}\n" + LAUNCH),
        ("stream>>>(p);", f"stream>>>(p, more);\n  {last}"),
    )


def test_check_knows_memory_of_cuda_malloc(drop_stage) -> None:
    zeroed = changed(
        drop_stage.kernel, *workspace("cudaMemsetAsync(more, 0, p.q_len * 4, stream);", "cudaFree(more);")
    )
    folder = drop_stage("mine", zeroed)
    assert check_stage("mine", [PROBLEM]) == []
    for statements, kind in (
        (("", "cudaFree(more);"), "uninitialised read"),
        (("cudaMemsetAsync(more, 0, p.q_len * 4, stream); cudaFree(more);", ""), "use after free"),
    ):
        (folder / "kernel.cu").write_text(changed(drop_stage.kernel, *workspace(*statements)))
        assert kind in {finding.kind for finding in check_stage("mine", [PROBLEM])}


def test_a_launch_error_that_nobody_looked_at_is_told(drop_stage) -> None:
    """It is not reported as outputs full of NaN, or as a stage without a kernel."""
    threads = ("64, 0, stream>>>(p);", "2048, 0, stream>>>(p);\n  return;")
    drop_stage("mine", changed(drop_stage.kernel, threads))
    assert "2048" in ruling("mine") and "did not look at cudaGetLastError()" in ruling("mine")
    assert "2048" in check_stage("mine", [PROBLEM])[0].message


def test_an_allocation_that_failed_is_named_as_the_cause_of_a_fault(drop_stage) -> None:
    kernel = changed(drop_stage.kernel, *workspace("", "cudaFree(more);"))
    drop_stage(
        "mine",
        changed(
            kernel,
            (
                "*more;\n  cudaMalloc(&more, p.q_len * 4)",
                "*more = nullptr;\n  cudaMalloc(&more, size_t(1) << 45)",
            ),
        ),
    )
    cause = "after cudaMalloc of 35184372088832 bytes returned cudaErrorMemoryAllocation"
    assert cause in ruling("mine")
    assert any(cause in finding.message for finding in check_stage("mine", [PROBLEM]))


def test_an_opcode_that_the_emulator_lacks_is_named(drop_stage) -> None:
    """Also by check, where outputs that were never written would hide it."""
    unknown = (
        "  float m = -INFINITY",
        '  unsigned bytes = 1;\n  asm volatile("vset4.u32.u32.lt %0, %0, %0, %0;" : "+r"(bytes));\n'
        "  float m = -INFINITY",
    )
    drop_stage("mine", changed(drop_stage.kernel, unknown))
    assert "not supported: vset4.u32.u32.lt" in ruling("mine")
    found = check_stage("mine", [PROBLEM])
    assert any("vset4.u32.u32.lt" in finding.message for finding in found)
    assert not any(finding.kind == "unwritten output" for finding in found)
