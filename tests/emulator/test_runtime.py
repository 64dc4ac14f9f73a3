"""The CUDA runtime, tested with small real programs, built and run like a user's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ladder.compile import EmulatorTarget, build_program, gxx, pinned_nvcc
from ladder.errors import BuildError

PROGRAMS = Path(__file__).parent / "programs"
FAULT_EXIT_CODE = 4


@dataclass
class Result:
    exit_code: int
    stdout: str
    stderr: str
    log: dict

    def kernel(self, part: str) -> dict:
        """The one kernel whose name holds ``part``."""
        (found,) = [kernel for kernel in self.log["kernels"] if part in kernel["kernel"]]
        return found


@pytest.fixture
def run(tmp_path):
    def run(
        name: str,
        *arguments: str,
        arch: str = "sm_80",
        built_for: str = "",
        flags: Sequence[str] = (),
        **environment: str,
    ) -> Result:
        program = build_program([PROGRAMS / f"{name}.cu"], EmulatorTarget(built_for or arch), flags)
        log = tmp_path / "launches.json"
        variables = {**os.environ, "LADDER_ARCH": arch, "LADDER_LAUNCH_LOG": str(log), **environment}
        result = subprocess.run(
            [str(program), *arguments], env=variables, capture_output=True, text=True, timeout=300
        )
        return Result(result.returncode, result.stdout, result.stderr, json.loads(log.read_text()))

    return run


@pytest.mark.parametrize(
    "name",
    [
        "alloca",
        "asynchronous",
        "cooperative",
        "divergence",
        "errors",
        "graphs",
        "histogram",
        "hostile",
        "matmul",
        "memory",
        "occupancy",
        "reduction",
        "shared_limits",
        "spin",
        "streams",
        "symbols",
        "textures",
        "transpose",
    ],
)
def test_program_finds_what_it_expects(run, name):
    result = run(name)
    assert result.exit_code == 0, result.stdout + result.stderr


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize("name", ["occupancy", "shared_limits"])
def test_limits_are_those_of_the_named_gpu(run, name, arch):
    result = run(name, arch=arch, built_for="sm_75")
    assert result.exit_code == 0, result.stdout + result.stderr
    most = {"sm_75": 64, "sm_86": 99, "sm_89": 99, "sm_90": 227}[arch]
    expected = f"{most * 1024}\n" if name == "shared_limits" else f"{arch[3]}.{arch[4]}"
    assert expected in result.stdout


def test_libraries(run):
    result = run("libraries")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.log["uncounted"]["cufftExecZ2Z"] == 19
    for words in (
        "curandCreateGenerator: quasirandom numbers are not emulated",
        "curandGenerateUniform: the output is 160000 bytes that are not all device memory",
        "cufftExecZ2Z: the plan does not exist, or is destroyed",
        "cufftExecR2C: the plan is made for another type of transform",
    ):
        assert words in result.stderr


def test_the_driver(run, tmp_path):
    source, image = tmp_path / "fill.cu", tmp_path / "fill"
    # The host does not ask for the kernel that fill launches.
    source.write_text(
        "__global__ void child(int *x) { *x = 42; }"
        'extern "C" __global__ void fill(int *x) { child<<<1, 1>>>(x); }'
    )
    nvcc = [str(pinned_nvcc().path), "-ccbin", gxx(), "-arch=compute_75", "-rdc=true"]
    nvcc += [str(source), "-o", str(image)]
    for kind in ("-ptx", "-fatbin"):
        subprocess.run([*nvcc, kind, "-Xfatbin", "--compress=false"], check=True)
        result = run("driver", str(image))
        assert result.exit_code == 0, result.stdout + result.stderr
    assert [result.kernel(name)["launches"] for name in ("scale", "fill", "child")] == [2, 1, 1]
    for words in (
        "cuModuleGetFunction: the module has no kernel scales; it has scale",
        "the buffer of arguments is smaller than the kernel's parameters",
        "malformed PTX",
        "the PTX is for sm_90, which sm_80 cannot run",
        "a module of machine code alone cannot be emulated; load PTX",
        "cuModuleLoad: /no/such/file cannot be read",
        "cuGetProcAddress: the emulator has no driver function cuNoSuch",
    ):
        assert words in result.stderr


def test_a_host_that_waits_for_a_kernel_that_nothing_releases(run):
    # One thread: with more, a block may reach the limit while the thread of another gets no processor time.
    result = run("asynchronous", "deadlock", LADDER_WARP_INSTRUCTION_LIMIT=str(1 << 20), LADDER_THREADS="1")
    assert result.exit_code == 0, result.stdout + result.stderr
    for words in (
        "nothing that they wait for has changed for a long time",
        "lanes 0-31 in a loop (asynchronous.cu:9)",
        "another stream",
        "the limit is too low: it is 1048576, and 0 is no limit",
    ):
        assert words in result.stderr
    assert result.log["fault"]["kind"] == "deadlock"


def test_without_a_limit_a_wait_lasts_until_a_thread_of_the_host_ends_it(run):
    result = run("asynchronous", "late", LADDER_WARP_INSTRUCTION_LIMIT="0")
    assert result.exit_code == 0 and result.log["fault"] is None, result.stdout + result.stderr


def test_a_kernel_that_still_waits_at_the_end(run):
    result = run("asynchronous", "unfinished")
    assert result.exit_code == 0 and result.log["fault"] is None
    assert "wait_for(int volatile*, int, int*) had not ended when the program ended" in result.stderr


def test_a_kernel_may_poll_by_its_own_clock_as_often_as_the_limit_allows(run):
    result = run("asynchronous", "sleep")
    assert result.exit_code == 0 and result.stdout == "ended\n", result.stderr
    result = run("asynchronous", "sleep", LADDER_WARP_INSTRUCTION_LIMIT=str(1 << 20))
    assert result.exit_code == 0 and result.stdout == "given up\n", result.stderr
    assert "nothing that they wait for has changed" in result.stderr and "asynchronous.cu:45" in result.stderr


def test_kernels_launch_kernels(run):
    result = run("dynamic_parallelism", flags=["-rdc=true"])
    assert result.exit_code == 0, result.stdout + result.stderr
    launches = {kernel["kernel"].split("(")[0]: 0 for kernel in result.log["kernels"]}
    for kernel in result.log["kernels"]:
        launches[kernel["kernel"].split("(")[0]] += kernel["launches"]
    assert launches["multiply"] == 3 + 96 + 2 and launches["spread"] == 16 and launches["descend"] == 24
    for words in (
        "by a thread of launch_many(Diary*, int, int*) failed with cudaErrorLaunchPendingCountExceeded",
        "failed with cudaErrorLaunchMaxDepthExceeded: kernels launch kernels in more than 24 levels",
        "failed with cudaErrorInvalidConfiguration: a block of 2000 x 1 x 1 threads",
    ):
        assert words in result.stderr


def test_a_fault_of_a_kernel_that_a_kernel_launched(run):
    result = run("dynamic_parallelism", "fault", flags=["-rdc=true"])
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.log["fault"]["kind"] == "out of bounds" and result.log["fault"]["kernel"] == "overrun(int*)"


def test_the_sanitizer_checks_kernels_that_kernels_launched(run):
    result = run("dynamic_parallelism", flags=["-rdc=true"], LADDER_CHECK="1")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.log["findings"] == []


def test_a_stack_has_an_end(run):
    result = run("alloca", "endless")
    assert result.exit_code == 0, result.stdout
    assert "stack overflow: alloca" in result.stderr and "alloca.cu:43" in result.stderr


def test_asynchronous_copies_of_libcudacxx(run):
    result = run("bulk_copy", arch="sm_90")
    assert result.exit_code == 0, result.stdout + result.stderr


def test_128_bit_division(run):
    result = run("int128")
    assert result.exit_code == 0, result.stdout


def test_clusters(run):
    result = run("clusters", arch="sm_90")
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "which is not a multiple of the cluster of 4 x 1 x 1" in result.stderr
    assert "more than 8 need cudaFuncSetAttribute" in result.stderr


def test_clusters_need_sm_90(run):
    result = run("cluster_on_old_gpu", arch="sm_80")
    assert result.exit_code == 0, result.stdout
    assert "clusters need sm_90 or newer, and the virtual GPU is sm_80" in result.stderr


def test_tensor_maps(run):
    """Boxes inside and outside tensors, and every rule of cuTensorMapEncodeTiled by name."""
    result = run("tensor_maps", arch="sm_90")
    assert result.exit_code == 0, result.stdout + result.stderr
    for words in (
        "tensorRank is 0; 1 to 5 are allowed",
        "tensorRank is 6; 1 to 5 are allowed",
        "globalDim[1] is 0",
        "globalDim[0] is 4294967297",
        "globalStrides[0] is 24 bytes; it must be a multiple of 16",
        "it must be less than 2^40",
        "boxDim[1] is 257; 1 to 256 are allowed",
        "boxDim[1] is 0",
        "12 bytes of the innermost dimension; it must be a multiple of 16",
        "elementStrides[1] is 9",
        "more than the swizzle span of 64 bytes",
        "an interleaved tensor has at least 3 dimensions",
        "the global address is not a multiple of 16",
        "tensorMap is not aligned to 64 bytes",
        "the 128 bytes at this address are not a tensor map",
    ):
        assert words in result.stderr


def test_grid_sized_at_run_time(run):
    for count in (1, 255, 256, 257, 4000):
        result = run("vector_add", str(count))
        assert result.exit_code == 0, result.stdout
        kernel = result.kernel("vector_add")
        blocks = -(-count // 256)
        assert kernel["grid"] == [blocks, 1, 1] and kernel["block"] == [256, 1, 1]
        # Two loads and a store of 4 bytes: 8 elements per sector, and cudaMalloc aligns.
        sectors = -(-count // 8)
        assert kernel["totals"]["global_sectors_ld"] == 2 * sectors
        assert kernel["totals"]["global_sectors_st"] == sectors
        assert kernel["totals"]["conflicts"] == 0


def test_transpose_conflicts_are_exact(run):
    result = run("transpose")
    plain, padded = result.kernel("transpose<0>")["totals"], result.kernel("transpose<1>")["totals"]
    blocks, warps_a_tile = 16, 32
    assert plain["shared_load_instructions"] == padded["shared_load_instructions"] == blocks * warps_a_tile
    # A column of a tile without padding is in a single bank.
    assert plain["conflicts_ld"] == blocks * warps_a_tile * 31
    assert plain["wavefronts_ld"] == blocks * warps_a_tile * 32
    assert plain["conflicts_st"] == 0
    assert padded["conflicts"] == 0 and padded["wavefronts_ld"] == blocks * warps_a_tile


def test_counts_belong_to_source_lines(run):
    lines = run("transpose").kernel("transpose<0>")["lines"]
    source = (PROGRAMS / "transpose.cu").read_text().splitlines()
    conflicts = {line["line"]: line["conflicts"] for line in lines if line["conflicts"]}
    ((number, count),) = conflicts.items()
    assert "= tile[threadIdx.x]" in source[number - 1] and count == 16 * 32 * 31


@pytest.mark.parametrize("name", ["reduction", "transpose", "matmul", "divergence"])
def test_counts_do_not_depend_on_the_number_of_threads(run, name):
    logs = [run(name, LADDER_THREADS=threads).log for threads in ("1", "3", "8")]
    assert logs[0]["kernels"] and logs[0] == logs[1] == logs[2]


def test_printf_goes_to_standard_output_in_order(run):
    result = run("printing")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "lane 3 of 32:  3.14 1.000000e+10 text x %",
        "-5000000000 5000000000 ff (nil)",
        "cudaSuccess",
    ]


def test_assert_names_the_condition_and_the_thread(run):
    result = run("printing", "fail")
    assert result.exit_code == 3 and "cudaErrorAssert" in result.stdout
    assert "i < limit" in result.stderr and "lane 20" in result.stderr
    assert result.log["fault"]["kind"] == "assertion"


@pytest.mark.parametrize(
    ("way", "code", "words"),
    [
        (
            "out_of_bounds",
            "cudaErrorIllegalAddress",
            [
                "0 bytes past the end of 'cudaMalloc'",
                "out_of_bounds(int const*, int*), block (0, 0, 0), warp 0, lane 10",
                "faults.cu:6",
                "faults.cu:10",
                "ld.global",
            ],
        ),
        ("shared", "cudaErrorIllegalAddress", ["shared address", "128 bytes of shared memory", "lane 16"]),
        ("constant", "cudaErrorIllegalAddress", ["read-only", "values"]),
        (
            "endless",
            "cudaErrorLaunchTimeout",
            ["endless", "another stream", "LADDER_WARP_INSTRUCTION_LIMIT"],
        ),
        ("null", "cudaErrorIllegalAddress", ["no allocation holds: a null pointer [", "faults.cu:13"]),
        ("null_field", "cudaErrorIllegalAddress", ["a null pointer plus 40 bytes [address 0x28]"]),
        ("host", "cudaErrorIllegalAddress", ["it is host memory, which a GPU cannot access"]),
        ("freed", "cudaErrorIllegalAddress", ["at byte 40 of 'cudaMalloc' [", "which has been freed"]),
        ("far", "cudaErrorIllegalAddress", ["it is far from every allocation"]),
        (
            "deadlock",
            "cudaErrorLaunchTimeout",
            ["warp 0: ", "(faults.cu:28); warps 1-4: lanes 0-31 in a loop (faults.cu:30)"],
        ),
        # The place in the header, and of the lines of this file the innermost one.
        ("in_header", "cudaErrorIllegalAddress", [".hpp:", "faults.cu:40), instruction ld.global.cg"]),
    ],
)
def test_fault_is_reported_once_with_its_place(run, way, code, words):
    result = run("faults", way, LADDER_WARP_INSTRUCTION_LIMIT="1000000")
    assert result.exit_code == FAULT_EXIT_CODE and result.stdout == f"{code}\n"
    (line,) = result.stderr.splitlines()
    for word in words:
        assert word in line
    assert result.log["fault"]["text"] in line


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("LADDER_ARCH", "sm_12", ["'sm_12'", "sm_80"]),
        ("LADDER_THREADS", "two", ["'two', not a number"]),
        ("LADDER_THREADS", "-1", ["'-1', not a number"]),
        ("LADDER_THREADS", "100000", ["100000, more than 1024"]),
        ("LADDER_WARP_INSTRUCTION_LIMIT", "1e9", ["'1e9', not a number"]),
        ("LADDER_WARP_INSTRUCTION_LIMIT", "9" * 30, ["more than 18446744073709551615"]),
        ("LADDER_CHECK", "no", ["'no', not a number"]),
        ("LADDER_CHECK", "2", ["2, more than 1"]),
    ],
)
def test_nonsense_in_the_environment_ends_the_program_at_once(name, text, words):
    program = build_program([PROGRAMS / "vector_add.cu"], EmulatorTarget("sm_80"))
    result = subprocess.run([str(program)], env={**os.environ, name: text}, capture_output=True, text=True)
    assert result.returncode == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    for word in [name, *words]:
        assert word in line


def test_the_sanitizer_is_off_at_0(run):
    assert run("faults", "shared", LADDER_CHECK="0").log["findings"] == []
    assert run("faults", "shared", LADDER_CHECK="1").log["findings"] != []


@pytest.mark.parametrize(("way", "kinds"), [("edge", set()), ("none", {"race between streams"})])
def test_nodes_of_a_graph_are_ordered_by_its_edges_alone(run, way, kinds):
    findings = run("graph_order", way, LADDER_CHECK="1").log["findings"]
    assert {finding["kind"] for finding in findings} == kinds, findings


@pytest.mark.parametrize("name", ["graphs", "textures"])
def test_the_sanitizer_finds_only_the_refused_calls_of(run, name):
    findings = run(name, LADDER_CHECK="1").log["findings"]
    refused = {"fault", "bad copy", "bad free", "use after free", "unchecked error"}
    assert [finding for finding in findings if finding["kind"] not in refused] == []


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("trap", "an access outside a surface of 16 bytes x 2 x 1"),
        ("destroyed", "is not the handle of a texture object that exists"),
        ("geometry", "a 1D access to a 2D image"),
        ("freed", "at byte 0 of 'cudaMallocArray'"),
    ],
)
def test_rejected_accesses_to_images(run, way, words):
    result = run("textures", way)
    assert result.exit_code == 3, result.stdout
    assert words in result.stderr and "textures.cu:" in result.stderr


def test_filtering_gives_the_bits_of_a_gpu(run):
    result = run("filtering")
    assert result.exit_code == 0, result.stdout + result.stderr
    of_a_gpu = (Path(__file__).parent / "data" / "filtering.txt").read_text()
    assert result.stdout.splitlines() == of_a_gpu.splitlines()


def test_ptx_for_a_newer_gpu_is_refused(tmp_path):
    program = build_program([PROGRAMS / "vector_add.cu"], EmulatorTarget("sm_90"))
    result = subprocess.run(
        [str(program)], env={**os.environ, "LADDER_ARCH": "sm_80"}, capture_output=True, text=True
    )
    assert result.returncode == 1 and "cudaErrorNoKernelImageForDevice" in result.stdout
    assert "compute_90" in result.stderr and "sm_80" in result.stderr


@pytest.mark.parametrize(
    "call", ['cudaGraphDebugDotPrint(nullptr, "", 0)', "cudaMallocMipmappedArray(nullptr, nullptr, {}, 1, 0)"]
)
def test_missing_entry_point_fails_the_build(tmp_path, call):
    source = tmp_path / "missing.cu"
    source.write_text(f"#include <cuda_runtime.h>\nint main() {{ return {call}; }}\n")
    with pytest.raises(BuildError, match=call.partition("(")[0]):
        build_program([source], EmulatorTarget("sm_80"))


def test_per_thread_default_streams(tmp_path):
    source = tmp_path / "threads.cu"
    source.write_text((PROGRAMS / "streams.cu").read_text())
    flags = ["--default-stream=per-thread", f"-I{PROGRAMS}"]
    program = build_program([source], EmulatorTarget("sm_80"), flags)
    result = subprocess.run([str(program)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
