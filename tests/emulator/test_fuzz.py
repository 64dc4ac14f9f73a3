"""A short run of the fuzz targets for what reads foreign bytes; docs/sanitizer.md has the long ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ladder import toolchain

TESTS = Path(__file__).parent
EMULATOR = TESTS.parents[1] / "emulator"
SOURCES = [
    *(source for layer in ("ptx", "program") for source in sorted((EMULATOR / layer).glob("*.cpp"))),
    EMULATOR / "machine" / "gpu.cpp",
    EMULATOR / "runtime" / "fat_binary.cpp",
    TESTS / "fuzz" / "fuzz_front.cpp",
]
FLAGS = [
    "-std=c++20",
    "-O1",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    f"-I{EMULATOR}",
]
INPUTS = 3000


@pytest.fixture(scope="module")
def fuzz_front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fuzz")
    text = directory / "all.cpp"  # as one, in a third of the time of compiling each
    text.write_text("".join(f'#include "{source}"\n' for source in SOURCES))
    command = [
        os.environ.get("CXX", "g++"),
        *FLAGS,
        f"-I{TESTS / 'fuzz'}",
        str(text),
        "-o",
        str(directory / "fuzz"),
    ]
    subprocess.run(command, check=True)
    return directory / "fuzz"


def run(program: Path, target: str, seed: int, files: list[Path]) -> int:
    """How many of the inputs were accepted."""
    command = [str(program), target, str(INPUTS), str(seed), *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    inputs, _, accepted, _ = result.stdout.split()
    assert int(inputs) == INPUTS
    return int(accepted)


def test_the_ptx_parser(fuzz_front: Path) -> None:
    accepted = run(fuzz_front, "ptx", 1, sorted((TESTS / "data").glob("*.ptx")))
    assert 0 < accepted < INPUTS  # mutations that all fail, or none, would test little


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
