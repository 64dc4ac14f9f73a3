"""The C++ unit tests of the layers ``ptx`` and ``program``, and short runs of the fuzz targets, on untrusted
bytes and runtime calls. docs/sanitizer.md has long ones.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ladder.compile import emulator_library, toolchain

TESTS = Path(__file__).parent
EMULATOR = TESTS.parents[1] / "emulator"
FUZZ = TESTS / "fuzz"
#: The front of the emulator, without the rest: each of its programs is linked with it.
FRONT = [
    *(source for layer in ("ptx", "program") for source in sorted((EMULATOR / layer).glob("*.cpp"))),
    EMULATOR / "machine" / "gpu.cpp",
    EMULATOR / "runtime" / "work" / "fat_binary.cpp",
    EMULATOR / "runtime" / "observe" / "machine_code.cpp",
]
UNITS = ["test_ptx", "test_program", "test_registers"]
RUNTIME = [*sorted(FUZZ.glob("host_*.cpp")), FUZZ / "fuzz_runtime.cpp"]
FLAGS = ["-std=c++20", "-g1", "-fno-sanitize-recover=all", f"-I{EMULATOR}", f"-I{FUZZ}"]
# The standard library's assertions detect reads past the end of a vector or a string.
CHECKS = ["-fsanitize=address,undefined", "-D_GLIBCXX_ASSERTIONS", "-Wall", "-Wextra", "-Werror"]
INPUTS = 3000


def build(program: Path, sources: list[Path], *options: str) -> Path:
    """Compiles the sources as one text, which takes a third of the time of compiling each."""
    text = program.with_suffix(".cpp")
    text.write_text("".join(f'#include "{source}"\n' for source in sources))
    subprocess.run([toolchain.gxx(), *FLAGS, str(text), *options, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("front") / "front.o", FRONT, "-c", *CHECKS)


@pytest.fixture(scope="module")
def fuzz_front(front: Path) -> Path:
    return build(front.with_name("fuzz"), [FUZZ / "fuzz_front.cpp"], str(front), *CHECKS)


@pytest.fixture(scope="module")
def fuzz_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds with the installed emulator: only its copies, allocations and frees are instrumented."""
    library = emulator_library()
    include = toolchain.pinned_nvcc().include
    return build(
        tmp_path_factory.mktemp("runtime") / "fuzz",
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


@pytest.mark.parametrize("unit", UNITS)
def test_units(unit: str, front: Path) -> None:
    program = build(front.with_name(unit), [TESTS / "cpp" / f"{unit}.cpp"], str(front), *CHECKS)
    result = subprocess.run([str(program), str(TESTS / "data")], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]


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
