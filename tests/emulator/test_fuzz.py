"""Short runs of the fuzz targets, on untrusted bytes and runtime calls. docs/sanitizer.md has long ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ladder.compile import emulator_library, toolchain

TESTS = Path(__file__).parent
EMULATOR = TESTS.parents[1] / "emulator"
FUZZ = TESTS / "fuzz"
FRONT = [
    *(source for layer in ("ptx", "program") for source in sorted((EMULATOR / layer).glob("*.cpp"))),
    EMULATOR / "machine" / "gpu.cpp",
    EMULATOR / "runtime" / "work" / "fat_binary.cpp",
    EMULATOR / "runtime" / "observe" / "machine_code.cpp",
    FUZZ / "fuzz_front.cpp",
]
RUNTIME = [*sorted(FUZZ.glob("host_*.cpp")), FUZZ / "fuzz_runtime.cpp"]
FLAGS = ["-std=c++20", "-g1", "-fno-sanitize-recover=all", f"-I{EMULATOR}", f"-I{FUZZ}"]
INPUTS = 3000


def build(directory: Path, sources: list[Path], *options: str) -> Path:
    text = directory / "all.cpp"  # as one, in a third of the time of compiling each
    text.write_text("".join(f'#include "{source}"\n' for source in sources))
    program = directory / "fuzz"
    subprocess.run([toolchain.gxx(), *FLAGS, str(text), *options, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def fuzz_front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("front"), FRONT, "-fsanitize=address,undefined")


@pytest.fixture(scope="module")
def fuzz_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds with the installed emulator: only its copies, allocations and frees are instrumented."""
    library = emulator_library()
    include = toolchain.pinned_nvcc().include
    return build(
        tmp_path_factory.mktemp("runtime"),
        RUNTIME,
        "-fsanitize=address",
        "-Wno-deprecated-declarations",
        f"-isystem{include}",
        str(library.entry_points),
        str(library.shared),
        f"-Wl,-rpath,{library.directory}",
    )


def run(program: Path, target: str, seed: int, files: list[Path]) -> int:
    """Runs a fuzz target; returns the number of inputs accepted."""
    command = [str(program), target, str(INPUTS), str(seed), *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    inputs, _, accepted, _ = result.stdout.split()
    assert int(inputs) == INPUTS
    return int(accepted)


def test_the_ptx_parser(fuzz_front: Path) -> None:
    accepted = run(fuzz_front, "ptx", 1, sorted((TESTS / "data").glob("*.ptx")))
    assert 0 < accepted < INPUTS  # if all mutations or none failed, they would test little


def test_the_fat_binary_reader(fuzz_front: Path, tmp_path: Path) -> None:
    (tmp_path / "store.cu").write_text("__global__ void store(int *x) { x[threadIdx.x] = 1; }\n")
    binaries = []
    for arch, plain in ((75, True), (80, True), (80, False)):
        output = tmp_path / f"{arch}{plain}.fatbin"
        code = f"-gencode=arch=compute_{arch},code=compute_{arch}"
        compress = ["-Xfatbin", "--compress=false"] if plain else []
        nvcc = str(toolchain.pinned_nvcc().path)
        subprocess.run(
            [nvcc, "-fatbin", code, *compress, str(tmp_path / "store.cu"), "-o", str(output)], check=True
        )
        binaries.append(output)
    assert 0 < run(fuzz_front, "fatbin", 2, binaries) < INPUTS


@pytest.mark.parametrize(("watched", "inputs"), [("device", 1500), ("host", 500)])
def test_calls_of_the_runtime(fuzz_runtime: Path, watched: str, inputs: int) -> None:
    command = [str(fuzz_runtime), watched, str(inputs), "1", str(TESTS / "data" / "runtime.ptx")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    assert result.stdout == f"{inputs} inputs\n"
